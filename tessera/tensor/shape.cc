#include "tessera/tensor/shape.h"

#include <algorithm>
#include <limits>

#include "tessera/base/error.h"

namespace tessera {
namespace {

// So many elements of the widest dtype, of 8 bytes, have a size that an int64 counts.
constexpr int64_t kMaxElements = std::numeric_limits<int64_t>::max() / 8;

}  // namespace

Shape::Shape(std::span<const int64_t> sizes) {
  if (sizes.size() > kMaxNdim) {
    throw InvalidArgument("shape has {} dims, at most {} are supported", sizes.size(), kMaxNdim);
  }
  ndim_ = static_cast<int>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
}

int64_t Shape::num_elements() const {
  int64_t product = 1;
  bool is_empty = false;
  bool is_too_large = false;
  for (const int64_t size : *this) {
    is_empty |= size == 0;
    if (size != 0) is_too_large |= __builtin_mul_overflow(product, size, &product);
  }
  // Also without elements: strides are products of the other dims.
  if (is_too_large || product > kMaxElements) {
    throw InvalidArgument("shape {} has more elements than an int64 counts bytes of", to_string());
  }
  return is_empty ? 0 : product;
}

void Shape::push_back(int64_t size) {
  if (ndim_ == kMaxNdim) throw InvalidArgument("shape {} cannot grow beyond {} dims", to_string(), kMaxNdim);
  sizes_[static_cast<size_t>(ndim_++)] = size;
}

std::string Shape::to_string() const { return fmt::format("[{}]", fmt::join(begin(), end(), ",")); }

bool Shape::operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

Strides dense_strides(const Shape& shape) {
  shape.num_elements();  // refuses products that do not fit
  Strides strides = shape;
  int64_t stride = 1;
  for (int dim = shape.ndim() - 1; dim >= 0; --dim) {
    strides[dim] = stride;
    stride *= std::max<int64_t>(shape[dim], 1);
  }
  return strides;
}

Strides channels_last_strides(const Shape& shape) {
  if (shape.ndim() < 3) return dense_strides(shape);
  shape.num_elements();  // refuses products that do not fit
  Strides strides = shape;
  strides[1] = 1;
  int64_t stride = std::max<int64_t>(shape[1], 1);
  for (int dim = shape.ndim() - 1; dim >= 0; --dim) {
    if (dim == 1) continue;
    strides[dim] = stride;
    stride *= std::max<int64_t>(shape[dim], 1);
  }
  return strides;
}

namespace {
// Strides of dims of size 1 (and all of them in an empty tensor) say nothing about memory.
bool same_layout(const Shape& shape, const Strides& a, const Strides& b) {
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    if (shape[dim] == 0) return true;
  }
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    if (shape[dim] != 1 && a[dim] != b[dim]) return false;
  }
  return true;
}
}  // namespace

bool is_dense(const Shape& shape, const Strides& strides) { return same_layout(shape, strides, dense_strides(shape)); }
bool is_channels_last(const Shape& shape, const Strides& strides) {
  return same_layout(shape, strides, channels_last_strides(shape));
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  const int ndim = std::max(a.ndim(), b.ndim());
  std::vector<int64_t> sizes(static_cast<size_t>(ndim));
  for (int dim = 0; dim < ndim; ++dim) {
    const int in_a = dim - (ndim - a.ndim());
    const int in_b = dim - (ndim - b.ndim());
    const int64_t size_a = in_a >= 0 ? a[in_a] : 1;
    const int64_t size_b = in_b >= 0 ? b[in_b] : 1;
    if (size_a != size_b && size_a != 1 && size_b != 1) {
      throw InvalidArgument("shapes {} and {} do not broadcast: dim {} is {} and {}", a, b, dim, size_a, size_b);
    }
    sizes[static_cast<size_t>(dim)] = size_a == 1 ? size_b : size_a;
  }
  return Shape(sizes);
}

int normalize_axis(int64_t axis, int ndim, std::string_view what) {
  if (axis < -ndim || axis >= ndim) {
    throw InvalidArgument("{}: axis {} is outside [{}, {}) of a tensor with {} dims", what, axis, -ndim, ndim, ndim);
  }
  return static_cast<int>(axis < 0 ? axis + ndim : axis);
}

}  // namespace tessera
