// Shares: pieces of work that stand side by side in one phase, each with blocks of its own, as the operands of a concat
// do. One launch does all of them.
#pragma once

#include <string>
#include <vector>

#include "tessera/kernels/cuda/core/program.h"

namespace tessera::cuda {

// A share's text reads two constants of type int: `block`, its own number among the share's blocks, and `num_blocks`.
// Blocks have kShareThreads threads.
struct Share {
  std::string body;
  int64_t blocks = 1;
};
inline constexpr int kShareThreads = 256;

// "for (...) {", a loop that deals the numbers [0, count) to the threads of a share; the body and "}" follow.
std::string deal_text(const std::string& index_type, const std::string& index, int64_t count);

// The phase of all of them; there must be one.
Phase side_by_side(const std::vector<Share>& shares);

}  // namespace tessera::cuda
