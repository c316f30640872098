// What an executor measured, as a text for people.
#pragma once

#include <string>

#include "tessera/executor/executor.h"

namespace tessera::executor {

enum class ProfileRows {
  kKernels,  // a line per kernel
  kNodes     // a line per kernel and place in the network
};

// The times of `executor`'s profile divided by `num_steps`, longest first, a line each:
//     "   467.1 ms/step  52.6 %  onednn.conv2d"
// On a device a last line says whose clock has told them.
std::string profile_table(const Executor& executor, int64_t num_steps, ProfileRows rows = ProfileRows::kKernels);

}  // namespace tessera::executor
