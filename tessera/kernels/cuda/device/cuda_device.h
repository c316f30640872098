// CudaDevice: a GPU of NVIDIA, as the engine's Device and as what kernels are compiled for.
#pragma once

#include <cuda.h>

#include <map>
#include <mutex>
#include <string_view>

#include "tessera/kernels/cuda/core/device_info.h"
#include "tessera/kernels/cuda/core/gpu.h"
#include "tessera/kernels/cuda/device/kernel_compilers.h"

namespace tessera::cuda {

// Of all devices that the driver shows; see cuda_backend.h.
std::vector<CudaDeviceInfo> cuda_devices();

class CudaDevice final : public Device, public Gpu {
 public:
  // Device number `index`; its kernels are kept in that directory, as KernelCache does. Throws IoError where it is not
  // there, or CudaDeviceInfo says that it cannot be used, or another process has it for itself.
  CudaDevice(int index, std::string kernel_cache);
  ~CudaDevice() override;

  std::string name() const override;
  const CudaDeviceInfo& info() const { return info_; }
  std::unique_ptr<Memory> reserve(int64_t capacity_bytes) override;
  std::shared_ptr<std::byte> allocate_on_host(int64_t bytes) override;
  std::unique_ptr<Queue> make_queue() override;
  std::unique_ptr<Event> make_event() override;
  std::unique_ptr<Event> make_timed_event() override;
  std::optional<int64_t> free_bytes() const override;

  std::vector<std::shared_ptr<const Function>> compile(const std::string& text,
                                                       std::span<const std::string> names) override;
  void launch(Queue& queue, const Function& function, int64_t blocks, int threads,
              std::span<const void* const> arguments) override;
  int num_multiprocessors() const override { return info_.num_multiprocessors; }

  // Tells it from the devices of all machines: "GPU-" and the number that it was made with.
  std::string unique_name() const;
  // Throws as the function of that name in driver.h does, naming this device.
  void require(CUresult result, std::string_view what) const;
  // Has the calling thread work on this device. try_use() is for destructors: a device that is lost takes nothing back.
  void use() const;
  CUresult try_use() const;

 private:
  int index_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CudaDeviceInfo info_;
  class Module;
  class LoadedFunction;
  KernelCompilers compilers_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Module>> modules_;  // by text
};

}  // namespace tessera::cuda
