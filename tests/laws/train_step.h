// The train step of a built-in network, or of a small GPT, as a graph to compile.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/ir/graph.h"

namespace tessera::laws {

// Forward pass, cross entropy over ten classes, backward pass, momentum: the network's inputs (images of
// 32x32) and label, result loss. "gpt" has two layers of width 16 and sequences of 8 tokens. Throws InvalidArgument for
// an unknown network.
ir::Graph train_step(const std::string& network, int64_t batch);

}  // namespace tessera::laws
