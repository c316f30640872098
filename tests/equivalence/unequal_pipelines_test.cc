// Pipelines whose stages have different numbers of ranks give the losses and the parameters of one device that
// accumulates the same micro-batches: in float64 on reference kernels to 1e-10.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <map>
#include <set>

#include "tessera/base/random.h"
#include "tessera/testing/relative_deviation.h"
#include "tests/equivalence/pipeline_training.h"
#include "tests/equivalence/where.h"

namespace tessera::equivalence {
namespace {

class UnequalPipelines : public testing::TestWithParam<Row> {};

TEST_P(UnequalPipelines, GiveLossesAndParametersOfOneDevice) {
  const double exact = deviation_of(GetParam(), DType::kF64, true);
  const double fast = deviation_of(GetParam(), DType::kF32, false);
  std::cout << fmt::format("{}: float64 {:.1e}, float32 {:.1e}\n", GetParam().name, exact, fast);
  EXPECT_LT(exact, 1e-10);
  EXPECT_LT(fast, 1e-4);
}

std::string ranks_text(const std::vector<int>& ranks) { return fmt::format("{}", fmt::join(ranks, "_")); }

std::vector<Row> unequal_rows() {
  std::vector<Row> all;
  const auto add = [&](Row row) {
    row.name = fmt::format("{}_{}", row.name, ranks_text(row.ranks));
    all.push_back(std::move(row));
  };
  for (const auto& ranks : {std::vector{3, 1}, std::vector{1, 3}}) {
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "auto"}) {
      add({.name = fmt::format("mlp_{}", schedule),
           .network = "mlp",
           .cells = kMlp2,
           .schedule = schedule,
           .ranks = ranks,
           .rows = 12});
    }
    add({.name = "transformer", .network = "transformer", .cells = kTransformer2, .ranks = ranks, .rows = 12});
    // Batch normalisation over the ranks of a stage; two rows of a micro-batch for three ranks.
    add({.name = "resnet", .network = "resnet", .cells = kResNet2, .ranks = ranks, .rows = 12});
    add({.name = "resnet_few_rows", .network = "resnet", .cells = kResNet2, .ranks = ranks});
    add({.name = "gpt", .network = "gpt", .cells = kGpt2, .ranks = ranks, .rows = 16});
    add({.name = "gpt_recomputed",
         .network = "gpt",
         .cells = kGpt2,
         .schedule = "zb_h1",
         .ranks = ranks,
         .rows = 16,
         .parallel_optimizer = true,
         .recomputed = {"net.blocks.0", "net.blocks.1"}});
    add({.name = "tied", .network = "tied", .cells = kTied2, .ranks = ranks, .rows = 12});
    add({.name = "tied_zb_h1_clipped",
         .network = "tied",
         .cells = kTied2,
         .schedule = "zb_h1",
         .ranks = ranks,
         .rows = 16,
         .clip_norm = 0.1});
    add({.name = "tied_loss_scale",
         .network = "tied",
         .cells = kTied2,
         .ranks = ranks,
         .rows = 12,
         .clip_norm = 0.1,
         .loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 16, .scale_window = 3})});
    for (const auto& [network, cells] :
         {std::pair("mlp", kMlp2), {"transformer", kTransformer2}, {"resnet", kResNet2}, {"tied", kTied2}}) {
      add({.name = fmt::format("{}_optimizer_shards", network),
           .network = network,
           .cells = cells,
           .schedule = "zb_h1",
           .ranks = ranks,
           .rows = 12,
           .parallel_optimizer = true,
           .clip_norm = 0.1});
    }
    add({.name = "searched",
         .network = "transformer",
         .schedule = "auto",
         .ranks = ranks,
         .rows = 12,
         .finds_cuts = true});
    add({.name = "tied_searched",
         .network = "tied",
         .schedule = "auto",
         .ranks = ranks,
         .rows = 12,
         .finds_cuts = true});
  }
  // Columns and rows of products within the wider stage.
  const std::vector<std::tuple<std::string, std::string, mesh::Strategy>> both = {{"up", "matmul", {{2, 1}, {2, 1}}},
                                                                                  {"down", "matmul", {{2, 2}, {1, 2}}}};
  add({.name = "transformer_model_2",
       .network = "transformer",
       .cells = kTransformer2,
       .ranks = {1, 4},
       .strategies = both});
  add({.name = "transformer_model_2_zb_h1",
       .network = "transformer",
       .cells = kTransformer2,
       .schedule = "zb_h1",
       .ranks = {3, 4},
       .rows = 16,
       .strategies = both,
       .parallel_optimizer = true});
  add({.name = "mlp_model_2", .network = "mlp", .cells = kMlp2, .ranks = {4, 2}, .strategies = {both[0]}});
  for (const auto& ranks : {std::vector{2, 1, 1}, std::vector{1, 1, 2}, std::vector{1, 3, 2}}) {
    add({.name = "transformer_3", .network = "transformer", .stages = 3, .cells = kTransformer3, .ranks = ranks});
    add({.name = "tied_3", .network = "tied", .stages = 3, .cells = kTied3, .ranks = ranks, .rows = 12});
    add({.name = "tied_3_auto_clipped",
         .network = "tied",
         .stages = 3,
         .cells = kTied3,
         .schedule = "auto",
         .ranks = ranks,
         .rows = 12,
         .parallel_optimizer = true,
         .clip_norm = 0.1});
  }
  // Two chunks on each stage.
  add({.name = "chain_2x2",
       .cells = {{"layer0", 0}, {"layer1", 1}, {"layer2", {0, 1}}, {"layer3", {0, 1}}, {"head", {1, 1}}},
       .schedule = "interleaved_1f1b",
       .ranks = {2, 1},
       .layers = 4});
  add({.name = "tied_2_and_back",
       .network = "tied",
       .cells = {{"words", 0}, {"up", 1}, {"down", {1, 1}}, {"norm", {0, 1}}},
       .schedule = "zb_v",
       .ranks = {1, 3},
       .rows = 12});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Matrix, UnequalPipelines, testing::ValuesIn(rows_there(unequal_rows())),
                         [](const auto& info) { return info.param.name; });

// Links on which replicas of many parameters cost more than arithmetic does.
compiler::MachineProfile slow_links() {
  const compiler::Link link{.bytes_per_second = 1e8, .latency_seconds = 1e-7};
  return {.name = "slow links",
          .flops_per_second = {{DType::kF32, 1e9}},
          .memory_bytes_per_second = 1e13,
          .kernel_overhead_seconds = 1e-9,
          .ranks_per_host = 8,
          .intra_host = link,
          .inter_host = link};
}

// Of four ranks the first cell, which takes three times as long as all others, has three.
TEST(FoundRanks, OfUnequalStagesGiveLossesAndParametersOfOneDevice) {
  for (const char* schedule : {"1f1b", "zb_h1", "auto"}) {
    for (const bool has_shards : {false, true}) {
      const Row row{.name = fmt::format("{}{}", schedule, has_shards ? ", optimizer shards" : ""),
                    .network = "uneven",
                    .schedule = schedule,
                    .ranks_per_stage = 2,
                    .rows = 12,
                    .parallel_optimizer = has_shards,
                    .clip_norm = has_shards ? 0.1 : 0,
                    .finds_cuts = true,
                    .finds_ranks = true,
                    .profile = slow_links()};
      SCOPED_TRACE(row.name);
      const auto exact = train_pipeline(row, DType::kF64, true);
      EXPECT_EQ(exact.ranks, (std::map<int, int>{{0, 3}, {1, 1}}));
      EXPECT_LT(deviation_between(train_alone(row, DType::kF64, true), exact), 1e-10);
      EXPECT_LT(deviation_of(row, DType::kF32, false), 1e-4);
    }
  }
}

// A step whose last micro-batch is not finite leaves no trace on any stage but a smaller scale.
TEST(UnequalHalfPrecision, SkipsTheStepsThatOneDeviceSkips) {
  for (const auto& ranks : {std::vector{3, 1}, std::vector{1, 3}}) {
    const Row row{.name = ranks_text(ranks),
                  .network = "mlp",
                  .cells = kMlp2,
                  .ranks = ranks,
                  .rows = 12,
                  .loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 1024, .scale_window = 100}),
                  .precision = DType::kBF16,
                  .bad_step = 4};
    auto one = train_alone(row, DType::kF32, false);
    auto many = train_pipeline(row, DType::kF32, false);
    for (Outcome* outcome : {&one, &many}) {
      EXPECT_FALSE(std::isfinite(outcome->losses[4])) << row.name;
      outcome->losses.erase(outcome->losses.begin() + 4);
      EXPECT_EQ(outcome->values.at(nn::kLossScale), std::vector<double>{512}) << row.name;
    }
    EXPECT_LT(relative_deviation(one.losses, many.losses), 1e-2) << row.name;
  }
}

// Any numbers of ranks, cut anywhere, in any order, with any number of slots, over links that are slow.
TEST(UnequalRandomPipelines, GiveLossesAndParametersOfOneDevice) {
  const char* const schedules[] = {"gpipe", "1f1b", "zb_h1", "auto"};
  for (uint64_t seed = 1; seed <= 24; seed += stride_there()) {
    int64_t draws = 0;
    const auto below = [&](int64_t limit) { return random_below({.seed = seed, .stream = 2}, draws++, limit); };
    Row row{.name = fmt::format("seed {}", seed), .stages = static_cast<int>(2 + below(2))};
    for (int stage = 0; stage < row.stages; ++stage) row.ranks.push_back(static_cast<int>(1 + below(3)));
    const bool is_tied = below(2) == 0;
    if (is_tied) row.network = "tied chain";
    row.layers = static_cast<int>(row.stages + below(4));
    row.schedule = schedules[below(4)];
    row.micro_batches = row.stages + static_cast<int64_t>(below(3));
    row.rows = row.micro_batches * static_cast<int64_t>(1 + below(4));
    row.receive_ahead = static_cast<int>(below(3));
    row.link.latency_us = static_cast<double>(below(3) * 40);
    row.parallel_optimizer = below(2) == 0;
    row.clip_norm = below(2) == 0 ? 0.1 : 0;
    std::set<int> cuts;
    while (static_cast<int>(cuts.size()) < row.stages - 1) cuts.insert(static_cast<int>(below(row.layers - 1)));
    int stage = 0;
    row.cells.emplace("words", 0);
    row.cells.emplace("common", 0);
    for (int i = 0; i < row.layers; ++i) {
      row.cells.emplace(fmt::format("layer{}", i), stage);
      if (cuts.contains(i)) ++stage;
    }
    row.cells.emplace("head", stage);
    row.cells.emplace("norm", stage);
    SCOPED_TRACE(fmt::format("{}: {} with {} layers on {} ranks, {} micro-batches of {} rows, {}, {} ahead, {} us{}",
                             row.name, is_tied ? "tied" : "chain", row.layers, ranks_text(row.ranks), row.micro_batches,
                             row.rows / row.micro_batches, row.schedule, row.receive_ahead, row.link.latency_us,
                             row.parallel_optimizer ? ", optimizer shards" : ""));
    EXPECT_LT(deviation_of(row, DType::kF64, true), 1e-10);
  }
}

}  // namespace
}  // namespace tessera::equivalence
