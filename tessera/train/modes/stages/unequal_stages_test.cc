// Stages with different numbers of ranks through Model: training, evaluation, prediction, checkpoints, skipped steps,
// strategy files, and what is refused. tests/equivalence/unequal_pipelines_test.cc compares more networks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>

#include "tessera/base/logging.h"
#include "tessera/checkpoint/convert/merge_strategies.h"
#include "tessera/checkpoint/convert/transform.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/checkpoint/strategy/placement.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/transformer/embedding.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/relative_deviation.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"
#include "tessera/train/modes/stages/found_cuts.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;

constexpr int64_t kMicroBatches = 4;
constexpr int64_t kRows = 12;

// The table of the embedding is the output projection; statistics are moved, noise is drawn.
struct Tied : nn::Cell {
  // On so many stages; 0: none is named.
  explicit Tied(int stages) {
    if (stages == 0) return;
    words.set_stage(0);
    norm.set_stage(0);
    dropout.set_stage(0);
    middle.set_stage(stages / 2);
    last.set_stage(stages - 1);
  }
  nn::Embedding& words = child<nn::Embedding>("words", 11, 8);
  nn::BatchNorm1d& norm = child<nn::BatchNorm1d>("norm", 8);
  nn::Dropout& dropout = child<nn::Dropout>("dropout", 0.9);
  nn::Dense& middle = child<nn::Dense>("middle", 8, 8);
  nn::Dense& last = child<nn::Dense>("last", 8, 8);
  using Cell::construct;
  ir::Value construct(ir::Value ids) override {
    const ir::Value x = last(ops::tanh(middle(dropout(norm(words(ids))))));
    return ops::matmul(x, words.table().in(graph()), /*transpose_a=*/false, /*transpose_b=*/true);
  }
};

std::vector<Tensor> words_of(int64_t step) {
  std::vector<Tensor> batch;
  for (const int64_t factor : {7, 3}) {
    auto& column = batch.emplace_back(Type{DType::kI32, {kRows}});
    for (int64_t row = 0; row < kRows; ++row) {
      column.values<int32_t>()[static_cast<size_t>(row)] = static_cast<int32_t>((factor * row + step) % 11);
    }
  }
  return batch;
}

// Rows [first, first + count) of a batch.
double train_rows(Model& model, int64_t step, int64_t first, int64_t count) {
  const auto batch = words_of(step);
  const std::vector<mesh::Range> rows = {{first, count}};
  return model.train_step({mesh::piece_of(batch[0].view(), rows), mesh::piece_of(batch[1].view(), rows)}, count);
}

ModelOptions options_for(const std::vector<int>& ranks) {
  if (ranks.empty()) return {.gradient_accumulation_steps = kMicroBatches, .seed = 7};
  return {.parallel_mode = ParallelMode::kPipeline,
          .pipeline = {.ranks = ranks,
                       .micro_batches = kMicroBatches,
                       .schedule = "1f1b",
                       .profile = compiler::example_profile()},
          .seed = 7};
}

struct Steps {
  int64_t first = 0;
  int64_t count = 3;
  std::string load = {};          // before
  std::string save = {};          // afterwards
  std::string save_of_rank = {};  // the directory in which each rank has one of its own
  bool integrated = false;
  bool has_shards = false;
  std::vector<std::string> strategies = {};  // the file of each stage
};

struct Outcome {
  std::vector<double> losses;
  std::vector<double> predicted;
  std::map<std::string, std::vector<double>> values;
};

// In a pipeline of these ranks by stage; none: on one device that accumulates the same micro-batches.
Outcome train(const std::vector<int>& ranks, const Steps& steps) {
  Outcome outcome;
  std::mutex mutex;
  int num_ranks = ranks.empty() ? 1 : 0;
  for (const int count : ranks) num_ranks += count;
  run_ranks(num_ranks, [&](cluster::Context& context) {
    Tied network(static_cast<int>(ranks.size()));
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Adam optimizer({.learning_rate = 0.02});
    auto options = options_for(ranks);
    options.parallel_optimizer = steps.has_shards;
    options.parallel_optimizer_threshold = 0;
    if (!steps.strategies.empty()) {
      options.strategy_ckpt_save_file =
          steps.strategies[static_cast<size_t>(mesh::StageRanks(ranks).stage_of(context.rank()))];
    }
    Model model(context, network, &loss, &optimizer, options);
    if (!steps.load.empty()) model.load_checkpoint(steps.load, {.accept_other_jobs = true});
    std::vector<double> losses;
    for (int64_t step = steps.first; step < steps.first + steps.count; ++step) {
      if (!ranks.empty()) {
        losses.push_back(train_rows(model, step, 0, kRows));
        continue;
      }
      constexpr int64_t kPart = kRows / kMicroBatches;
      for (int64_t k = 1; k < kMicroBatches; ++k) train_rows(model, step, (k - 1) * kPart, kPart);
      losses.push_back(train_rows(model, step, kRows - kPart, kPart));
    }
    if (!steps.save.empty()) model.save_checkpoint(steps.save, {.integrated = steps.integrated});
    if (!steps.save_of_rank.empty()) {
      model.save_checkpoint(fmt::format("{0}/rank_{1}/CKP{1}", steps.save_of_rank, context.rank()),
                            {.integrated = false});
    }
    const auto predicted = model.predict({words_of(9)[0]}).to_doubles();
    std::map<std::string, std::vector<double>> values;
    for (const auto& name : model.names()) values[name] = model.value(name).to_doubles();
    const std::lock_guard lock(mutex);
    if (context.rank() == 0) outcome = {losses, predicted, values};
    EXPECT_EQ(losses.size(), static_cast<size_t>(steps.count));
  });
  return outcome;
}

void expect_alike(const Outcome& one, const Outcome& many) {
  EXPECT_LT(relative_deviation(one.losses, many.losses), 1e-5);
  EXPECT_LT(relative_deviation(one.predicted, many.predicted), 1e-4);
  for (const auto& [name, value] : many.values) {
    EXPECT_LT(relative_deviation(one.values.at(name), value), 1e-4) << name;
  }
}

// All that a rank has, by name, bit by bit.
std::map<std::string, std::vector<std::byte>> bits_of(Model& model) {
  std::map<std::string, std::vector<std::byte>> bits;
  for (const auto& name : model.session().names()) {
    const Tensor value = model.session().values().read(name);
    bits[name].assign(value.bytes().begin(), value.bytes().end());
  }
  return bits;
}

class UnequalStages : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-unequal-{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_;
};

TEST_F(UnequalStages, TrainAndPredictAsOneDevice) {
  const auto one = train({}, {});
  for (const auto& ranks : std::vector<std::vector<int>>{{3, 1}, {1, 3}, {2, 1, 1}, {1, 2}}) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(ranks, " + ")));
    expect_alike(one, train(ranks, {}));
    expect_alike(one, train(ranks, {.has_shards = true}));
  }
}

// From each of them to each other, with whole files and with slices.
TEST_F(UnequalStages, GoOnFromACheckpointOfOtherStages) {
  const std::vector<std::vector<int>> all = {{3, 1}, {}, {2, 2}, {1, 3}, {2, 1, 1}};
  const auto whole = train({}, {.count = 6});
  auto rest = whole;
  rest.losses.erase(rest.losses.begin(), rest.losses.begin() + 3);
  for (size_t from = 0; from < all.size(); ++from) {
    const auto name = fmt::format("from{}", from);
    const bool has_shards = from % 2 == 0 && !all[from].empty();
    train(all[from], {.save = in(name + "/slices"), .has_shards = has_shards});
    for (size_t to = 0; to < all.size(); ++to) {
      if (from != 0 && to != 0) continue;
      SCOPED_TRACE(fmt::format("from {} to {}", fmt::join(all[from], " + "), fmt::join(all[to], " + ")));
      const Steps steps{.first = 3, .load = in(name + "/slices.ckpt"), .has_shards = to == 0};
      expect_alike(rest, train(all[to], steps));
    }
  }
  train({3, 1}, {.save = in("one/file"), .integrated = true});
  expect_alike(rest, train({1, 3}, {.first = 3, .load = in("one/file.ckpt")}));
}

// A rank's file of its own folder lacks what other stages have, and says so.
TEST_F(UnequalStages, GoOnFromFoldersOfRanks) {
  const auto whole = train({}, {.count = 6});
  auto rest = whole;
  rest.losses.erase(rest.losses.begin(), rest.losses.begin() + 3);
  for (const auto& ranks : std::vector<std::vector<int>>{{2, 2}, {3, 1}}) {
    const auto folder = in(fmt::format("of_{}", ranks[0]));
    train(ranks, {.save_of_rank = folder});
    for (const auto& others : std::vector<std::vector<int>>{{}, {2, 2}, {1, 1}}) {
      SCOPED_TRACE(fmt::format("from {} to {}", fmt::join(ranks, " + "), fmt::join(others, " + ")));
      expect_alike(rest, train(others, {.first = 3, .load = folder}));
      expect_alike(rest, train(others, {.first = 3, .load = folder + "/rank_1/CKP1.ckpt"}));
    }
    for (int rank = ranks[0]; rank < 4; ++rank) std::filesystem::remove_all(fmt::format("{}/rank_{}", folder, rank));
    for (const auto& path : {folder, folder + "/rank_0/CKP0.ckpt"}) {
      EXPECT_THAT([&] { train({}, {.first = 3, .load = path}); },
                  testing::ThrowsMessage<Error>(HasSubstr("holds only one rank's part")));
    }
  }
}

TEST_F(UnequalStages, KeepAParameterOfTwoStagesEqualToTheBit) {
  std::map<int, std::vector<std::byte>> tables;
  std::mutex mutex;
  run_ranks(6, [&](cluster::Context& context) {
    Tied network(3);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Adam optimizer({.learning_rate = 0.02});
    Model model(context, network, &loss, &optimizer, options_for({3, 1, 2}));
    for (int64_t step = 0; step < 5; ++step) train_rows(model, step, 0, kRows);
    const auto bits = bits_of(model);
    const std::string table = network.words.table().full_name();
    const std::lock_guard lock(mutex);
    tables[context.rank()] = bits.at(table);
    // Once: the optimizer's states are on the first stage.
    EXPECT_EQ(bits.at("moment1." + table).empty(), context.rank() >= 3);
  });
  EXPECT_FALSE(tables[0].empty());
  EXPECT_TRUE(tables[3].empty());
  for (const int rank : {1, 2, 4, 5}) EXPECT_EQ(tables[rank], tables[0]) << rank;
}

TEST_F(UnequalStages, LeaveAllBitsWhereAStepIsSkipped) {
  run_ranks(4, [](cluster::Context& context) {
    Tied network(2);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Adam optimizer({.learning_rate = 0.02});
    auto options = options_for({3, 1});
    options.loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 4, .scale_window = 2});
    Model model(context, network, &loss, &optimizer, options);
    train_rows(model, 0, 0, kRows);
    EXPECT_FALSE(model.was_skipped());
    model.set_value(nn::kLossScale, Tensor::full({DType::kF32, {}}, 3e38));
    model.set_value("last.bias", Tensor::full({DType::kF32, {8}}, 100));
    auto before = bits_of(model);
    train_rows(model, 1, 0, kRows);
    EXPECT_TRUE(model.was_skipped());
    auto after = bits_of(model);
    for (auto* all : {&before, &after}) {
      all->erase(nn::kLossScale);
      all->erase("loss_scale_clean_steps");
    }
    for (const auto& [name, bits] : before)
      EXPECT_TRUE(after.at(name) == bits) << name << " of rank " << context.rank();
    model.set_value(nn::kLossScale, Tensor::full({DType::kF32, {}}, 4));
    EXPECT_TRUE(std::isfinite(train_rows(model, 1, 0, kRows)));
    EXPECT_FALSE(model.was_skipped());
  });
}

// The strategy files of the stages, merged, say what the slices of all ranks are: one file comes of them.
TEST_F(UnequalStages, AreConvertedByTheirStrategyFiles) {
  for (const auto& ranks : std::vector<std::vector<int>>{{1, 2}, {4, 1}}) {
    const auto name = fmt::format("of_{}", fmt::join(ranks, "_"));
    std::filesystem::create_directories(in(name + "/strategies"));
    const auto trained =
        train(ranks, {.save_of_rank = in(name + "/src"),
                      .has_shards = true,
                      .strategies = {in(name + "/strategies/0.ckpt"), in(name + "/strategies/1.ckpt")}});
    auto& files = FileSystem::local();
    checkpoint::merge_pipeline_strategys(files, in(name + "/strategies"), in(name + "/merged.ckpt"));
    const auto strategies = checkpoint::ParameterPlacement::read(files, in(name + "/merged.ckpt"));
    EXPECT_EQ(strategies.num_ranks(), ranks[0] + ranks[1]);
    checkpoint::transform_checkpoints(files, in(name + "/src"), in(name + "/one"), "whole", in(name + "/merged.ckpt"),
                                      "");
    const auto joined = checkpoint::load(files, in(name + "/one/rank_0/whole0.ckpt"));
    for (const char* value : {"words.embedding_table", "middle.weight", "last.weight", "moment1.last.weight"}) {
      ASSERT_NE(joined.find(value), nullptr) << value;
      EXPECT_EQ(joined.find(value)->read().to_doubles(), trained.values.at(value)) << value;
    }
  }
}

// Its first cell, which cannot be cut, takes long and has few parameters; the others have many.
struct Uneven : nn::Cell {
  struct Repeated : nn::Cell {
    nn::Dense& layer = child<nn::Dense>("layer", 8, 8);
    using Cell::construct;
    ir::Value construct(ir::Value x) override {
      for (int i = 0; i < 20; ++i) x = ops::tanh(x + layer(x));
      return x;
    }
  };
  nn::Embedding& words = child<nn::Embedding>("words", 11, 8);
  Repeated& repeated = child<Repeated>("repeated");
  nn::Dense& up = child<nn::Dense>("up", 8, 24);
  nn::Dense& down = child<nn::Dense>("down", 24, 11);
  using Cell::construct;
  ir::Value construct(ir::Value ids) override { return down(ops::tanh(up(repeated(words(ids))))); }
};

TEST_F(UnequalStages, AreFoundWhereAStretchTakesLongAndTrainAsOneDevice) {
  const compiler::Link link{.bytes_per_second = 5e7, .latency_seconds = 1e-7};
  const compiler::MachineProfile profile{.name = "slow links",
                                         .flops_per_second = {{DType::kF32, 1e9}},
                                         .memory_bytes_per_second = 1e13,
                                         .kernel_overhead_seconds = 1e-9,
                                         .ranks_per_host = 8,
                                         .intra_host = link,
                                         .inter_host = link};
  const auto train_uneven = [&](bool is_searched) {
    Outcome outcome;
    std::mutex mutex;
    run_ranks(is_searched ? 4 : 1, [&](cluster::Context& context) {
      Uneven network;
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      nn::Adam optimizer({.learning_rate = 0.02});
      ModelOptions options{.gradient_accumulation_steps = kMicroBatches, .seed = 7};
      if (is_searched) {
        options = {.parallel_mode = ParallelMode::kAutomatic,
                   .pipeline = {.stages = StageCount::automatic(),
                                .micro_batches = kMicroBatches,
                                .schedule = "1f1b",
                                .profile = profile},
                   .seed = 7};
      }
      Model model(context, network, &loss, &optimizer, options);
      std::vector<double> losses;
      constexpr int64_t kPart = kRows / kMicroBatches;
      for (int64_t step = 0; step < 3; ++step) {
        for (int64_t k = 1; !is_searched && k < kMicroBatches; ++k) train_rows(model, step, (k - 1) * kPart, kPart);
        losses.push_back(is_searched ? train_rows(model, step, 0, kRows)
                                     : train_rows(model, step, kRows - kPart, kPart));
      }
      const auto predicted = model.predict({words_of(9)[0]}).to_doubles();
      std::map<std::string, std::vector<double>> values;
      for (const auto& name : model.names()) values[name] = model.value(name).to_doubles();
      const std::lock_guard lock(mutex);
      if (context.rank() == 0) outcome = {losses, predicted, values};
    });
    return outcome;
  };
  set_log_level(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  const auto many = train_uneven(true);
  const auto log = testing::internal::GetCapturedStderr();
  set_log_level(LogLevel::kWarning);
  EXPECT_THAT(log, HasSubstr("cut into 2 stages of 3 + 1 ranks; by the profile \"slow links\""));
  expect_alike(train_uneven(false), many);
}

std::string refusal(int num_ranks, const PipelineOptions& pipeline, const mesh::Strategy& of_last = {}) {
  try {
    run_ranks(num_ranks, [&](cluster::Context& context) {
      Tied network(2);
      if (!of_last.empty()) network.last.shard("matmul", of_last);
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      nn::Adam optimizer({.learning_rate = 0.02});
      auto options = options_for({3, 1});
      options.pipeline = pipeline;
      options.pipeline.micro_batches = kMicroBatches;
      options.pipeline.profile = compiler::example_profile();
      Model model(context, network, &loss, &optimizer, options);
      train_rows(model, 0, 0, kRows);
    });
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(UnequalStages, AreRefusedWhereRanksOrStrategiesDoNotFit) {
  EXPECT_THAT(refusal(3, {.ranks = {3, 1}}),
              HasSubstr("pipeline.ranks = [3, 1] deals out 4 ranks, the job has 3: the stages have all of them"));
  EXPECT_THAT(refusal(4, {.ranks = {4, 0}}),
              HasSubstr("pipeline.ranks = [4, 0]: stage 1 has 0 ranks, each stage needs one at least"));
  EXPECT_THAT(refusal(4, {.stages = 3, .ranks = {3, 1}}),
              HasSubstr("pipeline.ranks = [3, 1] says how many ranks 2 stages have, but pipeline.stages is 3"));
  EXPECT_THAT(refusal(3, {.stages = 2}), HasSubstr("or say in pipeline.ranks how many each has"));
  EXPECT_THAT(
      refusal(4, {.ranks = {3, 1}}, {{1, 1}, {2, 1}}),
      HasSubstr("cell \"last\" on stage 1: strategy ((1,1),(2,1)) shares its matmul among 2 ranks, but the stage "
                "has 1: give the stage a multiple of 2 ranks, or the cell another stage or strategy"));
}

TEST(FoundCuts, AreReadAsTheyWereKept) {
  const FoundCuts found{.cells = {{"", {0, 0}}, {"a cell.with spaces", {2, 1}}, {"b", {1, 3}}},
                        .ranks = mesh::StageRanks({3, 1, 2}),
                        .micro_batches = 8};
  const auto read = parse_cuts(print_cuts(found));
  EXPECT_EQ(read.cells, found.cells);
  EXPECT_EQ(read.ranks, found.ranks);
  EXPECT_EQ(read.micro_batches, 8);
  EXPECT_TRUE(parse_cuts(print_cuts({.ranks = mesh::StageRanks({4})})).cells.empty());
}

}  // namespace
}  // namespace tessera::train
