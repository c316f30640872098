#include "tessera/compiler/verify/verify_local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tessera/compiler/verify/verify_plan.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/verify.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::NodeId;
using mesh::Mesh;
using testing::ElementsAre;
using testing::IsEmpty;

// A layer, the gradient of its weight and the update, on data=2 times model=2 ranks: the batch is split by the one, the
// contracted dim by the other.
class LocalGraphs : public testing::Test {
 protected:
  LocalGraphs()
      : graph_(ir::parse(R"(graph step
  param w f32[6,4]
  input x f32[5,6]
  %1 = matmul x, w {transpose_a=false, transpose_b=false} : f32[5,4] @ fc
  %2 = relu %1 : f32[5,4] @ act
  %3 = matmul x, %2 {transpose_a=true, transpose_b=false} : f32[6,4] @ fc (grad of %1)
  %4 = sub w, %3 : f32[6,4] @ optimizer
  return y = %2, w = %4
)")) {
    plan_ = propagate(graph_, mesh_, on_mesh(mesh_, {{"x", {{{0}, {1}}, {}}}, {"w", {{{1}, {}}, {}}}}));
    ranks_ = partition_all(graph_, plan_);
  }

  std::vector<std::string> faults() const { return verify_local(graph_, plan_, ranks_); }

  // The first node of that operator and source in a rank's graph.
  ir::Node& find(int rank, const std::string& op, const std::string& source) {
    Graph& local = ranks_[static_cast<size_t>(rank)].graph;
    for (NodeId n = 0; n < local.num_nodes(); ++n) {
      if (local.node(n).op == op && local.node(n).source == source) return local.mutable_node(n);
    }
    throw InvalidArgument("no {} of {} in {}", op, source, ir::print(local));
  }
  void set(int rank, const std::string& op, const std::string& source, const std::string& name, AttributeValue value) {
    find(rank, op, source).attributes.set(name, std::move(value));
  }

  Mesh mesh_ = Mesh({{"data", 2}, {"model", 2}});
  Graph graph_;
  Plan plan_;
  std::vector<RankGraph> ranks_;
};

TEST_F(LocalGraphs, OfASoundPlanHaveNoFault) {
  EXPECT_THAT(verify_plan(graph_, plan_), IsEmpty());
  EXPECT_THAT(faults(), IsEmpty());
}

TEST_F(LocalGraphs, ShowAMemberThatIsMissing) {
  set(3, "all_reduce", "fc", "ranks", Ints{3});
  set(3, "all_reduce", "fc", "rank_in_group", int64_t{0});
  EXPECT_THAT(faults(), ElementsAre("group [2,3]: rank 3 does nothing, where rank 2 does "
                                    "#0 all_reduce \"fc\" in bucket 0 in the awaited lane: sum of f32[2,4]"));
}

TEST_F(LocalGraphs, ShowCollectivesInAnotherOrder) {
  set(0, "all_reduce", "fc", "order", int64_t{7});
  EXPECT_THAT(
      faults(),
      ElementsAre(
          "rank 0: %5 = all_reduce \"fc\": is sent as #1 and waits for what is sent as #7",
          "group [0,1]: rank 1 does #0 all_reduce \"fc\" in bucket 0 in the awaited lane: sum of f32[3,4], where "
          "rank 0 does #7 all_reduce \"fc\" in bucket 0 in the awaited lane: sum of f32[3,4]"));
}

TEST_F(LocalGraphs, ShowAnotherReductionOnOneRank) {
  set(1, "all_reduce", "fc", "reduction", std::string("max"));
  EXPECT_THAT(
      faults(),
      ElementsAre(
          "group [0,1]: rank 1 does #0 all_reduce \"fc\" in bucket 0 in the awaited lane: max of f32[3,4], where "
          "rank 0 does #0 all_reduce \"fc\" in bucket 0 in the awaited lane: sum of f32[3,4]"));
}

TEST_F(LocalGraphs, ShowARankAtAnotherPlaceOfItsGroup) {
  set(1, "all_reduce", "fc", "rank_in_group", int64_t{0});
  EXPECT_THAT(faults(), ElementsAre("rank 1: %2 = all_reduce \"fc\": the rank is not number 0 of the group [0,1]"));
}

TEST_F(LocalGraphs, ShowASumInTheWrongGroup) {
  for (const int rank : {0, 1, 2, 3}) {
    set(rank, "all_reduce", "fc", "ranks", Ints{rank % 2, rank % 2 + 2});
    set(rank, "all_reduce", "fc", "rank_in_group", int64_t{rank / 2});
  }
  EXPECT_EQ(
      faults().at(0),
      "group [0,2]: rank 2 does #0 all_reduce \"fc\" in bucket 0 in the awaited lane: sum of f32[2,4], where rank 0 "
      "does #0 all_reduce \"fc\" in bucket 0 in the awaited lane: sum of f32[3,4]");
}

TEST_F(LocalGraphs, ShowASumThatIsLeftOutByAll) {
  for (const int rank : {0, 1, 2, 3}) {
    set(rank, "all_reduce", "fc", "ranks", Ints{rank});
    set(rank, "all_reduce", "fc", "rank_in_group", int64_t{0});
  }
  EXPECT_EQ(faults().at(0),
            "ranks 0,1: relu \"act\": operand 0 (%1) is %2, [0:3,0:4] as the sum of ranks 0,1; wanted: "
            "[0:3,0:4]");
}

TEST_F(LocalGraphs, ShowAMaximumWhereASumIsDue) {
  for (const int rank : {0, 1, 2, 3}) set(rank, "all_reduce", "fc", "reduction", std::string("max"));
  EXPECT_EQ(faults().at(0), "ranks 0,1: %2 = all_reduce \"fc\": takes the max of [0:3,0:4] as the sum of ranks 0,1");
}

// The plan is made anew behind the graphs' back: what was partial is whole, as if it had been reduced before.
TEST_F(LocalGraphs, ShowASumThatIsTakenTwice) {
  for (auto& sharding : plan_.values) sharding.partial.clear();
  EXPECT_EQ(faults().at(0),
            "rank 0: %2 = all_reduce \"fc\": takes the sum over ranks 0 and 1 of [0:3,0:4], which is "
            "whole or a sum of others");
}

TEST(LocalGraphsOfSlices, ShowOneThatBeginsElsewhere) {
  const Graph graph = ir::parse("graph g\n  input x f32[6]\n  %1 = relu x : f32[6]\n  return y = %1\n");
  const Mesh mesh({{"data", 2}});
  auto plan = propagate(graph, mesh, {}, {.fixed = {{0, {.factors = {{"d0", {0}}}}}}});
  auto ranks = partition_all(graph, plan);
  ASSERT_THAT(verify_local(graph, plan, ranks), IsEmpty());
  auto& slice = ranks[1].graph.mutable_node(0);
  slice.attributes.set("begin", Ints{2});
  slice.attributes.set("end", Ints{5});
  EXPECT_THAT(verify_local(graph, plan, ranks), ElementsAre("rank 1: relu: operand 0 (x) is %1, [2:5]; wanted: [3:6]"));
}

class LocalGraphsOfExchanges : public testing::Test {
 protected:
  LocalGraphsOfExchanges() {
    plan_ = propagate(graph_, Mesh({{"data", 6}}), {});
    ranks_ = partition_all(graph_, plan_);
  }
  // Sets number `at` of a rank's boxes.
  void set(int rank, const std::string& boxes, size_t at, int64_t value) {
    auto& node = ranks_[static_cast<size_t>(rank)].graph.mutable_node(2);
    ASSERT_EQ(node.op, "exchange");
    Ints numbers = node.attributes.get_ints(boxes);
    numbers[at] = value;
    node.attributes.set(boxes, numbers);
  }
  const Graph graph_ = ir::parse(R"(graph g
  input x f32[6]
  %1 = relu x : f32[6] shard ((2,),)
  %2 = neg %1 : f32[6] shard ((3,),)
  return y = %2
)");
  Plan plan_;
  std::vector<RankGraph> ranks_;
};

TEST_F(LocalGraphsOfExchanges, BetweenTwoGridsOfRanksHaveNoFault) {
  EXPECT_EQ(plan_.meshes.size(), 2U);
  EXPECT_THAT(verify_local(graph_, plan_, ranks_), IsEmpty());
}

TEST_F(LocalGraphsOfExchanges, ShowASenderOfLessThanIsExpected) {
  const Ints sent = ranks_[1].graph.node(2).attributes.get_ints("send");
  const auto to =
      static_cast<size_t>(std::find_if(sent.begin(), sent.end(), [](int64_t n) { return n > 0; }) - sent.begin());
  set(1, "send", to / 2 * 2 + 1, 0);
  EXPECT_EQ(verify_local(graph_, plan_, ranks_).size(), 1U);
  EXPECT_THAT(verify_local(graph_, plan_, ranks_)[0], testing::HasSubstr("rank 1 sends [0] to rank"));
}

TEST(LocalGraphsOfRandomNumbers, ShowARankThatDrawsThoseOfAnother) {
  const Graph graph = ir::parse(R"(graph g
  state step i64[]
  input x f32[6]
  %1 = dropout x, step {global_shape=[], keep_prob=0.5, offset=[], seed=3, stream=4} : f32[6] @ drop
  return y = %1
)");
  const Mesh mesh({{"data", 2}});
  const auto plan = propagate(graph, mesh, on_mesh(mesh, {{"x", {{{0}}, {}}}}));
  auto ranks = partition_all(graph, plan);
  ASSERT_THAT(verify_local(graph, plan, ranks), IsEmpty());
  ranks[1].graph.mutable_node(0).attributes.set("offset", Ints{0});
  EXPECT_THAT(verify_local(graph, plan, ranks),
              ElementsAre("rank 1: dropout \"drop\" draws the elements from [0] of [6], its piece begins at [3] of "
                          "[6]"));
}

TEST(LocalGraphsOfPartialStates, AWholeValueIsASumThatOneRankContributes) {
  const Graph graph =
      ir::parse("graph g\n  state s f32[4]\n  input x f32[4]\n  %1 = relu x : f32[4]\n  return s = %1\n");
  const Mesh mesh({{"data", 3}});
  const auto plan = propagate(graph, mesh, on_mesh(mesh, {{"s", {{{}}, {{0, mesh::Reduction::kSum}}}}}));
  ASSERT_THAT(verify_plan(graph, plan), IsEmpty());
  auto ranks = partition_all(graph, plan);
  ASSERT_THAT(verify_local(graph, plan, ranks), IsEmpty());
  // Another rank contributes something, too.
  auto& nothing = ranks[2].graph.mutable_node(1);
  ASSERT_EQ(nothing.op, "fill");
  nothing.attributes.set("value", 1.0);
  EXPECT_EQ(verify_local(graph, plan, ranks).at(0),
            "rank 2: %2 = fill: stands between operators, where values are only moved");
}

}  // namespace
}  // namespace tessera::compiler
