// How buffers are aligned: values in an arena, scratch memory, what is allocated for tensors.
#pragma once

#include <cstdint>

namespace tessera {

// Bytes; a cache line: what the widest vector loads want.
inline constexpr int64_t kBufferAlignment = 64;

// `bytes` >= 0, rounded up to the alignment.
constexpr int64_t aligned(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

}  // namespace tessera
