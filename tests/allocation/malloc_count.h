// A program that links malloc_count.cc has malloc and its relatives replaced by ones that count.
#pragma once

#include <cstdint>

namespace tessera::allocation {

// Calls by all threads since the start, operator new's included, those inside oneDNN left out.
int64_t num_mallocs();
// To find who allocates: the next call ends the program, and a debugger shows where.
void stop_at_malloc(bool on);

}  // namespace tessera::allocation
