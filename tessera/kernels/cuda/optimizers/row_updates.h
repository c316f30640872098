// update_rows: an optimizer's update of the rows of a parameter that gradients come for.
#pragma once

#include "tessera/kernels/cuda/core/device_program.h"

namespace tessera::cuda {

// nullopt where the optimizer is not known, and for tables or gradients of more rows than an int counts.
std::optional<DeviceProgram> write_update_rows(const KernelRequest& request, const Gpu& gpu);

}  // namespace tessera::cuda
