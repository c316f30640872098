#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/compiler/simulate.h"
#include "tests/laws/train_step.h"

namespace tessera::compiler {
namespace {

struct Step {
  ir::Graph graph;
  mesh::Mesh mesh;
  bool optimizer_shards = false;
  bool split_inputs = true;  // along the first axis of the mesh
  int ranks_per_host = 8;
  bool overlap = true;

  MachineProfile profile() const {
    auto result = example_profile();
    result.ranks_per_host = ranks_per_host;
    return result;
  }
  CompileOptions options() const {
    CompileOptions result;
    result.schedule.overlap = overlap;
    for (const auto& input : graph.inputs()) {
      if (optimizer_shards && input.kind == ir::InputKind::kParameter) {
        result.plan.optimizer_shards.insert(input.name);
      }
    }
    return result;
  }
  Compiled planned() const {
    ShardingHints hints;
    for (const auto& input : graph.inputs()) {
      if (!split_inputs || input.kind != ir::InputKind::kInput) continue;
      auto sharding = mesh::Sharding::replicated(graph.type(input.value).shape.ndim());
      sharding.dims[0] = {0};
      hints[input.name] = {mesh, sharding};
    }
    return plan_ranks(graph, mesh, hints, options());
  }
  std::vector<RankClass> classes() const {
    return schedule_classes(planned(), profile(), ops::FakeKernelCatalogue(), options());
  }
  // Every rank compiled, in a class of its own.
  std::vector<RankClass> ranks() const {
    auto compiled = planned();
    std::vector<RankClass> all;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      compile_rank(compiled, rank, layout_of(compiled, rank), ops::FakeKernelCatalogue(), options());
      all.push_back({{rank}, compiled.schedule});
    }
    return all;
  }
};

// Simulating classes gives every rank what simulating all ranks does. Returns the number of classes.
size_t expect_classes_stand_for_their_ranks(const Step& step) {
  const auto classes = step.classes();
  const auto by_class = simulate(classes, step.profile());
  const auto by_rank = simulate(step.ranks(), step.profile());
  EXPECT_EQ(by_class.step_seconds, by_rank.step_seconds);
  EXPECT_EQ(by_class.received_bytes, by_rank.received_bytes);
  int num_ranks = 0;
  for (const auto& c : by_class.classes) {
    for (const int rank : c.ranks) {
      const auto& own = by_rank.classes.at(static_cast<size_t>(rank));
      ++num_ranks;
      EXPECT_EQ(c.compute_seconds, own.compute_seconds) << rank;
      EXPECT_EQ(c.exposed_seconds, own.exposed_seconds) << rank;
      EXPECT_EQ(c.communication_seconds, own.communication_seconds) << rank;
      EXPECT_EQ(c.received_bytes, own.received_bytes) << rank;
      EXPECT_EQ(c.peak_memory_bytes, own.peak_memory_bytes) << rank;
      EXPECT_EQ(c.timeline.size(), own.timeline.size()) << rank;
    }
  }
  EXPECT_EQ(num_ranks, step.mesh.size());
  return classes.size();
}

TEST(RankClasses, EvenDataParallelIsOneClass) {
  EXPECT_EQ(
      expect_classes_stand_for_their_ranks({.graph = laws::train_step("mlp", 128), .mesh = mesh::Mesh({{"data", 64}})}),
      1U);
}

TEST(RankClasses, UnevenBatchesAreTwoClassesAndPartsOfParametersMore) {
  const auto graph = laws::train_step("mlp", 100);
  const mesh::Mesh mesh({{"data", 64}});
  EXPECT_EQ(expect_classes_stand_for_their_ranks({.graph = graph, .mesh = mesh, .ranks_per_host = 64}), 2U);
  // The first 36 ranks have two rows of the batch, the first 10 a row of down.weight.
  EXPECT_EQ(expect_classes_stand_for_their_ranks(
                {.graph = graph, .mesh = mesh, .optimizer_shards = true, .ranks_per_host = 64}),
            3U);
}

TEST(RankClasses, PartsThatAreExchangedAreTheSizesOfTheParts) {
  // Gradients of ten rows are summed column by column, then their rows are exchanged: ten ranks receive some, from
  // their host and from others.
  const Step step{
      .graph = laws::train_step("resnet50", 64), .mesh = mesh::Mesh({{"data", 64}}), .optimizer_shards = true};
  const auto local = ir::print(partition(step.planned().logical, step.planned().plan, 0));
  ASSERT_THAT(local, testing::HasSubstr("= exchange "));
  EXPECT_EQ(expect_classes_stand_for_their_ranks(step), 4U);
}

TEST(RankClasses, HostsThatAreCutUnevenlyTellRanksApart) {
  const auto graph = laws::train_step("mlp", 128);
  // The last host has four ranks instead of five.
  EXPECT_EQ(
      expect_classes_stand_for_their_ranks({.graph = graph, .mesh = mesh::Mesh({{"data", 64}}), .ranks_per_host = 5}),
      2U);
  expect_classes_stand_for_their_ranks({.graph = graph,
                                        .mesh = mesh::Mesh({{"data", 16}, {"model", 4}}),
                                        .optimizer_shards = true,
                                        .ranks_per_host = 6});
}

TEST(RankClasses, RowsOfASplitImageWithOneNeighbourAreNoneOfThoseWithTwo) {
  const auto graph = ir::parse(R"(graph g
  input x f32[8,1,16,16]
  param w f32[1,1,3,3]
  %1 = conv2d x, w {dilation=[1,1], groups=1, padding=[1,1,1,1], strides=[1,1]} : f32[8,1,16,16] shard ((8,1,8,1),(1,1,1,1))
  %2 = reduce_sum %1 {axes=[0,1,2,3], keep_dims=false} : f32[]
  return loss = %2
)");
  const Step step{.graph = graph, .mesh = mesh::Mesh({{"data", 8}, {"rows", 8}}), .split_inputs = false};
  const auto num_classes = expect_classes_stand_for_their_ranks(step);
  EXPECT_GE(num_classes, 2U);
  EXPECT_LE(num_classes, 8U);
}

TEST(RankClasses, TensorParallelRanksOfUnevenHeadsAreSeveral) {
  const auto graph = ir::parse(R"(graph g
  input x f32[96,8]
  param a f32[8,10]
  param b f32[10,8]
  %1 = matmul x, a {transpose_a=false, transpose_b=false} : f32[96,10] shard ((16,1),(1,4)) @ up
  %2 = matmul %1, b {transpose_a=false, transpose_b=false} : f32[96,8] shard ((16,4),(4,1)) @ down
  %3 = reduce_sum %2 {axes=[0,1], keep_dims=false} : f32[]
  return loss = %3
)");
  EXPECT_EQ(expect_classes_stand_for_their_ranks({.graph = graph, .mesh = mesh::Mesh({{"data", 16}, {"model", 4}})}),
            2U);
}

TEST(Simulation, MemoryIsThePlanners) {
  for (const bool optimizer_shards : {false, true}) {
    for (const int ranks : {1, 3, 8}) {
      for (const char* name : {"mlp", "lenet5", "resnet50"}) {
        const Step step{.graph = laws::train_step(name, 24),
                        .mesh = mesh::Mesh({{"data", ranks}}),
                        .optimizer_shards = optimizer_shards};
        const auto classes = step.classes();
        const auto simulation = simulate(classes, step.profile());
        for (size_t c = 0; c < classes.size(); ++c) {
          EXPECT_EQ(simulation.classes[c].peak_memory_bytes, classes[c].schedule.arena_bytes) << name << " " << ranks;
        }
      }
    }
  }
}

TEST(Simulation, ThousandsOfRanksAreFewClasses) {
  const Step step{.graph = laws::train_step("resnet50", 8192), .mesh = mesh::Mesh({{"data", 4096}})};
  const auto classes = step.classes();
  ASSERT_EQ(classes.size(), 1U);
  EXPECT_EQ(classes[0].ranks.size(), 4096U);
  const auto simulation = simulate(classes, step.profile());
  EXPECT_GT(simulation.classes[0].exposed_seconds, 0);
  EXPECT_EQ(simulation.received_bytes, 4096 * simulation.classes[0].received_bytes);
}

TEST(Simulation, ASlowerNetworkHidesLessOfTheGradients) {
  const Step step{.graph = laws::train_step("lenet5", 64), .mesh = mesh::Mesh({{"data", 16}})};
  const auto classes = step.classes();
  auto profile = step.profile();
  const auto fast = simulate(classes, profile);
  profile.inter_host.bytes_per_second /= 100;
  const auto slow = simulate(classes, profile);
  EXPECT_EQ(slow.classes[0].compute_seconds, fast.classes[0].compute_seconds);
  EXPECT_GT(slow.classes[0].exposed_seconds, fast.classes[0].exposed_seconds);
  EXPECT_EQ(slow.received_bytes, fast.received_bytes);
}

class Overlap : public testing::TestWithParam<const char*> {};

// With statistics that backward waits for (resnet50) and without.
TEST_P(Overlap, HidesMostOfTheGradients) {
  Step step{.graph = laws::train_step(GetParam(), 64), .mesh = mesh::Mesh({{"data", 8}})};
  const auto overlapped = step.classes();
  step.overlap = false;
  const auto one_after_the_other = step.classes();
  // A link without latency on which the gradients take 70 % of the time of computing.
  auto profile = step.profile();
  profile.intra_host.latency_seconds = 0;
  const auto reference = simulate(overlapped, profile).classes[0];
  profile.intra_host.bytes_per_second *= reference.communication_seconds / (0.7 * reference.compute_seconds);

  const auto sum = simulate(one_after_the_other, profile);
  const auto& parts = sum.classes[0];
  EXPECT_NEAR(parts.communication_seconds, 0.7 * parts.compute_seconds, 1e-9);
  EXPECT_NEAR(sum.step_seconds, parts.compute_seconds + parts.communication_seconds, 1e-9);
  const double seconds = simulate(overlapped, profile).step_seconds;
  EXPECT_GE(seconds, parts.compute_seconds);
  EXPECT_LT(seconds, parts.compute_seconds + 0.5 * parts.communication_seconds);
  RecordProperty("milliseconds", fmt::format("{:.3f} without overlap, {:.3f} with, at least {:.3f}",
                                             sum.step_seconds * 1e3, seconds * 1e3, parts.compute_seconds * 1e3));
}

INSTANTIATE_TEST_SUITE_P(Networks, Overlap, testing::Values("resnet50", "transformer"));

}  // namespace
}  // namespace tessera::compiler
