// cuDNN: convolutions. The library is opened when it is first asked for; its graphs are made of descriptors.
#pragma once

#include <cudnn.h>

#include <map>
#include <string_view>
#include <vector>

#include "tessera/kernels/cuda/device/cuda_device.h"
#include "tessera/kernels/cuda/libraries/timing.h"
#include "tessera/tensor/kernel.h"

namespace tessera::cuda {

// X(member, function of libcudnn.so.9)
#define TESSERA_CUDNN(X)                               \
  X(create, cudnnCreate)                               \
  X(destroy, cudnnDestroy)                             \
  X(set_stream, cudnnSetStream)                        \
  X(error_text, cudnnGetErrorString)                   \
  X(last_error, cudnnGetLastErrorString)               \
  X(version, cudnnGetVersion)                          \
  X(create_descriptor, cudnnBackendCreateDescriptor)   \
  X(destroy_descriptor, cudnnBackendDestroyDescriptor) \
  X(set_attribute, cudnnBackendSetAttribute)           \
  X(get_attribute, cudnnBackendGetAttribute)           \
  X(finalize, cudnnBackendFinalize)                    \
  X(execute, cudnnBackendExecute)

struct CudnnLibrary {
#define TESSERA_MEMBER(member, function) decltype(&::function) member = nullptr;
  TESSERA_CUDNN(TESSERA_MEMBER)
#undef TESSERA_MEMBER
};

// Throws IoError where libcudnn.so.9 is not found.
const CudnnLibrary& cudnn();
// Throws IoError with the library's words, unless the status is a success.
void require_cudnn(cudnnStatus_t status, std::string_view what);

// Handles of the library, by who uses them; they are given back when this ends.
class CudnnHandles {
 public:
  CudnnHandles() = default;
  ~CudnnHandles();
  CudnnHandles(const CudnnHandles&) = delete;
  CudnnHandles& operator=(const CudnnHandles&) = delete;
  // Made for the thread's present device when it is asked for first.
  cudnnHandle_t of(const void* user);

 private:
  std::map<const void*, cudnnHandle_t> handles_;
};

// CudnnDescriptor owns one of the library's descriptors.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  CudnnDescriptor& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                       const void* values);
  CudnnDescriptor& set_ints(cudnnBackendAttributeName_t name, const std::vector<int64_t>& values) {
    return set(name, CUDNN_TYPE_INT64, static_cast<int64_t>(values.size()), values.data());
  }
  CudnnDescriptor& set_descriptor(cudnnBackendAttributeName_t name, const CudnnDescriptor& value) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }
  // Throws IoError where the library does not take it.
  void finalize(std::string_view what);
  // False where it does not.
  bool try_finalize();
  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

// Registers conv2d and its gradients for what cuDNN takes: f32, bf16 and f16. `generated` has the kernel "copy". Where
// TF32 is allowed, operands of f32 may be rounded to that.
void add_library_convolutions(KernelRegistry& registry, CudaDevice& device, const KernelRegistry& generated,
                              const LibraryWays& ways);

}  // namespace tessera::cuda
