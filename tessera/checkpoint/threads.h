// Several threads that take items from one list. Internal to this folder.
#pragma once

#include <cstddef>

#include "tessera/base/function_ref.h"

namespace tessera::checkpoint {

// Calls body(i) once for each i below `count`, in about that order, from up to `num_threads` threads. After an
// exception no further call begins; the first one is rethrown when all threads are done.
void for_each_in_threads(int num_threads, size_t count, FunctionRef<void(size_t)> body);

}  // namespace tessera::checkpoint
