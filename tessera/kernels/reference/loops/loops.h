// Loops over strided views, shared by the reference kernels.
#pragma once

#include <array>
#include <cstdint>

#include "tessera/base/error.h"
#include "tessera/tensor/tensor.h"

namespace tessera::kernels::reference {

// Walks a shape in row-major order: calls f(offsets, count, steps) for each innermost row, where offsets[i] is the
// place of its first element under strides[i], and steps[i] the distance between its `count` elements.
template <size_t N, typename F>
void for_each_row(const Shape& shape, const std::array<Strides, N>& strides, F&& f) {
  if (shape.num_elements() == 0) return;
  const int last = shape.ndim() - 1;
  std::array<int64_t, N> offsets{};
  std::array<int64_t, N> steps{};
  if (last < 0) {
    f(offsets, int64_t{1}, steps);
    return;
  }
  for (size_t i = 0; i < N; ++i) steps[i] = strides[i][last];
  std::array<int64_t, kMaxNdim> index{};
  while (true) {
    f(offsets, shape[last], steps);
    int dim = last - 1;
    for (; dim >= 0; --dim) {
      for (size_t i = 0; i < N; ++i) offsets[i] += strides[i][dim];
      if (++index[static_cast<size_t>(dim)] < shape[dim]) break;
      for (size_t i = 0; i < N; ++i) offsets[i] -= strides[i][dim] * shape[dim];
      index[static_cast<size_t>(dim)] = 0;
    }
    if (dim < 0) return;
  }
}

// The same per element: f(offsets).
template <size_t N, typename F>
void for_each_element(const Shape& shape, const std::array<Strides, N>& strides, F&& f) {
  for_each_row<N>(shape, strides,
                  [&](std::array<int64_t, N> offsets, int64_t count, const std::array<int64_t, N>& steps) {
                    for (int64_t k = 0; k < count; ++k) {
                      f(offsets);
                      for (size_t i = 0; i < N; ++i) offsets[i] += steps[i];
                    }
                  });
}

// The strides of a view as NumPy stretches it to `shape`: 0 along repeated dims.
inline Strides broadcast_strides(const TensorView& view, const Shape& shape) {
  Strides strides = shape;
  const int added = shape.ndim() - view.shape.ndim();
  for (int d = 0; d < shape.ndim(); ++d) {
    strides[d] = d < added || (view.shape[d - added] == 1 && shape[d] != 1) ? 0 : view.strides[d - added];
  }
  return strides;
}

// A view of other elements of the same memory, from `offset` elements on.
inline TensorView subview(const TensorView& view, int64_t offset, const Shape& shape, const Strides& strides) {
  auto* data = static_cast<std::byte*>(view.data) + offset * static_cast<int64_t>(size_bytes(view.dtype));
  return {data, view.dtype, shape, strides};
}

inline TensorView broadcast_view(const TensorView& view, const Shape& shape) {
  return {view.data, view.dtype, shape, broadcast_strides(view, shape)};
}

// Sets every element, rounded or saturated to the dtype.
inline void fill_elements(const TensorView& view, double value) {
  // Converted once: elements of one dtype are copied as bits.
  alignas(double) std::array<std::byte, sizeof(double)> one{};
  copy_elements(TensorView(&value, DType::kF64, {}, {}), TensorView(one.data(), view.dtype, {}, {}));
  Strides zeros = view.shape;
  for (int d = 0; d < zeros.ndim(); ++d) zeros[d] = 0;
  copy_elements(TensorView(one.data(), view.dtype, view.shape, zeros), view);
}

// A shape or strides without one dim.
inline Shape without(const Shape& shape, int dim) {
  Shape result;
  for (int d = 0; d < shape.ndim(); ++d) {
    if (d != dim) result.push_back(shape[d]);
  }
  return result;
}

// An element of an integer tensor, `offset` elements from its beginning.
inline int64_t read_index(const TensorView& view, int64_t offset) {
  switch (view.dtype) {
    case DType::kI32: return view.as<int32_t>()[offset];
    case DType::kI64: return view.as<int64_t>()[offset];
    case DType::kU8: return view.as<uint8_t>()[offset];
    default: throw_unsupported_dtype(view.dtype, "indices");
  }
}

// Calls f(T{}) for the seven numeric compute types (not bool).
template <typename F>
decltype(auto) dispatch_numeric(DType dtype, std::string_view who, F&& f) {
  switch (dtype) {
    case DType::kI32: return f(int32_t{});
    case DType::kI64: return f(int64_t{});
    case DType::kU8: return f(uint8_t{});
    default: return dispatch_floating(dtype, who, std::forward<F>(f));
  }
}

}  // namespace tessera::kernels::reference
