// What the layers of this folder share. Internal to it.
#pragma once

#include <string>

#include "tessera/ir/graph.h"

namespace tessera::nn {

// Throws InvalidArgument naming the operator, the cell being traced and the type, unless x is [n,c,h,w].
void check_images(const std::string& op, ir::Value x);
// Statistics and losses are kept in f32 where the data is of a half type.
DType at_least_f32(DType dtype);
// Throws InvalidArgument where initial values are given for a bias that there is not.
void check_bias_init(const std::string& who, bool has_bias, bool has_init);
// The mean or sum of all elements, or x itself for "none".
ir::Value reduce_loss(ir::Value x, const std::string& reduction);

}  // namespace tessera::nn
