// RegionReader: reads regions of a global tensor out of the parts that source files hold. It keeps files open and a
// buffer of kPieceBytes. One thread uses it.
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

// Calls `f` with the consecutive row-major parts of a region that have at most `max_elements` each.
void for_each_piece(const Region& region, int64_t max_elements, FunctionRef<void(const Region&)> f);

// RegionBytes are the elements of a region, dense and row-major.
struct RegionBytes {
  Region region;
  std::span<std::byte> bytes;
};
// Copies what both regions hold of `common`.
void copy_region(const RegionBytes& from, const RegionBytes& to, const Region& common, int64_t element_bytes);
// The bytes of `region`, which lies within from.region, if they follow each other there; else empty.
std::span<std::byte> dense_part(const RegionBytes& from, const Region& region, int64_t element_bytes);

class RegionReader {
 public:
  // Large enough for full disk speed, small enough to stay in the cache between the read, the checksum and the write.
  static constexpr int64_t kPieceBytes = 512 << 10;

  // Both must outlive the reader.
  RegionReader(FileSystem& files, const SourceFiles& sources);

  // `wanted`, which lies within part.region and within to.region, to its place there. Throws IoError when the file
  // cannot be read.
  void read_region(const SourcePart& part, int64_t element_bytes, const Region& wanted, const RegionBytes& to);
  // A part of tensor.region, from all its sources, to `to`, which has room for exactly that.
  void read_piece(const OutputTensor& tensor, const Region& region, std::span<std::byte> to);

 private:
  const RangeReader& reader_of(int64_t rank);

  FileSystem& files_;
  const SourceFiles& sources_;
  std::unordered_map<int64_t, std::unique_ptr<RangeReader>> readers_;
  std::vector<std::byte> scratch_;
};

}  // namespace tessera::checkpoint
