// Who writes what: each element of what the ranks hold once, by a rank that holds it, about as many bytes on each.
#include "tessera/checkpoint/write/sharing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "tessera/base/random.h"

namespace tessera::checkpoint {
namespace {

const mesh::Mesh kMesh({{"data", 2}, {"model", 4}});

std::vector<int> ranks(int n) {
  std::vector<int> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

HeldValue split(const Shape& shape, const std::vector<std::vector<int>>& dims) {
  return {"w", {DType::kF32, shape}, mesh::Layout{kMesh, {dims, {}}}};
}

// How often each element is written.
std::vector<double> counts(const HeldValue& value, const std::vector<int>& together, int64_t min_shared_bytes) {
  const Tensor written = Tensor::zeros({DType::kF64, value.type.shape});
  for (const int rank : together) {
    const auto regions = written_regions(std::span(&value, 1), together, rank, min_shared_bytes);
    if (!regions[0]) continue;
    const auto held = held_region(value, rank);
    EXPECT_TRUE(held && intersection(*held, *regions[0]) == regions[0])
        << "rank " << rank << " does not hold what it writes";
    const auto view = view_of(written.view(), *regions[0]);
    const Tensor sum = Tensor::copy_of(view);
    for (auto& element : sum.values<double>()) element += 1;
    copy_elements(sum.view(), view);
  }
  return written.to_doubles();
}

TEST(WrittenRegions, CoverEachElementOnceHoweverItIsSplit) {
  for (const int64_t min_shared : {int64_t{1}, int64_t{1} << 40}) {
    for (const auto& value : {split({10, 7}, {{}, {}}), split({10, 7}, {{0}, {1}}), split({10, 7}, {{1}, {}}),
                              split({10, 7}, {{0, 1}, {}}), split({3, 7}, {{1}, {}}), split({1, 5}, {{}, {1}})}) {
      EXPECT_THAT(counts(value, ranks(8), min_shared), testing::Each(1));
    }
  }
}

TEST(WrittenRegions, AreOfTheRanksOfOneDirectoryOnly) {
  // Ranks 0 to 3 hold the first half of the rows and all columns between them, ranks 4 to 7 the second.
  const auto value = split({4, 8}, {{0}, {1}});
  std::vector<double> first_half(32);
  std::fill_n(first_half.begin(), 16, 1.0);
  EXPECT_EQ(counts(value, {0, 1, 2, 3}, 1), first_half);
  const HeldValue whole{"w", {DType::kF32, {4, 8}}, std::nullopt};
  EXPECT_THAT(counts(whole, {5}, 1), testing::Each(1));
}

TEST(WrittenRegions, AreBalancedByBytes) {
  std::vector<HeldValue> values;
  for (uint64_t i = 0; i < 60; ++i) {
    const auto rows = static_cast<int64_t>(random_below({.seed = 1, .stream = 0, .step = 0}, i, 300)) + 1;
    values.push_back({fmt::format("v{}", i), {DType::kF32, {rows, 16}}, std::nullopt});
  }
  values.push_back({"large", {DType::kF32, {4096, 128}}, std::nullopt});
  std::vector<int64_t> bytes;
  for (const int rank : ranks(8)) {
    int64_t sum = 0;
    for (const auto& region : written_regions(values, ranks(8), rank))
      sum += region ? region->shape.num_elements() * 4 : 0;
    bytes.push_back(sum);
  }
  const auto [least, most] = std::minmax_element(bytes.begin(), bytes.end());
  EXPECT_LT(static_cast<double>(*most), 1.02 * static_cast<double>(*least));
}

// Ranks 0 to 2 have a copy in three parts, ranks 3 and 4 one in two, ranks 5 to 7 one in three again.
HeldValue copies_of_three_stages(const Shape& shape) {
  const auto rows = [](const std::vector<int>& of) {
    return mesh::Layout{mesh::Mesh({{"data", static_cast<int>(of.size())}}, of), {{{0}, {}}, {}}};
  };
  return {"w", {DType::kF32, shape}, rows({0, 1, 2}), {rows({3, 4}), rows({5, 6, 7})}};
}

TEST(WrittenRegions, OfCopiesOnSeveralStagesHoldEachElementOnce) {
  const auto value = copies_of_three_stages({12, 8});
  const std::vector<double> once(96, 1);
  for (const int64_t min_shared_bytes : {int64_t{1}, int64_t{1} << 20}) {
    EXPECT_EQ(counts(value, ranks(8), min_shared_bytes), once);
    EXPECT_EQ(counts(value, {3, 4}, min_shared_bytes), once) << "a directory of one stage";
    EXPECT_EQ(counts(value, {3, 4, 5, 6, 7}, min_shared_bytes), once);
  }
  EXPECT_THAT(holders(value, ranks(8))[1].ranks, testing::ElementsAre(1, 6));
  EXPECT_EQ(held_region(value, 4), (Region{.offset = {6, 0}, .shape = {6, 8}}));
  std::vector<int> firsts;
  for (const int rank : ranks(8)) {
    if (is_first_holder(value, rank)) firsts.push_back(rank);
  }
  EXPECT_THAT(firsts, testing::ElementsAre(0, 1, 2));
}

TEST(Holders, TheFirstOfEachRegionIsOne) {
  const auto value = split({10, 8}, {{}, {1}});
  std::vector<int> firsts;
  for (const int rank : ranks(8)) {
    if (is_first_holder(value, rank)) firsts.push_back(rank);
  }
  EXPECT_THAT(firsts, testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(holders(value, ranks(8))[1].ranks, testing::ElementsAre(1, 5));
}

}  // namespace
}  // namespace tessera::checkpoint
