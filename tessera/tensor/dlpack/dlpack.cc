#include "tessera/tensor/dlpack/dlpack.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/tensor/dlpack/dlpack_abi.h"
#include "tessera/tensor/dlpack/truths.h"

namespace tessera {
namespace {

using dlpack::DLDataType;
using dlpack::DLDevice;
using dlpack::DLManagedTensor;
using dlpack::DLManagedTensorVersioned;
using dlpack::DLTensor;

constexpr DType kLastDType = DType::kU64;

// No process has more bytes of addresses; below it no product of a stride and a size overflows.
constexpr int64_t kMaxReach = int64_t{1} << 56;

DLDataType dlpack_dtype(DType dtype) {
  const auto code = [&] {
    switch (dtype) {
      case DType::kF32:
      case DType::kF64:
      case DType::kF16: return dlpack::kFloat;
      case DType::kBF16: return dlpack::kBfloat;
      case DType::kI8:
      case DType::kI16:
      case DType::kI32:
      case DType::kI64: return dlpack::kInt;
      case DType::kBool: return dlpack::kBool;
      default: return dlpack::kUInt;
    }
  };
  return {.code = code(), .bits = static_cast<uint8_t>(8 * size_bytes(dtype)), .lanes = 1};
}

std::string code_text(uint8_t code) {
  constexpr std::array<std::string_view, 7> kCodes = {"int",    "uint",    "float", "opaque handle",
                                                      "bfloat", "complex", "bool"};
  return code < kCodes.size() ? std::string(kCodes[code]) : fmt::format("type code {}", code);
}

std::string device_text(const DLDevice& device) {
  constexpr std::array<std::string_view, 19> kDevices = {
      "",     "CPU",      "CUDA", "CUDAHost",    "OpenCL", "",       "",        "Vulkan", "Metal", "VPI",
      "ROCm", "ROCmHost", "Ext",  "CUDAManaged", "oneAPI", "WebGPU", "Hexagon", "MAIA",   "Trn"};
  const auto type = static_cast<size_t>(device.device_type);
  const bool is_known = device.device_type >= 0 && type < kDevices.size() && !kDevices[type].empty();
  return fmt::format("{}:{}",
                     is_known ? std::string(kDevices[type]) : fmt::format("device type {}", device.device_type),
                     device.device_id);
}

DType dtype_of_dlpack(const DLDataType& given) {
  for (int i = 0; i <= static_cast<int>(kLastDType); ++i) {
    const auto dtype = static_cast<DType>(i);
    if (dlpack_dtype(dtype) == given) return dtype;
  }
  throw InvalidArgument(
      "dlpack: a tensor has elements of one lane that are bool, bfloat16, float of 16, 32 or 64 bits, int or uint of 8 "
      "to 64 bits, got {} of {} bits and {} lanes: convert it before it is handed over",
      code_text(given.code), given.bits, given.lanes);
}

bool is_of_host(const DLDevice& device) {
  return device.device_type == dlpack::kCpu || device.device_type == dlpack::kCudaHost ||
         device.device_type == dlpack::kRocmHost;
}

Shape shape_of_dlpack(const DLTensor& given) {
  if (given.ndim < 0 || given.ndim > kMaxNdim) {
    throw InvalidArgument("dlpack: a tensor has 0 to {} dims, got {}", kMaxNdim, given.ndim);
  }
  if (given.ndim > 0 && given.shape == nullptr) {
    throw InvalidArgument("dlpack: a tensor of {} dims must have a shape, got a null pointer", given.ndim);
  }
  Shape shape;
  for (int dim = 0; dim < given.ndim; ++dim) {
    if (given.shape[dim] < 0) {
      throw InvalidArgument("dlpack: sizes are at least 0, got {} in dim {}", given.shape[dim], dim);
    }
    shape.push_back(given.shape[dim]);
  }
  shape.num_elements();  // refuses products that do not fit
  return shape;
}

// Those of dims of size 1, which say nothing, are 0. The tensor has elements.
Strides strides_of_dlpack(const DLTensor& given, const Shape& shape) {
  if (given.strides == nullptr) return dense_strides(shape);
  Strides strides = shape;
  for (int dim = 0; dim < shape.ndim(); ++dim) strides[dim] = shape[dim] == 1 ? 0 : given.strides[dim];
  return strides;
}

// Whether all elements lie where addresses of objects are, in the lower half of what a pointer can hold. The tensor has
// elements.
bool is_within_addresses(const DLTensor& given, const Shape& shape, const Strides& strides, int64_t element_bytes) {
  int64_t before = 0;
  int64_t behind = element_bytes;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(strides[dim], shape[dim] - 1, &reach)) return false;
    if (__builtin_mul_overflow(reach, element_bytes, &reach)) return false;
    if (reach > kMaxReach || reach < -kMaxReach) return false;
    (reach < 0 ? before : behind) += reach;
  }
  uintptr_t first = 0;
  uintptr_t end = 0;
  return !__builtin_add_overflow(reinterpret_cast<uintptr_t>(given.data), given.byte_offset, &first) &&
         first >= static_cast<uintptr_t>(-before) &&
         !__builtin_add_overflow(first, static_cast<uintptr_t>(behind), &end) && end <= PTRDIFF_MAX;
}

// Where the struct says that elements lie, after all that it says was looked at.
TensorView view_of_dlpack(const DLTensor& given) {
  if (!is_of_host(given.device)) {
    throw InvalidArgument(
        "dlpack: a tensor lies in the host's memory, got one in that of {}: have it copied to the host before it is "
        "handed over, in Python by from_dlpack(x, device=\"cpu\")",
        device_text(given.device));
  }
  const Type type{dtype_of_dlpack(given.dtype), shape_of_dlpack(given)};
  if (type.shape.num_elements() == 0) return {nullptr, type};
  if (given.data == nullptr) throw InvalidArgument("dlpack: a tensor of {} must have memory, got a null pointer", type);
  const Strides strides = strides_of_dlpack(given, type.shape);
  if (!is_within_addresses(given, type.shape, strides, static_cast<int64_t>(size_bytes(type.dtype)))) {
    throw InvalidArgument("dlpack: a tensor of {} with strides {} and byte_offset {} lies outside of all addresses",
                          type, strides, given.byte_offset);
  }
  return {static_cast<std::byte*>(given.data) + given.byte_offset, type.dtype, type.shape, strides};
}

bool is_aligned(const TensorView& view) { return reinterpret_cast<uintptr_t>(view.data) % size_bytes(view.dtype) == 0; }

// Why the memory cannot be a tensor's; "" where it can.
std::string_view reason_to_copy(const TensorView& view, bool is_read_only) {
  if (view.num_elements() == 0) return "";
  if (is_read_only) return "its memory is read-only, and that of a tensor may be written";
  if (!view.is_dense()) return "its elements do not lie dense and row-major";
  if (!is_aligned(view)) return "its address is no multiple of an element's size";
  const std::span bytes(static_cast<const std::byte*>(view.data), static_cast<size_t>(view.type().size_bytes()));
  if (view.dtype == DType::kBool && !are_truths(bytes)) return "a bool of it is a byte that is neither 0 nor 1";
  return "";
}

// Element by element, as bytes: no address need be a multiple of an element's size.
Tensor copy_of_unaligned(const TensorView& view) {
  Tensor made(view.type());
  const auto bytes = static_cast<int64_t>(size_bytes(view.dtype));
  const auto* from = static_cast<const std::byte*>(view.data);
  auto* to = made.bytes().data();
  Shape index = view.shape;
  std::fill_n(&index[0], index.ndim(), 0);
  for (int64_t i = 0; i < view.num_elements(); ++i) {
    int64_t offset = 0;
    for (int dim = 0; dim < view.shape.ndim(); ++dim) offset += index[dim] * view.strides[dim];
    std::memcpy(to + i * bytes, from + offset * bytes, static_cast<size_t>(bytes));
    for (int dim = view.shape.ndim() - 1; dim >= 0 && ++index[dim] == view.shape[dim]; --dim) index[dim] = 0;
  }
  return made;
}

template <typename Managed>
void release_managed(Managed* managed) {
  if (managed->deleter != nullptr) managed->deleter(managed);
}

// What shares a struct's memory; the last one calls the deleter.
template <typename Managed>
struct DlpackOwner {
  Managed* managed = nullptr;

  DlpackOwner() = default;
  DlpackOwner(const DlpackOwner&) = delete;
  DlpackOwner& operator=(const DlpackOwner&) = delete;
  ~DlpackOwner() {
    if (managed != nullptr) release_managed(managed);
  }
};

template <typename Managed>
Tensor take_managed(Managed* managed, const DlpackFlags& flags, DlpackCopy copy) {
  const TensorView view = view_of_dlpack(managed->dl_tensor);
  const std::string_view reason = reason_to_copy(view, flags.is_read_only);
  if (copy == DlpackCopy::kNever && !reason.empty()) {
    throw InvalidArgument("dlpack: a tensor of {} cannot be shared: {}; allow that it is copied", view.type(), reason);
  }
  if (!reason.empty() || (copy == DlpackCopy::kAlways && !flags.is_copied)) {
    Tensor made = is_aligned(view) || view.is_dense() ? Tensor::copy_of(view) : copy_of_unaligned(view);
    if (made.dtype() == DType::kBool) make_truths(made.bytes());
    release_managed(managed);
    return made;
  }
  auto owner = std::make_shared<DlpackOwner<Managed>>();
  owner->managed = managed;  // nothing throws from here on
  return Tensor::wrap(view.type(), std::shared_ptr<void>(std::move(owner), view.data));
}

// A struct with what it leads to.
template <typename Managed>
struct DlpackExport {
  Tensor tensor;
  Shape shape;
  Strides strides;
  Managed managed;
};

template <typename Managed>
std::unique_ptr<DlpackExport<Managed>> make_export(const Tensor& tensor) {
  auto made = std::make_unique<DlpackExport<Managed>>();
  made->tensor = tensor;
  made->shape = tensor.shape();
  made->strides = dense_strides(tensor.shape());
  made->managed.dl_tensor = {.data = tensor.num_elements() == 0 ? nullptr : tensor.view().data,
                             .device = {.device_type = dlpack::kCpu, .device_id = 0},
                             .ndim = tensor.ndim(),
                             .dtype = dlpack_dtype(tensor.dtype()),
                             .shape = &made->shape[0],
                             .strides = &made->strides[0],
                             .byte_offset = 0};
  made->managed.manager_ctx = made.get();
  made->managed.deleter = [](Managed* self) { delete static_cast<DlpackExport<Managed>*>(self->manager_ctx); };
  return made;
}

void check_struct(const void* managed) {
  if (managed == nullptr) throw InvalidArgument("dlpack: a tensor's struct is needed, got a null pointer");
}

}  // namespace

void* to_dlpack(const Tensor& tensor, DlpackForm form, const DlpackFlags& flags) {
  if (form == DlpackForm::kUnversioned) {
    if (flags.is_read_only) {
      throw InvalidArgument(
          "dlpack: a tensor of {} is read-only, which the form of before version 1.0 cannot say: hand it over in the "
          "versioned form, or a copy of it",
          tensor.type());
    }
    return &make_export<DLManagedTensor>(tensor).release()->managed;
  }
  auto made = make_export<DLManagedTensorVersioned>(tensor);
  made->managed.version = {.major = dlpack::kMajorVersion, .minor = dlpack::kMinorVersion};
  made->managed.flags = (flags.is_read_only ? dlpack::kIsReadOnly : 0) | (flags.is_copied ? dlpack::kIsCopied : 0);
  return &made.release()->managed;
}

Tensor from_dlpack(void* managed, DlpackForm form, DlpackCopy copy) {
  check_struct(managed);
  if (form == DlpackForm::kUnversioned) return take_managed(static_cast<DLManagedTensor*>(managed), {}, copy);
  auto* versioned = static_cast<DLManagedTensorVersioned*>(managed);
  if (versioned->version.major != dlpack::kMajorVersion) {  // what lies behind the flags may lie otherwise
    throw InvalidArgument("dlpack: a struct of version {}.x is needed, got {}.{}: ask for max_version=({}, {})",
                          dlpack::kMajorVersion, versioned->version.major, versioned->version.minor,
                          dlpack::kMajorVersion, dlpack::kMinorVersion);
  }
  return take_managed(versioned,
                      {.is_read_only = (versioned->flags & dlpack::kIsReadOnly) != 0,
                       .is_copied = (versioned->flags & dlpack::kIsCopied) != 0},
                      copy);
}

void release_dlpack(void* managed, DlpackForm form) {
  check_struct(managed);
  if (form == DlpackForm::kUnversioned) {
    release_managed(static_cast<DLManagedTensor*>(managed));
  } else {
    release_managed(static_cast<DLManagedTensorVersioned*>(managed));
  }
}

}  // namespace tessera
