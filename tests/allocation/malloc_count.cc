// The C library's allocation functions, counted: what libraries allocate behind operator new is seen, too. oneDNN makes
// a table of the arguments at every call of a primitive, whatever its caller does: what a thread allocates there is not
// counted.
#include "tests/allocation/malloc_count.h"

#include <dlfcn.h>
#include <omp.h>

#include <atomic>
#include <cerrno>
#include <cstddef>

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the C library's names.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
}
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

namespace tessera::allocation {
namespace {

std::atomic<int64_t> count{0};
std::atomic<bool> stops{false};

thread_local int calls_of_onednn = 0;
std::atomic<int> calls_under_way{0};

// This thread's own call, or the part that it has, as one of OpenMP's, in another's.
bool is_in_onednn() {
  return calls_of_onednn > 0 || (calls_under_way.load(std::memory_order_relaxed) > 0 && omp_get_thread_num() > 0);
}

void add_one() {
  if (is_in_onednn()) return;
  count.fetch_add(1, std::memory_order_relaxed);
  if (stops.load(std::memory_order_relaxed)) __builtin_trap();
}

}  // namespace

int64_t num_mallocs() { return count.load(std::memory_order_relaxed); }
void stop_at_malloc(bool on) { stops = on; }

}  // namespace tessera::allocation

extern "C" {

// In place of oneDNN's own, with pointers for its handles.
int dnnl_primitive_execute(const void* primitive, void* stream, int num_arguments, const void* arguments) {
  using Execute = int (*)(const void*, void*, int, const void*);
  static const auto execute = reinterpret_cast<Execute>(dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  ++tessera::allocation::calls_of_onednn;
  ++tessera::allocation::calls_under_way;
  const int status = execute(primitive, stream, num_arguments, arguments);
  --tessera::allocation::calls_under_way;
  --tessera::allocation::calls_of_onednn;
  return status;
}

void* malloc(size_t bytes) {
  tessera::allocation::add_one();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  tessera::allocation::add_one();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  tessera::allocation::add_one();
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  tessera::allocation::add_one();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}
