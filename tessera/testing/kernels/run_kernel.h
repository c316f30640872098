// What tests use: it runs one reference kernel on tensors, with the strides asked for.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/kernels/registry.h"

namespace tessera::kernels {

enum class StrideOrder {
  kDense,
  kChannelsLast,  // images of 3 dims or more; others stay dense
  kReversed       // the first dim varies fastest, with unused elements in between
};

// What most kernels are tried in, and what those are that see images as well.
inline constexpr StrideOrder kDenseAndReversed[] = {StrideOrder::kDense, StrideOrder::kReversed};
inline constexpr StrideOrder kStrideOrders[] = {StrideOrder::kDense, StrideOrder::kChannelsLast,
                                                StrideOrder::kReversed};

inline Strides strides_for(const Shape& shape, StrideOrder layout) {
  if (layout == StrideOrder::kDense) return dense_strides(shape);
  if (layout == StrideOrder::kChannelsLast) return channels_last_strides(shape);
  Strides strides = shape;
  int64_t stride = 2;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    strides[dim] = stride;
    stride *= shape[dim] + 1;
  }
  return strides;
}

// Calls f(place) for each element of a view.
template <typename F>
void for_each_offset(const TensorView& view, F&& f) {
  const int64_t n = view.num_elements();
  for (int64_t i = 0; i < n; ++i) {
    int64_t offset = 0;
    for (int64_t rest = i, d = view.shape.ndim() - 1; d >= 0; --d) {
      offset += rest % view.shape[static_cast<int>(d)] * view.strides[static_cast<int>(d)];
      rest /= view.shape[static_cast<int>(d)];
    }
    f(offset);
  }
}

// A StridedTensor is the memory of a strided view. Every byte that no element covers, and every element before it is
// written, is 0xFF (a NaN).
class StridedTensor {
 public:
  StridedTensor(const Type& type, StrideOrder layout) {
    const Strides strides = strides_for(type.shape, layout);
    int64_t elements = 1;
    for (int dim = 0; dim < type.shape.ndim(); ++dim) elements += std::max<int64_t>(type.shape[dim], 0) * strides[dim];
    memory_ = Tensor(DType::kU8, {elements * static_cast<int64_t>(size_bytes(type.dtype))});
    std::memset(memory_.bytes().data(), 0xFF, memory_.bytes().size());
    view_ = {memory_.bytes().data(), type.dtype, type.shape, strides};
  }
  StridedTensor(const Tensor& tensor, StrideOrder layout) : StridedTensor(tensor.type(), layout) {
    copy_elements(tensor.view(), view_);
  }
  const TensorView& view() const { return view_; }

 private:
  Tensor memory_;
  TensorView view_;
};

// Normal numbers; whole ones in [-9, 9] for integers.
inline Tensor random_tensor(const Type& type, uint64_t seed) {
  Tensor wide(DType::kF64, type.shape);
  for (int64_t i = 0; i < wide.num_elements(); ++i) {
    const RandomStream stream{.seed = seed};
    const auto index = static_cast<uint64_t>(i);
    wide.values<double>()[index] = is_floating(type.dtype) ? random_normal(stream, index)
                                                           : static_cast<double>(random_below(stream, index, 19) - 9);
  }
  return wide.cast(type.dtype);
}

// The largest difference, as a part of the largest expected magnitude (or of 1 where that is less).
inline double relative_error(const Tensor& actual, const std::vector<double>& expected) {
  const auto values = actual.to_doubles();
  check_equal(values.size(), expected.size(), "number of elements");
  double error = 0;
  double scale = 1;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(values[i] - expected[i]);
    if (!(difference <= error)) error = difference;  // a NaN counts
    scale = std::max(scale, std::abs(expected[i]));
  }
  return error / scale;
}

struct RunOptions {
  StrideOrder layout = StrideOrder::kDense;
  int threads = 1;
};

inline std::vector<Tensor> run_kernel(const std::string& op, const std::vector<Tensor>& inputs,
                                      const Attributes& attributes, const std::vector<Type>& results,
                                      RunOptions options = {}) {
  std::vector<StridedTensor> in;
  std::vector<StridedTensor> out;
  for (const Tensor& tensor : inputs) in.emplace_back(tensor, options.layout);
  for (const Type& type : results) out.emplace_back(type, options.layout);
  KernelRequest request{.op = op, .attributes = attributes, .num_threads = options.threads};
  std::vector<TensorView> in_views;
  std::vector<TensorView> out_views;
  for (const auto& tensor : in) in_views.push_back(tensor.view());
  for (const auto& tensor : out) out_views.push_back(tensor.view());
  // A factory sees no addresses.
  for (TensorView view : in_views) request.inputs.emplace_back(nullptr, view.dtype, view.shape, view.strides);
  for (TensorView view : out_views) request.outputs.emplace_back(nullptr, view.dtype, view.shape, view.strides);
  const auto kernel = reference_kernels().find(request);
  check(kernel.has_value(), "a reference kernel takes every request");
  const Tensor scratch = Tensor::full({DType::kU8, {kernel->scratch_bytes}}, 255);
  const ParallelFor parallel_for(options.threads);
  kernel->run({in_views, out_views, attributes, scratch.bytes(), parallel_for});
  std::vector<Tensor> copies;
  for (const TensorView& view : out_views) copies.push_back(Tensor::copy_of(view));
  return copies;
}

inline Tensor run_kernel1(const std::string& op, const std::vector<Tensor>& inputs, const Attributes& attributes,
                          const Type& result, RunOptions options = {}) {
  return run_kernel(op, inputs, attributes, {result}, options)[0];
}

}  // namespace tessera::kernels
