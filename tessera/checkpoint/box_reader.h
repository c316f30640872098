// BoxReader: reads a box of a global tensor out of the parts that source files hold, row-major, in pieces. It keeps two
// buffers of kPieceBytes and reads each byte once, however large the tensor is. One thread uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "tessera/base/file_system.h"
#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/conversion.h"
#include "tessera/checkpoint/range_reader.h"

namespace tessera::checkpoint {

// Calls `f` with the consecutive row-major parts of a box that have at most `max_elements` each.
void for_each_piece(const Box& box, int64_t max_elements, FunctionRef<void(const Box&)> f);

class BoxReader {
 public:
  // Large enough for full disk speed, small enough to stay in the cache between the read, the checksum and the write.
  static constexpr int64_t kPieceBytes = 1 << 20;

  // Both must outlive the reader.
  BoxReader(FileSystem& files, const SourceFiles& sources);

  // Hands the elements of tensor.box to `sink`, in pieces of at most kPieceBytes. Throws IoError when a file cannot be
  // read.
  void read(const OutputTensor& tensor, FunctionRef<void(std::span<const std::byte>)> sink);
  // One piece of it: a part of tensor.box, to `to`, which has room for exactly that.
  void read_piece(const OutputTensor& tensor, const Box& box, std::span<std::byte> to);
  // The whole content of a source tensor, likewise.
  void read_content(int64_t rank, const SourceTensor& tensor, FunctionRef<void(std::span<const std::byte>)> sink);

 private:
  struct Target;
  void fill(const SourcePart& part, const Box& wanted, const Target& target);
  void read_range(const SourcePart& part, int64_t offset, std::span<std::byte> to);
  const RangeReader& reader_of(int64_t rank);

  FileSystem& files_;
  const SourceFiles& sources_;
  std::unordered_map<int64_t, std::unique_ptr<RangeReader>> readers_;
  std::vector<std::byte> piece_;
  std::vector<std::byte> scratch_;
};

}  // namespace tessera::checkpoint
