#include "tessera/testing/tensor_pieces.h"

#include <cmath>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera::testing_support {
namespace {

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

template <typename T>
T combined(T a, T b, mesh::Reduction reduction) {
  switch (reduction) {
    case mesh::Reduction::kSum: return static_cast<T>(a + b);
    case mesh::Reduction::kProd: return static_cast<T>(a * b);
    // A NaN stays, whichever side it is on.
    case mesh::Reduction::kMax: return is_nan(a) || a > b ? a : b;
    case mesh::Reduction::kMin: return is_nan(a) || a < b ? a : b;
  }
  return a;
}

}  // namespace

Tensor unwritten(const Type& type) {
  Tensor tensor(type);
  // No elements have no address.
  if (tensor.size_bytes() == 0) return tensor;
  std::memset(tensor.view().data, type.dtype == DType::kBool ? 1 : 255, static_cast<size_t>(tensor.size_bytes()));
  return tensor;
}

void copy_box(const TensorView& from, const TensorView& to) {
  check_equal(from.shape, to.shape, "shapes of what is sent and received");
  if (from.num_elements() > 0) copy_elements(from, to);
}

Tensor reduce(std::span<const Tensor* const> tensors, mesh::Reduction reduction) {
  Tensor result(tensors[0]->type());
  dispatch_dtype(result.dtype(), "a reduction", [&](auto zero) {
    using T = decltype(zero);
    using Compute = ComputeType<T>;
    const auto out = result.values<T>();
    for (size_t i = 0; i < out.size(); ++i) {
      auto sum = static_cast<Compute>(tensors[0]->values<T>()[i]);
      for (size_t k = 1; k < tensors.size(); ++k) {
        sum = combined(sum, static_cast<Compute>(tensors[k]->values<T>()[i]), reduction);
      }
      out[i] = static_cast<T>(sum);
    }
  });
  return result;
}

}  // namespace tessera::testing_support
