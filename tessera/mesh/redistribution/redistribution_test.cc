#include "tessera/mesh/redistribution/redistribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/mesh/exchange_plan.h"

namespace tessera::mesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

const Mesh& grid() {
  static const Mesh mesh({{"data", 4}, {"model", 2}});
  return mesh;
}
constexpr int kData = 0;
constexpr int kModel = 1;
const Shape kShape{64, 32};  // f32: 8 KiB
const Sharding kReplicated{{{}, {}}, {}};
const Sharding kRows{{{kData}, {}}, {}};

Sharding partial(Sharding sharding, const std::vector<int>& axes, Reduction reduction = Reduction::kSum) {
  for (const int axis : axes) sharding.partial.push_back({axis, reduction});
  return sharding;
}

std::string steps(const Sharding& from, const Sharding& to, const RedistributionOptions& options = {}) {
  return to_string(redistribute(kShape, 4, {grid(), from}, {grid(), to}, options));
}

TEST(Redistribution, OneStepWhereOneIsEnough) {
  EXPECT_EQ(steps(kRows, kRows), "");
  EXPECT_EQ(steps(kRows, kReplicated), "all_gather dim 0 over data -> [_,_] 6144 B\n");
  EXPECT_EQ(steps({{{kData, kModel}, {}}, {}}, kReplicated), "all_gather dim 0 over data*model -> [_,_] 7168 B\n");
  EXPECT_EQ(steps({{{kData, kModel}, {}}, {}}, kRows), "all_gather dim 0 over model -> [data,_] 1024 B\n");
  EXPECT_EQ(steps(kReplicated, {{{kModel}, {kData}}, {}}), "slice over model*data -> [model,data]\n");
  EXPECT_EQ(steps(kRows, {{{kData, kModel}, {}}, {}}), "slice dim 0 over model -> [data*model,_]\n");
  EXPECT_EQ(steps(kRows, {{{}, {kData}}, {}}), "all_to_all dim 0 to 1 over data -> [_,data] 1536 B\n");
  EXPECT_EQ(steps(partial(kReplicated, {kData}), kReplicated, {.latency_bytes = 1 << 20}),
            "all_reduce over data -> [_,_] 12288 B\n");
  EXPECT_EQ(steps(partial(kReplicated, {kData, kModel}), kReplicated), "all_reduce over data*model -> [_,_] 14336 B\n");
  EXPECT_EQ(steps(partial(kReplicated, {kData}), kRows), "reduce_scatter dim 0 over data -> [data,_] 6144 B\n");
  EXPECT_EQ(steps(partial(kReplicated, {kData}, Reduction::kMax), kRows),
            "reduce_scatter:max dim 0 over data -> [data,_] 6144 B\n");
  EXPECT_EQ(steps(partial(kRows, {kModel}), kRows), "all_reduce over model -> [data,_] 2048 B\n");
}

TEST(Redistribution, PartialAxesOfTheTargetStayPartial) {
  EXPECT_EQ(steps(partial(kRows, {kModel}), partial(kReplicated, {kModel})),
            "all_gather dim 0 over data -> [_,_] +model 6144 B\n");
  EXPECT_EQ(steps(partial(kReplicated, {kData, kModel}), partial(kReplicated, {kModel}), {.latency_bytes = 1 << 20}),
            "all_reduce over data -> [_,_] +model 12288 B\n");
}

TEST(Redistribution, TwoDimsSwapTheirAxesPointToPoint) {
  // Swapping the axes of two dims: point to point at the lower bound, or collectives if that is not to be had.
  const Sharding from{{{kData}, {kModel}}, {}};
  const Sharding to{{{kModel}, {kData}}, {}};
  EXPECT_EQ(steps(from, to, {.latency_bytes = 0}), "exchange -> [model,data] 1024 B\n");
  EXPECT_EQ(lower_bound_bytes(kShape, 4, {grid(), from}, {grid(), to}), 1024);
  EXPECT_EQ(steps(from, to, {.enable_alltoall = false}),
            "all_gather dim 1 over model -> [data,_] 1024 B\n"
            "all_gather dim 0 over data -> [_,_] 6144 B\n"
            "slice over model*data -> [model,data]\n");
}

TEST(Redistribution, LatencyDecidesBetweenFewStepsAndFewBytes) {
  const Sharding from{{{kData, kModel}, {}}, {}};
  const Sharding to{{{kModel, kData}, {}}, {}};
  EXPECT_EQ(steps(from, to, {.latency_bytes = 0}), "exchange -> [model*data,_] 1024 B\n");
  EXPECT_EQ(steps(from, to, {.latency_bytes = 1 << 20}),
            "all_gather dim 0 over data*model -> [_,_] 7168 B\nslice dim 0 over model*data -> [model*data,_]\n");
  // An exchange that saves nothing is not taken.
  EXPECT_EQ(steps({{{kData}, {kModel}}, {}}, kReplicated),
            "all_gather dim 0 over data -> [_,model] 3072 B\nall_gather dim 1 over model -> [_,_] 4096 B\n");
}

TEST(Redistribution, IdleAxesShareTheWorkOfAReduction) {
  // All ranks along `model` hold the same partial values; each completes half of them.
  EXPECT_EQ(steps(partial(kReplicated, {kData}), kReplicated, {.latency_bytes = 0}),
            "slice dim 0 over model -> [model,_] +data\n"
            "all_reduce over data -> [model,_] 6144 B\n"
            "all_gather dim 0 over model -> [_,_] 4096 B\n");
}

TEST(Redistribution, MeshesThatNestMeetOnTheirRefinement) {
  const Mesh square({{"x", 4}, {"y", 2}});
  const Mesh wide({{"u", 2}, {"v", 4}});
  const auto text = [&](const Shape& shape, const Sharding& from, const Sharding& to) {
    return to_string(redistribute(shape, 4, {square, from}, {wide, to}));
  };
  EXPECT_EQ(text({64, 32}, {{{0}, {}}, {}}, {{{0}, {}}, {}}),
            "relabel -> [x.0*x.1,_] on [x.0=2, x.1=2, y=2]\n"
            "all_gather dim 0 over x.1 -> [x.0,_] 2048 B\n"
            "relabel -> [u,_] on [u=2, v=4]\n");
  EXPECT_EQ(text({64, 32}, {{{0, 1}, {}}, {}}, {{{0, 1}, {}}, {}}), "relabel -> [u*v,_] on [u=2, v=4]\n");
  // 10 over 4 is 3,3,2,2, over 2x2 it is 3,2,3,2: values move point to point.
  EXPECT_EQ(text({10, 32}, {{{0}, {}}, {}}, {{{0}, {}}, {}}), "exchange -> [u,_] on [u=2, v=4] 384 B\n");
}

TEST(Redistribution, ATransposedRankListIsARefinementToo) {
  const Mesh rows({{"a", 2}, {"b", 3}});
  const Mesh columns({{"c", 3}, {"d", 2}}, {0, 3, 1, 4, 2, 5});
  const auto refined = refine({12, 12}, {rows, {{{0}, {1}}, {}}}, {columns, {{{1}, {0}}, {}}});
  ASSERT_TRUE(refined);
  EXPECT_EQ(refined->mesh.to_string(), "[a=2, b=3]");
  EXPECT_EQ(refined->from, refined->to);
  EXPECT_EQ(refine({12, 12}, {rows, {{{0}, {1}}, {}}}, {Mesh({{"c", 3}, {"d", 2}}), {{{1}, {0}}, {}}}), std::nullopt);
}

TEST(Redistribution, UnrelatedMeshesCompleteSumsBeforeOneExchange) {
  const Mesh a({{"x", 2}, {"y", 3}});
  const Mesh b({{"u", 3}, {"v", 2}});
  EXPECT_EQ(to_string(redistribute({12, 6}, 4, {a, {{{}, {}}, {{1, Reduction::kSum}}}}, {b, {{{0}, {}}, {}}},
                                   {.latency_bytes = 0})),
            "slice dim 0 over x -> [x,_] +y\n"
            "reduce_scatter dim 0 over y -> [x*y,_] 96 B\n"
            "exchange -> [u,_] on [u=3, v=2] 48 B\n");
  EXPECT_EQ(to_string(redistribute({12, 6}, 4, {a, {{{0}, {}}, {}}}, {b, {{{0}, {}}, {}}}, {.enable_alltoall = false})),
            "all_gather dim 0 over x -> [_,_] 144 B\n"
            "relabel -> [_,_] on [u=3, v=2]\n"
            "slice dim 0 over u -> [u,_]\n");
  EXPECT_EQ(to_string(redistribute({12, 6}, 4, {a, kReplicated}, {b, {{{0}, {1}}, {}}})),
            "slice -> [u,v] on [u=3, v=2]\n");
}

TEST(Redistribution, RanksOfAnotherStageReceiveAll) {
  const Layout from{Mesh({{"x", 2}}, {0, 1}), {{{0}}, {}}};
  const Layout to{Mesh({{"x", 3}}, {2, 3, 4}), {{{0}}, {}}};
  EXPECT_EQ(to_string(redistribute({10}, 4, from, to)), "exchange -> [x] on [x=3] 16 B\n");
  const auto plan = exchange_plan({10}, from, to, 1);  // holds 5..9; wanted: 0..3, 4..6, 7..9
  EXPECT_THAT(plan.sends, ElementsAre(ExchangePiece{3, {{0, 2}}}, ExchangePiece{4, {{2, 3}}}));
  EXPECT_THAT(plan.receives, IsEmpty());
  EXPECT_THAT(exchange_plan({10}, from, to, 3).receives,
              ElementsAre(ExchangePiece{0, {{0, 1}}}, ExchangePiece{1, {{1, 2}}}));
}

TEST(Redistribution, AxesOfSizeOneNeedNoStep) {
  const Mesh mesh({{"a", 1}, {"b", 2}});
  EXPECT_EQ(to_string(redistribute({4}, 4, {mesh, {{{0, 1}}, {}}}, {mesh, {{{1}}, {}}})), "relabel -> [b]\n");
  EXPECT_EQ(to_string(redistribute({4}, 4, {mesh, {{{1}}, {{0, Reduction::kMax}}}}, {mesh, {{{}}, {}}})),
            "all_gather dim 0 over b -> [_] 8 B\n");
  EXPECT_EQ(to_string(redistribute({4}, 4, {mesh, {{{}}, {}}}, {mesh, {{{1, 0}}, {}}})),
            "slice dim 0 over b -> [b*a]\n");
}

TEST(Redistribution, RefusesWhatHasNoMeaning) {
  EXPECT_THAT([] { steps(kReplicated, partial(kReplicated, {kData})); },
              ThrowsMessage<InvalidArgument>(HasSubstr("a whole value cannot become partial")));
  EXPECT_THROW(steps(partial(kReplicated, {kData}, Reduction::kMax), partial(kReplicated, {kData})), InvalidArgument);
  EXPECT_THROW(steps({{{}, {}}, {{0, Reduction::kMax}, {1, Reduction::kSum}}}, kReplicated), InvalidArgument);
  EXPECT_THROW(steps({{{kData}}, {}}, kReplicated), InvalidArgument);
  EXPECT_THROW(steps({{{kData}, {kData}}, {}}, kReplicated), InvalidArgument);
  EXPECT_THROW(steps({{{2}, {}}, {}}, kReplicated), InvalidArgument);
  EXPECT_THROW(steps(kRows, kReplicated, {.latency_bytes = -1}), InvalidArgument);
  const Mesh a({{"x", 2}, {"y", 3}});
  const Mesh b({{"u", 3}, {"v", 2}});
  EXPECT_THROW(redistribute({6}, 4, {a, {{{}}, {{0, Reduction::kSum}}}}, {b, {{{}}, {{1, Reduction::kSum}}}}),
               InvalidArgument);
}

TEST(Exchange, ReplicasShareTheLoadEvenly) {
  // Each half is held four times and lacked four times: every holder serves one rank.
  const Mesh mesh({{"a", 2}, {"b", 4}});
  const Layout from{mesh, {{{0}, {}}, {}}};
  for (const int rank : mesh.ranks()) {
    const auto plan = exchange_plan({6, 8}, from, {mesh, kReplicated}, rank);
    EXPECT_THAT(plan.sends, ElementsAre(ExchangePiece{(rank + 4) % 8, {{0, 3}, {0, 8}}}));
    EXPECT_THAT(plan.receives, ElementsAre(ExchangePiece{(rank + 4) % 8, {{rank < 4 ? 3 : 0, 3}, {0, 8}}}));
  }
  // One rank lacks what four hold: a quarter from each.
  const Layout held{Mesh({{"a", 4}}, {1, 2, 3, 4}), {{{}, {}}, {}}};
  const auto plan = exchange_plan({6, 8}, held, {Mesh({}, {9}), {{{}, {}}, {}}}, 9);
  EXPECT_THAT(plan.receives, ElementsAre(ExchangePiece{1, {{0, 6}, {0, 2}}}, ExchangePiece{2, {{0, 6}, {2, 2}}},
                                         ExchangePiece{3, {{0, 6}, {4, 2}}}, ExchangePiece{4, {{0, 6}, {6, 2}}}));
}

TEST(Exchange, PartialValuesMoveAmongTheirOwn) {
  const Mesh mesh({{"a", 2}, {"b", 2}});
  const auto plan = exchange_plan({4}, {mesh, partial({{{0}}, {}}, {1})}, {mesh, partial({{{}}, {}}, {1})}, 1);
  EXPECT_THAT(plan.receives, ElementsAre(ExchangePiece{3, {{2, 2}}}));
  EXPECT_THROW(exchange_plan({4}, {mesh, partial({{{0}}, {}}, {1})}, {mesh, {{{}}, {}}}, 1), InvalidArgument);
}

TEST(Exchange, WhatAllRanksDoIsWhatEachOneDoes) {
  const Mesh mesh({{"a", 2}, {"b", 3}}, {5, 4, 3, 2, 1, 0});
  const Mesh others({{"u", 2}, {"v", 2}}, {1, 7, 5, 9});
  const auto rows = [](const Mesh& m, std::vector<int> axes) { return Layout{m, {{std::move(axes), {}}, {}}}; };
  const std::vector<std::pair<Layout, Layout>> ways = {
      {rows(mesh, {0}), {mesh, kReplicated}},
      {rows(mesh, {1}), {mesh, {{{}, {0}}, {}}}},
      {rows(mesh, {0, 1}), rows(mesh, {1, 0})},
      {{mesh, kReplicated}, rows(others, {0})},
      {rows(others, {1}), rows(mesh, {1})},
      {{mesh, partial({{{0}, {}}, {}}, {1})}, {mesh, partial(kReplicated, {1})}},
  };
  for (const auto& [from, to] : ways) {
    for (const Shape& shape : {Shape{12, 6}, Shape{7, 5}, Shape{1, 1}}) {
      std::map<std::pair<int, int>, int64_t> sent;
      std::map<std::pair<int, int>, int64_t> received;
      for (int rank = 0; rank < 10; ++rank) {
        if (from.sharding.is_partial() && rank > 5) continue;
        const auto plan = exchange_plan(shape, from, to, rank);
        for (const auto& piece : plan.sends) sent[{rank, piece.rank}] += num_elements(piece.box);
        for (const auto& piece : plan.receives) received[{piece.rank, rank}] += num_elements(piece.box);
      }
      std::map<std::pair<int, int>, int64_t> visited;
      visit_exchange(shape, from, to, [&](int sender, int receiver, int64_t elements) {
        visited[{sender, receiver}] += elements;
      });
      EXPECT_EQ(visited, sent) << from.to_string() << " to " << to.to_string();
      EXPECT_EQ(visited, received) << from.to_string() << " to " << to.to_string();
    }
  }
}

TEST(Redistribution, GroupsFollowTheOrderOfAxes) {
  const Mesh mesh({{"a", 2}, {"b", 3}});
  EXPECT_THAT(ordered_group(mesh, 4, {1, 0}), ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(part_sizes(10, mesh, {0, 1}), ElementsAre(2, 2, 1, 2, 2, 1));
}

TEST(Redistribution, ASearchThatGivesUpStillFindsAWay) {
  std::vector<Axis> axes;
  for (int i = 0; i < 10; ++i) axes.push_back({"a" + std::to_string(i), 2});
  const Mesh mesh(axes);
  Layout from{mesh, {{{}, {}}, {}}};
  Layout to{mesh, {{{}, {9, 2}}, {}}};
  for (int i = 0; i < 10; ++i) from.sharding.partial.push_back({i, Reduction::kSum});
  const auto found = redistribute({4096, 1024}, 4, from, to);
  EXPECT_FALSE(found.optimal);
  EXPECT_EQ(found.steps.back().after, to.sharding);
  EXPECT_LE(found.bytes, 2 * 4096 * 1024 * 4);
  EXPECT_GE(found.bytes, lower_bound_bytes({4096, 1024}, 4, from, to));
}

TEST(Redistribution, AThousandRanksTakeNoLongerToSearch) {
  const Mesh mesh({{"pod", 4}, {"host", 16}, {"board", 4}, {"chip", 4}});
  const auto found =
      redistribute({4096, 1024}, 2, {mesh, {{{0, 1}, {2}}, {{3, Reduction::kSum}}}}, {mesh, {{{2, 3}, {}}, {}}});
  EXPECT_TRUE(found.optimal);
  EXPECT_LE(
      lower_bound_bytes({4096, 1024}, 2, {mesh, {{{0, 1}, {2}}, {{3, Reduction::kSum}}}}, {mesh, {{{2, 3}, {}}, {}}}),
      found.bytes);
}

}  // namespace
}  // namespace tessera::mesh
