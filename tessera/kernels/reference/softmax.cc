#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/walk.h"

namespace tessera::kernels::reference {
namespace {

// A row of elements along the axis.
template <typename T>
struct Line {
  T* data;
  int64_t stride;
  double operator[](int64_t i) const { return static_cast<double>(data[i * stride]); }
  void set(int64_t i, double value) const { data[i * stride] = static_cast<T>(value); }
};

// The largest element and the sum of exp(x - largest): what keeps exp from overflowing.
struct Scale {
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0;

  template <typename T>
  Scale(const Line<T>& line, int64_t size) {
    for (int64_t i = 0; i < size; ++i) largest = line[i] > largest ? line[i] : largest;
    for (int64_t i = 0; i < size; ++i) sum += std::exp(line[i] - largest);
  }
};

// Calls f(size, line of input 0, [line of input 1,] line of the result) for every row along the axis.
template <size_t NumInputs, typename F>
void for_each_line(const KernelArgs& args, F&& f) {
  const TensorView& out = args.outputs[0];
  if (out.num_elements() == 0) return;
  const int axis = normalize_axis(args.attributes.get_int("axis"), out.shape.ndim(), "axis");
  const int64_t size = out.shape[axis];
  const auto without_axis = [&](const Shape& shape) {
    Shape rest;
    for (int dim = 0; dim < shape.ndim(); ++dim) {
      if (dim != axis) rest.push_back(shape[dim]);
    }
    return rest;
  };
  const Shape rest = without_axis(out.shape);
  std::array<Strides, NumInputs + 1> strides;
  for (size_t i = 0; i < NumInputs; ++i) strides[i] = without_axis(args.inputs[i].strides);
  strides[NumInputs] = without_axis(out.strides);
  dispatch_floating(out.dtype, "softmax", [&](auto zero) {
    using T = decltype(zero);
    std::array<T*, NumInputs> in;
    for (size_t i = 0; i < NumInputs; ++i) in[i] = args.inputs[i].as<T>();
    T* result = out.as<T>();
    args.parallel_for(rest.num_elements(), 1, [&](int64_t begin, int64_t end) {
      Walk<NumInputs + 1> at(rest, strides, begin);
      for (int64_t line = begin; line < end; ++line, at.next()) {
        const Line<T> first{in[0] + at[0], args.inputs[0].strides[axis]};
        const Line<T> to{result + at[NumInputs], out.strides[axis]};
        if constexpr (NumInputs == 1) {
          f(size, first, to);
        } else {
          f(size, first, Line<T>{in[1] + at[1], args.inputs[1].strides[axis]}, to);
        }
      }
    });
  });
}

void run_softmax(const KernelArgs& args) {
  for_each_line<1>(args, [](int64_t size, auto x, auto y) {
    const Scale scale(x, size);
    for (int64_t i = 0; i < size; ++i) y.set(i, std::exp(x[i] - scale.largest) / scale.sum);
  });
}

void run_softmax_grad(const KernelArgs& args) {
  for_each_line<2>(args, [](int64_t size, auto dy, auto y, auto dx) {
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) sum += dy[i] * y[i];
    for (int64_t i = 0; i < size; ++i) dx.set(i, y[i] * (dy[i] - sum));
  });
}

void run_log_softmax(const KernelArgs& args) {
  for_each_line<1>(args, [](int64_t size, auto x, auto y) {
    const Scale scale(x, size);
    const double log_sum = std::log(scale.sum);
    for (int64_t i = 0; i < size; ++i) y.set(i, x[i] - scale.largest - log_sum);
  });
}

void run_log_softmax_grad(const KernelArgs& args) {
  for_each_line<2>(args, [](int64_t size, auto dy, auto y, auto dx) {
    double sum = 0;
    for (int64_t i = 0; i < size; ++i) sum += dy[i];
    for (int64_t i = 0; i < size; ++i) dx.set(i, dy[i] - std::exp(y[i]) * sum);
  });
}

int64_t label_at(const TensorView& labels, int64_t row) {
  const int64_t at = row * labels.strides[0];
  return labels.dtype == DType::kI32 ? static_cast<const int32_t*>(labels.data)[at]
                                     : static_cast<const int64_t*>(labels.data)[at];
}

void run_cross_entropy(const KernelArgs& args) {
  const TensorView& logits = args.inputs[0];
  const TensorView& losses = args.outputs[0];
  const TensorView& probabilities = args.outputs[1];
  const int64_t classes = logits.shape[1];
  dispatch_floating(logits.dtype, "softmax_cross_entropy", [&](auto zero) {
    using T = decltype(zero);
    T* from = logits.as<T>();
    T* to = probabilities.as<T>();
    args.parallel_for(logits.shape[0], 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const Line<T> x{from + row * logits.strides[0], logits.strides[1]};
        const Line<T> y{to + row * probabilities.strides[0], probabilities.strides[1]};
        const int64_t label = label_at(args.inputs[1], row);
        const Scale scale(x, classes);
        const bool is_class = label >= 0 && label < classes;
        const double loss =
            is_class ? std::log(scale.sum) - (x[label] - scale.largest) : std::numeric_limits<double>::quiet_NaN();
        store_element(losses, row * losses.strides[0], loss);
        for (int64_t i = 0; i < classes; ++i) y.set(i, std::exp(x[i] - scale.largest) / scale.sum);
      }
    });
  });
}

void run_cross_entropy_grad(const KernelArgs& args) {
  const TensorView& probabilities = args.inputs[0];
  const TensorView& dlosses = args.inputs[2];
  const TensorView& dlogits = args.outputs[0];
  const int64_t classes = probabilities.shape[1];
  dispatch_floating(dlogits.dtype, "softmax_cross_entropy_grad", [&](auto zero) {
    using T = decltype(zero);
    T* from = probabilities.as<T>();
    T* to = dlogits.as<T>();
    args.parallel_for(probabilities.shape[0], 1, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const Line<T> p{from + row * probabilities.strides[0], probabilities.strides[1]};
        const Line<T> dx{to + row * dlogits.strides[0], dlogits.strides[1]};
        const int64_t label = label_at(args.inputs[1], row);
        const bool is_class = label >= 0 && label < classes;
        const double scale = load_element(dlosses, row * dlosses.strides[0]);
        for (int64_t i = 0; i < classes; ++i) dx.set(i, is_class ? scale * (p[i] - (i == label ? 1 : 0)) : 0.0);
      }
    });
  });
}

}  // namespace

void add_softmax(KernelRegistry& registry) {
  registry.add_function("softmax", "reference", run_softmax, {{0, 0}});
  registry.add_function("softmax_grad", "reference", run_softmax_grad, {{0, 0}, {1, 0}});
  registry.add_function("log_softmax", "reference", run_log_softmax, {{0, 0}});
  registry.add_function("log_softmax_grad", "reference", run_log_softmax_grad, {{0, 0}, {1, 0}});
  registry.add_function("softmax_cross_entropy", "reference", run_cross_entropy, {{0, 1}});
  registry.add_function("softmax_cross_entropy_grad", "reference", run_cross_entropy_grad, {{0, 0}});
}

}  // namespace tessera::kernels::reference
