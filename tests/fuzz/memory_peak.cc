#include "tests/fuzz/memory_peak.h"

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace tessera::fuzz {
namespace {

// One thread only: what is measured uses no others.
int64_t in_use = 0;
int64_t peak = 0;
int64_t at_reset = 0;

// No parser needs as much for the small files that it is given; refusing more keeps the machine alive.
constexpr size_t kLargest = size_t{1} << 30;

void* allocate(size_t bytes, size_t alignment) {
  if (bytes > kLargest) throw std::bad_alloc();
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(std::max<size_t>(bytes, 1))
                     : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  in_use += static_cast<int64_t>(malloc_usable_size(memory));
  peak = std::max(peak, in_use);
  return memory;
}

void release(void* memory) noexcept {
  if (memory != nullptr) in_use -= static_cast<int64_t>(malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

void reset_memory_peak() { peak = at_reset = in_use; }
int64_t memory_peak_bytes() { return peak - at_reset; }

}  // namespace tessera::fuzz

// The array, nothrow and sized forms of the standard library call these.
void* operator new(size_t bytes) { return tessera::fuzz::allocate(bytes, 0); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return tessera::fuzz::allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { tessera::fuzz::release(memory); }
void operator delete(void* memory, size_t) noexcept { tessera::fuzz::release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { tessera::fuzz::release(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { tessera::fuzz::release(memory); }
