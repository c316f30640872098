// Several threads that take items from one list. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/base/function_ref.h"

namespace tessera::checkpoint {

// Calls body(i) once for each i below `count`, in about that order, from up to `num_threads` threads. After an
// exception no further call begins; the first one is rethrown when all threads are done.
void for_each_in_threads(int num_threads, size_t count, FunctionRef<void(size_t)> body);
// The same with body(thread, i), thread being below `num_threads`: for what each thread has of its own.
void for_each_in_threads(int num_threads, size_t count, FunctionRef<void(size_t, size_t)> body);

// How many threads shall read or copy that many bytes: one per core, fewer where there is little to do, and never so
// many that a large machine's memory would be held up by them.
int threads_for(int64_t num_bytes);

}  // namespace tessera::checkpoint
