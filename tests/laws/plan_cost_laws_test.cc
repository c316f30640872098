// Laws of what a plan is said to cost, held against what is made of it: the collectives of each rank's graph, and the
// memory of its schedule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/compiler/schedule/make_schedule.h"
#include "tessera/compiler/search/plan_cost.h"
#include "tessera/compiler/search/search.h"
#include "tessera/compiler/verify/verify_plan.h"
#include "tessera/ops/registry/collective_def.h"
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

// The search pays for what its plan costs: for some of it twice, never for less.
TEST_P(PlanCosts, AreNoMoreThanTheSearchAddsUp) {
  const auto graph = random_graph(GetParam(), {.rows = 6, .with_reshapes = false});
  for (const auto& mesh : compiler::candidate_meshes(first_ranks(4), 2)) {
    compiler::CostModel costs(mesh, compiler::example_profile());
    for (const int64_t limit : {int64_t{0}, std::numeric_limits<int64_t>::max() / 2}) {
      const compiler::SearchProblem search(graph, costs, {.whole_results = true, .memory_limit_bytes = limit});
      const auto solution = random_solution(search, GetParam());
      const auto plan = compiler::plan_of(graph, search.choices_of(solution), /*whole_results=*/true);
      const auto added = solver::evaluate(search.problem(), solution);
      ASSERT_TRUE(added.feasible);
      EXPECT_LE(compiler::cost_of_plan(graph, plan, compiler::example_profile()).seconds(), added.cost * (1 + 1e-9))
          << mesh.to_string() << ", limit " << limit << "\n"
          << compiler::print(graph, plan);
    }
  }
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
