// Two kernels as one: the second reads what the first left in scratch memory.
#pragma once

#include <string>
#include <vector>

#include "tessera/tensor/kernel.h"

namespace tessera {

// `first` reads the node's first inputs and writes one value, which is kept in scratch memory; `second` reads that
// value, then the inputs that are left, and writes the node's results. `second_inputs` are the second's operands as it
// was prepared for them: the value between the two in front.
PreparedKernel chain_kernels(std::string name, PreparedKernel first, PreparedKernel second,
                             std::vector<TensorView> second_inputs);

}  // namespace tessera
