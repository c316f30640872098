// CudaMemory: addresses of a device, of which the first part is memory. Internal to this folder.
#pragma once

#include <cuda.h>

#include <vector>

#include "tessera/kernels/cuda/device/cuda_device.h"

namespace tessera::cuda {

class CudaMemory final : public Memory {
 public:
  CudaMemory(const CudaDevice& device, int index, int64_t capacity_bytes);
  ~CudaMemory() override;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  std::byte* data() const override { return reinterpret_cast<std::byte*>(address_); }
  int64_t capacity_bytes() const override { return capacity_bytes_; }
  void resize(int64_t size_bytes) override;

 private:
  struct Piece {
    int64_t offset;
    int64_t bytes;
    CUmemGenericAllocationHandle handle;
  };
  void release_last();
  [[noreturn]] void throw_no_memory(int64_t size_bytes) const;

  const CudaDevice& device_;
  CUmemAllocationProp kind_{};
  CUdeviceptr address_ = 0;
  int64_t capacity_bytes_;
  int64_t granularity_ = 0;
  int64_t mapped_bytes_ = 0;
  std::vector<Piece> pieces_;
};

}  // namespace tessera::cuda
