#include "tessera/mesh/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/mesh/box.h"
#include "tessera/mesh/stage_ranks.h"

namespace tessera::mesh {
namespace {

using testing::ElementsAre;

TEST(BalancedPart, LargerPartsComeFirst) {
  EXPECT_THAT(balanced_sizes(7, 4), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(balanced_sizes(9, 4), ElementsAre(3, 2, 2, 2));
  EXPECT_THAT(balanced_sizes(2, 4), ElementsAre(1, 1, 0, 0));
  EXPECT_EQ(balanced_part(7, 4, 3), (Range{6, 1}));
}

TEST(Sharding, TwoAxesOnOneDimSplitOuterFirst) {
  const Mesh mesh({{"a", 2}, {"b", 3}});
  std::vector<int64_t> sizes;
  for (int rank = 0; rank < 6; ++rank) sizes.push_back(local_shape({10}, {{{0, 1}}, {}}, mesh, rank)[0]);
  EXPECT_THAT(sizes, ElementsAre(2, 2, 1, 2, 2, 1));
}

TEST(Sharding, ADimInBlocksIsDealtByBlocks) {
  const Mesh mesh({{"a", 3}, {"b", 2}});
  std::vector<int64_t> rows;
  for (const int rank : {0, 2, 4}) rows.push_back(local_shape({12}, {{{0}}, {}, {3}}, mesh, rank)[0]);
  EXPECT_THAT(rows, ElementsAre(6, 3, 3));
  std::vector<int64_t> nested;
  for (int rank = 0; rank < 6; ++rank) nested.push_back(local_shape({20}, {{{0, 1}}, {}, {2}}, mesh, rank)[0]);
  EXPECT_THAT(nested, ElementsAre(4, 4, 4, 2, 4, 2));
}

TEST(Sharding, TextNamesAxesAndPartialSums) {
  const Mesh mesh({{"data", 4}, {"model", 2}});
  EXPECT_EQ((Sharding{{{0}, {}}, {{1, Reduction::kSum}}}).to_string(mesh), "[data,_] +model");
  EXPECT_EQ((Sharding{{}, {{0, Reduction::kMax}}}).to_string(mesh), "[] +data:max");
}

TEST(Sharding, TextParsesBack) {
  const Mesh mesh({{"data", 4}, {"model", 2}});
  for (const char* text : {"[]", "[_]", "[data,_]", "[_,data*model]", "[_] +data", "[data] +model:max", "[data:64,_]",
                           "[_,data*model:3] +model"}) {
    EXPECT_EQ(parse_sharding(text, mesh).to_string(mesh), text);
  }
  EXPECT_EQ(parse_sharding("[_]+data", mesh).to_string(mesh), "[_] +data");
  for (const char* text : {"", "data", "[data", "[data] model", "[_] +data:mean", "[_] +data:max:min", "[data:0]",
                           "[data:-3]", "[data:x]", "[data:]", "[data:2:2]"}) {
    EXPECT_THROW(parse_sharding(text, mesh), InvalidArgument) << text;
  }
  EXPECT_THROW(parse_sharding("[rows]", mesh), InvalidArgument);
}

TEST(Mesh, GroupsDifferAlongTheirAxesOnly) {
  const Mesh mesh({{"data", 2}, {"model", 3}});
  EXPECT_THAT(mesh.coordinates(4), ElementsAre(1, 1));
  EXPECT_THAT(mesh.group(4, {0}), ElementsAre(1, 4));
  EXPECT_THAT(mesh.group(4, {1}), ElementsAre(3, 4, 5));
}

TEST(Box, AnIntersectionLiesInBothAndIsEmptyWhereTheyDoNotMeet) {
  const Box a{{0, 4}, {2, 6}};
  const Box b{{3, 5}, {0, 4}};
  EXPECT_EQ(intersection(a, b), (Box{{3, 1}, {2, 2}}));
  EXPECT_EQ(intersection(b, a), intersection(a, b));
  EXPECT_EQ(relative_to(intersection(a, b), a), (Box{{3, 1}, {0, 2}}));
  EXPECT_EQ(shape_of(a), Shape({4, 6}));
  EXPECT_EQ(num_elements(a), 24);
  EXPECT_EQ(intersection(a, Box{{0, 4}, {8, 1}}), empty_box(2));
  EXPECT_TRUE(meet(a, b));
  EXPECT_FALSE(meet(a, Box{{0, 4}, {8, 1}}));
  EXPECT_FALSE(meet(a, Box{{0, 4}, {3, 0}}));
  EXPECT_TRUE(meet(Box{}, Box{}));
  EXPECT_EQ(num_elements(empty_box(2)), 0);
  EXPECT_EQ(num_elements(Box{}), 1) << "a scalar";
}

TEST(Mesh, RefusesMoreRanksThanThereMayBe) {
  for (const int axes : {2, 4}) {  // the product of four is 2^64
    std::vector<Axis> all;
    for (int i = 0; i < axes; ++i) all.push_back({fmt::format("a{}", i), 65536});
    EXPECT_THAT([&] { Mesh mesh(all); },
                testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("has more than 65536 ranks")));
  }
  EXPECT_EQ(Mesh({{"a", 256}, {"b", 256}}).size(), 65536);
}

TEST(StageRanks, FollowEachOther) {
  const StageRanks ranks({3, 1, 2});
  EXPECT_EQ(ranks.num_stages(), 3);
  EXPECT_EQ(ranks.num_ranks(), 6);
  EXPECT_THAT(ranks.ranks_of(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(ranks.ranks_of(2), ElementsAre(4, 5));
  std::vector<int> stages;
  for (int rank = 0; rank < 6; ++rank) stages.push_back(ranks.stage_of(rank));
  EXPECT_THAT(stages, ElementsAre(0, 0, 0, 1, 2, 2));
  EXPECT_THAT(ranks.sizes(), ElementsAre(1, 2, 3));
  EXPECT_EQ(ranks.to_string(), "3 + 1 + 2");
  EXPECT_FALSE(ranks.are_equal());
  EXPECT_EQ(StageRanks::equal(3, 2), StageRanks({2, 2, 2}));
  EXPECT_EQ(StageRanks::equal(3, 2).to_string(), "2 each");
  EXPECT_EQ(StageRanks().num_ranks(), 1);
}

TEST(StageRanks, AreRefusedWhereAStageHasNone) {
  const auto refuses = [](const std::string& text) {
    return testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr(text));
  };
  EXPECT_THAT([] { StageRanks({2, 0}); }, refuses("stage 1 of 2 has 0 ranks: each stage needs one at least"));
  EXPECT_THAT([] { StageRanks(std::vector<int>()); }, refuses("a pipeline has a stage at least"));
  EXPECT_THAT([] { StageRanks({2, 1}).stage_of(3); }, refuses("the stages have the ranks 0 to 2, none of them 3"));
}

TEST(Mesh, RefusesRepeatedRanks) { EXPECT_THROW(Mesh({{"data", 2}}, {1, 1}), InvalidArgument); }

}  // namespace
}  // namespace tessera::mesh
