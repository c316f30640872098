// How long an operator takes on one rank by a machine profile, for searches and simulations alike. Internal to the
// compiler.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/ir/schedule.h"
#include "tessera/tensor/attributes.h"
#include "tessera/tensor/type.h"

namespace tessera::compiler {

// Returns nullopt for any other operator.
std::optional<ConvolutionSize> convolution_size(const std::string& op, const Attributes& attributes,
                                                std::span<const Type> inputs, std::span<const Type> outputs);

// The longer of arithmetic and of reading and writing, and the overhead. Computes in the dtype of the first floating
// operand or result.
double operator_seconds(const std::string& op, const Attributes& attributes, std::span<const Type> inputs,
                        std::span<const Type> outputs, const MachineProfile& profile);

// What a step takes more because its images lie in different orders: convolutions, poolings and batch normalisation
// work on channels-last images, everything else in the order of its result; images that lie otherwise are copied on
// their way in or out, element by element.
double rearranging_seconds(const std::string& op, std::span<const ir::ScheduledValue> inputs,
                           std::span<const ir::ScheduledValue> outputs, const MachineProfile& profile);

// A copy of one value to where its elements lie otherwise.
double copy_seconds(const ir::ScheduledValue& from, const ir::ScheduledValue& to, const MachineProfile& profile);

}  // namespace tessera::compiler
