// Clipping: values, or gradients, kept within bounds: Pascanu, Mikolov and Bengio, "On the difficulty of training
// recurrent neural networks", ICML 2013.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "tessera/ops/registry/op_def.h"

namespace tessera::nn {

// Returns x, at least `least` and at most `most`, of x's type. A bound that is absent does not bind. Throws
// InvalidArgument when both are absent.
ir::Value clip_by_value(ir::Value x, std::optional<double> least, std::optional<double> most);

// x scaled so that its root of the sum of squares over `dims` (empty: all) is at most clip_norm. Floating.
// Throws InvalidArgument unless clip_norm is positive.
ir::Value clip_by_norm(ir::Value x, double clip_norm, const Ints& dims = {});

// All values scaled alike, so that the root of the sum of all their squares is at most clip_norm. Each keeps its dtype;
// the norm is computed in f32 at least. Throws InvalidArgument unless clip_norm is positive and there is a value.
std::vector<ir::Value> clip_by_global_norm(std::span<const ir::Value> values, double clip_norm);

}  // namespace tessera::nn
