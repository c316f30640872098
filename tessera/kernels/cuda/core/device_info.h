// CudaDeviceInfo tells what is known of a GPU before anything is done on it.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::cuda {

struct CudaDeviceInfo {
  std::string name;          // "NVIDIA H100 80GB HBM3"
  std::string architecture;  // "sm_90"
  int64_t memory_bytes = 0;
  int num_multiprocessors = 0;
  bool is_exclusive = false;  // one process at a time has it
  std::string unusable = {};  // why no process can compute on it with Tessera; empty: one can
};

}  // namespace tessera::cuda
