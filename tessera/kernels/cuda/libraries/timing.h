// Measuring the ways in which a library can compute a request, on memory of its own, when the request is prepared.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "tessera/kernels/cuda/device/cuda_device.h"

namespace tessera::cuda {

// Memory of the device as long as it lives.
class DeviceBuffer {
 public:
  DeviceBuffer(const CudaDevice& device, int64_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  void* data() const { return reinterpret_cast<void*>(address_); }

 private:
  const CudaDevice& device_;
  CUdeviceptr address_ = 0;
};

// Which ways a library may take.
struct LibraryWays {
  bool allows_tf32 = false;  // operands of f32 may be rounded to TF32
  bool measures = true;      // the fastest of several is taken, else the first that is proposed
  auto operator<=>(const LibraryWays&) const = default;
};

// The number of the fastest way of `count`; run(way, queue) does it once, or throws where it cannot. nullopt where none
// can.
std::optional<size_t> fastest(CudaDevice& device, size_t count, const std::function<void(size_t, Queue&)>& run);

}  // namespace tessera::cuda
