// Laws of what a plan is said to cost, held against what is made of it: the collectives of each rank's graph, and the
// memory of its schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "tessera/base/strings.h"
#include "tessera/compiler/compile.h"
#include "tessera/compiler/schedule/make_schedule.h"
#include "tessera/compiler/search/plan_cost.h"
#include "tessera/compiler/search/search.h"
#include "tessera/compiler/verify/verify_plan.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/tensor/alignment.h"
#include "tests/laws/random_graph.h"
#include "tests/laws/random_plan.h"
#include "tests/laws/train_step.h"

namespace tessera::laws {
namespace {

constexpr uint64_t kSeeds = 40;

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// The rows of the data inputs over the ranks of an axis, and what follows from that.
compiler::Plan plan_by_rows(const ir::Graph& graph, int num_ranks) {
  const mesh::Mesh mesh({{"data", num_ranks}});
  compiler::ShardingHints hints;
  for (const auto& input : graph.inputs()) {
    if (input.kind != ir::InputKind::kInput) continue;
    hints[input.name] = {mesh, mesh::Sharding::replicated(graph.type(input.value).shape.ndim())};
    hints[input.name].sharding.dims[0] = {0};
  }
  return compiler::propagate(graph, mesh, hints);
}

// The bytes that the collectives of each rank's graph receive.
std::vector<int64_t> received_bytes(const ir::Graph& graph, const compiler::Plan& plan) {
  std::vector<int64_t> received;
  for (const int rank : plan.ranks()) {
    const ir::Graph local = compiler::partition(graph, plan, rank);
    int64_t& bytes = received.emplace_back();
    for (ir::NodeId n = 0; n < local.num_nodes(); ++n) {
      const auto* collective = ops::collective_of(local.node(n));
      if (collective == nullptr) continue;
      const auto call = ops::call_of(local, local.node(n));
      bytes += collective->traffic(call).received_bytes(call.own());
    }
  }
  return received;
}

class PlanCosts : public testing::TestWithParam<uint64_t> {};

// Two ranks divide all dims, and each receives as much as the other.
TEST_P(PlanCosts, CountTheBytesThatEachOfTwoRanksReceives) {
  const auto graph = random_graph(GetParam(), {.rows = 6, .with_reshapes = false});
  const mesh::Mesh two({{"x", 2}});
  compiler::CostModel costs(two, compiler::example_profile());
  for (const bool whole_results : {false, true}) {
    const compiler::SearchProblem search(graph, costs, {.whole_results = whole_results});
    const auto choices = search.choices_of(random_solution(search, GetParam()));
    const auto plan = compiler::plan_of(graph, choices, whole_results);
    ASSERT_THAT(compiler::verify_plan(graph, plan), testing::IsEmpty());
    const auto cost = compiler::cost_of_plan(graph, plan, compiler::example_profile());
    EXPECT_THAT(received_bytes(graph, plan), testing::Each(cost.received_bytes)) << compiler::print(graph, plan);
  }
  const auto by_rows = plan_by_rows(graph, 2);
  const auto cost = compiler::cost_of_plan(graph, by_rows, compiler::example_profile());
  EXPECT_THAT(received_bytes(graph, by_rows), testing::Each(cost.received_bytes)) << compiler::print(graph, by_rows);
}

// On grids, and where ranks have parts of different sizes, the busiest rank of each step counts.
TEST_P(PlanCosts, AreNoLessThanTheBytesThatARankReceives) {
  const auto graph = random_graph(GetParam(), {.rows = 5, .with_reshapes = false});
  for (const int num_ranks : {3, 4}) {
    for (const auto& mesh : compiler::candidate_meshes(first_ranks(num_ranks), 2)) {
      compiler::CostModel costs(mesh, compiler::example_profile());
      const compiler::SearchProblem search(graph, costs);
      const auto plan = compiler::plan_of(graph, search.choices_of(random_solution(search, GetParam())));
      const auto cost = compiler::cost_of_plan(graph, plan, compiler::example_profile());
      EXPECT_THAT(received_bytes(graph, plan), testing::Each(testing::Le(cost.received_bytes)))
          << mesh.to_string() << "\n"
          << compiler::print(graph, plan);
    }
  }
}

// What the problem counts of a solution is what its plan is said to cost a search: its bound, one on solutions, is then
// one on these sums of plans. The plan itself costs no more.
void expect_that_a_search_adds_up_the_plan(const ir::Graph& graph, uint64_t seed) {
  for (const auto& mesh : compiler::candidate_meshes(first_ranks(4), 2)) {
    compiler::CostModel costs(mesh, compiler::example_profile());
    for (const bool whole_results : {false, true}) {
      for (const int64_t limit : {int64_t{0}, std::numeric_limits<int64_t>::max() / 2}) {
        const compiler::SearchProblemOptions options{.whole_results = whole_results, .memory_limit_bytes = limit};
        const compiler::SearchProblem search(graph, costs, options);
        const auto solution = random_solution(search, seed);
        const auto plan = compiler::plan_of(graph, search.choices_of(solution), whole_results);
        const auto added = solver::evaluate(search.problem(), solution);
        ASSERT_TRUE(added.feasible);
        const auto cost = compiler::cost_of_plan(graph, plan, compiler::example_profile());
        EXPECT_GE(cost.repeated_seconds, 0);
        EXPECT_NEAR(cost.searched_seconds(), added.cost, 1e-9 * added.cost)
            << mesh.to_string() << ", limit " << limit << "\n"
            << compiler::print(graph, plan);
      }
    }
  }
}

TEST_P(PlanCosts, AreWhatTheSearchAddsUpWhereEachReaderMovesWhatItTakes) {
  expect_that_a_search_adds_up_the_plan(random_graph(GetParam(), {.rows = 6, .with_reshapes = false}), GetParam());
}

// Kernels that need memory of their own for what they make, as the cost of a plan has it.
class NothingInPlace : public ops::KernelCatalogue {
 public:
  ops::ChosenKernel choose(const KernelRequest& request) const override { return {.name = request.op}; }
  int num_threads() const override { return 1; }
};

// Values so large that none is lost in what alignment adds.
TEST_P(PlanCosts, HoldNoLessThanLivesInTheMemoryPlanOfOneRank) {
  const auto graph = compiler::simplify(random_graph(GetParam(), {.rows = 1024, .with_updates = false}));
  const auto plan = compiler::propagate(graph, mesh::Mesh({{"x", 1}}), {});
  const auto cost = compiler::cost_of_plan(graph, plan, compiler::example_profile());
  ir::PersistentLayout persistent;
  for (const auto& input : graph.inputs()) {
    if (input.kind != ir::InputKind::kInput) persistent.add(input.name, graph.type(input.value));
  }
  const auto schedule = compiler::make_schedule(compiler::partition(graph, plan, 0), persistent, NothingInPlace());
  const int64_t padding = kBufferAlignment * graph.num_values();
  EXPECT_LE(schedule.persistent_bytes + schedule.peak_bytes, cost.peak_bytes + padding) << ir::print(graph);
}

INSTANTIATE_TEST_SUITE_P(Seeds, PlanCosts, testing::Range(uint64_t{1}, kSeeds + 1));

TEST(TrainStepCost, IsWhatTheSearchAddsUpWhereEachReaderMovesWhatItTakes) {
  for (const char* network : {"mlp", "lenet5", "gpt"}) {
    const auto graph = compiler::simplify(train_step(network, 4));
    for (const uint64_t seed : {uint64_t{1}, uint64_t{2}}) {
      SCOPED_TRACE(fmt::format("{}, seed {}", network, seed));
      expect_that_a_search_adds_up_the_plan(graph, seed);
    }
  }
}

TEST(TrainStepCost, OfWhatASearchFindsIsNoLessThanTheBoundAsTheSearchCounts) {
  for (const char* network : {"mlp", "lenet5", "gpt"}) {
    const auto graph = compiler::simplify(train_step(network, 4));
    const auto found = compiler::search(graph, first_ranks(4), compiler::example_profile(), {.rounds = 5});
    const auto cost =
        compiler::cost_of_plan(graph, compiler::plan_of(graph, found.choices), compiler::example_profile());
    EXPECT_NEAR(cost.searched_seconds(), found.cost, 1e-9 * found.cost) << network;
    EXPECT_LE(cost.seconds(), found.cost * (1 + 1e-9)) << network;
    // Of other plans, too.
    const auto by_rows = plan_by_rows(graph, 4);
    const auto other = compiler::cost_of_plan(graph, by_rows, compiler::example_profile());
    EXPECT_GE(other.searched_seconds(), found.bound * (1 - 1e-9)) << network;
  }
}

// x is moved once for the two operators that take its rows, and is taken where it is by the third, whatever the copy.
TEST(TrainStepCost, CountsAMoveOnceAndASearchEachReaders) {
  ir::Graph graph("readers");
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {64, 64}});
  graph.add_output("a", ops::apply1("tanh", {x}));
  graph.add_output("b", ops::apply1("relu", {x}));
  graph.add_output("c", ops::apply1("neg", {x}));
  const mesh::Mesh two({{"x", 2}});
  compiler::PlanChoices choices{.mesh = two};
  choices.inputs["x"] = mesh::Sharding{{{0}, {}}, {}};
  for (ir::NodeId n = 0; n < 2; ++n) choices.nodes[n].factors = {{"d1", {0}}};
  choices.nodes[2].factors = {{"d0", {0}}};
  const auto cost_of = [&] {
    return compiler::cost_of_plan(graph, compiler::plan_of(graph, choices), compiler::example_profile());
  };
  const auto apart = cost_of();
  EXPECT_GT(apart.communication_seconds, 0);
  EXPECT_NEAR(apart.repeated_seconds, apart.communication_seconds, 1e-9 * apart.communication_seconds);
  // From a copy along the columns the one that takes rows would move it back.
  choices.copies[x.id()] = mesh::Sharding{{{}, {0}}, {}};
  const auto copied = cost_of();
  EXPECT_EQ(copied.seconds(), apart.seconds());
  EXPECT_NEAR(copied.repeated_seconds, copied.communication_seconds, 1e-9 * copied.communication_seconds);
}

TEST(TrainStepCost, CountsTheBytesThatEachOfTwoRanksReceives) {
  for (const char* network : {"mlp", "lenet5"}) {
    const auto graph = compiler::simplify(train_step(network, 4));
    const auto plan = plan_by_rows(graph, 2);
    const auto cost = compiler::cost_of_plan(graph, plan, compiler::example_profile());
    EXPECT_GT(cost.received_bytes, 0);
    EXPECT_THAT(received_bytes(graph, plan), testing::Each(cost.received_bytes)) << network;
  }
}

}  // namespace
}  // namespace tessera::laws
