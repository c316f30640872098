#include "tessera/checkpoint/format/crc32.h"

#include <array>

namespace tessera::checkpoint {
namespace {

// Table k advances a byte past k further ones, so that eight bytes take eight independent look-ups ("slicing by 8":
// Kounavis and Berry, "A systematic approach to building high performance software-based CRC generators", 2005).
constexpr int kSlices = 8;
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xEDB88320U : 0U);
    tables[0][i] = value;
  }
  for (size_t k = 1; k < kSlices; ++k) {
    for (size_t i = 0; i < 256; ++i) {
      const uint32_t shorter = tables[k - 1][i];
      tables[k][i] = tables[0][shorter & 0xFF] ^ shorter >> 8;
    }
  }
  return tables;
}
constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32(std::span<const std::byte> bytes, uint32_t previous) {
  uint32_t crc = ~previous;
  const auto at = [&](size_t i) { return static_cast<uint32_t>(bytes[i]); };
  while (bytes.size() >= kSlices) {
    crc ^= at(0) | at(1) << 8 | at(2) << 16 | at(3) << 24;
    crc = kTables[7][crc & 0xFF] ^ kTables[6][crc >> 8 & 0xFF] ^ kTables[5][crc >> 16 & 0xFF] ^ kTables[4][crc >> 24] ^
          kTables[3][at(4)] ^ kTables[2][at(5)] ^ kTables[1][at(6)] ^ kTables[0][at(7)];
    bytes = bytes.subspan(kSlices);
  }
  for (const std::byte byte : bytes) crc = kTables[0][(crc ^ static_cast<uint32_t>(byte)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

}  // namespace tessera::checkpoint
