#include "tessera/mesh/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/mesh/batch_layout.h"
#include "tessera/mesh/mesh.h"
#include "tessera/mesh/rank_limits.h"
#include "tessera/mesh/strategy_error.h"

namespace tessera::mesh {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Optional;
using testing::ThrowsMessage;

TEST(Strategy, ReadsTuplesAsPythonPrintsThem) {
  EXPECT_EQ(parse_strategy("((2,1),(1,4))"), (Strategy{{2, 1}, {1, 4}}));
  EXPECT_EQ(parse_strategy(" ( (4, 1) , (2,), () ) "), (Strategy{{4, 1}, {2}, {}}));
  EXPECT_EQ(parse_strategy("((8, 1, 1, 1),)"), (Strategy{{8, 1, 1, 1}}));
  EXPECT_EQ(parse_strategy("()"), Strategy{});
}

TEST(Strategy, TextParsesBack) {
  EXPECT_EQ(to_string(Strategy{{2, 1}, {4}, {}}), "((2,1),(4,),())");
  for (const Strategy& strategy : {Strategy{}, Strategy{{}}, Strategy{{3}}, Strategy{{1, 2}, {}, {7}}}) {
    EXPECT_EQ(parse_strategy(to_string(strategy)), strategy);
  }
}

TEST(Strategy, RefusalsNameTheTextAndThePlace) {
  for (const char* text : {"", "(2,1)", "((2,1)", "((2 1))", "((2,1),(1,4)) x", "((2,,1))", "((a))", "((2,1)(1,4))"}) {
    EXPECT_THROW(parse_strategy(text), InvalidArgument) << text;
  }
  EXPECT_THAT([] { parse_strategy("((2,0))"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("strategy \"((2,0))\": counts must be at least 1")));
  EXPECT_THAT([] { parse_strategy("((2,1) 3)"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("expected \",\" at character 8")));
}

TEST(StrategyGrid, TextParsesBack) {
  const StrategyGrid grid{.sizes = {2, 3, 2}, .axes = {{{0}, {}}, {{}, {2, 1}}, {}}};
  EXPECT_EQ(to_string(grid), "(2,3,2):((0,_),(_,2.1),())");
  EXPECT_EQ(parse_strategy_grid(to_string(grid)), grid);
  EXPECT_EQ(parse_strategy_grid(" ( 4 ) : ( ( 0 ) ) "), (StrategyGrid{.sizes = {4}, .axes = {{{0}}}}));
  EXPECT_EQ(to_string(StrategyGrid()), "");
}

TEST(StrategyGrid, RefusalsNameTheTextAndThePlace) {
  for (const char* text : {"", "()", "(2)", "(2):", "(2):(", "(2):((0)", "(2):(0)", "(2):((0 _))", "(2):((a))",
                           "(2):((0.))", "(2):((0)) x", "(2):((0)(0))", "2:((0))"}) {
    EXPECT_THROW(parse_strategy_grid(text), InvalidArgument) << text;
  }
  EXPECT_THAT([] { parse_strategy_grid("(2,0):()"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("sizes must be at least 1, found 0")));
  EXPECT_THAT([] { parse_strategy_grid("(2):((-1))"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("axes must be at least 0, found -1")));
}

TEST(Strategy, CountsAreFromOneToTheNumberOfRanks) {
  EXPECT_EQ(fault_of_counts({{4, 1}, {}, {2}}, 4), "");
  EXPECT_EQ(fault_of_counts({{1}, {1, 0}}, 4),
            "does not divide 4 ranks: it splits dim 1 of tensor 1 in 0; a count must be from 1 to 4");
  for (const int64_t count : {int64_t{-1}, int64_t{5}, int64_t{1} << 32, INT64_MAX}) {
    EXPECT_NE(fault_of_counts({{count}}, 4), "") << count;
  }
}

TEST(BatchLayouts, AreGridsInTheOrderOfTheDimsAndRepeated) {
  const std::vector<BatchColumn> columns = {{"x", {DType::kF32, {8, 6}}}, {"scale", {DType::kF32, {}}}};
  const auto layouts = layouts_of_batch({{1, 2}, {}}, columns, 4);
  ASSERT_EQ(layouts.size(), 2U);
  EXPECT_EQ(layouts[0].mesh, Mesh({{"dim1", 2}, {"repeated", 2}}));
  const auto slices = all_slices({8, 6}, layouts[0].mesh, layouts[0].sharding);
  const std::vector<Range> expected = {{0, 8}, {0, 3}, {0, 8}, {0, 3}, {0, 8}, {3, 3}, {0, 8}, {3, 3}};
  EXPECT_EQ(slices, expected);
  EXPECT_TRUE(layouts[1].sharding.is_replicated());
}

TEST(BatchLayouts, OfCountsThatDoNotFitAreRefused) {
  const auto refuses = [](const Strategy& strategy, const std::string& words) {
    const std::vector<BatchColumn> columns = {{"x", {DType::kF32, {8, 6}}}};
    EXPECT_THAT([&] { layouts_of_batch(strategy, columns, 4); }, ThrowsMessage<StrategyError>(HasSubstr(words)));
  };
  refuses({{2, 1}, {2}}, "dataset_strategy ((2,1),(2,)) has 2 tuples, there are 1 inputs");
  refuses({{2}}, "has 1 counts for input \"x\" f32[8,6]");
  refuses({{3, 1}}, "does not divide 4 ranks");
  refuses({{0, 1}}, "does not divide 4 ranks: it splits dim 0 of tensor 0 in 0");
}

TEST(CommonRefinement, CutsWhereAnyMatrixIsCut) {
  using Matrices = std::vector<std::vector<int64_t>>;
  const auto refine = [](const Matrices& matrices, int64_t num_ranks) {
    return common_refinement(matrices, num_ranks);
  };
  EXPECT_THAT(refine({{4, 2}, {2, 4}}, 8), Optional(ElementsAre(2, 2, 2)));
  EXPECT_THAT(refine({{8}, {4, 2}}, 8), Optional(ElementsAre(4, 2)));
  EXPECT_THAT(refine({{12}, {3, 4}, {6, 2}}, 12), Optional(ElementsAre(3, 2, 2)));
  EXPECT_EQ(refine({{2, 3}, {3, 2}}, 6), std::nullopt);
  EXPECT_THAT(refine({{1, 6, 1}}, 6), Optional(ElementsAre(6)));
  EXPECT_THAT(refine({{1}}, 1), Optional(IsEmpty()));
  EXPECT_THAT(refine({}, 4), Optional(ElementsAre(4)));
  // Fewer ranks repeat along a last axis.
  EXPECT_THAT(refine({{4}, {2, 2, 2}}, 8), Optional(ElementsAre(2, 2, 2)));
  EXPECT_THAT(refine({{2}}, 8), Optional(ElementsAre(2, 4)));
  EXPECT_THROW(refine({{3}}, 8), InvalidArgument);
  EXPECT_THROW(refine({{0}}, 8), InvalidArgument);
  EXPECT_THROW(refine({{int64_t{1} << 32, int64_t{1} << 32}}, 8), InvalidArgument);
}

TEST(RefinesExactly, HoldsJustWhenThePartsAreTheSame) {
  EXPECT_TRUE(refines_exactly(12, std::vector<int64_t>{6}, std::vector<int64_t>{2, 3}));
  EXPECT_FALSE(refines_exactly(10, std::vector<int64_t>{6}, std::vector<int64_t>{2, 3}));
  const auto parts = [](int64_t size, const std::vector<int64_t>& axes) {
    std::vector<int64_t> sizes{size};
    for (const int64_t axis : axes) {
      std::vector<int64_t> split;
      for (const int64_t part : sizes) {
        for (const int64_t s : balanced_sizes(part, static_cast<int>(axis))) split.push_back(s);
      }
      sizes = split;
    }
    return sizes;
  };
  using Case = std::pair<std::vector<int64_t>, std::vector<int64_t>>;
  for (const auto& [coarse, fine] : {Case{{4}, {2, 2}}, Case{{6}, {3, 2}}, Case{{6}, {2, 3}}, Case{{8}, {2, 2, 2}},
                                     Case{{3, 4}, {3, 2, 2}}, Case{{4, 3}, {1, 2, 2, 3}}, Case{{2, 6}, {2, 2, 3}}}) {
    for (int64_t size = 0; size < 60; ++size) {
      EXPECT_EQ(refines_exactly(size, coarse, fine), parts(size, coarse) == parts(size, fine)) << size;
    }
  }
  EXPECT_THROW(refines_exactly(8, std::vector<int64_t>{4, 2}, std::vector<int64_t>{2, 4}), InvalidArgument);
}

}  // namespace
}  // namespace tessera::mesh
