// ShardingState: a sharding of the search, 16 bytes that hash and compare fast, and the same unpacked. Axes are those
// that can move, numbered from 0: larger than 1, not partial in the target too.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "tessera/tensor/shape.h"

namespace tessera::mesh {

inline constexpr int kMaxSearchAxes = 16;

// Per axis: unused, partial, or the dim it splits and how deep it stands there, 0 outermost.
struct ShardingState {
  static constexpr uint8_t kUnused = 0;
  static constexpr uint8_t kPartial = 1;
  static constexpr uint8_t kSplit = 0x80;
  std::array<uint8_t, kMaxSearchAxes> places{};

  static uint8_t place(int dim, int depth) { return static_cast<uint8_t>(kSplit | dim << 4 | depth); }
  bool operator==(const ShardingState&) const = default;
  uint64_t hash() const {
    std::array<uint64_t, 2> words{};
    std::memcpy(words.data(), places.data(), sizeof words);
    uint64_t h = words[0] * 0x9E3779B97F4A7C15u ^ (words[1] + 0x7F4A7C15u) * 0xC2B2AE3D27D4EB4Fu;
    h ^= h >> 32;
    return h * 0xD6E8FEB86659FD93u ^ h >> 29;
  }
};

struct UnpackedState {
  std::array<std::array<uint8_t, kMaxSearchAxes>, kMaxNdim> axes{};  // per dim, outer first
  std::array<int, kMaxNdim> num_axes{};
  std::array<int64_t, kMaxNdim> parts{};  // per dim
  uint32_t unused = 0;                    // masks of axes
  uint32_t partial = 0;
};

}  // namespace tessera::mesh
