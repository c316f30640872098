// Maps of several columns, and choices of columns.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/data/batch_iterator.h"
#include "tessera/data/dataset.h"

namespace tessera::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Samples "a" = i, "b" = 10 i, "c" = 100 i, all f32[].
Dataset three_columns(int64_t n, const SourceOptions& options = {}) {
  const Type scalar{DType::kF32, {}};
  return generator(
      {{"a", scalar}, {"b", scalar}, {"c", scalar}}, n,
      [](int64_t index, std::span<const TensorView> out) {
        float factor = 1;
        for (const auto& view : out) {
          *view.as<float>() = static_cast<float>(index) * factor;
          factor *= 10;
        }
      },
      options);
}

// Sum and difference of two columns.
const ColumnsFunction kSumAndDifference{"sum_and_difference",
                                        [](const std::vector<Type>& inputs) {
                                          return std::vector<Type>{inputs[0], inputs[0]};
                                        },
                                        [](std::span<const TensorView> in, std::span<const TensorView> out) {
                                          const float a = *in[0].as<float>();
                                          const float b = *in[1].as<float>();
                                          *out[0].as<float>() = a + b;
                                          *out[1].as<float>() = a - b;
                                        }};

std::vector<std::vector<double>> rows(const Dataset& dataset, const IterateOptions& options = {}) {
  std::vector<std::vector<double>> all;
  auto batches = dataset.batches(options);
  while (auto row = batches.next()) {
    all.emplace_back();
    for (const auto& column : *row) {
      for (const double value : column.to_doubles()) all.back().push_back(value);
    }
  }
  return all;
}

TEST(MapOfColumns, StandsInThePlaceOfItsFirstInput) {
  const Dataset mapped = three_columns(3).map({"a", "c"}, {"sum", "difference"}, kSumAndDifference);
  EXPECT_THAT(mapped.column_names(), ElementsAre("sum", "difference", "b"));
  EXPECT_THAT(rows(mapped), ElementsAre(ElementsAre(0, 0, 0), ElementsAre(101, -99, 10), ElementsAre(202, -198, 20)));
}

TEST(MapOfColumns, TakesWhatEarlierMapsMadeAndIsMappedOn) {
  const Dataset mapped = three_columns(2)
                             .map("a", {rescale(2, 1)})
                             .map({"a", "b"}, {"a", "b"}, kSumAndDifference)
                             .map("b", {rescale(-1, 0)});
  EXPECT_THAT(rows(mapped), ElementsAre(ElementsAre(1, -1, 0), ElementsAre(13, 7, 100)));
}

TEST(MapOfColumns, KeepsOrderShardsAndWorkersApart) {
  const SourceOptions options{.shuffle = true, .num_shards = 2, .shard_id = 1, .seed = 3};
  const Dataset plain = three_columns(20, options).shuffle(4);
  const Dataset mapped = plain.map({"a", "b"}, {"a", "b"}, kSumAndDifference).batch(4);
  for (const int64_t epoch : {0, 1}) {
    const auto expected = rows(plain.batch(4), {.start = {epoch, 0}});
    auto found = rows(mapped, {.start = {epoch, 0}, .num_workers = 2});
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      for (size_t k = 0; k < found[i].size() / 3; ++k) EXPECT_EQ(found[i][k], 11 * expected[i][k]);
    }
  }
}

TEST(MapOfColumns, LeavesEarlierRandomTransformsAsTheyAre) {
  const SourceOptions shuffled{.shuffle = true, .seed = 5};
  const Dataset images = generator(
                             {{"image", {DType::kU8, {8, 8, 1}}}}, 16,
                             [](int64_t, std::span<const TensorView> out) {
                               for (int i = 0; i < 64; ++i) out[0].as<uint8_t>()[i] = static_cast<uint8_t>(i);
                             },
                             shuffled)
                             .map("image", {random_crop(4)});
  const ColumnsFunction same{
      "same", [](const std::vector<Type>& inputs) { return inputs; },
      [](std::span<const TensorView> in, std::span<const TensorView> out) { copy_elements(in[0], out[0]); }};
  EXPECT_EQ(rows(images.map({"image"}, {"image"}, same).shuffle(4)), rows(images.shuffle(4)));
}

TEST(Project, KeepsTheColumnsNamed) {
  EXPECT_THAT(rows(three_columns(2).project({"c", "a"})), ElementsAre(ElementsAre(0, 0), ElementsAre(100, 1)));
  EXPECT_THAT(three_columns(2).project({"c", "a"}).to_string(), HasSubstr(" | project \"c\", \"a\""));
}

TEST(AsPartOf, SaysOnlyWhoseTheRowsAre) {
  const Dataset third = three_columns(6, {.num_shards = 3, .shard_id = 1});
  EXPECT_EQ(third.num_shards(), 3);
  EXPECT_EQ(third.as_part_of(1).num_shards(), 1);
  EXPECT_EQ(third.as_part_of(2).map({"a", "b"}, {"a", "b"}, kSumAndDifference).batch(2).num_shards(), 2);
  EXPECT_EQ(rows(third.as_part_of(1)), rows(third));
  EXPECT_THAT([&] { third.as_part_of(0); }, ThrowsMessage<InvalidArgument>(HasSubstr("must be positive, got 0")));
}

TEST(MapOfColumns, SaysWhatDoesNotFit) {
  const Dataset dataset = three_columns(2);
  EXPECT_THAT(
      [&] {
        dataset.map({"a", "x"}, {"y", "z"}, kSumAndDifference);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("map sum_and_difference: no column \"x\"; the data set has a, b, c")));
  EXPECT_THAT(
      [&] {
        dataset.map({"a", "b"}, {"y"}, kSumAndDifference);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("makes 2 columns, but 1 are named: y")));
  EXPECT_THAT(
      [&] {
        dataset.map({"a", "b"}, {"y", "c"}, kSumAndDifference);
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("there would be two columns \"c\"")));
  EXPECT_THAT(
      [&] {
        dataset.project({"a", "a"});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("project: there would be two columns \"a\"")));
  EXPECT_THAT([&] { dataset.batch(2).project({"a"}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("project \"a\": stands after batch")));
}

}  // namespace
}  // namespace tessera::data
