#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/loops.h"
#include "tessera/kernels/reference/loops/result_dtype.h"

namespace tessera::kernels::reference {
namespace {

// Sums and products of floats are made in double: the specification should not wander with the order.
template <typename T>
using Accumulator = std::conditional_t<std::is_same_v<ComputeType<T>, float>, double, ComputeType<T>>;

template <typename C>
bool is_nan(C x) {
  if constexpr (std::is_floating_point_v<C>) {
    return std::isnan(x);
  } else {
    return false;
  }
}

template <typename C>
C wrapping_add(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}

template <typename C>
C wrapping_mul(C a, C b) {
  if constexpr (std::is_integral_v<C>) {
    return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

// How a reduction begins, takes an element in, and ends over n of them.
struct Sum {
  template <typename T>
  static auto begin() {
    return Accumulator<T>(0);
  }
  template <typename A>
  static A step(A a, A x) {
    return wrapping_add(a, x);
  }
  template <typename A>
  static A end(A a, int64_t) {
    return a;
  }
};
struct Mean : Sum {
  template <typename A>
  static A end(A a, int64_t n) {
    return a / static_cast<A>(n);
  }
};
struct Prod {
  template <typename T>
  static auto begin() {
    return Accumulator<T>(1);
  }
  template <typename A>
  static A step(A a, A x) {
    return wrapping_mul(a, x);
  }
  template <typename A>
  static A end(A a, int64_t) {
    return a;
  }
};
struct Max {
  template <typename T>
  static auto begin() {
    using A = Accumulator<T>;
    return std::is_floating_point_v<A> ? -std::numeric_limits<A>::infinity() : std::numeric_limits<A>::lowest();
  }
  template <typename A>
  static A step(A a, A x) {
    return is_nan(a) || a > x ? a : x;
  }
  template <typename A>
  static A end(A a, int64_t) {
    return a;
  }
};
struct Min {
  template <typename T>
  static auto begin() {
    using A = Accumulator<T>;
    return std::is_floating_point_v<A> ? std::numeric_limits<A>::infinity() : std::numeric_limits<A>::max();
  }
  template <typename A>
  static A step(A a, A x) {
    return is_nan(a) || a < x ? a : x;
  }
  template <typename A>
  static A end(A a, int64_t) {
    return a;
  }
};
struct All {
  template <typename T>
  static auto begin() {
    return true;
  }
  template <typename A>
  static A step(A a, A x) {
    return a && x;
  }
  template <typename A>
  static A end(A a, int64_t) {
    return a;
  }
};
struct Any {
  template <typename T>
  static auto begin() {
    return false;
  }
  template <typename A>
  static A step(A a, A x) {
    return a || x;
  }
  template <typename A>
  static A end(A a, int64_t) {
    return a;
  }
};

// The dims of a reduction: those kept, with the strides of operand and result, and those reduced.
struct Dims {
  Shape kept;
  Strides kept_in;
  Strides kept_out;
  Shape reduced;
  Strides reduced_in;
};

Dims dims_of(const TensorView& x, const TensorView& y, const Ints& axes, bool keep_dims) {
  Dims dims;
  int out = 0;
  for (int d = 0; d < x.shape.ndim(); ++d) {
    if (std::find(axes.begin(), axes.end(), d) != axes.end()) {
      dims.reduced.push_back(x.shape[d]);
      dims.reduced_in.push_back(x.strides[d]);
      if (keep_dims) ++out;
    } else {
      dims.kept.push_back(x.shape[d]);
      dims.kept_in.push_back(x.strides[d]);
      dims.kept_out.push_back(y.strides[out++]);
    }
  }
  return dims;
}

template <typename T, typename R, typename Out>
void reduce_to(const KernelArgs& args) {
  const T* x = args.inputs[0].as<T>();
  Out* y = args.outputs[0].as<Out>();
  const Dims dims =
      dims_of(args.inputs[0], args.outputs[0], args.attributes.get_ints("axes"), args.attributes.get_bool("keep_dims"));
  const int64_t n = dims.reduced.num_elements();
  using A = decltype(R::template begin<T>());
  for_each_element<2>(dims.kept, {dims.kept_in, dims.kept_out}, [&](const std::array<int64_t, 2>& at) {
    A accumulator = R::template begin<T>();
    for_each_row<1>(dims.reduced, {dims.reduced_in}, [&](const auto& from, int64_t count, const auto& step) {
      const T* row = x + at[0] + from[0];
      for (int64_t i = 0; i < count; ++i) {
        accumulator = R::template step<A>(accumulator, static_cast<A>(static_cast<ComputeType<T>>(row[i * step[0]])));
      }
    });
    y[at[1]] = static_cast<Out>(static_cast<ComputeType<T>>(R::template end<A>(accumulator, n)));
  });
}

template <typename T, typename R>
void reduce(const KernelArgs& args) {
  dispatch_result<T>(args.outputs[0].dtype, [&](auto result) { reduce_to<T, R, decltype(result)>(args); });
}

template <typename R>
void reduce_numeric(const KernelArgs& args) {
  dispatch_numeric(args.inputs[0].dtype, "reduction", [&](auto zero) { reduce<decltype(zero), R>(args); });
}

void run_mean(const KernelArgs& args) {
  dispatch_floating(args.inputs[0].dtype, "reduce_mean", [&](auto zero) { reduce<decltype(zero), Mean>(args); });
}

// Whether x comes before y in descending order, NaN first; of equal ones the lower index.
template <typename C>
bool precedes(C x, int64_t i, C y, int64_t j) {
  if (is_nan(x) || is_nan(y)) return is_nan(x) && (!is_nan(y) || i < j);
  return x > y || (x == y && i < j);
}

void run_argmax(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& y = args.outputs[0];
  const int axis = normalize_axis(args.attributes.get_int("axis"), x.shape.ndim(), "axis");
  dispatch_dtype(x.dtype, "argmax", [&](auto zero) {
    using C = ComputeType<decltype(zero)>;
    const auto* data = x.as<decltype(zero)>();
    for_each_element<2>(y.shape, {without(x.strides, axis), y.strides}, [&](const std::array<int64_t, 2>& at) {
      int64_t best = 0;
      for (int64_t i = 1; i < x.shape[axis]; ++i) {
        if (precedes<C>(static_cast<C>(data[at[0] + i * x.strides[axis]]), i,
                        static_cast<C>(data[at[0] + best * x.strides[axis]]), best)) {
          best = i;
        }
      }
      y.as<int32_t>()[at[1]] = static_cast<int32_t>(best);
    });
  });
}

void run_top_k(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& values = args.outputs[0];
  const TensorView& indices = args.outputs[1];
  const int last = x.shape.ndim() - 1;
  const int64_t k = values.shape[last];
  dispatch_numeric(x.dtype, "top_k", [&](auto zero) {
    using T = decltype(zero);
    using C = ComputeType<T>;
    const auto* data = x.as<T>();
    for_each_element<3>(without(x.shape, last),
                        {without(x.strides, last), without(values.strides, last), without(indices.strides, last)},
                        [&](const std::array<int64_t, 3>& at) {
                          const auto element = [&](int64_t i) {
                            return static_cast<C>(data[at[0] + i * x.strides[last]]);
                          };
                          int64_t previous = -1;
                          for (int64_t rank = 0; rank < k; ++rank) {
                            int64_t best = -1;
                            for (int64_t i = 0; i < x.shape[last]; ++i) {
                              if (previous >= 0 && !precedes<C>(element(previous), previous, element(i), i)) continue;
                              if (best < 0 || precedes<C>(element(i), i, element(best), best)) best = i;
                            }
                            values.as<T>()[at[1] + rank * values.strides[last]] = data[at[0] + best * x.strides[last]];
                            indices.as<int32_t>()[at[2] + rank * indices.strides[last]] = static_cast<int32_t>(best);
                            previous = best;
                          }
                        });
  });
}

void run_top_k_grad(const KernelArgs& args) {
  const TensorView& dy = args.inputs[0];
  const TensorView& indices = args.inputs[1];
  const TensorView& dx = args.outputs[0];
  const int last = dy.shape.ndim() - 1;
  fill_elements(dx, 0);
  dispatch_floating(dy.dtype, "top_k_grad", [&](auto zero) {
    using T = decltype(zero);
    for_each_element<3>(
        without(dy.shape, last), {without(dy.strides, last), without(indices.strides, last), without(dx.strides, last)},
        [&](const std::array<int64_t, 3>& at) {
          for (int64_t i = 0; i < dy.shape[last]; ++i) {
            const int64_t to = read_index(indices, at[1] + i * indices.strides[last]);
            if (to < 0 || to >= dx.shape[last]) continue;
            T& target = dx.as<T>()[at[2] + to * dx.strides[last]];
            target = static_cast<T>(static_cast<ComputeType<T>>(target) +
                                    static_cast<ComputeType<T>>(dy.as<T>()[at[0] + i * dy.strides[last]]));
          }
        });
  });
}

void run_cumsum(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  const TensorView& y = args.outputs[0];
  const int axis = normalize_axis(args.attributes.get_int("axis"), x.shape.ndim(), "axis");
  const bool exclusive = args.attributes.get_bool("exclusive");
  const bool reverse = args.attributes.get_bool("reverse");
  const int64_t n = x.shape[axis];
  dispatch_numeric(x.dtype, "cumsum", [&](auto zero) {
    using T = decltype(zero);
    using A = Accumulator<T>;
    for_each_element<2>(
        without(x.shape, axis), {without(x.strides, axis), without(y.strides, axis)},
        [&](const std::array<int64_t, 2>& at) {
          A sum = 0;
          for (int64_t k = 0; k < n; ++k) {
            const int64_t i = reverse ? n - 1 - k : k;
            const A before = sum;
            sum =
                wrapping_add(sum, static_cast<A>(static_cast<ComputeType<T>>(x.as<T>()[at[0] + i * x.strides[axis]])));
            y.as<T>()[at[1] + i * y.strides[axis]] =
                static_cast<T>(static_cast<ComputeType<T>>(exclusive ? before : sum));
          }
        });
  });
}

void run_all_finite(const KernelArgs& args) {
  const TensorView& x = args.inputs[0];
  bool finite = true;
  dispatch_floating(x.dtype, "all_finite", [&](auto zero) {
    using T = decltype(zero);
    for_each_element<1>(x.shape, {x.strides}, [&](const std::array<int64_t, 1>& at) {
      finite = finite && std::isfinite(static_cast<ComputeType<T>>(x.as<T>()[at[0]]));
    });
  });
  *args.outputs[0].as<bool>() = finite;
}

}  // namespace

void add_reductions(KernelRegistry& registry) {
  registry.add_function("reduce_sum", "reference", reduce_numeric<Sum>);
  registry.add_function("reduce_mean", "reference", run_mean);
  registry.add_function("reduce_max", "reference", reduce_numeric<Max>);
  registry.add_function("reduce_min", "reference", reduce_numeric<Min>);
  registry.add_function("reduce_prod", "reference", reduce_numeric<Prod>);
  registry.add_function("reduce_all", "reference", reduce<bool, All>);
  registry.add_function("reduce_any", "reference", reduce<bool, Any>);
  registry.add_function("all_finite", "reference", run_all_finite);
  registry.add_function("argmax", "reference", run_argmax);
  registry.add_function("top_k", "reference", run_top_k);
  registry.add_function("top_k_grad", "reference", run_top_k_grad);
  registry.add_function("cumsum", "reference", run_cumsum);
}

}  // namespace tessera::kernels::reference
