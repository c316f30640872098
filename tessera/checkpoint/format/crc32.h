// CRC-32 as zlib computes it (IEEE 802.3, reflected polynomial 0xEDB88320): the checksum of the optional trailer of a
// .ckpt file. Everything else uses base/files/crc32c.h, which the CPU computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tessera::checkpoint {

// The checksum of `bytes` appended to data whose checksum is `previous` (0 for none).
uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous = 0);

}  // namespace tessera::checkpoint
