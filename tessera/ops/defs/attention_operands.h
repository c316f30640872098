// What attention and its gradient share: which operands follow the fixed ones. Internal to this folder.
#pragma once

#include <optional>
#include <vector>

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

// Operands behind the first `num_fixed`: a mask, if there is one more than dropout needs, and the step for dropout.
struct AttentionExtras {
  std::optional<size_t> mask;
  std::optional<size_t> step;
};
// Throws InvalidArgument for operands that are too few or too many.
AttentionExtras attention_extras(const Attributes& attributes, size_t num_inputs, size_t num_fixed);

// The cotangents of attention's operands.
std::vector<Value> attention_gradient(const GradientContext& context);

}  // namespace tessera::ops
