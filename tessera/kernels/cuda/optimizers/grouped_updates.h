// update_group: the updates of many small parameters by one launch.
#pragma once

#include "tessera/kernels/cuda/core/device_program.h"

namespace tessera::cuda {

// nullopt where the members' optimizer is not known.
std::optional<PreparedKernel> prepare_update_group(Gpu& gpu, const KernelRequest& request);

}  // namespace tessera::cuda
