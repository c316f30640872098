#include "tessera/base/files/crc32c.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

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

// A checksum is a polynomial over GF(2), its highest power in the lowest bit. The product of two, modulo the
// checksum's polynomial.
constexpr uint32_t multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 1U << 31; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = b >> 1 ^ ((b & 1) != 0 ? 0x82F63B78U : 0U);
  }
  return product;
}

// x to that power.
constexpr uint32_t power_of_x(uint64_t exponent) {
  uint32_t result = 1U << 31;
  uint32_t square = 1U << 30;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) result = multiply(result, square);
    square = multiply(square, square);
  }
  return result;
}

uint32_t portable(const std::byte* data, size_t size, uint32_t crc) {
  for (size_t i = 0; i < size; ++i) crc = kTable[(crc ^ static_cast<uint32_t>(data[i])) & 0xFF] ^ crc >> 8;
  return crc;
}

#if defined(__x86_64__)
// The instruction takes three cycles but starts each cycle: three lanes side by side are three times as fast. The
// lanes' checksums are put together by shifting: what a checksum becomes when a lane's length of zeros follows.
constexpr size_t kLaneBytes = 4096;
constexpr int kNumLanes = 3;

// A linear map of 32 bits, by its columns.
using Matrix = std::array<uint32_t, 32>;

constexpr uint32_t times(const Matrix& matrix, uint32_t vector) {
  uint32_t sum = 0;
  for (size_t bit = 0; bit < 32; ++bit) sum ^= (vector >> bit & 1) != 0 ? matrix[bit] : 0;
  return sum;
}

constexpr Matrix make_lane_shift() {
  Matrix shift{};  // by one byte
  for (size_t bit = 0; bit < 32; ++bit) {
    const uint32_t value = 1U << bit;
    shift[bit] = kTable[value & 0xFF] ^ value >> 8;
  }
  for (size_t bytes = 1; bytes < kLaneBytes; bytes *= 2) {
    Matrix twice{};
    for (size_t bit = 0; bit < 32; ++bit) twice[bit] = times(shift, shift[bit]);
    shift = twice;
  }
  return shift;
}

constexpr std::array<std::array<uint32_t, 256>, 4> make_shift_table() {
  std::array<std::array<uint32_t, 256>, 4> table{};
  const Matrix shift = make_lane_shift();
  for (size_t byte = 0; byte < 4; ++byte) {
    for (uint32_t value = 0; value < 256; ++value) table[byte][value] = times(shift, value << (8 * byte));
  }
  return table;
}
constexpr auto kShiftTable = make_shift_table();

uint64_t shifted_by_lane(uint64_t crc) {
  return kShiftTable[0][crc & 0xFF] ^ kShiftTable[1][crc >> 8 & 0xFF] ^ kShiftTable[2][crc >> 16 & 0xFF] ^
         kShiftTable[3][crc >> 24 & 0xFF];
}

uint64_t word_at(const std::byte* data) {
  uint64_t word = 0;
  std::memcpy(&word, data, sizeof word);
  return word;
}

__attribute__((target("sse4.2"))) uint32_t hardware(const std::byte* data, size_t size, uint32_t crc) {
  uint64_t wide = crc;
  for (; size >= kNumLanes * kLaneBytes; data += kNumLanes * kLaneBytes, size -= kNumLanes * kLaneBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kLaneBytes; i += 8) {
      wide = __builtin_ia32_crc32di(wide, word_at(data + i));
      second = __builtin_ia32_crc32di(second, word_at(data + kLaneBytes + i));
      third = __builtin_ia32_crc32di(third, word_at(data + 2 * kLaneBytes + i));
    }
    wide = shifted_by_lane(shifted_by_lane(wide) ^ second) ^ third;
  }
  for (; size >= 8; data += 8, size -= 8) wide = __builtin_ia32_crc32di(wide, word_at(data));
  return portable(data, size, static_cast<uint32_t>(wide));
}

// Products without carries do several times as much: 64 bytes are replaced by what they add to the 64 bytes that lie
// `distance` further on, until only the last 64 are left (Gopal and others, "Fast CRC computation for generic
// polynomials using PCLMULQDQ instruction", Intel 2009). The factors for the lower and the upper half of 16 bytes:
constexpr std::array<int64_t, 2> fold_factors(uint64_t distance) {
  const uint64_t bits = distance * 8;
  return {static_cast<int64_t>(uint64_t{power_of_x(bits + 32)} << 1),
          static_cast<int64_t>(uint64_t{power_of_x(bits - 32)} << 1)};
}

__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) __m512i folded(__m512i block, __m512i factors, __m512i onto) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(block, factors, 0x00),
                                   _mm512_clmulepi64_epi128(block, factors, 0x11), onto, kXorOfThree);
}

__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) __m512i broadcast(const std::array<int64_t, 2>& factors) {
  return _mm512_set_epi64(factors[1], factors[0], factors[1], factors[0], factors[1], factors[0], factors[1],
                          factors[0]);
}

constexpr size_t kBlockBytes = 64;
constexpr size_t kNumBlocks = 4;  // side by side, so that products do not wait for each other
constexpr size_t kStrideBytes = kNumBlocks * kBlockBytes;

__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) uint32_t wide(const std::byte* data, size_t size, uint32_t crc) {
  if (size < 2 * kStrideBytes) return hardware(data, size, crc);
  constexpr auto kOverStride = fold_factors(kStrideBytes);
  constexpr auto kOverBlock = fold_factors(kBlockBytes);
  const __m512i over_stride = broadcast(kOverStride);
  const __m512i over_block = broadcast(kOverBlock);
  __m512i blocks[kNumBlocks];
  for (size_t i = 0; i < kNumBlocks; ++i) blocks[i] = _mm512_loadu_si512(data + i * kBlockBytes);
  blocks[0] = _mm512_xor_si512(blocks[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  data += kStrideBytes;
  size -= kStrideBytes;
  for (; size >= kStrideBytes; data += kStrideBytes, size -= kStrideBytes) {
    for (size_t i = 0; i < kNumBlocks; ++i) {
      blocks[i] = folded(blocks[i], over_stride, _mm512_loadu_si512(data + i * kBlockBytes));
    }
  }
  for (size_t i = 1; i < kNumBlocks; ++i) blocks[i] = folded(blocks[i - 1], over_block, blocks[i]);
  std::array<std::byte, kBlockBytes> last;
  _mm512_storeu_si512(last.data(), blocks[kNumBlocks - 1]);
  return hardware(data, size, hardware(last.data(), last.size(), 0));
}
#endif

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t previous) {
  const uint32_t start = ~previous;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("sse4.2")) {
    return ~wide(bytes.data(), bytes.size(), start);
  }
  if (__builtin_cpu_supports("sse4.2")) return ~hardware(bytes.data(), bytes.size(), start);
#endif
  return ~portable(bytes.data(), bytes.size(), start);
}

uint32_t crc32c_combine(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return multiply(first, power_of_x(8 * second_bytes)) ^ second;
}

}  // namespace tessera
