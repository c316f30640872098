// Laws of the compiler on random graphs and on the train steps of networks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/compiler/compile.h"
#include "tessera/executor/kernel_selection.h"
#include "tessera/kernels/registry.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/session/session.h"
#include "tests/laws/memory_simulation.h"
#include "tests/laws/random_graph.h"
#include "tests/laws/train_step.h"

namespace tessera::laws {
namespace {

using testing::IsEmpty;

constexpr uint64_t kSeeds = 60;

compiler::Compiled compile(const ir::Graph& graph, int ranks, int rank, compiler::CompileOptions options = {}) {
  options.verification = compiler::Verification::kAllRanks;
  const mesh::Mesh mesh({{"data", ranks}});
  compiler::ShardingHints hints;
  ir::PersistentLayout persistent;
  for (const auto& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    if (input.kind != ir::InputKind::kInput) {
      persistent.add(input.name, type);
    } else if (ranks > 1) {
      hints[input.name] = {mesh, mesh::Sharding::replicated(type.shape.ndim())};
      hints[input.name].sharding.dims[0] = {0};
    }
  }
  return compiler::compile(graph, mesh, hints, rank, persistent, ops::FakeKernelCatalogue(), options);
}

void expect_bit_equal(const std::map<std::string, Tensor>& actual, const std::map<std::string, Tensor>& expected,
                      const std::string& what) {
  for (const auto& [name, tensor] : expected) EXPECT_TRUE(bit_equal(actual.at(name), tensor)) << what << ": " << name;
}

class RandomGraphs : public testing::TestWithParam<uint64_t> {};

TEST_P(RandomGraphs, TextRoundTrips) {
  const auto text = ir::print(random_graph(GetParam()));
  EXPECT_EQ(ir::print(ir::parse(text)), text);
}

TEST_P(RandomGraphs, MemoryHoldsWhatIsReadOnOneRankAndOnSeveral) {
  for (const int ranks : {1, 2, 3, 7}) {
    const bool even = ranks <= 2;
    const auto graph = random_graph(GetParam(), {.rows = even ? 4 : 5, .with_reshapes = even});
    for (const bool share : {true, false}) {
      compiler::CompileOptions options{.partition = {.bucket_bytes = 100}, .schedule = {.share_memory = share}};
      options.fusions.elementwise = GetParam() % 2 == 0;
      const auto compiled = compile(graph, ranks, ranks - 1, options);
      ASSERT_THAT(memory_faults(compiled.local, compiled.schedule), IsEmpty())
          << ranks << " ranks\n"
          << ir::print(compiled.local) << ir::print(compiled.schedule);
    }
  }
}

TEST_P(RandomGraphs, SharedMemoryAndWorkInPlaceChangeNoBit) {
  const auto graph = random_graph(GetParam());
  const auto inputs = random_inputs(graph, GetParam());
  for (const bool reference : {true, false}) {
    const auto expected = session::evaluate(graph, inputs, {.reference_kernels = reference, .debug = true});
    const auto actual =
        session::evaluate(graph, inputs, {.reference_kernels = reference, .fusions = compiler::Fusions::none()});
    expect_bit_equal(actual, expected, reference ? "reference kernels" : "fast kernels");
  }
}

TEST_P(RandomGraphs, SimplifyingChangesNoBit) {
  // Compiled on their own, so that only the pass under test differs: evaluate() simplifies, too, which changes nothing
  // that is simple already.
  const auto graph = random_graph(GetParam(), {.with_updates = false});
  const auto inputs = random_inputs(graph, GetParam());
  const session::SessionOptions plain{.reference_kernels = true, .debug = true};
  // What is read by name stays: an input of the graph cannot be folded.
  const auto folded = compiler::fold_constants(graph);
  const auto merged = compiler::merge_common_subexpressions(folded);
  const auto expected = session::evaluate(graph, inputs, plain);
  for (const auto& [name, tensor] : expected) {
    EXPECT_EQ(tensor.to_doubles(), session::evaluate(folded, inputs, plain).at(name).to_doubles()) << name;
    EXPECT_EQ(tensor.to_doubles(), session::evaluate(merged, inputs, plain).at(name).to_doubles()) << name;
  }
}

TEST_P(RandomGraphs, EveryRankSendsTheSameListOfCollectives) {
  for (const int64_t rows : {int64_t{7}, int64_t{2}}) {
    const auto graph = random_graph(GetParam(), {.rows = rows, .with_reshapes = false});
    for (const int ranks : {2, 3, 5}) {
      const auto first = compiler::collective_list(compile(graph, ranks, 0).local);
      for (int rank = 1; rank < ranks; ++rank) {
        EXPECT_EQ(compiler::collective_list(compile(graph, ranks, rank).local), first) << rank << " of " << ranks;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, testing::Range(uint64_t{1}, kSeeds + 1));

class TrainSteps : public testing::TestWithParam<const char*> {};

TEST_P(TrainSteps, MemoryHoldsWhatIsRead) {
  const auto graph = train_step(GetParam(), 5);
  for (const int ranks : {1, 2, 3}) {
    const auto compiled = compile(graph, ranks, ranks - 1);
    const auto faults = memory_faults(compiled.local, compiled.schedule);
    ASSERT_THAT(faults, IsEmpty());
    EXPECT_LT(compiled.schedule.arena_bytes,
              compile(graph, ranks, ranks - 1, {.schedule = {.share_memory = false}}).schedule.arena_bytes);
  }
}

TEST_P(TrainSteps, ArenaIsWhatIsAliveAtThePeak) {
  for (const int ranks : {1, 3}) {
    const auto schedule = compile(train_step(GetParam(), 6), ranks, 0).schedule;
    const auto planned = static_cast<double>(schedule.arena_bytes - schedule.persistent_bytes);
    EXPECT_GE(planned, static_cast<double>(schedule.peak_bytes));
    EXPECT_LE(planned, 1.02 * static_cast<double>(schedule.peak_bytes)) << ranks << " ranks";
  }
}

TEST_P(TrainSteps, CannotFitIntoLessThanTheParameters) {
  const auto graph = train_step(GetParam(), 2);
  EXPECT_THAT([&] { compile(graph, 1, 0, {.memory_limit_bytes = 1000}); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("more than its memory limit of 1000 B")));
}

TEST_P(TrainSteps, GradientsShareBucketsAndLeaveBeforeBackwardEnds) {
  const auto graph = train_step(GetParam(), 6);
  const int64_t bucket_bytes = 1 << 20;
  const auto local =
      compile(graph, 3, 1, {.fusions = compiler::Fusions::none(), .partition = {.bucket_bytes = bucket_bytes}}).local;
  std::map<int64_t, int64_t> bytes;
  std::map<int64_t, int64_t> largest;
  int updates = 0;
  int num_reduced = 0;
  for (ir::NodeId n = 0; n < local.num_nodes(); ++n) {
    const auto& node = local.node(n);
    updates += node.op == "momentum" ? 1 : 0;
    if (node.op != "all_reduce") continue;
    ++num_reduced;
    EXPECT_EQ(updates, 0) << "an all_reduce stands behind an update: it cannot run while backward does";
    const int64_t size = local.type(node.inputs[0]).size_bytes();
    bytes[node.attributes.get_int("bucket")] += size;
    largest[node.attributes.get_int("bucket")] = std::max(largest[node.attributes.get_int("bucket")], size);
  }
  EXPECT_GE(num_reduced, updates);
  EXPECT_LT(bytes.size(), static_cast<size_t>(num_reduced)) << "no two of them share a bucket";
  // A bucket is closed when it is full: it is larger than the limit by its last member at most.
  for (const auto& [bucket, size] : bytes) EXPECT_LT(size, bucket_bytes + largest[bucket]) << bucket;
}

TEST(MemoryLimit, IsKeptAndChangesNoBit) {
  const auto graph = train_step("resnet50", 16);
  const mesh::Mesh alone({{"data", 1}});
  const executor::KernelSelection kernels({&kernels::cpu_kernels(), &kernels::reference_kernels()}, 1);
  const auto free = compiler::compile(graph, alone, {}, 0, kernels).schedule;
  const auto inputs = random_inputs(graph, 1);
  const auto expected = session::evaluate(graph, inputs);
  // What one step of the schedule needs at the same time cannot be recomputed away; how much scratch memory kernels
  // take differs between machines.
  int64_t largest_step = 0;
  for (const auto& step : free.steps) {
    int64_t bytes = step.scratch_bytes;
    for (const auto* values : {&step.inputs, &step.outputs}) {
      for (const int v : *values) {
        const auto& value = free.values[static_cast<size_t>(v)];
        if (value.offset >= free.persistent_bytes) bytes += value.type.size_bytes();
      }
    }
    largest_step = std::max(largest_step, bytes);
  }
  const int64_t movable = free.arena_bytes - free.persistent_bytes - largest_step;
  ASSERT_GT(movable, 0);
  for (const int64_t parts : {10, 4}) {
    const int64_t limit = free.arena_bytes - movable / parts;
    const auto fitted = compiler::compile(graph, alone, {}, 0, kernels, {.memory_limit_bytes = limit});
    EXPECT_LE(fitted.schedule.arena_bytes, limit);
    EXPECT_FALSE(fitted.recomputed.empty());
    EXPECT_THAT(memory_faults(fitted.local, fitted.schedule), IsEmpty());
    expect_bit_equal(session::evaluate(graph, inputs, {.memory_limit_bytes = limit}), expected, "ResNet-50");
  }
}

INSTANTIATE_TEST_SUITE_P(Networks, TrainSteps, testing::Values("mlp", "lenet5", "resnet50"),
                         [](const auto& info) { return std::string(info.param); });

TEST(MemorySimulation, SeesAValueThatIsWrittenOver) {
  const auto graph = random_graph(1);
  auto compiled = compile(graph, 1, 0, {.fusions = compiler::Fusions::none()});
  for (auto& value : compiled.schedule.values) value.offset = compiled.schedule.persistent_bytes;
  EXPECT_FALSE(memory_faults(compiled.local, compiled.schedule).empty());
}

}  // namespace
}  // namespace tessera::laws
