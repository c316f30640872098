// Pieces of tensors and their reduction, as the lockstep and its checks compute them. Internal to testing.
#pragma once

#include <span>

#include "tessera/mesh/mesh.h"
#include "tessera/ops/rules/exchange.h"
#include "tessera/tensor/tensor.h"

namespace tessera::testing_support {

// Returns a tensor with NaN, -1 or true in every element.
Tensor unwritten(const Type& type);
// Throws InternalError when the shapes differ.
void copy_box(const TensorView& from, const TensorView& to);
// The elementwise reduction of tensors of one type, in their order; half types in f32.
Tensor reduce(std::span<const Tensor* const> tensors, mesh::Reduction reduction);

}  // namespace tessera::testing_support
