#include "tessera/tensor/tensor.h"

#include <sys/mman.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "tessera/base/limits.h"
#include "tessera/base/processes/no_memory.h"
#include "tessera/base/strings.h"
#include "tessera/tensor/alignment.h"
#include "tessera/tensor/strided_copy.h"

namespace tessera {
namespace {

template <typename To, typename From>
To convert(From from) {
  using Wide = ComputeType<From>;
  const auto value = static_cast<Wide>(from);
  if constexpr (std::is_same_v<To, bool>) {
    return value != Wide(0);
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<Wide>) {
    if (std::isnan(value)) return 0;
    // max() of a wide integer rounds up in floating point: compare with >=, where the cast would overflow.
    if (value >= static_cast<Wide>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    if (value <= static_cast<Wide>(std::numeric_limits<To>::lowest())) return std::numeric_limits<To>::lowest();
    return static_cast<To>(value);
  } else if constexpr (std::is_integral_v<To> && std::is_integral_v<Wide> && !std::is_same_v<Wide, bool>) {
    if (std::cmp_less(value, std::numeric_limits<To>::lowest())) return std::numeric_limits<To>::lowest();
    if (std::cmp_greater(value, std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    return static_cast<To>(value);
  } else {
    return static_cast<To>(static_cast<ComputeType<To>>(value));
  }
}

// Calls f(offset_a, offset_b, count, stride_a, stride_b) for each innermost row.
template <typename F>
void for_each_row(const Shape& shape, const Strides& a, const Strides& b, F&& f) {
  const int ndim = shape.ndim();
  if (shape.num_elements() == 0) return;
  if (ndim == 0) {
    f(0, 0, 1, 0, 0);
    return;
  }
  std::array<int64_t, kMaxNdim> index{};
  int64_t offset_a = 0;
  int64_t offset_b = 0;
  while (true) {
    f(offset_a, offset_b, shape[ndim - 1], a[ndim - 1], b[ndim - 1]);
    int dim = ndim - 2;
    for (; dim >= 0; --dim) {
      const auto d = static_cast<size_t>(dim);
      offset_a += a[dim];
      offset_b += b[dim];
      if (++index[d] < shape[dim]) break;
      offset_a -= a[dim] * shape[dim];
      offset_b -= b[dim] * shape[dim];
      index[d] = 0;
    }
    if (dim < 0) return;
  }
}

// Memory that is new to the process costs a fault for each of its pages, which for large values takes longer than
// writing to them: fewer pages, fewer faults.
void ask_for_huge_pages([[maybe_unused]] void* memory, [[maybe_unused]] size_t size) {
#if defined(MADV_HUGEPAGE)
  constexpr size_t kHugePage = size_t{2} << 20;
  constexpr size_t kMinBytes = 2 * kHugePage;
  if (size < kMinBytes) return;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  const auto first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  const auto last = (begin + size) / kHugePage * kHugePage;
  ::madvise(static_cast<std::byte*>(memory) + (first - begin), last - first, MADV_HUGEPAGE);  // a hint
#endif
}

}  // namespace

void TensorView::refuse_elements(DType asked) const {
  throw InvalidArgument("the elements of a view of {} are {}, not {}", type(), dtype, asked);
}

Tensor::Tensor(const Type& type) : type_(type) {
  const int64_t bytes = type.size_bytes();
  if (bytes == 0) return;
  constexpr int64_t kLarge = int64_t{1} << 30;
  const bool can_be = bytes < kLarge || can_machine_hold(bytes);
  const auto rounded = can_be ? static_cast<size_t>(aligned(bytes)) : 0;
  void* const memory = can_be ? std::aligned_alloc(kBufferAlignment, rounded) : nullptr;
  if (memory == nullptr) {
    throw NoMemory(fmt::format("a tensor {} needs {}, which are not there", type, format_bytes(bytes)));
  }
  ask_for_huge_pages(memory, rounded);
  storage_ = std::shared_ptr<void>(memory, std::free);
}

Tensor Tensor::wrap(const Type& type, std::shared_ptr<void> storage) {
  Tensor tensor;
  tensor.type_ = type;
  tensor.storage_ = std::move(storage);
  return tensor;
}

Tensor Tensor::zeros(const Type& type) {
  Tensor tensor(type);
  if (tensor.size_bytes() > 0) std::memset(tensor.storage_.get(), 0, static_cast<size_t>(tensor.size_bytes()));
  return tensor;
}

Tensor Tensor::full(const Type& type, double value) {
  Tensor tensor(type);
  dispatch_any(type.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto values = tensor.values<T>();
    std::fill(values.begin(), values.end(), convert<T>(value));
  });
  return tensor;
}

Tensor Tensor::copy_of(const TensorView& view) {
  Tensor tensor(view.type());
  copy_elements(view, tensor.view());
  return tensor;
}

double Tensor::item() const {
  if (num_elements() != 1) throw InvalidArgument("item() needs a tensor with one element, got {}", type_);
  return to_doubles()[0];
}

std::vector<double> Tensor::to_doubles() const {
  std::vector<double> result(static_cast<size_t>(num_elements()));
  copy_elements(view(), TensorView(result.data(), Type{DType::kF64, shape()}));
  return result;
}

Tensor Tensor::reshaped(const Shape& shape) const {
  if (shape.num_elements() != num_elements()) throw InvalidArgument("cannot reshape {} to {}", type_, shape);
  Tensor result = *this;
  result.type_.shape = shape;
  return result;
}

Tensor Tensor::cast(DType dtype) const {
  Tensor result(dtype, shape());
  copy_elements(view(), result.view());
  return result;
}

bool bit_equal(const Tensor& a, const Tensor& b) {
  if (!(a.type() == b.type())) return false;
  return a.size_bytes() == 0 || std::memcmp(a.bytes().data(), b.bytes().data(), a.bytes().size()) == 0;
}

void copy_elements(const TensorView& from, const TensorView& to) {
  check_equal(from.shape, to.shape, "shapes of a copy");
  if (from.num_elements() == 0) return;
  if (from.dtype == to.dtype && from.is_dense() && to.is_dense()) {
    std::memcpy(to.data, from.data, static_cast<size_t>(from.size_bytes()));
    return;
  }
  if (from.dtype == to.dtype) {
    StridedCopy(from.shape, from.strides, to.strides, size_bytes(from.dtype)).run(from.data, to.data);
    return;
  }
  dispatch_any(from.dtype, [&](auto from_zero) {
    dispatch_any(to.dtype, [&](auto to_zero) {
      using From = decltype(from_zero);
      using To = decltype(to_zero);
      for_each_row(from.shape, from.strides, to.strides,
                   [&](int64_t a, int64_t b, int64_t count, int64_t stride_a, int64_t stride_b) {
                     const From* source = from.as<From>() + a;
                     To* target = to.as<To>() + b;
                     for (int64_t i = 0; i < count; ++i) target[i * stride_b] = convert<To>(source[i * stride_a]);
                   });
    });
  });
}

}  // namespace tessera
