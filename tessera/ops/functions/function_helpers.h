// What the functions of functions.h share. Internal to this folder.
#pragma once

#include <string>
#include <vector>

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

// Axes in [0, ndim), sorted. Throws InvalidArgument naming `who` for one outside [-ndim, ndim) or named twice.
Ints sorted_axes(const Ints& axes, int ndim, const std::string& who);
// The values cast to the dtype that all of them promote to. Throws InvalidArgument naming `who` when there are none.
std::vector<Value> promoted(std::vector<Value> values, const std::string& who);

}  // namespace tessera::ops
