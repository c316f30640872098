#include "tessera/checkpoint/crc_sum.h"

#include "tessera/base/crc32c.h"

namespace tessera::checkpoint {

void CrcSum::add(std::span<const std::byte> bytes, int64_t offset, int64_t size_bytes) {
  const int64_t num_after = size_bytes - offset - std::ssize(bytes);
  add({std::ssize(bytes), crc32c_combine(tessera::crc32c(bytes), 0, static_cast<uint64_t>(num_after))});
}

void CrcSum::add(const CrcSum& other) {
  crc32c_ ^= other.crc32c_;
  num_bytes_ += other.num_bytes_;
}

}  // namespace tessera::checkpoint
