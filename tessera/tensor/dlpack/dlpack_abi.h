// The structs of DLPack lie in memory as its specification says (https://dmlc.github.io/dlpack/latest/c_api.html):
// those of versions 0.x, DLManagedTensor, and of 1.x, DLManagedTensorVersioned. Their names and numbers are the
// specification's. Only dlpack.cc and tests include this; whoever has a dlpack.h of its own is in no conflict with it.
#pragma once

#include <cstdint>

namespace tessera::dlpack {

inline constexpr uint32_t kMajorVersion = 1;
inline constexpr uint32_t kMinorVersion = 0;

// What DLDevice::device_type may be, of those that the host reads.
inline constexpr int32_t kCpu = 1;
inline constexpr int32_t kCudaHost = 3;
inline constexpr int32_t kRocmHost = 11;

// What DLDataType::code may be, of those that a DType has.
inline constexpr uint8_t kInt = 0;
inline constexpr uint8_t kUInt = 1;
inline constexpr uint8_t kFloat = 2;
inline constexpr uint8_t kBfloat = 4;
inline constexpr uint8_t kBool = 6;

// DLManagedTensorVersioned::flags.
inline constexpr uint64_t kIsReadOnly = 1;
inline constexpr uint64_t kIsCopied = 2;

struct DLPackVersion {
  uint32_t major = 0;
  uint32_t minor = 0;
};

struct DLDevice {
  int32_t device_type = 0;
  int32_t device_id = 0;
};

struct DLDataType {
  uint8_t code = 0;
  uint8_t bits = 0;
  uint16_t lanes = 0;

  bool operator==(const DLDataType&) const = default;
};

// Dims and strides count elements; no strides: row-major. The first element lies byte_offset behind data.
struct DLTensor {
  void* data = nullptr;
  DLDevice device;
  int32_t ndim = 0;
  DLDataType dtype;
  int64_t* shape = nullptr;
  int64_t* strides = nullptr;
  uint64_t byte_offset = 0;
};

// Who has one calls its deleter once, unless that is null.
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx = nullptr;
  void (*deleter)(DLManagedTensor* self) = nullptr;
};

// In every version the members up to `flags` lie where they do here.
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx = nullptr;
  void (*deleter)(DLManagedTensorVersioned* self) = nullptr;
  uint64_t flags = 0;
  DLTensor dl_tensor;
};

static_assert(sizeof(DLTensor) == 48 && sizeof(DLManagedTensor) == 64 && sizeof(DLManagedTensorVersioned) == 80);

}  // namespace tessera::dlpack
