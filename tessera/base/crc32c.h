// CRC-32C (Castagnoli, as in iSCSI, RFC 3720 B.4), hardware-accelerated where the CPU has the instruction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera {

// The checksum of `bytes` appended to data whose checksum is `previous` (0 for none): crc32c(b, crc32c(a)) ==
// crc32c(a + b).
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous = 0);

}  // namespace tessera
