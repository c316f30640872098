// The GPUs of NVIDIA as backends. Every build has these functions; in one without CUDA's headers they say so.
#pragma once

#include <string>
#include <vector>

#include "tessera/kernels/backend.h"

namespace tessera::cuda {

// What is known of a device before anything is done on it.
struct CudaDeviceInfo {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  std::string architecture;  // "sm_90"
  int64_t memory_bytes = 0;
  int num_multiprocessors = 0;
};

// Of all devices that the driver shows. Throws IoError, which says why, where there is none: this build has no CUDA, no
// driver is installed, it is too old.
std::vector<CudaDeviceInfo> cuda_devices();

// Device number `index`, opened at the first call and for as long as the process lives: its libraries' kernels, then
// the generated ones. Throws IoError as cuda_devices does, or where there is no such device. Any thread.
const kernels::Backend& cuda_backend(int index);

// Bytes of the memory of an opened device that nobody uses.
int64_t free_bytes(int index);

}  // namespace tessera::cuda
