// operator new that counts, for the test that says how much is allocated. In a file of its own: where it is inlined,
// gcc takes its malloc and free for a mismatch with new and delete.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

std::atomic<int64_t> num_allocations{0};

void* operator new(size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(std::max<size_t>(size, 1))) return memory;
  throw std::bad_alloc();
}
void* operator new(size_t size, std::align_val_t alignment) {
  ++num_allocations;
  const auto unit = static_cast<size_t>(alignment);
  if (void* memory = std::aligned_alloc(unit, (size + unit - 1) / unit * unit)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
