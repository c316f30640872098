// BoxReader: reads boxes of a global tensor out of the parts that source files hold. It keeps files open and a buffer
// of kPieceBytes. One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/convert/conversion.h"
#include "tessera/checkpoint/read/content_reader.h"

namespace tessera::checkpoint {

// Calls `f` with the consecutive row-major parts of a box that have at most `max_elements` each.
void for_each_piece(const Box& box, int64_t max_elements, FunctionRef<void(const Box&)> f);

// BoxBytes are the elements of a box, dense and row-major.
struct BoxBytes {
  Box box;
  std::span<std::byte> bytes;
};
// Copies what both boxes hold of `common`.
void copy_box(const BoxBytes& from, const BoxBytes& to, const Box& common, int64_t element_bytes);
// The bytes of `box`, which lies within from.box, if they follow each other there; else empty.
std::span<std::byte> dense_part(const BoxBytes& from, const Box& box, int64_t element_bytes);

class BoxReader {
 public:
  // Large enough for full disk speed, small enough to stay in the cache between the read, the checksum and the write.
  static constexpr int64_t kPieceBytes = 512 << 10;

  // Both must outlive the reader.
  BoxReader(FileSystem& files, const SourceFiles& sources);

  // `wanted`, which lies within part.box and within to.box, to its place there. Throws IoError when the file cannot be
  // read.
  void read_box(const SourcePart& part, int64_t element_bytes, const Box& wanted, const BoxBytes& to);
  // A part of tensor.box, from all its sources, to `to`, which has room for exactly that.
  void read_piece(const OutputTensor& tensor, const Box& box, std::span<std::byte> to);

 private:
  const RangeReader& reader_of(int64_t rank);

  FileSystem& files_;
  const SourceFiles& sources_;
  std::unordered_map<int64_t, std::unique_ptr<RangeReader>> readers_;
  std::vector<std::byte> scratch_;
};

}  // namespace tessera::checkpoint
