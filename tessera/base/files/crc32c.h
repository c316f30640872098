// CRC-32C (Castagnoli, as in iSCSI, RFC 3720 B.4), hardware-accelerated where the CPU has the instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// The checksum of `bytes` appended to data whose checksum is `previous` (0 for none): crc32c(b, crc32c(a)) ==
// crc32c(a + b).
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous = 0);

// The checksum of two pieces of data, one after the other, by their checksums and the length of the second:
// crc32c_combine(crc32c(a), crc32c(b), size of b) == crc32c(a + b). Costs about a microsecond.
uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace tessera
