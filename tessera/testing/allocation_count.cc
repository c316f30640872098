#include "tessera/testing/allocation_count.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace tessera {
namespace {

thread_local int64_t thread_count = 0;
std::atomic<int64_t> process_count{0};

void* allocate(size_t bytes, size_t alignment) {
  ++thread_count;
  process_count.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (alignment <= alignof(std::max_align_t)) {
    memory = std::malloc(bytes == 0 ? 1 : bytes);
  } else {
    memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

int64_t num_allocations_of_this_thread() { return thread_count; }
int64_t num_allocations() { return process_count.load(std::memory_order_relaxed); }

}  // namespace tessera

// The array, nothrow and sized forms of the standard library call these.
void* operator new(size_t bytes) { return tessera::allocate(bytes, 0); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return tessera::allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
