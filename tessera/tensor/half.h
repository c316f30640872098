// The two 16-bit floating types as storage: they convert to and from float, rounding to nearest even, and are computed
// with in float.
#pragma once

#include <bit>
#include <cstdint>

namespace tessera {

// bfloat16: the upper half of a float.
struct BFloat16 {
  uint16_t bits = 0;

  BFloat16() = default;
  BFloat16(float value) {  // NOLINT: implicit like any arithmetic conversion
    const auto wide = std::bit_cast<uint32_t>(value);
    if ((wide & 0x7FFFFFFFU) > 0x7F800000U) {
      bits = static_cast<uint16_t>(wide >> 16 | 0x40U);  // quiet NaN; rounding could turn it into infinity
    } else {
      bits = static_cast<uint16_t>((wide + 0x7FFFU + (wide >> 16 & 1U)) >> 16);
    }
  }
  operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }  // NOLINT
};

// A Float16 is a binary16 of IEEE 754.
struct Float16 {
  uint16_t bits = 0;

  Float16() = default;
  Float16(float value) {  // NOLINT
    const auto wide = std::bit_cast<uint32_t>(value);
    const uint32_t sign = wide >> 16 & 0x8000U;
    const uint32_t magnitude = wide & 0x7FFFFFFFU;
    uint32_t half;
    if (magnitude > 0x7F800000U) {
      half = 0x7E00U;
    } else if (magnitude >= 0x477FF000U) {  // rounds to 65536 or above
      half = 0x7C00U;
    } else if (magnitude < 0x38800000U) {  // subnormal: let float addition do the rounding
      half = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
    } else {
      half = (magnitude + 0xC8000FFFU + (magnitude >> 13 & 1U)) >> 13;
    }
    bits = static_cast<uint16_t>(sign | half);
  }
  operator float() const {  // NOLINT
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
    const uint32_t rest = bits & 0x7FFFU;
    uint32_t wide;
    if (rest >= 0x7C00U) {
      wide = rest << 13 | 0x7F800000U;
    } else if (rest >= 0x0400U) {
      wide = (rest << 13) + 0x38000000U;
    } else {
      wide = std::bit_cast<uint32_t>(static_cast<float>(rest) * 0x1p-24F);
    }
    return std::bit_cast<float>(sign | wide);
  }
};

}  // namespace tessera
