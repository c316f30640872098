// CrcSum: the CRC-32C of a content whose bytes come in pieces, in any order and on several ranks. What a piece adds to
// the checksum of the whole is its own, moved over the bytes that follow it; all pieces together (exclusive or) make
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/base/files/range_reader.h"

namespace tessera::checkpoint {

// The CRC-32C of bytes of which there may be many, by several threads.
uint32_t crc32c_in_threads(std::span<const std::byte> bytes);

// The CRC-32C of a file of this size that lies on the disk, by several reads at a time. They leave it in the system's
// cache of pages, for who looks at its values next. Throws IoError where it is shorter or cannot be read.
uint32_t crc32c_of_file(const RangeReader& file, int64_t size_bytes);

class CrcSum {
 public:
  CrcSum() = default;
  // What other pieces of the same content add up to.
  CrcSum(int64_t num_bytes, uint32_t crc32c) : num_bytes_(num_bytes), crc32c_(crc32c) {}

  // `bytes` lie at `offset` of a content of `size_bytes`. Each byte must be added once.
  void add(std::span<const std::byte> bytes, int64_t offset, int64_t size_bytes);
  void add(const CrcSum& other);

  int64_t num_bytes() const { return num_bytes_; }
  // The content's, once all its bytes were added.
  uint32_t crc32c() const { return crc32c_; }

 private:
  int64_t num_bytes_ = 0;
  uint32_t crc32c_ = 0;
};

}  // namespace tessera::checkpoint
