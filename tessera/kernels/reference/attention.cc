// Attention and its gradient, one query at a time; weights in double.
#include <cmath>
#include <limits>

#include "tessera/kernels/attention_problem.h"
#include "tessera/kernels/reference/families.h"
#include "tessera/kernels/reference/loops/walk.h"

namespace tessera::kernels::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The features of one head at one token.
template <typename T>
struct Features {
  T* data;
  int64_t stride;
  double operator[](int64_t i) const { return static_cast<double>(data[i * stride]); }
  void set(int64_t i, double value) const { data[i * stride] = static_cast<T>(value); }
};
template <typename T>
Features<T> features(const TensorView& view, int64_t row, int64_t token, int64_t head) {
  return {view.as<T>() + row * view.strides[0] + token * view.strides[1] + head * view.strides[2], view.strides[3]};
}

template <typename T>
double dot(const Features<T>& a, const Features<T>& b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

struct Query {
  int64_t row, token, head;
};

double mask_at(const TensorView& mask, int64_t offset) {
  if (mask.dtype == DType::kBool) return static_cast<const bool*>(mask.data)[offset] ? 0 : -kInfinity;
  return load_element(mask, offset);
}

// scores[s] of the keys that the query sees, -inf of the others.
template <typename T>
void find_scores(const AttentionProblem& problem, const KernelArgs& args, size_t query, const Query& at,
                 double* scores) {
  const auto q = features<T>(args.inputs[query], at.row, at.token, at.head);
  const int64_t visible = problem.visible(at.token);
  for (int64_t s = 0; s < problem.keys; ++s) {
    scores[s] = -kInfinity;
    if (s >= visible) continue;
    const auto k = features<T>(args.inputs[query + 1], at.row, s, at.head);
    scores[s] = problem.scale * dot(q, k, problem.depth);
    if (!problem.mask) continue;
    const int64_t offset = problem.mask_offset(at.row, at.head, at.token) + s * problem.mask_strides[3];
    scores[s] += mask_at(args.inputs[*problem.mask], offset);
  }
}

// What dropout multiplies the weight of key s by.
double kept(const AttentionProblem& problem, const KernelArgs& args, const Query& at, int64_t s) {
  if (!problem.step) return 1;
  const uint64_t index = problem.first_draw(at.row, at.head, at.token) + static_cast<uint64_t>(s);
  const bool keeps = static_cast<double>(random_uniform(problem.stream(args), index)) < problem.keep_prob;
  return keeps ? 1 / problem.keep_prob : 0;
}

template <typename T>
void attend(const AttentionProblem& problem, const KernelArgs& args, const Query& at, double* weights) {
  find_scores<T>(problem, args, 0, at, weights);
  double largest = -kInfinity;
  for (int64_t s = 0; s < problem.keys; ++s) largest = weights[s] > largest ? weights[s] : largest;
  const bool sees_any = largest != -kInfinity;
  double sum = 0;
  for (int64_t s = 0; s < problem.keys; ++s) {
    weights[s] = sees_any ? std::exp(weights[s] - largest) : 0;
    sum += weights[s];
  }
  const TensorView& lse = args.outputs[1];
  store_element(lse, at.row * lse.strides[0] + at.head * lse.strides[1] + at.token * lse.strides[2],
                sees_any ? largest + std::log(sum) : kInfinity);
  for (int64_t s = 0; s < problem.keys && sees_any; ++s) weights[s] *= kept(problem, args, at, s) / sum;
  const auto out = features<T>(args.outputs[0], at.row, at.token, at.head);
  for (int64_t i = 0; i < problem.value_depth; ++i) {
    double mixed = 0;
    for (int64_t s = 0; s < problem.keys; ++s) mixed += weights[s] * features<T>(args.inputs[2], at.row, s, at.head)[i];
    out.set(i, mixed);
  }
}

std::optional<PreparedKernel> prepare_attention(const KernelRequest& request) {
  const AttentionProblem problem(request, 0, 3);
  const auto run = [problem](const KernelArgs& args) {
    dispatch_floating(args.outputs[0].dtype, "attention", [&](auto zero) {
      const int64_t rows = problem.batch * problem.heads * problem.queries;
      args.parallel_for.with_parts(rows, 1, [&](int64_t begin, int64_t end, int part) {
        auto* weights = reinterpret_cast<double*>(args.scratch.data()) + part * problem.keys;
        for (int64_t i = begin; i < end; ++i) {
          const int64_t pair = i / problem.queries;
          attend<decltype(zero)>(problem, args, {pair / problem.heads, i % problem.queries, pair % problem.heads},
                                 weights);
        }
      });
    });
  };
  return PreparedKernel{.name = "reference.attention",
                        .run = run,
                        .scratch_bytes = request.num_threads * problem.keys * static_cast<int64_t>(sizeof(double))};
}

// One head of one batch row: the sums of dkey and dvalue, and room for two rows of weights.
struct GradientScratch {
  double* weights;
  double* by_weights;
  double* dkey;    // [keys, depth]
  double* dvalue;  // [keys, value_depth]

  static int64_t doubles(const AttentionProblem& p) { return p.keys * (2 + p.depth + p.value_depth); }
  GradientScratch(const AttentionProblem& p, double* from)
      : weights(from), by_weights(from + p.keys), dkey(from + 2 * p.keys), dvalue(dkey + p.keys * p.depth) {}
};

// Adds what flows back through one query.
template <typename T>
void add_gradient(const AttentionProblem& problem, const KernelArgs& args, const Query& at,
                  const GradientScratch& scratch) {
  find_scores<T>(problem, args, 1, at, scratch.weights);
  const auto dout = features<T>(args.inputs[0], at.row, at.token, at.head);
  const auto query = features<T>(args.inputs[1], at.row, at.token, at.head);
  const double delta = dot(dout, features<T>(args.inputs[4], at.row, at.token, at.head), problem.value_depth);
  const TensorView& lses = args.inputs[5];
  const double lse =
      load_element(lses, at.row * lses.strides[0] + at.head * lses.strides[1] + at.token * lses.strides[2]);
  for (int64_t s = 0; s < problem.keys; ++s) {
    const double weight = std::exp(scratch.weights[s] - lse);
    const double factor = kept(problem, args, at, s);
    const auto value = features<T>(args.inputs[3], at.row, s, at.head);
    for (int64_t i = 0; i < problem.value_depth; ++i) {
      scratch.dvalue[s * problem.value_depth + i] += weight * factor * dout[i];
    }
    const double dscore = weight * (dot(dout, value, problem.value_depth) * factor - delta) * problem.scale;
    scratch.by_weights[s] = dscore;
    for (int64_t i = 0; i < problem.depth; ++i) scratch.dkey[s * problem.depth + i] += dscore * query[i];
  }
  const auto dquery = features<T>(args.outputs[0], at.row, at.token, at.head);
  for (int64_t i = 0; i < problem.depth; ++i) {
    double sum = 0;
    for (int64_t s = 0; s < problem.keys; ++s) {
      sum += scratch.by_weights[s] * features<T>(args.inputs[2], at.row, s, at.head)[i];
    }
    dquery.set(i, sum);
  }
}

template <typename T>
void find_gradients(const AttentionProblem& problem, const KernelArgs& args, int64_t row, int64_t head,
                    const GradientScratch& scratch) {
  std::fill_n(scratch.dkey, problem.keys * (problem.depth + problem.value_depth), 0.0);
  for (int64_t t = 0; t < problem.queries; ++t) add_gradient<T>(problem, args, {row, t, head}, scratch);
  for (int64_t s = 0; s < problem.keys; ++s) {
    const auto dkey = features<T>(args.outputs[1], row, s, head);
    const auto dvalue = features<T>(args.outputs[2], row, s, head);
    for (int64_t i = 0; i < problem.depth; ++i) dkey.set(i, scratch.dkey[s * problem.depth + i]);
    for (int64_t i = 0; i < problem.value_depth; ++i) dvalue.set(i, scratch.dvalue[s * problem.value_depth + i]);
  }
}

std::optional<PreparedKernel> prepare_attention_grad(const KernelRequest& request) {
  const AttentionProblem problem(request, 1, 6);
  const int64_t doubles = GradientScratch::doubles(problem);
  const auto run = [problem, doubles](const KernelArgs& args) {
    dispatch_floating(args.outputs[0].dtype, "attention_grad", [&](auto zero) {
      args.parallel_for.with_parts(problem.batch * problem.heads, 1, [&](int64_t begin, int64_t end, int part) {
        const GradientScratch scratch(problem, reinterpret_cast<double*>(args.scratch.data()) + part * doubles);
        for (int64_t i = begin; i < end; ++i) {
          find_gradients<decltype(zero)>(problem, args, i / problem.heads, i % problem.heads, scratch);
        }
      });
    });
  };
  return PreparedKernel{.name = "reference.attention_grad",
                        .run = run,
                        .scratch_bytes = request.num_threads * doubles * static_cast<int64_t>(sizeof(double))};
}

}  // namespace

void add_attention(KernelRegistry& registry) {
  registry.add("attention", prepare_attention);
  registry.add("attention_grad", prepare_attention_grad);
}

}  // namespace tessera::kernels::reference
