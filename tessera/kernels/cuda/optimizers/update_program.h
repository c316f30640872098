// What an optimizer's operator does to one element, as device text.
#pragma once

#include <optional>
#include <string>

#include "tessera/kernels/cuda/elementwise/element_program.h"
#include "tessera/tensor/attributes.h"

namespace tessera::cuda {

// Reads parameter, states, gradient and scalars in that order; its results are the new parameter and states.
// `computed`: f64 for an f64 parameter, else f32. nullopt: no optimizer has that name.
std::optional<ElementProgram> update_program(const std::string& optimizer, const Attributes& attributes,
                                             DType computed);

}  // namespace tessera::cuda
