// Helpers of kernels that meet elements of several dtypes or strides at once.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/tensor/tensor.h"

namespace tessera::kernels::reference {

// One element of a floating view, `offset` elements from its first. It is meant for scalars and values per channel,
// because it finds the dtype anew each time.
inline double load_element(const TensorView& view, int64_t offset = 0) {
  return dispatch_floating(view.dtype, "load", [&](auto zero) {
    return static_cast<double>(static_cast<const decltype(zero)*>(view.data)[offset]);
  });
}
inline void store_element(const TensorView& view, int64_t offset, double value) {
  dispatch_floating(view.dtype, "store", [&](auto zero) {
    using T = decltype(zero);
    static_cast<T*>(view.data)[offset] = static_cast<T>(value);
  });
}

// Visits the elements of a shape in row-major order, with the offset of each in N arrays of different strides.
template <size_t N>
class Walk {
 public:
  // Begins at the element of linear index `start`, which must exist unless it is 0.
  Walk(const Shape& shape, const std::array<Strides, N>& strides, int64_t start = 0)
      : shape_(shape), strides_(strides) {
    for (int dim = shape.ndim() - 1; dim >= 0 && start > 0; --dim) {
      const auto d = static_cast<size_t>(dim);
      index_[d] = start % shape[dim];
      start /= shape[dim];
      for (size_t i = 0; i < N; ++i) offsets_[i] += index_[d] * strides_[i][dim];
    }
  }

  int64_t operator[](size_t i) const { return offsets_[i]; }

  void next() {
    for (int dim = shape_.ndim() - 1; dim >= 0; --dim) {
      const auto d = static_cast<size_t>(dim);
      for (size_t i = 0; i < N; ++i) offsets_[i] += strides_[i][dim];
      if (++index_[d] < shape_[dim]) return;
      for (size_t i = 0; i < N; ++i) offsets_[i] -= strides_[i][dim] * shape_[dim];
      index_[d] = 0;
    }
  }

 private:
  Shape shape_;
  std::array<Strides, N> strides_;
  std::array<int64_t, kMaxNdim> index_{};
  std::array<int64_t, N> offsets_{};
};

// The dims [first, last) of a shape or of strides.
inline Shape dims_between(const Shape& shape, int first, int last) {
  return Shape(std::span<const int64_t>(shape.begin() + first, shape.begin() + last));
}

}  // namespace tessera::kernels::reference
