#include "tessera/checkpoint/crc_sum.h"

#include <array>

#include "tessera/base/crc32c.h"

namespace tessera::checkpoint {
namespace {

// A linear map of 32 bits, by its columns.
using Matrix = std::array<uint32_t, 32>;

constexpr uint32_t times(const Matrix& matrix, uint32_t vector) {
  uint32_t sum = 0;
  for (size_t bit = 0; bit < 32; ++bit) sum ^= (vector >> bit & 1) != 0 ? matrix[bit] : 0;
  return sum;
}

constexpr Matrix shift_by_one_byte() {
  Matrix shift{};
  for (size_t bit = 0; bit < 32; ++bit) {
    uint32_t value = 1U << bit;
    for (int i = 0; i < 8; ++i) value = value >> 1 ^ ((value & 1) != 0 ? 0x82F63B78U : 0U);
    shift[bit] = value;
  }
  return shift;
}

// What a checksum becomes when 2^k bytes of zeros follow.
constexpr std::array<Matrix, 63> make_shifts() {
  std::array<Matrix, 63> shifts{};
  shifts[0] = shift_by_one_byte();
  for (size_t k = 1; k < shifts.size(); ++k) {
    for (size_t bit = 0; bit < 32; ++bit) shifts[k][bit] = times(shifts[k - 1], shifts[k - 1][bit]);
  }
  return shifts;
}
constexpr auto kShifts = make_shifts();

uint32_t shifted(uint32_t sum, int64_t num_bytes) {
  for (size_t k = 0; num_bytes >> k != 0; ++k) {
    if ((num_bytes >> k & 1) != 0) sum = times(kShifts[k], sum);
  }
  return sum;
}

constexpr uint32_t kInverted = 0xFFFFFFFFU;

}  // namespace

void CrcSum::add(std::span<const std::byte> bytes, int64_t offset, int64_t size_bytes) {
  const auto count = std::ssize(bytes);
  sum_ ^= shifted(~tessera::crc32c(bytes, kInverted), size_bytes - offset - count);
  num_bytes_ += count;
}

void CrcSum::add(const CrcSum& other) {
  sum_ ^= other.sum_;
  num_bytes_ += other.num_bytes_;
}

CrcSum CrcSum::of(int64_t num_bytes, uint32_t sum) {
  CrcSum result;
  result.num_bytes_ = num_bytes;
  result.sum_ = sum;
  return result;
}

uint32_t CrcSum::crc32c() const { return ~(sum_ ^ shifted(kInverted, num_bytes_)); }

}  // namespace tessera::checkpoint
