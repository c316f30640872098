// Copies between strided views, of any dtype, as bits: runs by memcpy, transposes block by block.
#pragma once

#include "tessera/kernels/cpu/rows/strided.h"

namespace tessera::kernels::cpu {

// The kernel that copies input 0 to output 0, which have one dtype and one shape up to broadcasting of the input;
// nullopt where the output's memory overlaps itself.
std::optional<PreparedKernel> prepare_copy(const TensorView& from, const TensorView& to, const std::string& name);

}  // namespace tessera::kernels::cpu
