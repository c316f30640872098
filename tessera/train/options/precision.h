// What a model's options say about precision.
#pragma once

#include "tessera/compiler/mixed_precision.h"
#include "tessera/train/options/model_options.h"

namespace tessera::train {

// Throws InvalidArgument for an unknown level, a dtype that is not f32, bf16 or f16, and for both a level and a dtype.
compiler::Precision precision_of(const ModelOptions& options);
// The one given, else that which the precision or the level brings along.
std::optional<nn::LossScale> loss_scale_of(const ModelOptions& options);

}  // namespace tessera::train
