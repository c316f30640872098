#include "tests/equivalence/hybrid_networks.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/agree/rank_group.h"
#include "tessera/testing/relative_deviation.h"

namespace tessera::equivalence {
namespace {

using ir::Value;
using mesh::Range;

Tensor random(const Shape& shape, uint64_t stream, int64_t step, bool uniform) {
  Tensor made(DType::kF64, shape);
  const RandomStream source{.seed = 17, .stream = stream, .step = static_cast<uint64_t>(step)};
  auto values = made.values<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = uniform ? static_cast<double>(random_uniform(source, i)) : random_normal(source, i);
  }
  return made;
}

// The part of a tensor that a rank holds of one dim.
Tensor slice_of(const Tensor& whole, int dim, const Range& range) {
  std::vector<Range> slice;
  for (int d = 0; d < whole.ndim(); ++d) slice.push_back(d == dim ? range : Range{0, whole.shape()[d]});
  return Tensor::copy_of(mesh::piece_of(whole.view(), slice));
}

Range part_of(int64_t size, const ops::RankGroup& group) {
  return mesh::balanced_part(size, static_cast<int>(group.ranks.size()), group.own);
}

constexpr int64_t kFeatures = 512;
constexpr int64_t kChannels = 128;

Tensor tutorial_weight() { return random({kFeatures, kChannels}, 1, 0, /*uniform=*/true); }

struct SemiAutoParallelNet : nn::Cell {
  explicit SemiAutoParallelNet(int64_t num_ranks) {
    weight.data = tutorial_weight();
    weight.type = weight.data->type();
    shard("matmul", {{1, 1}, {1, num_ranks}});
  }
  nn::Parameter& weight = parameter("weight", {DType::kF64, {kFeatures, kChannels}}, nn::zeros());
  using Cell::construct;
  Value construct(Value x) override { return ops::reduce_sum(ops::matmul(x, weight), {-1}); }
};

struct HybridParallelNet : nn::Cell {
  explicit HybridParallelNet(const ops::RankGroup& group) : ranks(group) {
    weight.data = slice_of(tutorial_weight(), 1, part_of(kChannels, group));
    weight.type = weight.data->type();
    weight.layerwise_parallel = true;
  }
  ops::RankGroup ranks;
  nn::Parameter& weight = parameter("weight", {DType::kF64, {kFeatures, kChannels}}, nn::zeros());
  using Cell::construct;
  Value construct(Value x) override { return ops::all_reduce(ops::reduce_sum(ops::matmul(x, weight), {-1}), ranks); }
};

constexpr int64_t kInner = 10;

// Dense layers, of which the pair in the middle is split over `ranks`: up's weight in rows of its matrix [inner,width],
// which are its output's channels, down's in columns.
struct SplitPairNet : nn::Cell {
  explicit SplitPairNet(const ops::RankGroup& group) : ranks(group) {
    split(up, 0);
    split(up_bias, 0);
    split(down, 1);
  }
  void split(nn::Parameter& parameter, int dim) const {
    const Range own = part_of(parameter.type.shape[dim], ranks);
    Tensor whole = random(parameter.type.shape, hash_name(parameter.name), 0, /*uniform=*/false);
    parameter.data = slice_of(whole, dim, own);
    parameter.type = parameter.data->type();
    parameter.layerwise_parallel = ranks.ranks.size() > 1;
  }
  ops::RankGroup ranks;
  nn::Dense& first = child<nn::Dense>("first", 6, 8);
  nn::Parameter& up = parameter("up", {DType::kF64, {kInner, 8}}, nn::zeros());
  nn::Parameter& up_bias = parameter("up_bias", {DType::kF64, {kInner}}, nn::zeros());
  nn::Parameter& down = parameter("down", {DType::kF64, {8, kInner}}, nn::zeros());
  nn::Dense& last = child<nn::Dense>("last", 8, 3);
  using Cell::construct;
  Value construct(Value x) override {
    x = ops::tanh(first(x));
    const Value inner = ops::tanh(ops::bias_add(ops::matmul(x, up, false, true), up_bias));
    const Value sum = ops::matmul(inner, down, false, true);
    // One device has nobody to add up with.
    return last(x + (ranks.ranks.size() > 1 ? ops::all_reduce(sum, ranks) : sum));
  }
};

struct SharedNet : nn::Cell {
  nn::Dense& first = child<nn::Dense>("first", 6, 8);
  nn::Dense& last = child<nn::Dense>("last", 8, 3);
  using Cell::construct;
  Value construct(Value x) override { return last(ops::tanh(first(x))); }
};

template <typename Network, typename... Args>
std::unique_ptr<nn::Cell> make(DType dtype, Args&&... args) {
  auto network = std::make_unique<Network>(std::forward<Args>(args)...);
  nn::set_parameter_dtype(*network, dtype);
  return network;
}

const ops::RankGroup kAlone{.name = "alone", .ranks = {0}, .own = 0};

std::vector<Tensor> regression(const Shape& x, const Shape& label, int64_t step, DType dtype) {
  return {random(x, 2, step, false).cast(dtype), random(label, 3, step, false).cast(dtype)};
}

double deviation(const Tensor& one, const Tensor& other) {
  return relative_deviation(one.to_doubles(), other.to_doubles());
}

// This rank's slice of a parameter of the one device's shape.
Tensor like(const Tensor& whole, const Shape& own, const cluster::Context& context) {
  for (int dim = 0; dim < whole.ndim(); ++dim) {
    if (whole.shape()[dim] == own[dim]) continue;
    return slice_of(whole, dim, mesh::balanced_part(whole.shape()[dim], context.size(), context.rank()));
  }
  return whole;
}

}  // namespace

HybridCase semi_auto_parallel_net() {
  return {
      .name = "SemiAutoParallelNet",
      .mode = train::ParallelMode::kSemiAuto,
      .whole = [](DType dtype) { return make<SemiAutoParallelNet>(dtype, 1); },
      .own = [](DType dtype, cluster::Context& context) { return make<SemiAutoParallelNet>(dtype, context.size()); },
      .batch =
          [](int64_t step, DType dtype) {
            return regression({8, kFeatures}, {8}, step, dtype);
          },
      .learning_rate = 1e-6};
}

HybridCase hybrid_parallel_net() {
  HybridCase hybrid = semi_auto_parallel_net();
  hybrid.name = "HybridParallelNet";
  hybrid.mode = train::ParallelMode::kHybrid;
  hybrid.own = [](DType dtype, cluster::Context& context) {
    return make<HybridParallelNet>(dtype, session::rank_group(context));
  };
  return hybrid;
}

HybridCase split_pair_net() {
  return {.name = "SplitPairNet",
          .whole = [](DType dtype) { return make<SplitPairNet>(dtype, kAlone); },
          .own = [](DType dtype,
                    cluster::Context& context) { return make<SplitPairNet>(dtype, session::rank_group(context)); },
          .batch =
              [](int64_t step, DType dtype) {
                return regression({8, 6}, {8, 3}, step, dtype);
              },
          .learning_rate = 0.05};
}

HybridCase accumulated_split_pair_net() {
  HybridCase hybrid = split_pair_net();
  hybrid.name = "SplitPairNetAccumulated";
  hybrid.batches_per_step = 2;
  return hybrid;
}

HybridCase shared_net() {
  return {.name = "SharedNet",
          .whole = [](DType dtype) { return make<SharedNet>(dtype); },
          .own = [](DType dtype, cluster::Context&) { return make<SharedNet>(dtype); },
          .batch =
              [](int64_t step, DType dtype) {
                // As many rows for each rank: the mean of the ranks' means is that of all rows.
                return regression({12, 6}, {12, 3}, step, dtype);
              },
          .rows_are_own = true,
          .learning_rate = 0.05};
}

std::vector<HybridCase> hybrid_cases() {
  return {hybrid_parallel_net(), semi_auto_parallel_net(), split_pair_net(), accumulated_split_pair_net(),
          shared_net()};
}

double HybridDeviation::worst() const { return std::max({output, loss, parameters}); }

HybridDeviation compare_with_one_device(cluster::Context& context, const HybridCase& hybrid, DType dtype,
                                        int64_t batches, const session::SessionOptions& own_session) {
  const auto one_network = hybrid.whole(dtype);
  const auto own_network = hybrid.own(dtype, context);
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = hybrid.learning_rate, .momentum = 0.9});
  const session::SessionOptions options{.reference_kernels = dtype == DType::kF64};
  train::Model one(context, *one_network, &loss, &optimizer,
                   {.gradient_accumulation_steps = hybrid.batches_per_step, .seed = 5, .session = options});
  train::Model own(context, *own_network, &loss, &optimizer,
                   {.parallel_mode = hybrid.mode,
                    .gradient_accumulation_steps = hybrid.batches_per_step,
                    .full_batch = true,
                    .seed = 5,
                    .session = own_session});
  HybridDeviation worst;
  const auto part_of_rows = [&](const Tensor& whole) {
    const int64_t rows = whole.shape()[0];
    const bool is_whole = !hybrid.rows_are_own;
    return slice_of(whole, 0, is_whole ? Range{0, rows} : mesh::balanced_part(rows, context.size(), context.rank()));
  };
  const auto compare_output = [&] {
    const Tensor x = hybrid.batch(0, dtype)[0];
    worst.output = std::max(worst.output, deviation(part_of_rows(one.predict({x})), own.predict({part_of_rows(x)})));
  };
  compare_output();
  for (int64_t step = 0; step < batches; ++step) {
    const auto batch = hybrid.batch(step, dtype);
    const std::vector<Tensor> mine = {part_of_rows(batch[0]), part_of_rows(batch[1])};
    const double expected = one.train_step({batch[0].view(), batch[1].view()}, batch[0].shape()[0]);
    const double found = own.train_step({mine[0].view(), mine[1].view()}, mine[0].shape()[0]);
    worst.loss = std::max(worst.loss, std::abs(found - expected) / std::abs(expected));
  }
  compare_output();
  for (const auto& name : one.names()) {
    const Tensor found = own.value(name);
    worst.parameters = std::max(worst.parameters, deviation(like(one.value(name), found.shape(), context), found));
  }
  return worst;
}

}  // namespace tessera::equivalence
