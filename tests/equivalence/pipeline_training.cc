#include "tests/equivalence/pipeline_training.h"

#include <algorithm>
#include <limits>
#include <mutex>
#include <numeric>

#include "tessera/nn/gradients/clipping.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/pipelined_step.h"
#include "tessera/testing/relative_deviation.h"
#include "tessera/train/model.h"
#include "tests/equivalence/networks.h"
#include "tests/equivalence/where.h"

namespace tessera::equivalence {
namespace {

// Layers one after the other; each third one also reads what the one before the last has made, so that values pass by
// stages.
struct Chain : nn::Cell {
  explicit Chain(int count) {
    for (int i = 0; i < count; ++i) layers.push_back(&child<nn::Dense>(fmt::format("layer{}", i), 12, 12));
  }
  std::vector<nn::Dense*> layers;
  nn::Dense& head = child<nn::Dense>("head", 12, 10);
  using Cell::construct;
  ir::Value construct(ir::Value x) override {
    ir::Value before = x;
    for (size_t i = 0; i < layers.size(); ++i) {
      ir::Value next = ops::tanh((*layers[i])(x));
      if (i % 3 == 2) next = next + before;
      before = x;
      x = next;
    }
    return head(x);
  }
};

// The table of the embedding is the output projection as well.
struct Tied : nn::Cell {
  nn::Embedding& words = child<nn::Embedding>("words", 13, 12);
  nn::Dense& up = child<nn::Dense>("up", 12, 20);
  nn::Dense& down = child<nn::Dense>("down", 20, 12);
  nn::LayerNorm& norm = child<nn::LayerNorm>("norm", Shape{12});
  using Cell::construct;
  ir::Value construct(ir::Value ids) override {
    ir::Value x = ops::reduce_mean(words(ids), {1});
    x = norm(x + down(ops::tanh(up(x))));
    return ops::matmul(x, words.table().in(graph()), /*transpose_a=*/false, /*transpose_b=*/true);
  }
};

// The same with layers between, of which some add what came before them, and with something that all rows have in
// common, whose gradient is a sum over the rows.
struct TiedChain : nn::Cell {
  explicit TiedChain(int count) {
    for (int i = 0; i < count; ++i) layers.push_back(&child<nn::Dense>(fmt::format("layer{}", i), 12, 12));
  }
  nn::Embedding& words = child<nn::Embedding>("words", 13, 12);
  nn::Dense& common = child<nn::Dense>("common", 1, 12);
  std::vector<nn::Dense*> layers;
  nn::LayerNorm& norm = child<nn::LayerNorm>("norm", Shape{12});
  using Cell::construct;
  ir::Value construct(ir::Value ids) override {
    const DType dtype = words.table().type.dtype;
    ir::Value x = ops::reduce_mean(words(ids), {1}) + common(ops::fill(graph(), {1, 1}, 1, dtype));
    for (size_t i = 0; i < layers.size(); ++i) {
      const ir::Value next = ops::tanh((*layers[i])(x));
      x = i % 2 == 1 ? x + next : next;
    }
    return ops::matmul(norm(x), words.table().in(graph()), /*transpose_a=*/false, /*transpose_b=*/true);
  }
};

// The first cell has few parameters and takes three times as long as all others, which have many.
struct Uneven : nn::Cell {
  // It cannot be cut: one layer, time after time.
  struct Repeated : nn::Cell {
    nn::Dense& layer = child<nn::Dense>("layer", 12, 12);
    using Cell::construct;
    ir::Value construct(ir::Value x) override {
      for (int i = 0; i < 14; ++i) x = ops::tanh(x + layer(x));
      return x;
    }
  };
  Repeated& first = child<Repeated>("first");
  nn::Dense& up = child<nn::Dense>("up", 12, 30);
  nn::Dense& down = child<nn::Dense>("down", 30, 10);
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return down(ops::tanh(up(first(x)))); }
};

std::unique_ptr<nn::Cell> network_of(const Row& row, DType dtype) {
  if (row.network == "tied") {
    auto tied = std::make_unique<Tied>();
    nn::set_parameter_dtype(*tied, dtype);
    return tied;
  }
  if (row.network == "tied chain") {
    auto tied = std::make_unique<TiedChain>(row.layers);
    nn::set_parameter_dtype(*tied, dtype);
    return tied;
  }
  if (row.network == "uneven") {
    auto uneven = std::make_unique<Uneven>();
    nn::set_parameter_dtype(*uneven, dtype);
    return uneven;
  }
  if (row.layers == 0) return make_network(row.network, dtype);
  auto chain = std::make_unique<Chain>(row.layers);
  nn::set_parameter_dtype(*chain, dtype);
  return chain;
}

std::string batch_of(const Row& row) {
  if (row.network.starts_with("tied")) return "transformer";
  if (row.network == "uneven") return "mlp";
  return row.layers == 0 ? row.network : "mlp";
}

void set_stages(nn::Cell& cell, const Row& row) {
  if (const auto it = row.cells.find(cell.path()); it != row.cells.end()) {
    cell.set_stage(it->second.stage, it->second.segment);
  }
  for (const auto& path : row.recomputed) {
    if (cell.path() == path) cell.recompute();
  }
  for (const auto& [path, op, strategy] : row.strategies) {
    if (cell.path() == path) cell.shard(op, strategy);
  }
  for (const auto& [name, child] : cell.children()) set_stages(*child, row);
}

// Part k of so many of each tensor.
std::vector<TensorView> part_of(const std::vector<Tensor>& batch, int64_t k, int64_t parts) {
  std::vector<TensorView> pieces;
  for (const Tensor& tensor : batch) {
    const int64_t count = tensor.shape()[0] / parts;
    std::vector<mesh::Range> slice = {{k * count, count}};
    for (int dim = 1; dim < tensor.ndim(); ++dim) slice.push_back({0, tensor.shape()[dim]});
    pieces.push_back(mesh::piece_of(tensor.view(), slice));
  }
  return pieces;
}

std::vector<Tensor> batch_at(const Row& row, int64_t step, DType dtype) {
  auto batch = make_batch(batch_of(row), row.rows, step, dtype);
  if (step == row.bad_step) batch[0].values<float>().back() = std::numeric_limits<float>::infinity();
  return batch;
}

// Clips all gradients by their norm before it updates.
class Clipped : public nn::Optimizer {
 public:
  explicit Clipped(double norm) : norm_(norm) {}
  void update(ir::Graph& graph, std::span<const nn::ParameterGradient> gradients) override {
    if (norm_ == 0) return momentum_.update(graph, gradients);
    std::vector<ir::Value> values;
    for (const auto& gradient : gradients) values.push_back(gradient.gradient);
    const auto clipped = nn::clip_by_global_norm(values, norm_);
    std::vector<nn::ParameterGradient> pairs;
    for (size_t i = 0; i < clipped.size(); ++i) pairs.push_back({gradients[i].parameter, clipped[i]});
    momentum_.update(graph, pairs);
  }
  std::vector<nn::Parameter> states(std::span<nn::Parameter* const> parameters) const override {
    return momentum_.states(parameters);
  }
  void set_state_prefix(const std::string& prefix) override { momentum_.set_state_prefix(prefix); }

 private:
  double norm_;
  nn::Momentum momentum_{nn::MomentumOptions{.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 1e-4}};
};

int64_t steps_of(const Row& row, DType dtype) { return dtype == DType::kF64 ? 10 : row.float32_steps; }

}  // namespace

int Row::num_ranks() const {
  return ranks.empty() ? stages * ranks_per_stage : std::accumulate(ranks.begin(), ranks.end(), 0);
}

Outcome train_pipeline(const Row& row, DType dtype, bool reference) {
  Outcome outcome;
  std::mutex mutex;
  const RunRanksOptions options{.link = row.link};
  run_ranks(
      row.num_ranks(),
      [&](cluster::Context& context) {
        const auto network = network_of(row, dtype);
        if (!row.finds_cuts) set_stages(*network, row);
        nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
        Clipped optimizer(row.clip_norm);
        auto session = session_there(reference);
        session.verification = compiler::Verification::kAllRanks;
        train::Model model(
            context, *network, &loss, &optimizer,
            {.parallel_mode = row.finds_cuts ? train::ParallelMode::kAutomatic : train::ParallelMode::kPipeline,
             .pipeline = {.stages = row.finds_ranks ? train::StageCount::automatic() : train::StageCount(row.stages),
                          .ranks = row.ranks,
                          .micro_batches = row.micro_batches,
                          .schedule = row.schedule,
                          .segments = row.segments,
                          .receive_ahead = row.receive_ahead,
                          .profile = row.profile.value_or(compiler::example_profile())},
             .parallel_optimizer = row.parallel_optimizer,
             .parallel_optimizer_threshold = row.parallel_optimizer ? 0 : 64 << 10,
             .precision = row.precision,
             .loss_scale = row.loss_scale,
             .seed = 5,
             .session = session});
        for (int64_t step = 0; step < steps_of(row, dtype); ++step) {
          const auto batch = batch_at(row, step, dtype);
          const double value = model.train_step(part_of(batch, 0, 1), row.rows);
          const std::lock_guard lock(mutex);
          // Every rank knows the loss; look at one that has not computed it.
          if (context.rank() == 0) outcome.losses.push_back(value);
        }
        if (const auto* made = dynamic_cast<const session::PipelinedStep*>(model.train_executable())) {
          const std::lock_guard lock(mutex);
          ++outcome.ranks[made->program().stage];
        }
        for (const auto& name : model.names()) {
          const auto value = model.value(name).to_doubles();
          const std::lock_guard lock(mutex);
          if (context.rank() == 0) outcome.values[name] = value;
        }
      },
      options);
  return outcome;
}

// One device that accumulates.
Outcome train_alone(const Row& row, DType dtype, bool reference) {
  Outcome outcome;
  const auto context = cluster::single_context(1);
  const auto network = network_of(row, dtype);
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  Clipped optimizer(row.clip_norm);
  train::Model model(*context, *network, &loss, &optimizer,
                     {.gradient_accumulation_steps = row.micro_batches,
                      .precision = row.precision,
                      .loss_scale = row.loss_scale,
                      .seed = 5,
                      .session = session_on_cpu(reference)});
  for (int64_t step = 0; step < steps_of(row, dtype); ++step) {
    const auto batch = batch_at(row, step, dtype);
    double value = 0;
    for (int64_t k = 0; k < row.micro_batches; ++k) {
      value = model.train_step(part_of(batch, k, row.micro_batches), row.rows / row.micro_batches);
    }
    outcome.losses.push_back(value);
  }
  for (const auto& name : model.names()) outcome.values[name] = model.value(name).to_doubles();
  return outcome;
}

double deviation_of(const Row& row, DType dtype, bool reference) {
  return deviation_between(train_alone(row, dtype, reference), train_pipeline(row, dtype, reference));
}

double deviation_between(const Outcome& one, const Outcome& many) {
  double worst = relative_deviation(one.losses, many.losses);
  if (one.losses.size() == 1) return worst;
  for (const auto& [name, value] : many.values) {
    worst = std::max(worst, relative_deviation(one.values.at(name), value));
  }
  return worst;
}

// So many layers and the head, in so many chunks of one after the other.
Places chain_in(int layers, int chunks) {
  Places cells = {{"head", chunks - 1}};
  for (int i = 0; i < layers; ++i) cells.emplace(fmt::format("layer{}", i), i * chunks / layers);
  return cells;
}

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest finds it by this name
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

}  // namespace tessera::equivalence
