// Pipelines give the losses and the parameters of one device that accumulates the same micro-batches, whatever their
// schedule: in float64 on reference kernels to 1e-10.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>

#include "tessera/base/random.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/clipping.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/testing/relative_deviation.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"
#include "tests/equivalence/networks.h"
#include "tests/equivalence/where.h"

namespace tessera::equivalence {
namespace {

// What a cell is told.
struct Place {
  Place(int s, int in_segment = 0) : stage(s), segment(in_segment) {}  // NOLINT: a stage alone is a place, too
  int stage;
  int segment;
};
using Places = std::map<std::string, Place>;

struct Row {
  std::string name;
  std::string network;
  int stages = 2;
  Places cells;  // by path
  std::string schedule = "1f1b";
  int ranks_per_stage = 1;
  int64_t micro_batches = 4;
  int64_t rows = 8;
  int receive_ahead = 1;
  std::vector<std::tuple<std::string, std::string, mesh::Strategy>> strategies = {};
  bool parallel_optimizer = false;
  int layers = 0;        // of a chain
  double clip_norm = 0;  // of all gradients together; 0: they are not clipped
  std::optional<nn::LossScale> loss_scale = std::nullopt;
  std::optional<DType> precision = std::nullopt;
  int64_t float32_steps = 10;  // over which float32 is compared; of 1 the losses alone
  int64_t bad_step = -1;       // at which the last micro-batch has an input that is not finite
  comm::SimulatedLink link = {};
};

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> values;
};

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

std::unique_ptr<nn::Cell> network_of(const Row& row, DType dtype) {
  if (row.network == "tied") {
    auto tied = std::make_unique<Tied>();
    nn::set_parameter_dtype(*tied, dtype);
    return tied;
  }
  if (row.layers == 0) return make_network(row.network, dtype);
  auto chain = std::make_unique<Chain>(row.layers);
  nn::set_parameter_dtype(*chain, dtype);
  return chain;
}

std::string batch_of(const Row& row) {
  if (row.network == "tied") return "transformer";
  return row.layers == 0 ? row.network : "mlp";
}

void set_stages(nn::Cell& cell, const Row& row) {
  if (const auto it = row.cells.find(cell.path()); it != row.cells.end()) {
    cell.set_stage(it->second.stage, it->second.segment);
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

Outcome train_pipeline(const Row& row, DType dtype, bool reference) {
  Outcome outcome;
  std::mutex mutex;
  const RunRanksOptions options{.link = row.link};
  run_ranks(
      row.stages * row.ranks_per_stage,
      [&](cluster::Context& context) {
        const auto network = network_of(row, dtype);
        set_stages(*network, row);
        nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
        Clipped optimizer(row.clip_norm);
        auto session = session_there(reference);
        session.verification = reference ? compiler::Verification::kAllRanks : compiler::Verification::kPlan;
        train::Model model(context, *network, &loss, &optimizer,
                           {.parallel_mode = train::ParallelMode::kPipeline,
                            .pipeline = {.stages = row.stages,
                                         .micro_batches = row.micro_batches,
                                         .schedule = row.schedule,
                                         .receive_ahead = row.receive_ahead,
                                         .profile = compiler::example_profile()},
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
  const auto one = train_alone(row, dtype, reference);
  const auto many = train_pipeline(row, dtype, reference);
  double worst = relative_deviation(one.losses, many.losses);
  if (one.losses.size() == 1) return worst;
  for (const auto& [name, value] : many.values) {
    worst = std::max(worst, relative_deviation(one.values.at(name), value));
  }
  return worst;
}

// NOLINTNEXTLINE(readability-identifier-naming): GoogleTest finds it by this name
void PrintTo(const Row& row, std::ostream* out) { *out << row.name; }

class Pipelines : public testing::TestWithParam<Row> {};

TEST_P(Pipelines, GiveLossesAndParametersOfOneDevice) {
  const double exact = deviation_of(GetParam(), DType::kF64, true);
  const double fast = deviation_of(GetParam(), DType::kF32, false);
  std::cout << fmt::format("{}: float64 {:.1e}, float32 {:.1e}\n", GetParam().name, exact, fast);
  EXPECT_LT(exact, 1e-10);
  EXPECT_LT(fast, 1e-4);
}

const Places kMlp2 = {{"up", 0}, {"down", 1}};
const Places kTransformer2 = {{"embedding", 0}, {"norm1", 0}, {"query", 0}, {"key", 0},  {"value", 0},
                              {"output", 0},    {"norm2", 1}, {"up", 1},    {"down", 1}, {"head", 1}};
// Values that skip a stage: the residual goes from the first to the third.
const Places kTransformer3 = {{"embedding", 0}, {"norm1", 0}, {"query", 1}, {"key", 1},  {"value", 1},
                              {"output", 1},    {"norm2", 2}, {"up", 2},    {"down", 2}, {"head", 2}};
const Places kTransformer4 = {{"embedding", 0}, {"norm1", 0}, {"query", 0}, {"key", 1},  {"value", 1},
                              {"output", 2},    {"norm2", 2}, {"up", 3},    {"down", 3}, {"head", 3}};
const Places kTied2 = {{"words", 0}, {"up", 0}, {"down", 1}, {"norm", 1}};
const Places kTied3 = {{"words", 0}, {"up", 1}, {"down", 2}, {"norm", 2}};
const Places kGpt2 = {{"net.word_embedding", 0},
                      {"net.position_embedding", 0},
                      {"net.blocks.0", 0},
                      {"net.blocks.1", 1},
                      {"net.norm", 1}};
const Places kTranslator2 = {{"net.src_embedding", 0},
                             {"net.base1.encoder", 0},
                             {"net.tgt_embedding", 1},
                             {"net.base1.decoder", 1},
                             {"net.head", 1}};
const Places kResNet50 = {{"head", 0}, {"layer1", 0}, {"layer2", 0}, {"layer3", 1}, {"layer4", 1}, {"fc", 1}};
const Places kResNet2 = {{"stem", 0}, {"bn", 0}, {"conv1", 1}, {"bn1", 1}, {"down", 1}, {"fc", 1}};

// Cut finer, into chunks that are numbered here as stages are.
const Places kTied4 = {{"words", 0}, {"up", 1}, {"down", 2}, {"norm", 3}};
const Places kResNet4 = {{"stem", 0}, {"bn", 0}, {"conv1", 1}, {"bn1", 1}, {"down", 2}, {"fc", 3}};

// So many layers and the head, in so many chunks of one after the other.
Places chain_in(int layers, int chunks) {
  Places cells = {{"head", chunks - 1}};
  for (int i = 0; i < layers; ++i) cells.emplace(fmt::format("layer{}", i), i * chunks / layers);
  return cells;
}

// Chunk after chunk on the stages in turn, and again; or there and back.
Places in_turn(const Places& chunks, int stages) {
  Places cells;
  for (const auto& [cell, at] : chunks) cells.emplace(cell, Place(at.stage % stages, at.stage / stages));
  return cells;
}
Places there_and_back(const Places& chunks, int stages) {
  Places cells;
  for (const auto& [cell, at] : chunks) {
    cells.emplace(cell, at.stage < stages ? Place(at.stage) : Place(2 * stages - 1 - at.stage, 1));
  }
  return cells;
}

// Several chunks on a stage.
void add_chunks(std::vector<Row>& all) {
  const auto add = [&](Row row, const std::string& schedule) {
    row.name += "_" + schedule;
    row.schedule = schedule;
    all.push_back(std::move(row));
  };
  for (const char* schedule : {"gpipe", "interleaved_1f1b", "auto"}) {
    add({.name = "transformer_2x2", .network = "transformer", .cells = in_turn(kTransformer4, 2)}, schedule);
    add({.name = "chain_4x2", .stages = 4, .cells = in_turn(chain_in(9, 8), 4), .layers = 9}, schedule);
    add({.name = "resnet_2x2", .network = "resnet", .cells = in_turn(kResNet4, 2)}, schedule);
    add({.name = "tied_2x2", .network = "tied", .cells = in_turn(kTied4, 2)}, schedule);
  }
  for (const char* schedule : {"gpipe", "zb_v", "auto"}) {
    add({.name = "transformer_2_and_back", .network = "transformer", .cells = there_and_back(kTransformer4, 2)},
        schedule);
    add({.name = "chain_4_and_back", .stages = 4, .cells = there_and_back(chain_in(9, 8), 4), .layers = 9}, schedule);
    add({.name = "resnet_2_and_back", .network = "resnet", .cells = there_and_back(kResNet4, 2)}, schedule);
    // The table is read by two chunks of one stage.
    add({.name = "tied_2_and_back", .network = "tied", .cells = there_and_back(kTied4, 2)}, schedule);
  }
  add({.name = "chain_2x4", .stages = 2, .cells = in_turn(chain_in(9, 8), 2), .layers = 9}, "interleaved_1f1b");
  add({.name = "transformer_2x2_data_2",
       .network = "transformer",
       .cells = in_turn(kTransformer4, 2),
       .ranks_per_stage = 2,
       .rows = 16},
      "interleaved_1f1b");
  for (const bool shards : {false, true}) {
    const std::string suffix = shards ? "_optimizer_shards" : "_data_2";
    const auto add_shared = [&](const std::string& name, const Places& cells, const std::string& schedule) {
      add({.name = name + suffix,
           .network = "tied",
           .cells = cells,
           .ranks_per_stage = 2,
           .parallel_optimizer = shards,
           .clip_norm = 0.1},
          schedule);
    };
    add_shared("tied_2x2", in_turn(kTied4, 2), "interleaved_1f1b");
    add_shared("tied_2_and_back", there_and_back(kTied4, 2), "zb_v");
  }
  add({.name = "transformer_2x2_loss_scale",
       .network = "transformer",
       .cells = in_turn(kTransformer4, 2),
       .loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 16, .scale_window = 3})},
      "interleaved_1f1b");
  add({.name = "chain_4x2_no_ahead", .stages = 4, .cells = in_turn(chain_in(9, 8), 4), .receive_ahead = 0, .layers = 9},
      "interleaved_1f1b");
  add({.name = "chain_4_and_back_no_ahead",
       .stages = 4,
       .cells = there_and_back(chain_in(9, 8), 4),
       .micro_batches = 6,
       .rows = 12,
       .receive_ahead = 0,
       .layers = 9},
      "zb_v");
}

std::vector<Row> rows() {
  std::vector<Row> all;
  add_chunks(all);
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "auto"}) {
    const std::string suffix = std::string("_") + schedule;
    const auto add = [&](Row row) {
      row.name += suffix;
      row.schedule = schedule;
      all.push_back(std::move(row));
    };
    add({.name = "mlp_2", .network = "mlp", .cells = kMlp2});
    add({.name = "mlp_2_data_2", .network = "mlp", .cells = kMlp2, .ranks_per_stage = 2});
    add({.name = "transformer_2", .network = "transformer", .cells = kTransformer2});
    add({.name = "transformer_3", .network = "transformer", .stages = 3, .cells = kTransformer3});
    add({.name = "transformer_4", .network = "transformer", .stages = 4, .cells = kTransformer4});
    add({.name = "transformer_2_data_2",
         .network = "transformer",
         .cells = kTransformer2,
         .ranks_per_stage = 2,
         .micro_batches = 4,
         .rows = 16});
    add({.name = "gpt_2", .network = "gpt", .cells = kGpt2});
    add({.name = "translator_2", .network = "translator", .cells = kTranslator2});
    add({.name = "resnet_2", .network = "resnet", .cells = kResNet2});
    add({.name = "resnet_2_data_2", .network = "resnet", .cells = kResNet2, .ranks_per_stage = 2});
  }
  // Within a stage: columns and rows of products, optimizer shards, parts of unequal size.
  const std::vector<std::tuple<std::string, std::string, mesh::Strategy>> split = {
      {"up", "matmul", {{2, 1}, {2, 1}}}, {"down", "matmul", {{2, 2}, {1, 2}}}};
  all.push_back({.name = "transformer_2_data_2_model_2",
                 .network = "transformer",
                 .cells = kTransformer2,
                 .ranks_per_stage = 4,
                 .strategies = split});
  all.push_back(
      {.name = "mlp_2_data_2_model_2", .network = "mlp", .cells = kMlp2, .ranks_per_stage = 4, .strategies = split});
  const std::vector<std::pair<std::string, Places>> sharded = {{"mlp", kMlp2},
                                                               {"transformer", kTransformer2},
                                                               {"resnet", kResNet2},
                                                               {"gpt", kGpt2},
                                                               {"translator", kTranslator2}};
  for (const auto& [network, cells] : sharded) {
    all.push_back({.name = fmt::format("{}_2_optimizer_shards", network),
                   .network = network,
                   .cells = cells,
                   .schedule = "zb_h1",
                   .ranks_per_stage = 2,
                   .parallel_optimizer = true});
  }
  all.push_back({.name = "transformer_2_data_3_uneven",
                 .network = "transformer",
                 .cells = kTransformer2,
                 .ranks_per_stage = 3,
                 .micro_batches = 2,
                 .rows = 14});
  all.push_back({.name = "gpt_2_data_2", .network = "gpt", .cells = kGpt2, .ranks_per_stage = 2});
  // ResNet-50 as it is. Its statistics are of four rows and one pixel: what float32 rounds grows with each step.
  all.push_back(
      {.name = "resnet50_2", .network = "resnet50", .cells = kResNet50, .micro_batches = 2, .float32_steps = 1});
  // A parameter of two stages, in every way that one stage may be split.
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "auto"}) {
    all.push_back(
        {.name = fmt::format("tied_2_{}", schedule), .network = "tied", .cells = kTied2, .schedule = schedule});
  }
  all.push_back({.name = "tied_3", .network = "tied", .stages = 3, .cells = kTied3});
  all.push_back({.name = "tied_2_data_2", .network = "tied", .cells = kTied2, .ranks_per_stage = 2});
  all.push_back({.name = "tied_2_optimizer_shards",
                 .network = "tied",
                 .cells = kTied2,
                 .schedule = "zb_h1",
                 .ranks_per_stage = 2,
                 .parallel_optimizer = true});
  // The norm of all gradients; less than what it is at first.
  all.push_back({.name = "mlp_2_clipped", .network = "mlp", .cells = kMlp2, .clip_norm = 0.1});
  all.push_back(
      {.name = "mlp_2_data_2_clipped", .network = "mlp", .cells = kMlp2, .ranks_per_stage = 2, .clip_norm = 0.1});
  all.push_back({.name = "tied_3_clipped", .network = "tied", .stages = 3, .cells = kTied3, .clip_norm = 0.1});
  all.push_back({.name = "tied_2_optimizer_shards_clipped",
                 .network = "tied",
                 .cells = kTied2,
                 .ranks_per_stage = 2,
                 .parallel_optimizer = true,
                 .clip_norm = 0.1});
  // A loss scale, fixed and rising.
  all.push_back({.name = "transformer_3_loss_scale",
                 .network = "transformer",
                 .stages = 3,
                 .cells = kTransformer3,
                 .loss_scale = nn::fixed_loss_scale(64)});
  all.push_back({.name = "tied_2_data_2_dynamic_loss_scale",
                 .network = "tied",
                 .cells = kTied2,
                 .ranks_per_stage = 2,
                 .clip_norm = 0.1,
                 .loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 16, .scale_window = 3})});
  // No room but for what is in work.
  for (const char* schedule : {"gpipe", "1f1b", "zb_h2"}) {
    all.push_back({.name = fmt::format("transformer_3_no_ahead_{}", schedule),
                   .network = "transformer",
                   .stages = 3,
                   .cells = kTransformer3,
                   .schedule = schedule,
                   .micro_batches = 6,
                   .rows = 12,
                   .receive_ahead = 0});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Matrix, Pipelines, testing::ValuesIn(rows_there(rows())),
                         [](const auto& info) { return info.param.name; });

// Gradients of a stage are rounded before they are added to another's: half types are not equal to the last bit.
TEST(HalfPrecisionPipelines, GiveTheLossesOfOneDeviceAsFarAsTheyReach) {
  const auto scale = nn::dynamic_loss_scale({.init_loss_scale = 1024, .scale_window = 4});
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int ranks_per_stage : {1, 2}) {
      const Row row{.name = fmt::format("tied_3_{}_data_{}", to_string(dtype), ranks_per_stage),
                    .network = "tied",
                    .stages = 3,
                    .cells = kTied3,
                    .ranks_per_stage = ranks_per_stage,
                    .clip_norm = 0.5,
                    .loss_scale = scale,
                    .precision = dtype};
      const auto one = train_alone(row, DType::kF32, false);
      const auto many = train_pipeline(row, DType::kF32, false);
      const double deviation = relative_deviation(one.losses, many.losses);
      const double of_table =
          relative_deviation(one.values.at("words.embedding_table"), many.values.at("words.embedding_table"));
      std::cout << fmt::format("{}: losses {:.1e}, table {:.1e}\n", row.name, deviation, of_table);
      EXPECT_LT(std::max(deviation, of_table), dtype == DType::kBF16 ? 1e-2 : 1e-3) << row.name;
      EXPECT_EQ(many.values.at(nn::kLossScale), std::vector<double>{4096}) << "no step was skipped";
    }
  }
}

// The losses of steps that are not skipped; which steps are is the same.
std::vector<double> finite_losses(const Outcome& outcome, const std::string& row, std::vector<int64_t> skipped) {
  std::vector<double> losses;
  std::vector<int64_t> found;
  for (size_t step = 0; step < outcome.losses.size(); ++step) {
    if (std::isfinite(outcome.losses[step])) {
      losses.push_back(outcome.losses[step]);
    } else {
      found.push_back(static_cast<int64_t>(step));
    }
  }
  EXPECT_EQ(found, skipped) << row;
  return losses;
}

// A step whose last micro-batch is not finite leaves no trace on any stage but a smaller scale.
TEST(HalfPrecisionPipelines, SkipTheStepsThatOneDeviceSkips) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const char* schedule : {"1f1b", "zb_h1"}) {
      for (const int ranks_per_stage : {1, 2}) {
        const Row row{.name = fmt::format("mlp_2_{}_data_{}_{}", to_string(dtype), ranks_per_stage, schedule),
                      .network = "mlp",
                      .cells = kMlp2,
                      .schedule = schedule,
                      .ranks_per_stage = ranks_per_stage,
                      .loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 1024, .scale_window = 100}),
                      .precision = dtype,
                      .bad_step = 4};
        const auto one = train_alone(row, DType::kF32, false);
        const auto many = train_pipeline(row, DType::kF32, false);
        const double deviation =
            relative_deviation(finite_losses(one, row.name, {4}), finite_losses(many, row.name, {4}));
        std::cout << fmt::format("{}: losses {:.1e}\n", row.name, deviation);
        EXPECT_LT(deviation, dtype == DType::kBF16 ? 1e-2 : 1e-3) << row.name;
        EXPECT_EQ(one.values.at(nn::kLossScale), std::vector<double>{512}) << row.name;
        EXPECT_EQ(many.values.at(nn::kLossScale), std::vector<double>{512}) << row.name;
      }
    }
  }
}

// Gradients that f16 has no number for: a scale that is too large falls step by step, alike.
TEST(HalfPrecisionPipelines, FindTheScaleThatOneDeviceFinds) {
  for (const char* network : {"tied", "gpt"}) {
    const std::string_view name = network;
    const Row row{.name = fmt::format("{}_2_f16", network),
                  .network = network,
                  .cells = name == "tied" ? kTied2 : kGpt2,
                  .loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 1 << 22, .scale_window = 100}),
                  .precision = DType::kF16};
    const auto one = train_alone(row, DType::kF32, false);
    const auto many = train_pipeline(row, DType::kF32, false);
    EXPECT_LT(many.values.at(nn::kLossScale)[0], 1 << 22) << row.name << ": no step was skipped";
    EXPECT_EQ(many.values.at(nn::kLossScale), one.values.at(nn::kLossScale)) << row.name;
    const double deviation = relative_deviation(one.losses, many.losses);
    std::cout << fmt::format("{}: losses {:.1e}, the scale falls to {}\n", row.name, deviation,
                             many.values.at(nn::kLossScale)[0]);
    EXPECT_LT(deviation, 1e-3) << row.name;
  }
}

// Some stages once more, up or down; half of the pipelines go over them only once.
std::vector<Place> random_chunks(int stages, const std::function<int64_t(int64_t)>& below) {
  std::vector<Place> chunks;
  for (int stage = 0; stage < stages; ++stage) chunks.emplace_back(stage);
  for (int64_t segment = 1, count = below(2) * (1 + below(2)); segment <= count; ++segment) {
    std::vector<Place> more;
    for (int stage = 0; stage < stages; ++stage) {
      if (below(4) > 0) more.emplace_back(stage, static_cast<int>(segment));
    }
    if (more.empty()) break;
    if (below(2) == 0) std::reverse(more.begin(), more.end());
    chunks.insert(chunks.end(), more.begin(), more.end());
  }
  return chunks;
}

// Cut anywhere, in any order that there is a name for, with any number of slots, over links that are slow.
TEST(RandomPipelines, GiveLossesAndParametersOfOneDevice) {
  const char* const schedules[] = {"gpipe", "1f1b", "zb_h1", "auto"};
  for (uint64_t seed = 1; seed <= 30; seed += stride_there()) {
    int64_t draws = 0;
    const auto below = [&](int64_t limit) { return random_below({.seed = seed}, draws++, limit); };
    Row row{.name = fmt::format("seed {}", seed), .stages = static_cast<int>(2 + below(3))};
    const auto chunks = random_chunks(row.stages, below);
    const bool is_once = static_cast<int>(chunks.size()) == row.stages;
    row.layers = static_cast<int>(static_cast<int64_t>(chunks.size()) + below(4));
    row.schedule = is_once ? schedules[below(4)] : below(2) == 0 ? "gpipe" : "auto";
    row.micro_batches = row.stages + static_cast<int64_t>(below(4));
    row.ranks_per_stage = row.stages == 2 ? static_cast<int>(1 + below(2)) : 1;
    row.rows = row.micro_batches * static_cast<int64_t>(row.ranks_per_stage + below(2));
    row.receive_ahead = static_cast<int>(below(3));
    row.link.latency_us = static_cast<double>(below(3) * 40);
    // A cut behind some of the layers; the head is in the last chunk.
    std::set<int> cuts;
    while (cuts.size() < chunks.size() - 1) cuts.insert(static_cast<int>(below(row.layers)));
    auto chunk = chunks.begin();
    std::string places;
    for (int i = 0; i < row.layers; ++i) {
      row.cells.emplace(fmt::format("layer{}", i), *chunk);
      if (cuts.contains(i)) ++chunk;
    }
    row.cells.emplace("head", *chunk);
    for (const Place& place : chunks) places += fmt::format(" {}.{}", place.stage, place.segment);
    SCOPED_TRACE(fmt::format("{}: {} stages of {}, chunks{}, {} micro-batches, {}, {} ahead, {} us", row.name,
                             row.stages, row.ranks_per_stage, places, row.micro_batches, row.schedule,
                             row.receive_ahead, row.link.latency_us));
    EXPECT_LT(deviation_of(row, DType::kF64, true), 1e-10);
  }
}

}  // namespace
}  // namespace tessera::equivalence
