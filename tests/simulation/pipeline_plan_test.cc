// A pipeline as large as they come, planned without running it: the work grows with the network, not with the
// micro-batches.
#include <gtest/gtest.h>

#include <map>

#include "tessera/compiler/pipelines/choose_stages.h"
#include "tessera/compiler/stages/choose_schedule.h"
#include "tessera/compiler/stages/cut_staged_plan.h"
#include "tessera/compiler/stages/make_programs.h"
#include "tessera/nn/container.h"
#include "tessera/nn/gradients/gradient_accumulation.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/transformer/attention.h"
#include "tessera/nn/transformer/embedding.h"
#include "tessera/nn/transformer/feed_forward.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/kernel_catalogue.h"
#include "tessera/pipeline/verify_schedule.h"
#include "tessera/session/trace.h"

namespace tessera::compiler {
namespace {

constexpr int64_t kTokens = 2048;
constexpr int64_t kHidden = 12288;
constexpr int64_t kHeads = 96;
constexpr int64_t kVocabulary = 50264;  // a multiple of eight

struct Block : nn::Cell {
  explicit Block(const nn::TransformerParallel& parallel)
      : attention(child<nn::MultiHeadAttention>("attention", nn::MultiHeadAttentionOptions{.hidden_size = kHidden,
                                                                                           .num_heads = kHeads,
                                                                                           .hidden_dropout_rate = 0,
                                                                                           .attention_dropout_rate = 0,
                                                                                           .causal = true,
                                                                                           .parallel = parallel})),
        feed_forward(child<nn::FeedForward>(
            "feed_forward",
            nn::FeedForwardOptions{
                .hidden_size = kHidden, .ffn_hidden_size = 4 * kHidden, .dropout_rate = 0, .parallel = parallel})) {}
  nn::LayerNorm& norm1 = child<nn::LayerNorm>("norm1", Shape{kHidden});
  nn::LayerNorm& norm2 = child<nn::LayerNorm>("norm2", Shape{kHidden});
  nn::MultiHeadAttention& attention;
  nn::FeedForward& feed_forward;
  using Cell::construct;
  ir::Value construct(ir::Value x) override {
    const ir::Value normed = norm1(x);
    const ir::Value operands[] = {normed, normed, normed};
    x = x + attention(operands);
    return x + feed_forward(norm2(x));
  }
};

struct Gpt : nn::Cell {
  Gpt(int layers, int stages, const nn::TransformerParallel& parallel)
      : words(child<nn::VocabEmbedding>("words", kVocabulary, kHidden)) {
    words.set_stage(0);
    for (int i = 0; i < layers; ++i) {
      blocks.push_back(&child<Block>(fmt::format("block{}", i), parallel));
      blocks.back()->set_stage(i * stages / layers);
    }
    head.set_stage(stages - 1);
  }
  nn::VocabEmbedding& words;
  std::vector<Block*> blocks;
  nn::Dense& head = child<nn::Dense>("head", kHidden, kVocabulary, nn::DenseOptions{.has_bias = false});
  using Cell::construct;
  ir::Value construct(ir::Value ids) override {
    ir::Value x = words(ids);
    for (Block* block : blocks) x = (*block)(x);
    return head(ops::reshape(x, {-1, kHidden}));
  }
};

TEST(PipelinePlan, OfNinetySixLayersHasOneGraphForAllMicroBatches) {
  constexpr int kStages = 8;
  constexpr int kMicroBatches = 64;
  Gpt network(96, kStages, nn::TransformerOpParallelConfig{.data_parallel = 8, .model_parallel = 8});
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  const std::vector<session::InputSpec> inputs = {{"ids", {DType::kI32, {8, kTokens}}},
                                                  {"label", {DType::kI32, {8 * kTokens}}}};
  const auto micro = session::trace_train_step(network, &loss, optimizer, inputs, {.training = true},
                                               {.sens = 1.0 / kMicroBatches, .part = session::StepPart::kAccumulate});
  const auto update = session::trace_update(network, &loss, optimizer, {.training = true});
  StageOptions stages{.num_stages = kStages};
  const auto trainable = network.trainable_parameters();
  const auto accumulators = nn::gradient_accumulators(trainable);
  CompileOptions options;
  options.plan.batch_by_default = true;
  for (size_t i = 0; i < trainable.size(); ++i) {
    stages.accumulators[accumulators[i].full_name()] = trainable[i]->full_name();
    options.plan.partial_states.insert(accumulators[i].full_name());
  }
  const mesh::Mesh mesh({{"data", 64}});
  auto plan = plan_stages(micro, &update, mesh, {}, stages, options);
  const auto chosen = choose_schedule(plan, kMicroBatches, "1f1b", example_profile());
  const auto messages = chunk_messages(plan.micro, plan.placement);
  EXPECT_EQ(messages.size(), 2U * (kStages - 1));  // activations and their gradients
  const auto programs = make_programs(chosen.found.schedule, plan.placement, messages,
                                      {.micro_batches = kMicroBatches, .receive_ahead = 1});
  EXPECT_EQ(programs[0].slots.at(0), kStages + 1);
  EXPECT_EQ(programs[kStages - 1].slots.at(kStages - 1), 2);
  // One rank's program, down to bytes.
  const int stage = 3;
  const auto parts = cut_chunk(plan, stage);
  ASSERT_EQ(parts.phases.size(), 2U);
  for (const auto& phase : parts.phases) {
    Compiled compiled;
    compiled.logical = phase.part.graph;
    compiled.plan = phase.part.plan;
    const int rank = plan.ranks_of(stage)[5];
    compile_rank(compiled, rank, layout_of(compiled, rank), ops::FakeKernelCatalogue(), options);
    EXPECT_FALSE(compiled.schedule.steps.empty());
  }
}

int64_t count_of(const std::string& op, PlannedPart part, int rank) {
  Compiled compiled;
  compiled.logical = std::move(part.graph);
  compiled.plan = std::move(part.plan);
  compile_rank(compiled, rank, layout_of(compiled, rank), ops::FakeKernelCatalogue());
  int64_t count = 0;
  for (ir::NodeId n = 0; n < compiled.local.num_nodes(); ++n) count += compiled.local.node(n).op == op;
  return count;
}

TEST(PipelinePlan, GathersOptimizerShardsOnceAStep) {
  struct Network : nn::Cell {
    Network() {
      first.set_stage(0);
      second.set_stage(1);
    }
    nn::Dense& first = child<nn::Dense>("first", 8, 8);
    nn::Dense& second = child<nn::Dense>("second", 8, 8);
    using Cell::construct;
    ir::Value construct(ir::Value x) override { return second(ops::tanh(first(x))); }
  };
  Network network;
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  const std::vector<session::InputSpec> inputs = {{"x", {DType::kF32, {4, 8}}}, {"y", {DType::kF32, {4, 8}}}};
  const auto micro = session::trace_train_step(network, &loss, optimizer, inputs, {.training = true},
                                               {.part = session::StepPart::kAccumulate});
  const auto update = session::trace_update(network, &loss, optimizer, {.training = true});
  StageOptions stages{.num_stages = 2};
  CompileOptions options;
  options.plan.batch_by_default = true;
  const auto trainable = network.trainable_parameters();
  const auto accumulators = nn::gradient_accumulators(trainable);
  for (size_t i = 0; i < trainable.size(); ++i) {
    stages.accumulators[accumulators[i].full_name()] = trainable[i]->full_name();
    options.plan.partial_states.insert(accumulators[i].full_name());
    options.plan.optimizer_shards.insert(trainable[i]->full_name());
  }
  const auto plan = plan_stages(micro, &update, mesh::Mesh({{"data", 2}}), {}, stages, options);
  const int stage = 1;
  const int rank = plan.ranks_of(stage)[0];
  const auto parts = cut_chunk(plan, stage);
  for (const auto& phase : parts.phases) {
    EXPECT_EQ(count_of("all_gather", phase.part, rank), 0) << pipeline::to_string(phase.kind);
    EXPECT_EQ(phase.part.graph.find_input("second.weight"), nullptr);
  }
  EXPECT_GE(count_of("all_gather", cut_gather(plan, stage), rank), 1);
  EXPECT_FALSE(plan.layouts().at("second.weight").front().sharding.is_replicated());
}

// The gradient of a layer normalisation is one node, whose first result another stage waits for and whose others are
// gradients of parameters.
TEST(PipelinePlan, SumsGradientsOverTheRanksOnceAStep) {
  struct Network : nn::Cell {
    Network() {
      first.set_stage(0);
      norm.set_stage(1);
      middle.set_stage(1);
      last.set_stage(2);
    }
    nn::Dense& first = child<nn::Dense>("first", 8, 8);
    nn::LayerNorm& norm = child<nn::LayerNorm>("norm", Shape{8});
    nn::Dense& middle = child<nn::Dense>("middle", 8, 8);
    nn::Dense& last = child<nn::Dense>("last", 8, 8);
    using Cell::construct;
    ir::Value construct(ir::Value x) override { return last(ops::tanh(middle(norm(ops::tanh(first(x)))))); }
  };
  Network network;
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  const std::vector<session::InputSpec> inputs = {{"x", {DType::kF32, {4, 8}}}, {"y", {DType::kF32, {4, 8}}}};
  const auto micro = session::trace_train_step(network, &loss, optimizer, inputs, {.training = true},
                                               {.part = session::StepPart::kAccumulate});
  const auto update = session::trace_update(network, &loss, optimizer, {.training = true});
  StageOptions stages{.num_stages = 3};
  CompileOptions options;
  options.plan.batch_by_default = true;
  const auto trainable = network.trainable_parameters();
  const auto accumulators = nn::gradient_accumulators(trainable);
  for (size_t i = 0; i < trainable.size(); ++i) {
    stages.accumulators[accumulators[i].full_name()] = trainable[i]->full_name();
    options.plan.partial_states.insert(accumulators[i].full_name());
  }
  const auto plan = plan_stages(micro, &update, mesh::Mesh({{"data", 2}}), {}, stages, options);
  const int stage = 1;
  const int rank = plan.ranks_of(stage)[0];
  int num_backward = 0;
  for (const auto& phase : cut_chunk(plan, stage).phases) {
    num_backward += phase.kind == pipeline::PhaseKind::kForward ? 0 : 1;
    for (const char* op : {"all_reduce", "reduce_scatter"}) {
      EXPECT_EQ(count_of(op, phase.part, rank), 0) << pipeline::to_string(phase.kind);
    }
  }
  EXPECT_EQ(num_backward, 2);  // the weight gradient is split off
  for (const auto& accumulator : accumulators) {
    const auto name = accumulator.full_name();
    const auto* input = plan.micro.find_input(name);
    ASSERT_NE(input, nullptr) << name;
    EXPECT_TRUE(plan.of_stage(plan.placement.values.at(name)).micro.layout(input->value).sharding.is_partial()) << name;
  }
  int64_t sums = 0;
  for (const auto& round : cut_update(plan, stage)) sums += count_of("all_reduce", round, rank);
  EXPECT_GE(sums, 1);
}

// Two blocks on a stage each, of which a micro-batch has twelve rows.
struct Blocks : nn::Cell {
  struct Wide : nn::Cell {
    nn::Dense& up = child<nn::Dense>("up", 8, 64);
    nn::Dense& down = child<nn::Dense>("down", 64, 8);
    using Cell::construct;
    ir::Value construct(ir::Value x) override { return down(ops::tanh(up(x))); }
  };
  explicit Blocks(bool recomputes) {
    first.set_stage(0);
    second.set_stage(1);
    if (!recomputes) return;
    first.recompute();
    second.recompute();
  }
  Wide& first = child<Wide>("first");
  Wide& second = child<Wide>("second");
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return second(first(x)); }
};

StagedPlan plan_blocks(const mesh::StageRanks& ranks, bool recomputes) {
  Blocks network(recomputes);
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  const std::vector<session::InputSpec> inputs = {{"x", {DType::kF32, {12, 8}}}, {"y", {DType::kF32, {12, 8}}}};
  const auto micro = session::trace_train_step(network, &loss, optimizer, inputs, {.training = true},
                                               {.part = session::StepPart::kAccumulate});
  const auto update = session::trace_update(network, &loss, optimizer, {.training = true});
  StageOptions stages{.num_stages = 2};
  const auto trainable = network.trainable_parameters();
  const auto accumulators = nn::gradient_accumulators(trainable);
  std::map<int, WithinStage> within;
  for (const int size : ranks.sizes()) {
    auto& of_size = within[size];
    of_size.mesh = mesh::Mesh({{"data", size}});
    of_size.plan.batch_by_default = true;
    for (const auto& accumulator : accumulators) of_size.plan.partial_states.insert(accumulator.full_name());
  }
  for (size_t i = 0; i < trainable.size(); ++i) {
    stages.accumulators[accumulators[i].full_name()] = trainable[i]->full_name();
  }
  return plan_stages(micro, &update, ranks, within, stages, {});
}

TEST(PipelinePlan, KeepsLessOfBlocksThatAreRecomputed) {
  for (const auto& ranks : {mesh::StageRanks({1, 1}), mesh::StageRanks({1, 2})}) {
    std::vector<pipeline::PipelineProblem> problems;
    for (const bool recomputes : {false, true}) {
      auto plan = plan_blocks(ranks, recomputes);
      choose_schedule(plan, 2, "1f1b", example_profile());
      problems.push_back(pipeline_problem(plan, 2, example_profile()));
    }
    for (size_t chunk = 0; chunk < 2; ++chunk) {
      EXPECT_LT(2 * problems[1].chunks[chunk].activation_bytes, problems[0].chunks[chunk].activation_bytes)
          << ranks.to_string() << ", chunk " << chunk;
    }
  }
}

// Over a border passes what the side with fewer ranks has of a micro-batch, a rank.
TEST(PipelinePlan, IsSimulatedWithAnyNumbersOfRanks) {
  constexpr int64_t kWhole = 12 * 8 * 4;
  const std::vector<std::pair<mesh::StageRanks, int64_t>> cases = {
      {mesh::StageRanks({1, 1}), kWhole},     {mesh::StageRanks({3, 1}), kWhole},
      {mesh::StageRanks({1, 3}), kWhole},     {mesh::StageRanks({2, 2}), kWhole / 2},
      {mesh::StageRanks({4, 2}), kWhole / 2}, {mesh::StageRanks({2, 4}), kWhole / 2}};
  std::map<std::pair<std::string, size_t>, int64_t> slot_bytes;  // by schedule and stage, of ranks that are alone
  for (const auto& [ranks, bytes] : cases) {
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "auto"}) {
      SCOPED_TRACE(ranks.to_string() + ", " + schedule);
      auto plan = plan_blocks(ranks, false);
      const auto simulated =
          simulate_stages(plan, example_profile(), {.micro_batches = 4, .schedule = schedule, .receive_ahead = 1});
      ASSERT_EQ(simulated.traffic.size(), 2U);
      for (const auto& way : simulated.traffic) EXPECT_EQ(way.bytes, bytes);
      EXPECT_GE(simulated.step_seconds(), simulated.bound_seconds());
      EXPECT_TRUE(pipeline::verify(simulated.problem, simulated.found.schedule).empty());
      // A rank of several has fewer rows, and keeps less than one that is alone.
      for (size_t stage = 0; stage < 2; ++stage) {
        const auto kept = simulated.chunks[stage].slot_bytes;
        const auto alone = slot_bytes.try_emplace({schedule, stage}, kept).first->second;
        if (ranks.count(static_cast<int>(stage)) == 1) {
          EXPECT_EQ(kept, alone);
        } else {
          EXPECT_LT(kept, alone);
        }
      }
    }
  }
}

TEST(PipelinePlan, OfNinetySixLayersIsCutByItself) {
  constexpr int kStages = 8;
  constexpr int kMicroBatches = 64;
  Gpt network(96, 1, nn::TransformerOpParallelConfig{.data_parallel = 8, .model_parallel = 8});
  nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
  const auto graphs_of = [&](int micro_batches) {
    const std::vector<session::InputSpec> inputs = {{"ids", {DType::kI32, {8, kTokens}}},
                                                    {"label", {DType::kI32, {8 * kTokens}}}};
    StepGraphs graphs;
    graphs.micro = session::trace_train_step(network, &loss, optimizer, inputs, {.training = true},
                                             {.sens = 1.0 / micro_batches, .part = session::StepPart::kAccumulate});
    graphs.update = session::trace_update(network, &loss, optimizer, {.training = true});
    const auto trainable = network.trainable_parameters();
    const auto accumulators = nn::gradient_accumulators(trainable);
    for (size_t i = 0; i < trainable.size(); ++i) {
      graphs.stages.accumulators[accumulators[i].full_name()] = trainable[i]->full_name();
    }
    return graphs;
  };
  const auto profile = example_profile();
  const StageSearchOptions options{.schedule = "1f1b", .searches_inside = false};
  const ir::Graph whole;
  StagePlanner planner(whole, int64_t{8} * kMicroBatches, graphs_of, kStages * 64, profile, options);
  const auto planned = planner.plan(kStages, kMicroBatches);
  // Twelve layers a stage, give or take what words and head take.
  for (int stage = 0; stage < kStages; ++stage) {
    const int first = planned.begin_of(stage);
    const int last = planned.end_of(stage);
    const double seconds = chunk_seconds(planned.places.problem, first, last);
    EXPECT_GT(seconds, 0.7 * planned.cuts.longest_seconds) << stage;
  }
  EXPECT_GE(planned.step_seconds(), planned.simulated.bound_seconds());
  EXPECT_LT(planned.simulated.found.bubble, 0.2);
  EXPECT_EQ(planned.simulated.chunks[0].slots, kStages + 1);
}

}  // namespace
}  // namespace tessera::compiler
