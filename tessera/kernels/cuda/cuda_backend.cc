#include "tessera/kernels/cuda/cuda_backend.h"

#include <map>
#include <memory>
#include <mutex>

#include "tessera/kernels/cuda/compiled_kernel.h"
#include "tessera/kernels/cuda/cuda_kernels.h"
#include "tessera/kernels/cuda/device/cuda_device.h"
#include "tessera/kernels/cuda/device/cuda_settings.h"
#include "tessera/kernels/cuda/libraries/cublaslt.h"
#include "tessera/kernels/cuda/libraries/cudnn.h"
#include "tessera/kernels/cuda/libraries/nccl_communicators.h"

namespace tessera::cuda {
namespace {

struct Opened {
  CudaDevice device;
  NcclCommunicators communicators{device};
  KernelRegistry generated = generated_kernels(device);
  KernelRegistry of_libraries;
  kernels::Backend backend = {.name = device.name(),
                              .registries = {&of_libraries, &generated},
                              .device = &device,
                              .communicators = cuda_settings().uses_nccl ? &communicators : nullptr,
                              .fusions = kFusions,
                              .idle_steps = cuda_settings().idle_steps};

  explicit Opened(int index) : device(index, cuda_settings().kernel_cache) {
    add_library_products(of_libraries, device);
    add_library_convolutions(of_libraries, device, generated);
  }
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

const kernels::Backend& cuda_backend(int index) { return opened(index).backend; }
std::string compiled_kernel(const std::string& text, const std::string& architecture) {
  return KernelCache(cuda_settings().kernel_cache).get(text, architecture);
}
std::shared_future<std::string> compile_beside(const std::string& text, const std::string& architecture) {
  static auto& compilers = *new KernelCompilers(KernelCache(cuda_settings().kernel_cache));
  return compilers.compile(text, architecture);
}
int64_t free_bytes(int index) { return opened(index).device.free_bytes(); }

}  // namespace tessera::cuda
