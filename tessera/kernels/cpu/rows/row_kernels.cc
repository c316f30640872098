// Softmax, cross entropy and layer normalisation: kernels that go over f32 rows of neighbouring elements, some rows to
// each thread.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "tessera/kernels/cpu/registry/families.h"
#include "tessera/kernels/cpu/rows/reduce_rows.h"
#include "tessera/kernels/cpu/rows/row_ops.h"
#include "tessera/kernels/cpu/rows/strided.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tessera/kernels/cpu/rows/row_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which sets the target that it compiles for.
#include "hwy/highway.h"
#include "tessera/kernels/cpu/rows/vector_math-inl.h"
#include "tessera/tensor/alignment.h"

#ifndef TESSERA_KERNELS_CPU_ROW_FUNCTIONS
#define TESSERA_KERNELS_CPU_ROW_FUNCTIONS
namespace tessera::kernels::cpu {

struct NormGradient {
  const float* dy;
  const float* x;
  const float* gamma;
  float mean, inverse;
};

struct RowFunctions {
  // y = (x - shift) * scale + offset
  void (*affine)(const float* x, float shift, float scale, float offset, float* y, int64_t n);
  // dx = y * (dy - sum)
  void (*softmax_grad)(const float* dy, const float* y, float sum, float* dx, int64_t n);
  // dx = dy - exp(y) * sum
  void (*log_softmax_grad)(const float* dy, const float* y, float sum, float* dx, int64_t n);
  // y = (x - mean) * inverse * gamma + beta
  void (*normalise)(const float* x, float mean, float inverse, const float* gamma, const float* beta, float* y,
                    int64_t n);
  // dgamma += dy * xhat, dbeta += dy; sums[0] = sum of dy * gamma, sums[1] = sum of dy * gamma * xhat.
  void (*normalise_grad_sums)(const NormGradient& row, float* dgamma, float* dbeta, double* sums, int64_t n);
  // dx = inverse * (dy * gamma - shift - xhat * slope)
  void (*normalise_grad)(const NormGradient& row, float shift, float slope, float* dx, int64_t n);
};

}  // namespace tessera::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE VF at(const float* p) { return hn::LoadU(DF(), p); }
HWY_INLINE int64_t num_lanes() { return static_cast<int64_t>(hn::Lanes(DF())); }

void affine(const float* x, float shift, float scale, float offset, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + num_lanes() <= n; i += num_lanes()) {
    hn::StoreU(hn::MulAdd(hn::Sub(at(x + i), vset(shift)), vset(scale), vset(offset)), DF(), y + i);
  }
  for (; i < n; ++i) y[i] = (x[i] - shift) * scale + offset;
}

void softmax_grad(const float* dy, const float* y, float sum, float* dx, int64_t n) {
  int64_t i = 0;
  for (; i + num_lanes() <= n; i += num_lanes()) {
    hn::StoreU(hn::Mul(at(y + i), hn::Sub(at(dy + i), vset(sum))), DF(), dx + i);
  }
  for (; i < n; ++i) dx[i] = y[i] * (dy[i] - sum);
}

void log_softmax_grad(const float* dy, const float* y, float sum, float* dx, int64_t n) {
  int64_t i = 0;
  for (; i + num_lanes() <= n; i += num_lanes()) {
    hn::StoreU(hn::NegMulAdd(vexp(at(y + i)), vset(sum), at(dy + i)), DF(), dx + i);
  }
  for (; i < n; ++i) dx[i] = dy[i] - std::exp(y[i]) * sum;
}

void normalise(const float* x, float mean, float inverse, const float* gamma, const float* beta, float* y, int64_t n) {
  int64_t i = 0;
  for (; i + num_lanes() <= n; i += num_lanes()) {
    const VF xhat = hn::Mul(hn::Sub(at(x + i), vset(mean)), vset(inverse));
    hn::StoreU(hn::MulAdd(xhat, at(gamma + i), at(beta + i)), DF(), y + i);
  }
  for (; i < n; ++i) y[i] = (x[i] - mean) * inverse * gamma[i] + beta[i];
}

void normalise_grad_sums(const NormGradient& row, float* dgamma, float* dbeta, double* sums, int64_t n) {
  sums[0] = sums[1] = 0;
  int64_t i = 0;
  while (i + num_lanes() <= n) {
    const int64_t end = std::min<int64_t>(i + 1024, n);
    VF sum = hn::Zero(DF());
    VF product_sum = sum;
    for (; i + num_lanes() <= end; i += num_lanes()) {
      const VF dy = at(row.dy + i);
      const VF xhat = hn::Mul(hn::Sub(at(row.x + i), vset(row.mean)), vset(row.inverse));
      const VF g = hn::Mul(dy, at(row.gamma + i));
      hn::StoreU(hn::MulAdd(dy, xhat, at(dgamma + i)), DF(), dgamma + i);
      hn::StoreU(hn::Add(dy, at(dbeta + i)), DF(), dbeta + i);
      sum = hn::Add(sum, g);
      product_sum = hn::MulAdd(g, xhat, product_sum);
    }
    sums[0] += vsum(sum);
    sums[1] += vsum(product_sum);
  }
  for (; i < n; ++i) {
    const float xhat = (row.x[i] - row.mean) * row.inverse;
    dgamma[i] += row.dy[i] * xhat;
    dbeta[i] += row.dy[i];
    sums[0] += row.dy[i] * row.gamma[i];
    sums[1] += row.dy[i] * row.gamma[i] * xhat;
  }
}

void normalise_grad(const NormGradient& row, float shift, float slope, float* dx, int64_t n) {
  int64_t i = 0;
  for (; i + num_lanes() <= n; i += num_lanes()) {
    const VF xhat = hn::Mul(hn::Sub(at(row.x + i), vset(row.mean)), vset(row.inverse));
    const VF rest = hn::NegMulAdd(xhat, vset(slope), hn::Sub(hn::Mul(at(row.dy + i), at(row.gamma + i)), vset(shift)));
    hn::StoreU(hn::Mul(vset(row.inverse), rest), DF(), dx + i);
  }
  for (; i < n; ++i) {
    const float xhat = (row.x[i] - row.mean) * row.inverse;
    dx[i] = row.inverse * (row.dy[i] * row.gamma[i] - shift - xhat * slope);
  }
}

}  // namespace

const RowFunctions& get_row_functions() {
  static const RowFunctions functions = {affine,    softmax_grad,        log_softmax_grad,
                                         normalise, normalise_grad_sums, normalise_grad};
  return functions;
}

}  // namespace HWY_NAMESPACE
}  // namespace tessera::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tessera::kernels::cpu {
namespace {

HWY_EXPORT(get_row_functions);

const RowFunctions& row_functions() { return HWY_DYNAMIC_DISPATCH(get_row_functions)(); }

constexpr int64_t kGrain = 8192;  // elements per thread from which on splitting pays

bool is_f32(const TensorView& view) { return view.dtype == DType::kF32; }

// True when the dims [begin, ndim) of a view are one run of memory.
bool is_dense_from(const TensorView& view, int begin) {
  int64_t stride = 1;
  for (int dim = view.shape.ndim() - 1; dim >= begin; --dim) {
    if (view.shape[dim] != 1 && view.strides[dim] != stride) return false;
    stride *= view.shape[dim];
  }
  return true;
}

// The rows of several operands that share their leading dims [0, begin).
struct RowLoop {
  std::vector<MergedDim> dims;
  int64_t num_rows = 1;
  int64_t size = 1;  // elements of a row
  int64_t grain = 1;

  RowLoop(const std::vector<TensorView>& views, int begin) {
    const TensorView& first = views[0];
    for (int dim = 0; dim < first.shape.ndim(); ++dim) (dim < begin ? num_rows : size) *= first.shape[dim];
    for (int dim = 0; dim < begin; ++dim) {
      if (first.shape[dim] == 1) continue;
      MergedDim d{first.shape[dim], {}};
      for (size_t i = 0; i < views.size(); ++i) d.strides[i] = views[i].strides[dim];
      dims.push_back(d);
    }
    grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, size));
  }

  template <typename T>
  T* at(const TensorView& view, int64_t row, size_t operand) const {
    int64_t offset = 0;
    for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
      offset += row % dim->size * dim->strides[operand];
      row /= dim->size;
    }
    return static_cast<T*>(view.data) + offset;
  }
};

enum class Softmax { kPlain, kLog, kPlainGrad, kLogGrad };

std::optional<PreparedKernel> prepare_softmax(const KernelRequest& request, Softmax kind) {
  std::vector<TensorView> views = request.inputs;
  views.push_back(request.outputs[0]);
  const int ndim = views[0].shape.ndim();
  if (ndim == 0 || views[0].num_elements() == 0) return std::nullopt;
  if (normalize_axis(request.attributes.get_int("axis"), ndim, "axis") != ndim - 1) return std::nullopt;
  for (const TensorView& view : views) {
    if (!is_f32(view) || !is_dense_from(view, ndim - 1)) return std::nullopt;
  }
  PreparedKernel kernel{.name = "cpu." + request.op, .in_place = {{0, 0}}};
  if (request.inputs.size() == 2) kernel.in_place.emplace_back(1, 0);
  kernel.run = [loop = RowLoop(views, ndim - 1), kind](const KernelArgs& args) {
    const ReduceFunctions& reduce = reduce_functions();
    const RowFunctions& rows = row_functions();
    const int64_t n = loop.size;
    args.parallel_for(loop.num_rows, loop.grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const auto* x = loop.at<const float>(args.inputs[0], r, 0);
        if (kind == Softmax::kPlain || kind == Softmax::kLog) {
          auto* y = loop.at<float>(args.outputs[0], r, 1);
          const float largest = reduce.max(x, n, -std::numeric_limits<float>::infinity());
          if (kind == Softmax::kPlain) {
            const double sum = reduce.exp_sum(x, largest, y, n);
            rows.affine(y, 0, static_cast<float>(1 / sum), 0, y, n);
          } else {
            const double sum = reduce.exp_sum(x, largest, nullptr, n);
            rows.affine(x, largest, 1, static_cast<float>(-std::log(sum)), y, n);
          }
        } else {
          const auto* y = loop.at<const float>(args.inputs[1], r, 1);
          auto* dx = loop.at<float>(args.outputs[0], r, 2);
          if (kind == Softmax::kPlainGrad) {
            rows.softmax_grad(x, y, static_cast<float>(reduce.sum_products(x, y, 0, n)), dx, n);
          } else {
            rows.log_softmax_grad(x, y, static_cast<float>(reduce.sum(x, n)), dx, n);
          }
        }
      }
    });
  };
  return kernel;
}

bool is_label(const TensorView& view) { return view.dtype == DType::kI32 || view.dtype == DType::kI64; }
int64_t label_at(const TensorView& labels, int64_t row) {
  const int64_t at = row * labels.strides[0];
  return labels.dtype == DType::kI32 ? static_cast<const int32_t*>(labels.data)[at]
                                     : static_cast<const int64_t*>(labels.data)[at];
}

std::optional<PreparedKernel> prepare_cross_entropy(const KernelRequest& request) {
  const TensorView& logits = request.inputs[0];
  const TensorView& probabilities = request.outputs[1];
  if (!is_f32(logits) || !is_label(request.inputs[1]) || logits.num_elements() == 0) return std::nullopt;
  if (!is_f32(request.outputs[0]) || !is_f32(probabilities)) return std::nullopt;
  if (!is_dense_from(logits, 1) || !is_dense_from(probabilities, 1)) return std::nullopt;
  const auto run = [loop = RowLoop({logits, probabilities}, 1)](const KernelArgs& args) {
    const ReduceFunctions& reduce = reduce_functions();
    const RowFunctions& rows = row_functions();
    args.parallel_for(loop.num_rows, loop.grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const auto* x = loop.at<const float>(args.inputs[0], r, 0);
        auto* y = loop.at<float>(args.outputs[1], r, 1);
        const int64_t label = label_at(args.inputs[1], r);
        const bool is_class = label >= 0 && label < loop.size;
        const float largest = reduce.max(x, loop.size, -std::numeric_limits<float>::infinity());
        const double of_label = is_class ? static_cast<double>(x[label]) - largest : 0;  // y may be x
        const double sum = reduce.exp_sum(x, largest, y, loop.size);
        rows.affine(y, 0, static_cast<float>(1 / sum), 0, y, loop.size);
        static_cast<float*>(args.outputs[0].data)[r * args.outputs[0].strides[0]] =
            is_class ? static_cast<float>(std::log(sum) - of_label) : std::numeric_limits<float>::quiet_NaN();
      }
    });
  };
  return PreparedKernel{.name = "cpu." + request.op, .run = run, .in_place = {{0, 1}}};
}

std::optional<PreparedKernel> prepare_cross_entropy_grad(const KernelRequest& request) {
  const TensorView& probabilities = request.inputs[0];
  const TensorView& dlogits = request.outputs[0];
  if (!is_f32(probabilities) || !is_label(request.inputs[1]) || !is_f32(request.inputs[2]) || !is_f32(dlogits) ||
      probabilities.num_elements() == 0) {
    return std::nullopt;
  }
  if (!is_dense_from(probabilities, 1) || !is_dense_from(dlogits, 1)) return std::nullopt;
  const auto run = [loop = RowLoop({probabilities, dlogits}, 1)](const KernelArgs& args) {
    const RowFunctions& rows = row_functions();
    args.parallel_for(loop.num_rows, loop.grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const auto* p = loop.at<const float>(args.inputs[0], r, 0);
        auto* dx = loop.at<float>(args.outputs[0], r, 1);
        const int64_t label = label_at(args.inputs[1], r);
        if (label < 0 || label >= loop.size) {
          std::fill_n(dx, loop.size, 0.0F);
          continue;
        }
        const float scale = static_cast<const float*>(args.inputs[2].data)[r * args.inputs[2].strides[0]];
        const float at_label = scale * (p[label] - 1);
        rows.affine(p, 0, scale, 0, dx, loop.size);
        dx[label] = at_label;
      }
    });
  };
  return PreparedKernel{.name = "cpu." + request.op, .run = run, .in_place = {{0, 0}}};
}

std::optional<PreparedKernel> prepare_layer_norm(const KernelRequest& request) {
  const auto begin_axis = static_cast<int>(request.attributes.get_int("begin_axis"));
  const TensorView& x = request.inputs[0];
  for (const auto& views : {request.inputs, request.outputs}) {
    if (!std::all_of(views.begin(), views.end(), is_f32)) return std::nullopt;
  }
  if (x.num_elements() == 0 || !is_dense_from(x, begin_axis) || !is_dense_from(request.outputs[0], begin_axis) ||
      !request.inputs[1].is_dense() || !request.inputs[2].is_dense()) {
    return std::nullopt;
  }
  const double eps = request.attributes.get_double("eps");
  const RowLoop loop({x, request.outputs[0], request.outputs[1], request.outputs[2]}, begin_axis);
  const auto run = [loop, eps](const KernelArgs& args) {
    const ReduceFunctions& reduce = reduce_functions();
    const RowFunctions& rows = row_functions();
    const auto* gamma = static_cast<const float*>(args.inputs[1].data);
    const auto* beta = static_cast<const float*>(args.inputs[2].data);
    const auto n = static_cast<double>(loop.size);
    args.parallel_for(loop.num_rows, loop.grain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const auto* from = loop.at<const float>(args.inputs[0], r, 0);
        const auto mean = static_cast<float>(reduce.sum(from, loop.size) / n);
        const double variance = reduce.sum_squares(from, mean, loop.size) / n;
        const auto inverse = static_cast<float>(1 / std::sqrt(variance + eps));
        rows.normalise(from, mean, inverse, gamma, beta, loop.at<float>(args.outputs[0], r, 1), loop.size);
        *loop.at<float>(args.outputs[1], r, 2) = mean;
        *loop.at<float>(args.outputs[2], r, 3) = inverse;
      }
    });
  };
  return PreparedKernel{.name = "cpu." + request.op, .run = run, .in_place = {{0, 0}}};
}

std::optional<PreparedKernel> prepare_layer_norm_grad(const KernelRequest& request) {
  const auto begin_axis = static_cast<int>(request.attributes.get_int("begin_axis"));
  for (const auto& views : {request.inputs, request.outputs}) {
    if (!std::all_of(views.begin(), views.end(), is_f32)) return std::nullopt;
  }
  const TensorView& dy = request.inputs[0];
  const TensorView& x = request.inputs[1];
  const TensorView& dx = request.outputs[0];
  if (dy.num_elements() == 0 || !is_dense_from(dy, begin_axis) || !is_dense_from(x, begin_axis) ||
      !is_dense_from(dx, begin_axis) || !request.inputs[2].is_dense() || !request.outputs[1].is_dense() ||
      !request.outputs[2].is_dense()) {
    return std::nullopt;
  }
  const RowLoop loop({dy, x, request.inputs[3], request.inputs[4], dx}, begin_axis);
  // dgamma and dbeta: f64 for each part, f32 for a few rows at a time.
  const int64_t part_bytes = aligned(2 * loop.size * static_cast<int64_t>(sizeof(double) + sizeof(float)));
  const auto run = [loop, part_bytes](const KernelArgs& args) {
    constexpr int64_t kBlockRows = 64;
    const RowFunctions& rows = row_functions();
    const int64_t size = loop.size;
    const auto sums_at = [&](int part) { return reinterpret_cast<double*>(args.scratch.data() + part * part_bytes); };
    const auto* gamma = static_cast<const float*>(args.inputs[2].data);
    args.parallel_for.with_parts(loop.num_rows, loop.grain, [&](int64_t begin, int64_t end, int part) {
      double* sums = sums_at(part);
      auto* partial = reinterpret_cast<float*>(sums + 2 * size);
      std::fill_n(sums, 2 * size, 0.0);
      for (int64_t first = begin; first < end; first += kBlockRows) {
        std::fill_n(partial, 2 * size, 0.0F);
        for (int64_t r = first; r < std::min(first + kBlockRows, end); ++r) {
          const NormGradient row{loop.at<const float>(args.inputs[0], r, 0), loop.at<const float>(args.inputs[1], r, 1),
                                 gamma, *loop.at<const float>(args.inputs[3], r, 2),
                                 *loop.at<const float>(args.inputs[4], r, 3)};
          double row_sums[2];
          rows.normalise_grad_sums(row, partial, partial + size, row_sums, size);
          rows.normalise_grad(row, static_cast<float>(row_sums[0] / static_cast<double>(size)),
                              static_cast<float>(row_sums[1] / static_cast<double>(size)),
                              loop.at<float>(args.outputs[0], r, 4), size);
        }
        for (int64_t i = 0; i < 2 * size; ++i) sums[i] += partial[i];
      }
    });
    const int parts = args.parallel_for.num_parts(loop.num_rows, loop.grain);
    auto* dgamma = static_cast<float*>(args.outputs[1].data);
    auto* dbeta = static_cast<float*>(args.outputs[2].data);
    for (int64_t i = 0; i < size; ++i) {
      double totals[2] = {0, 0};
      for (int part = 0; part < parts; ++part) {
        totals[0] += sums_at(part)[i];
        totals[1] += sums_at(part)[size + i];
      }
      dgamma[i] = static_cast<float>(totals[0]);
      dbeta[i] = static_cast<float>(totals[1]);
    }
  };
  return PreparedKernel{.name = "cpu." + request.op,
                        .run = run,
                        .scratch_bytes = part_bytes * request.num_threads,
                        .in_place = {{0, 0}, {1, 0}}};
}

}  // namespace

void add_row_kernels(KernelRegistry& registry) {
  registry.add("softmax", [](const KernelRequest& r) { return prepare_softmax(r, Softmax::kPlain); });
  registry.add("log_softmax", [](const KernelRequest& r) { return prepare_softmax(r, Softmax::kLog); });
  registry.add("softmax_grad", [](const KernelRequest& r) { return prepare_softmax(r, Softmax::kPlainGrad); });
  registry.add("log_softmax_grad", [](const KernelRequest& r) { return prepare_softmax(r, Softmax::kLogGrad); });
  registry.add("softmax_cross_entropy", prepare_cross_entropy);
  registry.add("softmax_cross_entropy_grad", prepare_cross_entropy_grad);
  registry.add("layer_norm", prepare_layer_norm);
  registry.add("layer_norm_grad", prepare_layer_norm_grad);
}

}  // namespace tessera::kernels::cpu
#endif  // HWY_ONCE
