// cuda_backend() makes backends of the GPUs of NVIDIA. Every build has these functions; one without CUDA's headers says
// so.
#pragma once

#include <vector>

#include "tessera/kernels/backend.h"
#include "tessera/kernels/cuda/core/device_info.h"

namespace tessera::cuda {

// Of all devices that the driver shows. Throws IoError, which says why, where there is none: this build has no CUDA, no
// driver is installed, it is too old.
std::vector<CudaDeviceInfo> cuda_devices();

// Device number `index`, opened at the first call and for as long as the process lives: its libraries' kernels, then
// the generated ones. Libraries take the fastest of the ways that they propose, measured once in a process, unless
// TESSERA_CUDA_MEASURE is 0; where it is deterministic, the first, which does not depend on times. Throws IoError as
// cuda_devices does, or where there is no such device. Any thread.
const kernels::Backend& cuda_backend(int index, bool is_deterministic = false);

// The same device, whose products and convolutions of f32 may round operands to TF32, whatever TESSERA_CUDA_TF32 says:
// to measure what that gains.
const kernels::Backend& cuda_tf32_backend(int index);

// Bytes of the memory of an opened device that nobody uses.
int64_t free_bytes(int index);

}  // namespace tessera::cuda
