// NcclCommunicators: connects a GPU with those of other ranks by NCCL.
#pragma once

#include "tessera/kernels/cuda/device/cuda_device.h"
#include "tessera/tensor/device_communicator.h"

namespace tessera::cuda {

class NcclCommunicators final : public DeviceCommunicators {
 public:
  // The device outlives it, and all that join() makes.
  explicit NcclCommunicators(const CudaDevice& device) : device_(device) {}

  std::string name() override;
  std::string place() override { return device_.unique_name(); }
  std::string make_id() override;
  std::unique_ptr<DeviceCommunicator> join(const std::string& id, int rank, int size,
                                           std::function<void()> waiting) override;

 private:
  const CudaDevice& device_;
};

}  // namespace tessera::cuda
