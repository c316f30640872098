#include "tessera/kernels/cuda/cuda_backend.h"

#include <map>
#include <memory>
#include <mutex>

#include "tessera/kernels/cuda/compiled_kernel.h"
#include "tessera/kernels/cuda/cuda_kernels.h"
#include "tessera/kernels/cuda/device/cuda_blocks.h"
#include "tessera/kernels/cuda/device/cuda_device.h"
#include "tessera/kernels/cuda/device/cuda_settings.h"
#include "tessera/kernels/cuda/libraries/cublaslt.h"
#include "tessera/kernels/cuda/libraries/cudnn.h"
#include "tessera/kernels/cuda/libraries/nccl_communicators.h"
#include "tessera/kernels/cuda/libraries/timing.h"
#include "tessera/kernels/sharing/shared_device.h"

namespace tessera::cuda {
namespace {

class Opened {
 public:
  explicit Opened(int index) : device_(index, cuda_settings().kernel_cache) {}

  CudaDevice& device() { return device_; }
  // The device whose libraries take these ways, made when it is asked for first. Any thread.
  const kernels::Backend& backend(const LibraryWays& ways) {
    const std::lock_guard lock(mutex_);
    auto& made = made_[ways];
    if (made != nullptr) return made->backend;
    auto making = std::make_unique<Made>();
    add_library_products(making->of_libraries, device_, generated_, ways);
    add_library_convolutions(making->of_libraries, device_, generated_, ways);
    making->backend = {.name = device_.name(),
                       .registries = {&making->of_libraries, &generated_},
                       .device = &device_,
                       .communicators = cuda_settings().uses_nccl ? &communicators_ : nullptr,
                       .within_device = cuda_settings().shares_memory ? &shared_ : nullptr,
                       .fusions = kFusions,
                       .idle_steps = cuda_settings().idle_steps};
    made = std::move(making);
    return made->backend;
  }

 private:
  struct Made {
    KernelRegistry of_libraries;
    kernels::Backend backend;
  };

  CudaDevice device_;
  NcclCommunicators communicators_{device_};
  KernelRegistry generated_ = generated_kernels(device_);
  CudaBlocks blocks_{device_};
  kernels::SharedDevice shared_{blocks_, {.place = device_.unique_name(), .registries = {&generated_}}};
  std::mutex mutex_;
  std::map<LibraryWays, std::unique_ptr<Made>> made_;
};

// Never closed: sessions of other threads may still use a device when the process ends.
Opened& opened(int index) {
  static std::mutex mutex;
  static auto& devices = *new std::map<int, std::unique_ptr<Opened>>();
  const std::lock_guard lock(mutex);
  auto& device = devices[index];
  if (device == nullptr) device = std::make_unique<Opened>(index);
  return *device;
}

}  // namespace

const kernels::Backend& cuda_backend(int index, bool is_deterministic) {
  const CudaSettings& settings = cuda_settings();
  return opened(index).backend(
      {.allows_tf32 = settings.allows_tf32, .measures = settings.measures && !is_deterministic});
}
const kernels::Backend& cuda_tf32_backend(int index) {
  return opened(index).backend({.allows_tf32 = true, .measures = cuda_settings().measures});
}
std::string compiled_kernel(const std::string& text, const std::string& architecture) {
  return KernelCache(cuda_settings().kernel_cache).get(text, architecture);
}
std::shared_future<std::string> compile_beside(const std::string& text, const std::string& architecture) {
  static auto& compilers = *new KernelCompilers(KernelCache(cuda_settings().kernel_cache));
  return compilers.compile(text, architecture);
}
int64_t free_bytes(int index) { return opened(index).device().free_bytes().value_or(0); }

}  // namespace tessera::cuda
