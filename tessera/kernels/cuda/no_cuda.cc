// The backend of a build without CUDA's headers.
#include "tessera/base/error.h"
#include "tessera/kernels/cuda/compiled_kernel.h"
#include "tessera/kernels/cuda/cuda_backend.h"

namespace tessera::cuda {
namespace {

[[noreturn]] void refuse() {
  throw IoError(
      "cuda: this build of Tessera has no support for GPUs: install the headers of CUDA 13 and configure with "
      "-DTESSERA_CUDA=ON");
}

}  // namespace

std::vector<CudaDeviceInfo> cuda_devices() { refuse(); }
const kernels::Backend& cuda_backend(int, bool) { refuse(); }
const kernels::Backend& cuda_tf32_backend(int) { refuse(); }
int64_t free_bytes(int) { refuse(); }
std::shared_future<std::string> compile_beside(const std::string&, const std::string&) { refuse(); }
std::string compiled_kernel(const std::string&, const std::string&) { refuse(); }

}  // namespace tessera::cuda
