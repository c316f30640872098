// scatter_add: rows of a table are given the rows that indices send to them, in the order of the indices: no addition
// depends on which block was first.
#pragma once

#include "tessera/kernels/cuda/core/device_program.h"

namespace tessera::cuda {

std::optional<DeviceProgram> write_scatter_add(const KernelRequest& request, const Gpu& gpu);

}  // namespace tessera::cuda
