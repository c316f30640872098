// Counts allocations. A test program that links this has its operator new replaced by one that counts.
#pragma once

#include <cstdint>

namespace tessera {

// Calls of operator new since the start: by the calling thread, and by all threads of the process.
int64_t num_allocations_of_this_thread();
int64_t num_allocations();

}  // namespace tessera
