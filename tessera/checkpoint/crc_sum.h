// CrcSum: the CRC-32C of a content whose bytes come in pieces, in any order and on several ranks. A checksum without
// its initial and final inversion is linear: that of the whole is the sum (exclusive or) of what each piece adds, which
// is the piece's own checksum moved over the bytes that follow it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::checkpoint {

class CrcSum {
 public:
  // `bytes` lie at `offset` of a content of `size_bytes`. Each byte must be added once.
  void add(std::span<const std::byte> bytes, int64_t offset, int64_t size_bytes);
  // What other pieces of the same content add up to.
  void add(const CrcSum& other);

  int64_t num_bytes() const { return num_bytes_; }
  uint32_t sum() const { return sum_; }
  static CrcSum of(int64_t num_bytes, uint32_t sum);
  // The content's CRC-32C, once all its bytes were added.
  uint32_t crc32c() const;

 private:
  int64_t num_bytes_ = 0;
  uint32_t sum_ = 0;
};

}  // namespace tessera::checkpoint
