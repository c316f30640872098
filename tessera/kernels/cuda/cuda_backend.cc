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

  // The same with TF32, once it is asked for.
  std::once_flag asked_for_tf32;
  KernelRegistry tf32_of_libraries;
  kernels::Backend tf32_backend = backend;

  explicit Opened(int index) : device(index, cuda_settings().kernel_cache) {
    add_library_products(of_libraries, device, generated, cuda_settings().allows_tf32);
    add_library_convolutions(of_libraries, device, generated, cuda_settings().allows_tf32);
    tf32_backend.registries = {&tf32_of_libraries, &generated};
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
const kernels::Backend& cuda_tf32_backend(int index) {
  Opened& device = opened(index);
  std::call_once(device.asked_for_tf32, [&] {
    add_library_products(device.tf32_of_libraries, device.device, device.generated, /*allows_tf32=*/true);
    add_library_convolutions(device.tf32_of_libraries, device.device, device.generated, /*allows_tf32=*/true);
  });
  return device.tf32_backend;
}
std::string compiled_kernel(const std::string& text, const std::string& architecture) {
  return KernelCache(cuda_settings().kernel_cache).get(text, architecture);
}
std::shared_future<std::string> compile_beside(const std::string& text, const std::string& architecture) {
  static auto& compilers = *new KernelCompilers(KernelCache(cuda_settings().kernel_cache));
  return compilers.compile(text, architecture);
}
int64_t free_bytes(int index) { return opened(index).device.free_bytes().value_or(0); }

}  // namespace tessera::cuda
