#include "tessera/base/crc32c.h"

#include <array>
#include <cstring>

namespace tessera {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0x82F63B78U : 0U);
    table[i] = value;
  }
  return table;
}
constexpr auto kTable = make_table();

uint32_t portable(const std::byte* data, size_t size, uint32_t crc) {
  for (size_t i = 0; i < size; ++i) crc = kTable[(crc ^ static_cast<uint32_t>(data[i])) & 0xFF] ^ crc >> 8;
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t hardware(const std::byte* data, size_t size, uint32_t crc) {
  uint64_t wide = crc;
  for (; size >= 8; data += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, data, 8);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  return portable(data, size, static_cast<uint32_t>(wide));
}
#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous) {
  const uint32_t start = ~previous;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~hardware(bytes.data(), bytes.size(), start);
#endif
  return ~portable(bytes.data(), bytes.size(), start);
}

}  // namespace tessera
