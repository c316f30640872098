#include "tessera/base/files/stream_copy.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera {

void stream_copy(std::span<const std::byte> from, std::span<std::byte> to) {
  check_equal(from.size(), to.size(), "bytes to copy");
  size_t done = 0;
#if defined(__x86_64__)
  constexpr size_t kLine = 64;
  constexpr size_t kVector = sizeof(__m128i);
  // Up to the first whole line of the destination.
  const auto misaligned = reinterpret_cast<uintptr_t>(to.data()) % kLine;
  done = std::min(misaligned == 0 ? 0 : kLine - misaligned, to.size());
  if (done > 0) std::memcpy(to.data(), from.data(), done);
  for (; to.size() - done >= kLine; done += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from.data() + done);
    auto* target = reinterpret_cast<__m128i*>(to.data() + done);
    __m128i line[kLine / kVector];
    for (size_t i = 0; i < kLine / kVector; ++i) line[i] = _mm_loadu_si128(source + i);
    for (size_t i = 0; i < kLine / kVector; ++i) _mm_stream_si128(target + i, line[i]);
  }
  _mm_sfence();  // before another thread is told
#endif
  if (done < to.size()) std::memcpy(to.data() + done, from.data() + done, to.size() - done);
}

}  // namespace tessera
