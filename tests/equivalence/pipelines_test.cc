// Pipelines give the losses and the parameters of one device that accumulates the same micro-batches, whatever their
// schedule: in float64 on reference kernels to 1e-10.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <set>

#include "tessera/base/random.h"
#include "tessera/testing/relative_deviation.h"
#include "tests/equivalence/pipeline_training.h"
#include "tests/equivalence/where.h"

namespace tessera::equivalence {
namespace {

class Pipelines : public testing::TestWithParam<Row> {};

TEST_P(Pipelines, GiveLossesAndParametersOfOneDevice) {
  const double exact = deviation_of(GetParam(), DType::kF64, true);
  const double fast = deviation_of(GetParam(), DType::kF32, false);
  std::cout << fmt::format("{}: float64 {:.1e}, float32 {:.1e}\n", GetParam().name, exact, fast);
  EXPECT_LT(exact, 1e-10);
  EXPECT_LT(fast, 1e-4);
}

// Cut finer, into chunks that are numbered here as stages are.
const Places kTied4 = {{"words", 0}, {"up", 1}, {"down", 2}, {"norm", 3}};
const Places kResNet4 = {{"stem", 0}, {"bn", 0}, {"conv1", 1}, {"bn1", 1}, {"down", 2}, {"fc", 3}};

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
  // Blocks whose inner values are computed again for backward.
  for (const char* schedule : {"1f1b", "zb_h1"}) {
    for (const bool shards : {false, true}) {
      all.push_back({.name = fmt::format("gpt_2_{}_recomputed{}", schedule, shards ? "_optimizer_shards" : ""),
                     .network = "gpt",
                     .cells = kGpt2,
                     .schedule = schedule,
                     .ranks_per_stage = shards ? 2 : 1,
                     .parallel_optimizer = shards,
                     .recomputed = {"net.blocks.0", "net.blocks.1"}});
    }
  }
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

// Automatic parallelism cuts a network whose embedding is the output projection as well, wherever that is best.
TEST(SearchedCuts, OfTiedNetworksGiveLossesAndParametersOfOneDevice) {
  std::vector<Row> all;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    int64_t draws = 0;
    const auto below = [&](int64_t limit) { return random_below({.seed = seed, .stream = 1}, draws++, limit); };
    Row row{.name = fmt::format("seed {}", seed), .network = "tied chain", .stages = static_cast<int>(2 + below(2))};
    row.ranks_per_stage = static_cast<int>(1 + below(2));
    row.segments = static_cast<int>(1 + below(2));
    row.layers = static_cast<int>(row.stages * row.segments + below(4));
    row.schedule = below(2) == 0 ? "gpipe" : "auto";
    row.micro_batches = row.stages + static_cast<int64_t>(below(3));
    row.rows = row.micro_batches * (row.ranks_per_stage + static_cast<int64_t>(below(2)));
    row.clip_norm = below(2) == 0 ? 0.1 : 0;
    all.push_back(row);
  }
  all.push_back({.name = "gpt", .network = "gpt"});
  all.push_back({.name = "gpt_data_2", .network = "gpt", .ranks_per_stage = 2});
  for (Row& row : rows_there(all)) {
    row.finds_cuts = true;
    SCOPED_TRACE(fmt::format("{}: {} layers, {} stages of {} ranks, {} segments, {} micro-batches of {} rows, {}",
                             row.name, row.layers, row.stages, row.ranks_per_stage, row.segments, row.micro_batches,
                             row.rows / row.micro_batches, row.schedule));
    EXPECT_LT(deviation_of(row, DType::kF64, true), 1e-10);
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
