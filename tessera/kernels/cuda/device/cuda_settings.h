// CudaSettings: what the environment says of GPUs. docs/environment.md tells what each variable does.
#pragma once

#include <string>
#include <vector>

namespace tessera::cuda {

struct CudaSettings {
  std::vector<std::string> library_folders;  // TESSERA_CUDA_LIBRARIES
  std::string kernel_cache;                  // TESSERA_CUDA_CACHE, or "cuda" in Tessera's cache of this user; or empty
  bool measures = true;                      // TESSERA_CUDA_MEASURE
  bool allows_tf32 = false;                  // TESSERA_CUDA_TF32
  bool uses_nccl = true;                     // TESSERA_CUDA_NCCL
  bool shares_memory = true;                 // TESSERA_CUDA_SHARED_MEMORY
  int branches = 4;                          // TESSERA_CUDA_BRANCHES: 1 to 32
  int idle_steps = 8;                        // TESSERA_CUDA_IDLE_STEPS: 0 to 1000
};

// Read once. Throws InvalidArgument for a number that is none.
const CudaSettings& cuda_settings();

}  // namespace tessera::cuda
