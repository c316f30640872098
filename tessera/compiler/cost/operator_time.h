// How long an operator takes on one rank by a machine profile, for searches and simulations alike. Internal to the
// compiler.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/tensor/attributes.h"
#include "tessera/tensor/type.h"

namespace tessera::compiler {

// The size of a convolution or of one of its gradients, as far as a kernel's speed depends on it.
struct ConvolutionSize {
  int64_t channels = 0;  // the channels of a group: of the images or of the results, whichever are fewer
  int64_t pixels = 0;    // the pixels of the results of all images
};
// Returns nullopt for any other operator.
std::optional<ConvolutionSize> convolution_size(const std::string& op, const Attributes& attributes,
                                                std::span<const Type> inputs, std::span<const Type> outputs);

// The longer of arithmetic and of reading and writing, and the overhead. Computes in the dtype of the first floating
// operand or result.
double operator_seconds(const std::string& op, const Attributes& attributes, std::span<const Type> inputs,
                        std::span<const Type> outputs, const MachineProfile& profile);

}  // namespace tessera::compiler
