#include "tessera/train/modes/common_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

data::Dataset rows(const data::SourceOptions& options, int64_t count = 8, float first = 0, int64_t width = 2) {
  Tensor x(DType::kF32, {count, width});
  for (int64_t i = 0; i < count * width; ++i) x.view().as<float>()[i] = first + static_cast<float>(i);
  return data::tensors({{"x", x}}, options);
}

std::string described(const data::Dataset& dataset) { return describe_data(dataset.batch(2)); }

TEST(CommonData, OfOneSeedAreCommon) {
  const auto all = described(rows({.shuffle = true, .seed = 3}));
  EXPECT_NO_THROW(require_common_data({all, all}, BatchParts::kOfCommon));
}

TEST(CommonData, AnotherSeedIsNamed) {
  EXPECT_THAT(
      [] {
        require_common_data(
            {described(rows({.shuffle = true, .seed = 3})), described(rows({.shuffle = true, .seed = 4}))},
            BatchParts::kOfCommon);
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("rank 1's rows are in another order than rank 0's"),
                                           HasSubstr("seed 4"), HasSubstr("seed 3"))));
}

TEST(CommonData, TheSeedOfWhatIsNotShuffledDoesNotCount) {
  const auto seeded = [](uint64_t seed) { return rows({.seed = seed}); };
  EXPECT_NO_THROW(require_common_data({described(seeded(0)), described(seeded(1))}, BatchParts::kOfCommon));
  EXPECT_THAT(
      [&] {
        require_common_data({described(seeded(0).shuffle(8)), described(seeded(1).shuffle(8))}, BatchParts::kOfCommon);
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("| shuffle 8 by seed 1"), HasSubstr("set_seed()"))));
}

TEST(CommonData, AnotherShuffleBehindTheSourceIsNamed) {
  EXPECT_THAT(
      [] {
        require_common_data({described(rows({}).shuffle(8)), described(rows({}).shuffle(4))}, BatchParts::kOfCommon);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("| shuffle 4")));
}

TEST(CommonData, RanksOfOnePlaceInTheirStagesReadOneShard) {
  const auto shard = [](int64_t id, int64_t count, float first = 0) {
    return described(rows({.num_shards = count, .shard_id = id}, 8, first));
  };
  EXPECT_NO_THROW(require_equal_parts({shard(0, 2), shard(1, 2), shard(0, 2), shard(1, 2)}, 2));
  EXPECT_NO_THROW(require_equal_parts({shard(0, 2), shard(1, 2)}, 2));
  EXPECT_THAT(
      [&] {
        require_equal_parts({shard(0, 4), shard(1, 4), shard(2, 4), shard(3, 4)}, 2);
      },
      ThrowsMessage<InvalidArgument>(
          AllOf(HasSubstr("rank 2 reads shard 2 of 4, and rank 0, which has the same place in its stage, shard 0 of 4"),
                HasSubstr("num_shards=2 and shard_id=rank % 2"))));
  EXPECT_THAT(
      [&] {
        require_equal_parts({shard(0, 1), shard(0, 1, 5)}, 1);
      },
      ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("rank 1 reads other rows"), HasSubstr("one seed"))));
}

TEST(CommonData, ShardsOfTwoOrdersOverlap) {
  const auto shard = [](int64_t id, uint64_t seed) {
    return described(rows({.shuffle = true, .num_shards = 2, .shard_id = id, .seed = seed}));
  };
  EXPECT_NO_THROW(require_common_data({shard(0, 1), shard(1, 1)}, BatchParts::kOfEachRank));
  EXPECT_THAT(
      [&] {
        require_common_data({shard(0, 1), shard(1, 2)}, BatchParts::kOfEachRank);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("their shards overlap")));
  EXPECT_EQ(find_doubled_shard({shard(0, 1), shard(1, 1)}), "");
  EXPECT_EQ(find_doubled_shard({shard(0, 1), shard(0, 1)}), "ranks 0 and 1 both read shard 0 of 2");
}

TEST(CommonData, APartOfAnotherNumberThanThereAreRanksIsNamed) {
  const auto part = [](int64_t id, int64_t count) { return described(rows({.num_shards = count, .shard_id = id})); };
  EXPECT_NO_THROW(require_all_parts({part(0, 2), part(1, 2)}, 2));
  EXPECT_NO_THROW(require_all_parts({part(0, 1), part(0, 1)}, 2));
  EXPECT_THAT(
      [&] {
        require_all_parts({part(0, 4), part(1, 4)}, 2, "eval");
      },
      ThrowsMessage<InvalidArgument>(AllOf(
          HasSubstr("eval: rank 0's data set is one rank's part of 4 (num_shards), but 2 ranks give the rows of a "
                    "batch, so that nobody would read the other parts"),
          HasSubstr("num_shards=2 and shard_id, the rank, or without both"))));
  EXPECT_THAT(
      [&] {
        require_all_parts({part(0, 2), part(1, 2), part(0, 2), part(1, 2)}, 4);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("some would read the same rows")));
  EXPECT_THAT(
      [&] { require_all_parts({part(0, 2)}, 1); },
      ThrowsMessage<InvalidArgument>(HasSubstr("but 1 rank gives the rows of a batch, so that nobody would read "
                                               "the other parts: make it without num_shards and shard_id")));
}

TEST(CommonData, ASourceThatIsCutOtherwiseIsNamedWhateverItIsAPartOf) {
  const auto part = [](int64_t id, int64_t count) {
    return described(rows({.num_shards = count, .shard_id = id}).as_part_of(2));
  };
  EXPECT_NO_THROW(require_all_parts({part(0, 4), part(1, 4)}, 2));
  EXPECT_EQ(find_other_cut({part(0, 4), part(1, 4)}), "rank 0 reads shard 0 of 4, and 2 ranks give rows");
  EXPECT_EQ(find_other_cut({part(0, 2), part(1, 2)}), "");
  EXPECT_EQ(find_other_cut({part(0, 1), part(0, 1)}), "");
}

TEST(CommonData, RowsThatNobodyHasCutAreEqual) {
  const auto whole = described(rows({.shuffle = true, .seed = 1}).as_part_of(2));
  EXPECT_TRUE(give_equal_rows({whole, whole}));
  EXPECT_FALSE(give_equal_rows({whole})) << "one rank has nobody to share with";
  EXPECT_FALSE(give_equal_rows({whole, described(rows({.shuffle = true, .seed = 1}, 8, 100).as_part_of(2))}));
  EXPECT_FALSE(give_equal_rows({whole, described(rows({.shuffle = true, .seed = 2}).as_part_of(2))}));
  EXPECT_FALSE(give_equal_rows({whole, described(rows({.shuffle = true, .seed = 1}).skip(2).as_part_of(2))}));
  const auto shard = [](int64_t id) { return described(rows({.num_shards = 2, .shard_id = id})); };
  EXPECT_FALSE(give_equal_rows({shard(0), shard(1)}));
}

TEST(CommonData, WhatAFunctionGivesIsNotKnownToBeEqual) {
  const auto generated =
      described(data::generator({{"x", {DType::kF32, {2}}}}, 8, [](int64_t, std::span<const TensorView>) {}));
  EXPECT_FALSE(give_equal_rows({generated, generated}));
}

TEST(CommonData, RowsOfEachRankMayDifferInOrderAndValue) {
  const auto one = described(rows({.shuffle = true, .seed = 1}));
  const auto other = described(rows({.shuffle = true, .seed = 2}, 8, 100));
  EXPECT_NO_THROW(require_common_data({one, other}, BatchParts::kOfEachRank));
}

TEST(CommonData, RowsThatARankHasOrderedItselfAreNoticed) {
  EXPECT_THAT(
      [] {
        require_common_data({described(rows({})), described(rows({}, 8, 1))}, BatchParts::kOfCommon);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("rank 1's rows are not rank 0's")));
}

TEST(CommonData, NumberOfBatchesAndColumnsAreNamed) {
  EXPECT_THAT(
      [] {
        require_common_data({described(rows({})), described(rows({}, 6))}, BatchParts::kOfEachRank);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("rank 1 has 3 batches an epoch, rank 0 has 4")));
  EXPECT_THAT(
      [] {
        require_common_data({described(rows({})), described(rows({}, 8, 0, 3))}, BatchParts::kOfEachRank);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("has the columns x f32[2,3], rank 0's has x f32[2,2]")));
}

TEST(CommonData, RowsOfAShortBatchAreNamed) {
  const auto whole = described(rows({}));
  const auto short_one = described(rows({}, 7));
  EXPECT_THAT(
      [&] {
        require_common_data({whole, short_one}, BatchParts::kOfEachRank);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("rank 1 has a short batch of 1 row in an epoch, rank 0 has no short "
                                               "batch; the ranks work on each batch together")));
  EXPECT_NO_THROW(require_common_data({short_one, short_one}, BatchParts::kOfEachRank));
  const auto without = describe_data(rows({}, 9).batch(2, {.drop_remainder = true}));
  EXPECT_NO_THROW(require_common_data({whole, without}, BatchParts::kOfEachRank));
  const auto not_taken = describe_data(rows({}, 9).batch(2).take(4));
  EXPECT_NO_THROW(require_common_data({whole, not_taken}, BatchParts::kOfEachRank));
}

}  // namespace
}  // namespace tessera::train
