// Several threads that take items from one list.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tessera/base/function_ref.h"

namespace tessera {

// Calls body(i) once for each i below `count`, in about that order, from up to `num_threads` threads, fewer where the
// system has no room for them. After an exception no further call begins; the first one is rethrown when all threads
// are done.
void for_each_in_threads(int num_threads, size_t count, FunctionRef<void(size_t)> body);
// The same for bodies that know of their thread, below `num_threads`, what each thread has of its own, or that take
// long and leave off when another has failed.
struct ThreadTurn {
  size_t thread;
  size_t i;
  const std::atomic<bool>& failed;  // once the exception to be rethrown is known: a later one is not heard
};
void for_each_in_threads(int num_threads, size_t count, FunctionRef<void(const ThreadTurn&)> body);

// How many threads shall read from a disk, each waiting for one read: so many that the disk has always something to do
// while others use what was read. See docs/performance.md.
constexpr int kReadsInFlight = 8;

// How many threads shall read or copy that many bytes: one per core, fewer where there is little to do, and never so
// many that a large machine's memory would be held up by them.
int threads_for(int64_t num_bytes);

}  // namespace tessera
