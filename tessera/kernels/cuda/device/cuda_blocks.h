// CudaBlocks: memory of a GPU that ranks share, threads of this process by its address, other processes of this host by
// the driver's handles for that.
#pragma once

#include "tessera/kernels/cuda/device/cuda_device.h"
#include "tessera/kernels/sharing/device_blocks.h"

namespace tessera::cuda {

class CudaBlocks final : public kernels::DeviceBlocks {
 public:
  // The device outlives the blocks.
  explicit CudaBlocks(const CudaDevice& device) : device_(device) {}
  std::shared_ptr<std::byte> take(int64_t bytes) override;
  std::string handle_of(const std::byte* block) override;
  std::shared_ptr<std::byte> open(const std::string& handle) override;

 private:
  const CudaDevice& device_;
};

}  // namespace tessera::cuda
