// PhasePart: a piece of work that stands beside others in one phase, with blocks of its own, as an operand of a concat
// does. One launch does all of them.
#pragma once

#include <string>
#include <vector>

#include "tessera/kernels/cuda/core/device_program.h"

namespace tessera::cuda {

// A part's text reads two constants of type int: `block`, its own number among the part's blocks, and `num_blocks`.
// Blocks have kPartThreads threads.
struct PhasePart {
  std::string body;
  int64_t blocks = 1;
};
inline constexpr int kPartThreads = 256;

// "for (...) {", a loop that deals the numbers [0, count) to the threads of a part; the body and "}" follow.
std::string deal_text(const std::string& index_type, const std::string& index, int64_t count);

// The phase of all of them; there must be one.
ProgramPhase side_by_side(const std::vector<PhasePart>& parts);

}  // namespace tessera::cuda
