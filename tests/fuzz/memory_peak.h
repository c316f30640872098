// The most memory that was in use at once. A program that links this has its operator new replaced by one that counts.
#pragma once

#include <cstdint>

namespace tessera::fuzz {

// Starts a measurement; bytes of what operator new gave the process from then on, at their peak.
void reset_memory_peak();
int64_t memory_peak_bytes();

}  // namespace tessera::fuzz
