#include "tessera/kernels/cuda/libraries/cudnn.h"

#include <array>

#include "tessera/base/error.h"
#include "tessera/kernels/cuda/device/shared_library.h"

namespace tessera::cuda {
namespace {

CudnnLibrary load_cudnn() {
  static const SharedLibrary library({"libcudnn.so.9", "libcudnn.so"});
  if (!library) {
    throw IoError(
        "cuda: cuDNN is not found ({}): install cuDNN 9 for CUDA 13, or name its folder in "
        "TESSERA_CUDA_LIBRARIES",
        library.error());
  }
  CudnnLibrary table;
#define TESSERA_LOAD_CUDNN(member, function) \
  table.member = reinterpret_cast<decltype(table.member)>(library.find(#function));
  TESSERA_CUDNN(TESSERA_LOAD_CUDNN)
#undef TESSERA_LOAD_CUDNN
  return table;
}

}  // namespace

const CudnnLibrary& cudnn() {
  static const CudnnLibrary table = load_cudnn();
  return table;
}

void require_cudnn(cudnnStatus_t status, std::string_view what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  std::array<char, 512> words{};
  cudnn().last_error(words.data(), words.size());
  throw IoError("cudnn: {} failed: {} ({})", what, cudnn().error_text(status), words.data());
}

CudnnHandles::~CudnnHandles() {
  for (const auto& [user, handle] : handles_) cudnn().destroy(handle);
}

cudnnHandle_t CudnnHandles::of(const void* user) {
  cudnnHandle_t& made = handles_[user];
  if (made == nullptr) require_cudnn(cudnn().create(&made), "opening cuDNN");
  return made;
}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  require_cudnn(cudnn().create_descriptor(type, &descriptor_), "making a descriptor");
}
CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnn().destroy_descriptor(descriptor_);
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                                      const void* values) {
  require_cudnn(cudnn().set_attribute(descriptor_, name, type, count, values),
                fmt::format("setting attribute {}", static_cast<int>(name)));
  return *this;
}

void CudnnDescriptor::finalize(std::string_view what) { require_cudnn(cudnn().finalize(descriptor_), what); }
bool CudnnDescriptor::try_finalize() { return cudnn().finalize(descriptor_) == CUDNN_STATUS_SUCCESS; }

}  // namespace tessera::cuda
