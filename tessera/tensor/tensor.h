// TensorView: typed, strided memory that someone else owns; what kernels work on. Tensor: the same, owned: dense,
// row-major, shared by its copies. Neither is synchronised.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/tensor/type.h"

namespace tessera {

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  Strides strides;  // in elements

  TensorView() = default;
  TensorView(void* data, DType dtype, const Shape& shape, const Strides& strides)
      : data(data), dtype(dtype), shape(shape), strides(strides) {}
  // Looks at dense memory, row-major.
  TensorView(void* data, const Type& type)
      : data(data), dtype(type.dtype), shape(type.shape), strides(dense_strides(type.shape)) {}

  int64_t num_elements() const { return shape.num_elements(); }
  int64_t size_bytes() const { return num_elements() * static_cast<int64_t>(tessera::size_bytes(dtype)); }
  Type type() const { return {dtype, shape}; }
  bool is_dense() const { return tessera::is_dense(shape, strides); }
  // Throws InvalidArgument where T is not the type of the elements.
  template <typename T>
  T* as() const {
    if (dtype != dtype_of<T>) refuse_elements(dtype_of<T>);
    return static_cast<T*>(data);
  }

 private:
  [[noreturn]] void refuse_elements(DType asked) const;
};

class Tensor {
 public:
  Tensor() = default;  // no elements, f32[0]
  // Takes uninitialised memory, aligned to 64 bytes.
  explicit Tensor(const Type& type);
  Tensor(DType dtype, const Shape& shape) : Tensor(Type{dtype, shape}) {}
  // A copy of `values`, row-major. Throws InvalidArgument when their number does not fit the shape.
  template <typename T>
  static Tensor of(const Shape& shape, std::span<const T> values);
  template <typename T>
  static Tensor of(const Shape& shape, std::initializer_list<T> values) {
    return of(shape, std::span<const T>(values.begin(), values.size()));
  }
  template <typename T>
  static Tensor scalar(T value) {
    return of(Shape{}, std::span<const T>(&value, 1));
  }
  // Elements that lie dense and row-major in `storage`, which is shared.
  static Tensor wrap(const Type& type, std::shared_ptr<void> storage);
  static Tensor zeros(const Type& type);
  // Every element is `value`, rounded to the dtype.
  static Tensor full(const Type& type, double value);
  // A dense copy of a view's elements.
  static Tensor copy_of(const TensorView& view);

  DType dtype() const { return type_.dtype; }
  const Shape& shape() const { return type_.shape; }
  const Type& type() const { return type_; }
  int ndim() const { return type_.shape.ndim(); }
  int64_t num_elements() const { return type_.shape.num_elements(); }
  int64_t size_bytes() const { return type_.size_bytes(); }

  TensorView view() const { return {storage_.get(), type_}; }
  std::span<std::byte> bytes() const {
    return {static_cast<std::byte*>(storage_.get()), static_cast<size_t>(size_bytes())};
  }
  template <typename T>
  std::span<T> values() const {
    return {view().as<T>(), static_cast<size_t>(num_elements())};
  }
  // The single element of any dtype, as double. Throws InvalidArgument unless there is exactly one.
  double item() const;
  // All elements as double, row-major.
  std::vector<double> to_doubles() const;
  // A copy with other dims, equal number of elements; shares the storage.
  Tensor reshaped(const Shape& shape) const;
  Tensor cast(DType dtype) const;
  Tensor clone() const { return copy_of(view()); }

 private:
  Type type_{DType::kF32, Shape{0}};
  std::shared_ptr<void> storage_;
};

// Whether types and all bits of the elements are equal.
bool bit_equal(const Tensor& a, const Tensor& b);

// Copies elements between views of equal shape, converting the dtype. Any strides. Values out of an integer's range
// saturate; NaN becomes 0; a non-zero becomes true.
void copy_elements(const TensorView& from, const TensorView& to);

template <typename T>
Tensor Tensor::of(const Shape& shape, std::span<const T> values) {
  if (static_cast<int64_t>(values.size()) != shape.num_elements()) {
    throw InvalidArgument("shape {} has {} elements, {} values were given", shape, shape.num_elements(), values.size());
  }
  Tensor tensor(dtype_of<T>, shape);
  std::copy(values.begin(), values.end(), tensor.values<T>().begin());
  return tensor;
}

}  // namespace tessera
