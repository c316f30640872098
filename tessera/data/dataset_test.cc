#include "tessera/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "tessera/data/batch_iterator.h"
#include "tessera/data/index_stages.h"
#include "tessera/testing/allocation_count.h"
#include "tessera/testing/no_threads.h"

namespace tessera::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Samples "id" i64[] = 0 .. n-1.
Dataset ids(int64_t n, const SourceOptions& options = {}) {
  return generator(
      {{"id", {DType::kI64, {}}}}, n,
      [](int64_t index, std::span<const TensorView> out) { *out[0].as<int64_t>() = index; }, options);
}

// Small pictures "image" u8[8,8,3] with "label" u32[], augmented in the usual way to f32[3,8,8] and i32[].
Dataset augmented(int64_t n, const SourceOptions& options = {.shuffle = true, .seed = 5}) {
  return generator(
             {{"image", {DType::kU8, {8, 8, 3}}}, {"label", {DType::kU32, {}}}}, n,
             [](int64_t index, std::span<const TensorView> out) {
               auto* pixels = out[0].as<uint8_t>();
               for (int i = 0; i < 192; ++i) pixels[i] = static_cast<uint8_t>(index * 31 + i);
               *out[1].as<uint32_t>() = static_cast<uint32_t>(index);
             },
             options)
      .map("image", {random_crop(8, {2, 2, 2, 2}), random_horizontal_flip(), rescale(1 / 255.0, 0),
                     normalize({0.5, 0.4, 0.3}, {0.2, 0.3, 0.4}), hwc2chw()})
      .map("label", {type_cast(DType::kI32)});
}

using Batches = std::vector<std::vector<Tensor>>;

Batches all(const Dataset& dataset, const IterateOptions& options = {}) {
  Batches batches;
  auto iterator = dataset.batches(options);
  while (auto batch = iterator.next()) batches.push_back(std::move(*batch));
  return batches;
}

// The first column of all batches, one after the other.
std::vector<double> flat(const Batches& batches, size_t column = 0) {
  std::vector<double> values;
  for (const auto& batch : batches) {
    const auto more = batch[column].to_doubles();
    values.insert(values.end(), more.begin(), more.end());
  }
  return values;
}
std::vector<double> order(const Dataset& dataset, int64_t epoch = 0) {
  return flat(all(dataset, {.start = {epoch, 0}}));
}
std::vector<double> count_to(int n) {
  std::vector<double> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0.0);
  return values;
}

void expect_equal(const Batches& a, const Batches& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].size(), b[i].size());
    for (size_t c = 0; c < a[i].size(); ++c)
      ASSERT_TRUE(bit_equal(a[i][c], b[i][c])) << "batch " << i << " column " << c;
  }
}

TEST(Dataset, TellsItsSizesAndTypes) {
  const Dataset dataset = augmented(100).batch(32).repeat(3);
  EXPECT_EQ(dataset.get_dataset_size(), 12);
  EXPECT_EQ(dataset.get_batch_size(), 32);
  EXPECT_EQ(dataset.get_repeat_count(), 3);
  EXPECT_THAT(dataset.column_names(), ElementsAre("image", "label"));
  EXPECT_THAT(dataset.output_types(), ElementsAre(DType::kF32, DType::kI32));
  EXPECT_THAT(dataset.output_shapes(), ElementsAre(Shape({32, 3, 8, 8}), Shape({32})));
  EXPECT_EQ(ids(5).get_batch_size(), 1);
  EXPECT_EQ(ids(5).get_repeat_count(), 1);
  EXPECT_EQ(ids(5).output_shapes(), std::vector<Shape>{Shape()});
}

TEST(Dataset, TextSaysAllThatDecidesTheData) {
  EXPECT_EQ(ids(60, {.shuffle = true, .num_shards = 2, .shard_id = 1, .seed = 9})
                .map("id", {type_cast(DType::kI32)})
                .shuffle(10)
                .batch(8, {.drop_remainder = true})
                .repeat(2)
                .take(5)
                .to_string(),
            "generator: 30 of 60 samples, shuffled, shard 1 of 2, seed 9 | map \"id\", type_cast(i32) | shuffle 10 | "
            "batch 8 drop_remainder | repeat 2 | take 5");
}

TEST(Dataset, ReadsInOrderUnlessShuffled) {
  EXPECT_EQ(order(ids(10)), count_to(10));
  const Dataset shuffled = ids(100, {.shuffle = true, .seed = 1});
  const auto first = order(shuffled);
  EXPECT_NE(first, count_to(100));
  EXPECT_EQ(first, order(shuffled));
  EXPECT_NE(first, order(shuffled, 1));
  EXPECT_NE(first, order(ids(100, {.shuffle = true, .seed = 2})));
  for (auto values : {first, order(shuffled, 1)}) {
    std::sort(values.begin(), values.end());
    EXPECT_EQ(values, count_to(100));
  }
}

TEST(Dataset, ShardsDealOutOneCommonOrderAndWrapAround) {
  const auto global = order(ids(10, {.shuffle = true, .seed = 3}));
  for (int64_t shard = 0; shard < 4; ++shard) {
    std::vector<double> expected;
    for (int64_t place = shard; expected.size() < 3; place += 4)
      expected.push_back(global[static_cast<size_t>(place % 10)]);
    EXPECT_EQ(order(ids(10, {.shuffle = true, .num_shards = 4, .shard_id = shard, .seed = 3})), expected) << shard;
  }
  EXPECT_EQ(order(ids(5, {.num_samples = 2, .num_shards = 2, .shard_id = 1})), std::vector<double>({1, 3}));
}

TEST(Dataset, SixtyThousandSamplesOverEightShardsAreTwoHundredThirtyFourSteps) {
  EXPECT_EQ(ids(60000, {.shuffle = true, .num_shards = 8}).batch(32, {.drop_remainder = true}).get_dataset_size(), 234);
}

TEST(Dataset, ASampleIsAugmentedAlikeInEveryShard) {
  const auto global = all(augmented(30));
  for (int64_t shard = 0; shard < 3; ++shard) {
    const auto local = all(augmented(30, {.shuffle = true, .num_shards = 3, .shard_id = shard, .seed = 5}));
    ASSERT_EQ(local.size(), 10);
    for (size_t i = 0; i < local.size(); ++i) expect_equal({local[i]}, {global[i * 3 + static_cast<size_t>(shard)]});
  }
}

TEST(Dataset, AugmentationDiffersBetweenEpochsAndSamplesAndMaps) {
  const auto ones = Tensor::full({DType::kF32, {4}}, 1);
  const Transform draw = custom(
      "draw", [](const Type& input) { return input; },
      [](const TensorView&, const TensorView& out, const Draws& draws) { *out.as<float>() = draws.uniform(0); });
  const Dataset dataset = tensors({{"a", ones}, {"b", ones}}).map("a", {draw}).map("b", {draw}).repeat(2);
  auto values = flat(all(dataset));
  const auto second = flat(all(dataset), 1);
  values.insert(values.end(), second.begin(), second.end());
  std::sort(values.begin(), values.end());
  EXPECT_EQ(values.size(), 16);
  EXPECT_EQ(std::unique(values.begin(), values.end()), values.end());
}

TEST(Shuffle, BufferHandsOutEachRowOnceAndNoneTooEarly) {
  std::vector<int64_t> rows;
  buffer_shuffle({1, 2, 3}, 1000, 10, rows);
  for (int64_t i = 0; i < 1000; ++i) EXPECT_LT(rows[static_cast<size_t>(i)], i + 10);
  EXPECT_FALSE(std::is_sorted(rows.begin(), rows.end()));
  std::sort(rows.begin(), rows.end());
  for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(rows[static_cast<size_t>(i)], i);
  buffer_shuffle({1, 2, 3}, 50, 1, rows);
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
}

TEST(Shuffle, EveryPermutationIsEquallyLikely) {
  std::map<std::vector<int64_t>, int> counts;
  std::vector<int64_t> rows;
  for (uint64_t epoch = 0; epoch < 6000; ++epoch) {
    buffer_shuffle({1, 2, epoch}, 3, 8, rows);
    ++counts[rows];
  }
  EXPECT_EQ(counts.size(), 6);
  for (const auto& [permutation, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

TEST(Shuffle, OrdersSamplesBeforeBatchAndBatchesAfter) {
  const auto before = all(ids(12).shuffle(12).batch(4));
  EXPECT_NE(flat(before), count_to(12));
  auto after = all(ids(40).batch(4).shuffle(10));
  EXPECT_NE(flat(after), count_to(40));
  std::sort(after.begin(), after.end(),
            [](const auto& a, const auto& b) { return a[0].to_doubles() < b[0].to_doubles(); });
  EXPECT_EQ(flat(after), count_to(40));
  // Two shuffles, and two epochs of one, draw different numbers.
  EXPECT_NE(order(ids(40).shuffle(40)), order(ids(40).shuffle(40), 1));
  EXPECT_NE(order(ids(40).shuffle(1).shuffle(40)), order(ids(40).shuffle(40).shuffle(1)));
}

TEST(Batch, KeepsOrDropsTheRemainder) {
  const auto kept = all(ids(10).batch(4));
  ASSERT_EQ(kept.size(), 3);
  EXPECT_THAT(kept[2][0].to_doubles(), ElementsAre(8, 9));
  EXPECT_EQ(flat(all(ids(10).batch(4, {.drop_remainder = true}))), count_to(8));
}

TEST(Repeat, IsSeveralEpochsInOneAndBatchesMayStraddleThem) {
  const Dataset twice = ids(5, {.shuffle = true}).repeat(2).batch(4);
  EXPECT_EQ(twice.get_dataset_size(), 3);
  auto expected = order(ids(5, {.shuffle = true}), 2);
  const auto second = order(ids(5, {.shuffle = true}), 3);
  expected.insert(expected.end(), second.begin(), second.end());
  EXPECT_EQ(order(twice, 1), expected);
}

TEST(Repeat, RefusesMoreRowsThanCanBeCounted) {
  const int64_t large = int64_t{1} << 62;
  EXPECT_THAT([&] { ids(4).repeat(large); },
              ThrowsMessage<InvalidArgument>(HasSubstr("repeat: 4611686018427387904 times 4 rows are more than")));
  EXPECT_THAT([&] { ids(4).batches({.num_epochs = large}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("4611686018427387904 epochs of 4 batches are more than")));
  EXPECT_EQ(ids(4).batch(std::numeric_limits<int64_t>::max()).get_dataset_size(), 1);
}

TEST(Repeat, WithoutEndGoesOn) {
  const Dataset endless = ids(3).repeat().batch(2);
  EXPECT_TRUE(endless.is_endless());
  EXPECT_EQ(endless.get_repeat_count(), -1);
  EXPECT_EQ(endless.get_dataset_size(), 2);
  auto iterator = endless.batches();
  std::vector<double> seen;
  for (int i = 0; i < 5; ++i) {
    for (const double id : (*iterator.next())[0].to_doubles()) seen.push_back(id);
  }
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2, 0));
  EXPECT_EQ(iterator.position(), (Position{0, 5}));
  EXPECT_EQ(ids(3).repeat().take(7).get_dataset_size(), 7);
  EXPECT_THAT([&] { endless.shuffle(2); }, ThrowsMessage<InvalidArgument>(HasSubstr("repeat without end")));
}

TEST(TakeAndSkip, ChooseRowsOfEachEpoch) {
  EXPECT_THAT(order(ids(10).skip(2).take(3)), ElementsAre(2, 3, 4));
  EXPECT_THAT(order(ids(10).batch(2).take(2).repeat(2)), ElementsAre(0, 1, 2, 3, 0, 1, 2, 3));
  EXPECT_EQ(order(ids(3).take(8)), count_to(3));
}

TEST(Batches, DoNotDependOnTheNumberOfWorkers) {
  const Dataset dataset = augmented(67).shuffle(20).batch(16).repeat(2);
  const auto expected = all(dataset, {.num_epochs = 2, .num_workers = 0});
  EXPECT_EQ(expected.size(), 20);
  for (const int num_workers : {1, 2, 5}) {
    for (const int prefetch : {1, 3}) {
      expect_equal(all(dataset, {.num_epochs = 2, .num_workers = num_workers, .prefetch = prefetch}), expected);
    }
  }
}

TEST(Batches, ResumeGivesExactlyTheFollowingBatches) {
  const Dataset dataset = augmented(37).shuffle(9).batch(8);
  const auto straight = all(dataset, {.num_epochs = 3});
  auto iterator = dataset.batches({.num_epochs = 3});
  for (size_t done = 0; done <= straight.size(); ++done) {
    const Position position = parse_position(iterator.position().to_string());
    EXPECT_EQ(position, (Position{static_cast<int64_t>(done) / 5, static_cast<int64_t>(done) % 5}));
    expect_equal(all(dataset, {.start = position, .num_epochs = 3 - position.epoch, .num_workers = 2}),
                 Batches(straight.begin() + static_cast<int64_t>(done), straight.end()));
    iterator.next_view();
  }
}

TEST(Batches, AnEpochsEndIsTheNextOnesBeginning) {
  const Dataset dataset = ids(6).batch(2);
  EXPECT_EQ(dataset.batches({.start = {4, 3}}).position(), (Position{5, 0}));
  EXPECT_EQ(dataset.batches({.start = {4, 3}}).next(), std::nullopt);
  EXPECT_EQ(all(dataset, {.start = {4, 3}, .num_epochs = 2}).size(), 3);
}

TEST(Batches, PartsOfRanksMakeUpTheGlobalBatch) {
  const Dataset dataset = augmented(37).batch(32);
  const auto global = all(dataset);
  for (const int64_t num_parts : {1, 2, 3, 7, 40}) {
    Batches joined(global.size(), std::vector<Tensor>(2));
    std::vector<std::vector<double>> images(global.size()), labels(global.size());
    for (int64_t part = 0; part < num_parts; ++part) {
      const auto local = all(dataset, {.part = part, .num_parts = num_parts, .num_workers = 2});
      ASSERT_EQ(local.size(), global.size());
      if (num_parts == 3) {
        EXPECT_EQ(local[0][1].shape(), Shape({part < 2 ? 11 : 10}));
        EXPECT_EQ(local[1][1].shape(), Shape({part < 2 ? 2 : 1}));
      }
      for (size_t i = 0; i < local.size(); ++i) {
        for (const double v : local[i][0].to_doubles()) images[i].push_back(v);
        for (const double v : local[i][1].to_doubles()) labels[i].push_back(v);
      }
    }
    for (size_t i = 0; i < global.size(); ++i) {
      EXPECT_EQ(images[i], global[i][0].to_doubles());
      EXPECT_EQ(labels[i], global[i][1].to_doubles());
    }
  }
  const auto rows = all(dataset, {.row_begin = 4, .row_end = 20});
  EXPECT_EQ(rows[0][1].num_elements(), 16);
  EXPECT_EQ(rows[1][1].num_elements(), 1);  // the last batch has 5 rows
}

TEST(Batches, UnbatchedSamplesAreSplitAlongTheirFirstDim) {
  const auto values = Tensor::of<int32_t>({2, 3, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Dataset dataset = tensors({{"x", values}});
  EXPECT_EQ(order(dataset), count_to(12));
  const auto last = all(dataset, {.part = 1, .num_parts = 2});
  EXPECT_EQ(last[1][0].shape(), Shape({1, 2}));
  EXPECT_THAT(flat(last), ElementsAre(4, 5, 10, 11));
  EXPECT_THAT([&] { all(ids(4), {.num_parts = 2}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("column \"id\" is a scalar")));
}

TEST(Batches, AnExceptionIsThrownAtItsBatchAndAgain) {
  const Dataset dataset =
      generator({{"id", {DType::kI64, {}}}}, 40, [](int64_t index, std::span<const TensorView> out) {
        if (index == 22 || index == 29) throw IoError("sample {} is unreadable", index);
        *out[0].as<int64_t>() = index;
      }).batch(10);
  for (const int num_workers : {0, 1, 4}) {
    auto iterator = dataset.batches({.num_workers = num_workers});
    EXPECT_EQ((*iterator.next())[0].to_doubles(), count_to(10));
    EXPECT_NE(iterator.next(), std::nullopt);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT([&] { iterator.next(); }, ThrowsMessage<IoError>("sample 22 is unreadable"));
      EXPECT_EQ(iterator.position(), (Position{0, 2}));
    }
  }
}

TEST(Batches, CanBeLeftAtAnyMoment) {
  for (int taken = 0; taken < 6; ++taken) {
    auto iterator = augmented(500).batch(16).batches({.num_epochs = -1, .num_workers = 3});
    for (int i = 0; i < taken; ++i) iterator.next_view();
    auto moved = std::move(iterator);
    EXPECT_EQ(moved.position().batch, taken);
  }
}

TEST(Batches, AllocateNothingOnceStarted) {
  const Dataset dataset = augmented(64).shuffle(16).batch(8);
  auto iterator = dataset.batches({.num_epochs = -1, .num_workers = 2});
  Tensor images(DType::kF32, {8, 3, 8, 8}), labels(DType::kI32, {8});
  const std::array<TensorView, 2> outputs{images.view(), labels.view()};
  // Four epochs: every remembered order has its memory.
  for (int i = 0; i < 32; ++i) iterator.next_into(outputs);
  const int64_t before = num_allocations();
  for (int i = 0; i < 64; ++i) {
    iterator.next_into(outputs);
    iterator.next_view();
  }
  EXPECT_EQ(num_allocations() - before, 0);
}

TEST(Batches, ChannelsLastIsAnOrderInMemoryOnly) {
  const Dataset dataset = augmented(24).batch(8);
  const auto expected = all(dataset);
  auto iterator = dataset.batches({.channels_last = true});
  for (const auto& batch : expected) {
    const BatchView* view = iterator.next_view();
    EXPECT_EQ(view->columns[0].strides, channels_last_strides({8, 3, 8, 8}));
    EXPECT_EQ(view->num_rows, 8);
    EXPECT_TRUE(bit_equal(Tensor::copy_of(view->columns[0]), batch[0]));
  }
  EXPECT_EQ(iterator.next_view(), nullptr);
}

TEST(Batches, NextIntoHonoursStridesAndChecksTypes) {
  const Dataset dataset = augmented(20).batch(16);
  const auto expected = all(dataset);
  auto iterator = dataset.batches({});
  EXPECT_EQ(iterator.next_types(), std::vector<Type>({parse_type("f32[16,3,8,8]"), parse_type("i32[16]")}));
  Tensor memory(DType::kF32, {16, 3, 8, 8}), labels(DType::kI32, {16});
  const Shape shape = memory.shape();
  const TensorView nhwc(memory.view().data, DType::kF32, shape, channels_last_strides(shape));
  EXPECT_TRUE(iterator.next_into(std::array{nhwc, labels.view()}));
  EXPECT_TRUE(bit_equal(Tensor::copy_of(nhwc), expected[0][0]));
  EXPECT_TRUE(bit_equal(labels, expected[0][1]));
  EXPECT_THAT(
      [&] {
        iterator.next_into(std::array{nhwc, labels.view()});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("column \"image\" of batch epoch=0 batch=1 is f32[4,3,8,8], the "
                                               "output given is f32[16,3,8,8]")));
  EXPECT_THAT([&] { iterator.next_into(std::array{nhwc}); }, ThrowsMessage<InvalidArgument>(HasSubstr("2 columns")));
  EXPECT_TRUE(bit_equal((*iterator.next())[0], expected[1][0]));
  EXPECT_FALSE(iterator.next_into(std::array{nhwc, labels.view()}));
  EXPECT_TRUE(iterator.next_types().empty());
}

// A pass over 0 .. n-1 that can only be read forwards.
std::function<Stream(int64_t)> counting(int64_t n) {
  return [n](int64_t) {
    return [n, i = int64_t{0}](std::span<const TensorView> out) mutable {
      if (i == n) return false;
      *out[0].as<int64_t>() = i++;
      return true;
    };
  };
}
const std::vector<Column> kId{{"id", {DType::kI64, {}}}};

TEST(StreamSource, IsCountedReadInOrderAndOpenedAgainForEachEpoch) {
  const Dataset dataset = stream(kId, counting(7));
  EXPECT_EQ(dataset.get_dataset_size(), 7);
  EXPECT_EQ(order(dataset.repeat(2)), order(ids(7).repeat(2)));
  EXPECT_EQ(flat(all(dataset.shuffle(4).batch(3), {.num_workers = 3})), flat(all(ids(7).shuffle(4).batch(3))));
  EXPECT_THAT(flat(all(dataset.batch(3), {.start = {5, 1}})), ElementsAre(3, 4, 5, 6));
}

TEST(StreamSource, APassIsThatOfItsEpochHoweverOftenOneIsOpened) {
  const auto of_epoch = [](int64_t epoch) -> Stream {
    return [epoch, i = int64_t{0}](std::span<const TensorView> out) mutable {
      *out[0].as<int64_t>() = 100 * epoch + i++;
      return i <= 3;
    };
  };
  const Dataset dataset = stream(kId, of_epoch, 3).repeat(2);
  EXPECT_THAT(order(dataset), ElementsAre(0, 1, 2, 100, 101, 102));
  EXPECT_THAT(flat(all(dataset.batch(2), {.start = {1, 1}})), ElementsAre(202, 300, 301, 302));
  EXPECT_THAT(order(dataset), ElementsAre(0, 1, 2, 100, 101, 102));
}

TEST(StreamSource, APassThatEndsEarlyIsReported) {
  auto iterator = stream(kId, counting(7), 9).batch(4).batches();
  iterator.next();
  EXPECT_THAT([&] { iterator.next(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the pass of epoch 0 ended after 7 samples, 9 were promised")));
  EXPECT_EQ(stream(kId, counting(7), 5).get_dataset_size(), 5);
  EXPECT_THAT([] { stream(kId, counting(7), 7, {.shuffle = true}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("need random access")));
}

// Counts what is drawn of it.
class Drawn : public SourceState {
 public:
  std::string get(int64_t) override { return std::to_string(count_); }
  void set(const std::string& text) override { count_ = std::stoll(text); }
  int64_t draw() { return count_++; }

 private:
  int64_t count_ = 0;
};

// So many batches, one number a row, from a position with the state that it has.
Batches some(const Dataset& dataset, int count, IterateOptions options, std::string* state, Position* position) {
  options.num_epochs = 3;
  options.keeps_state = true;
  auto iterator = dataset.batches(options);
  EXPECT_EQ(iterator.source_state(), "");
  Batches batches;
  for (int i = 0; i < count; ++i) batches.push_back(*iterator.next());
  *state = iterator.source_state();
  *position = iterator.position();
  return batches;
}

TEST(SourceState, IsThatBehindWhatIsDeliveredHoweverFarWorkersReadAhead) {
  for (const int workers : {0, 1, 3}) {
    const auto drawn = std::make_shared<Drawn>();
    const auto read = [drawn](int64_t, std::span<const TensorView> out) { *out[0].as<int64_t>() = drawn->draw(); };
    const Dataset dataset = generator(kId, 6, read, {}, drawn).batch(2);
    std::string state;
    Position position;
    EXPECT_THAT(flat(some(dataset, 4, {.num_workers = workers}, &state, &position)),
                ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
    EXPECT_EQ(state, "8");
    dataset.source_state()->set(state);
    EXPECT_THAT(flat(some(dataset, 2, {.start = position, .num_workers = workers}, &state, &position)),
                ElementsAre(8, 9, 10, 11));
  }
}

TEST(SourceState, OfAStreamIsThatOfThePassThatIsReadAgain) {
  const auto drawn = std::make_shared<Drawn>();
  const auto open = [drawn](int64_t) -> Stream {
    return [drawn, left = 4](std::span<const TensorView> out) mutable {
      if (left-- == 0) return false;
      *out[0].as<int64_t>() = drawn->draw();
      return true;
    };
  };
  const Dataset dataset = stream(kId, open, 4, {}, drawn).map("id", {type_cast(DType::kI32)}).batch(2);
  std::string state;
  Position position;
  EXPECT_THAT(flat(some(dataset, 3, {}, &state, &position)), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_EQ(state, "4") << "where the second pass has begun";
  EXPECT_EQ(position, (Position{1, 1}));
  dataset.source_state()->set(state);
  EXPECT_THAT(flat(some(dataset, 3, {.start = position}, &state, &position)), ElementsAre(6, 7, 8, 9, 10, 11));
  EXPECT_EQ(state, "12") << "the next pass begins here";
}

TEST(SourceState, IsNoneWhereTheSourceTellsNone) {
  EXPECT_EQ(ids(4).source_state(), nullptr);
  auto iterator = ids(4).batch(2).batches({.keeps_state = true});
  iterator.next();
  EXPECT_EQ(iterator.source_state(), "");
}

TEST(Dataset, ASampleThatIsWrittenAsAnotherTypeIsTheCallersMistake) {
  const auto wrong = [](int64_t, std::span<const TensorView> out) { *out[0].as<float>() = 1; };
  EXPECT_THAT([&] { generator(kId, 4, wrong).batch(2).batches().next(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the elements of a view of i64[] are i64, not f32")));
}

TEST(Dataset, RefusesWhatDoesNotFitByName) {
  const auto refused = [](auto make, const std::string& message) {
    EXPECT_THAT(make, ThrowsMessage<InvalidArgument>(HasSubstr(message)));
  };
  refused([] { ids(0); }, "generator: has no samples");
  refused([] { ids(4, {.num_shards = 2, .shard_id = 2}); },
          "shard_id must be in [0, num_shards), got shard_id 2 of num_shards 2");
  refused([] { ids(4, {.num_samples = -1}); }, "num_samples must be 0 (all) or positive, got -1");
  refused([] { ids(4).map("image", {}); }, "map \"image\": no such column; the data set has id");
  refused([] { ids(4).map("id", {hwc2chw()}); }, "map \"id\": hwc2chw: needs an image");
  refused([] { ids(4).batch(2).map("id", {}); }, "put map before batch");
  refused([] { ids(4).batch(0); }, "batch_size must be positive, got 0");
  refused([] { ids(4).batch(2).batch(2); }, "batched already, by 2");
  refused([] { ids(4).repeat(0); }, "count must be positive, or -1 for no end, got 0");
  refused([] { ids(4).shuffle(0); }, "buffer_size must be positive, got 0");
  refused([] { ids(4).take(0); }, "take: count must be positive, got 0");
  refused([] { ids(4).batch(8, {.drop_remainder = true}).batches(); },
          "has no batch: 4 samples, batches of 8, the remainder is dropped");
  refused([] { ids(4).batches({.start = {0, 5}}); }, "start epoch=0 batch=5 lies outside an epoch of 4 batches");
  refused([] { ids(4).batches({.num_workers = -1}); }, "num_workers");
  refused([] { ids(4).batches({.prefetch = 0}); }, "prefetch must be positive");
  refused([] { ids(4).batch(4).batches({.part = 2, .num_parts = 2}); }, "got part 2 of 2");
  refused([] { ids(4).batch(4).batches({.row_end = 5}); }, "rows [0, 5) are no range of a batch of 4");
  refused([] { ids(4).batch(4).batches({.row_begin = 1, .num_parts = 2}); }, "either row_begin");
  refused(
      [] {
        generator({{"a", {}}, {"a", {}}}, 1, [](int64_t, std::span<const TensorView>) {});
      },
      "two columns are named \"a\"");
  refused(
      [] {
        tensors({{"a", Tensor::zeros({DType::kF32, {2}})}, {"b", Tensor::zeros({DType::kF32, {3}})}});
      },
      "\"a\" is f32[2], \"b\" is f32[3]");
  refused([] { parse_position("epoch=1"); }, "must look like \"epoch=2 batch=17\"");
  refused([] { parse_position("epoch=-1 batch=0"); }, "epoch and batch must be from 0 to 4611686018427387903");
  refused([] { parse_position("epoch=9223372036854775807 batch=0"); }, "epoch and batch must be from 0 to");
  refused(
      [] {
        ids(4).repeat(-1).batch(8).batches({.start = {0, int64_t{1} << 61}});
      },
      "lies behind more samples than an int64 counts: 8 a batch");
}

TEST(Workers, WithoutRoomForThemIterationIsRefused) {
  const NoThreads none;
  EXPECT_THAT([] { ids(8).batch(2).batches({.num_workers = 2}); },
              ThrowsMessage<IoError>(HasSubstr("cannot start a thread for the workers that prepare batches: ")));
}

// Rows "x" f32[2] = {i, 100 i} of the class "label" i32[] = i mod 3.
Dataset classified(int64_t n, const SourceOptions& options = {.seed = 4}) {
  return generator(
      {{"x", {DType::kF32, {2}}}, {"label", {DType::kI32, {}}}}, n,
      [](int64_t index, std::span<const TensorView> out) {
        out[0].as<float>()[0] = static_cast<float>(index);
        out[0].as<float>()[1] = static_cast<float>(100 * index);
        *out[1].as<int32_t>() = static_cast<int32_t>(index % 3);
      },
      options);
}

TEST(Mixup, GivesMeansOfTwoRowsAndOfTheirLabels) {
  const Dataset mixed = classified(30).mixup(0.5, 3);
  EXPECT_THAT(mixed.output_types(), ElementsAre(DType::kF32, DType::kF32));
  EXPECT_THAT(mixed.output_shapes(), ElementsAre(Shape({2}), Shape({3})));
  EXPECT_THAT(mixed.to_string(), HasSubstr(" | mixup 0.5, 3 classes"));
  const auto batches = all(mixed.batch(30));
  const auto x = flat(batches), label = flat(batches, 1);
  int num_of_two_classes = 0;
  for (size_t i = 0; i < 30; ++i) {
    const double* probabilities = &label[3 * i];
    const double weight = probabilities[i % 3];
    EXPECT_NEAR(probabilities[0] + probabilities[1] + probabilities[2], 1, 1e-6);
    EXPECT_NEAR(x[2 * i + 1], 100 * x[2 * i], 1e-3);
    if (weight > 0.9) continue;  // or both rows are of this class
    ++num_of_two_classes;
    const double other = (x[2 * i] - weight * static_cast<double>(i)) / (1 - weight);
    EXPECT_NEAR(other, std::round(other), 1e-3) << "row " << i;
    EXPECT_NEAR(probabilities[static_cast<size_t>(std::round(other)) % 3], 1 - weight, 1e-6) << "row " << i;
  }
  EXPECT_GE(num_of_two_classes, 5);
}

TEST(Mixup, GivesEachPartTheRowsOfTheWhole) {
  const Dataset mixed = augmented(50).mixup(0.4, 50).batch(8);
  const Batches whole = all(mixed, {.num_epochs = 2});
  expect_equal(all(mixed, {.num_epochs = 2, .num_workers = 0}), whole);
  expect_equal(all(mixed, {.num_epochs = 2, .num_workers = 3}), whole);
  std::vector<double> of_parts;
  std::vector<Batches> parts;
  for (int64_t part = 0; part < 3; ++part) {
    parts.push_back(all(mixed, {.num_epochs = 2, .part = part, .num_parts = 3}));
  }
  for (size_t batch = 0; batch < whole.size(); ++batch) {
    for (const auto& part : parts) {
      const auto values = part[batch][0].to_doubles();
      of_parts.insert(of_parts.end(), values.begin(), values.end());
    }
  }
  EXPECT_EQ(of_parts, flat(whole));
}

TEST(Mixup, OfAShardGivesItsRowsOfTheWhole) {
  const auto shard = [](int64_t id, int64_t count) {
    return all(augmented(50, {.shuffle = true, .num_shards = count, .shard_id = id, .seed = 5}).mixup(0.4, 50));
  };
  const Batches whole = shard(0, 1);
  for (int64_t id = 0; id < 2; ++id) {
    Batches expected;
    for (size_t row = static_cast<size_t>(id); row < whole.size(); row += 2) expected.push_back(whole[row]);
    expect_equal(shard(id, 2), expected);
  }
}

TEST(Mixup, TakesOtherRowsFromThoseThatAreLeft) {
  for (int64_t epoch = 0; epoch < 5; ++epoch) {
    for (const double x : order(classified(100).take(10).mixup(1, 3), epoch)) EXPECT_LE(x, 900);
    for (const double x : order(classified(100).map("x", {}).skip(90).shuffle(4).mixup(1, 3), epoch)) EXPECT_GE(x, 90);
  }
}

TEST(Mixup, DrawsAnewInEachEpochAndWhereItStandsTwice) {
  const Dataset mixed = classified(20).mixup(1, 3);
  EXPECT_NE(order(mixed, 0), order(mixed, 1));
  EXPECT_NE(order(mixed), order(classified(20, {.seed = 5}).mixup(1, 3)));
  auto two_epochs = order(mixed);
  const auto second = order(mixed, 1);
  two_epochs.insert(two_epochs.end(), second.begin(), second.end());
  EXPECT_EQ(order(mixed.repeat(2)), two_epochs);
  // Of labels that are probabilities already.
  const auto twice = all(mixed.mixup(1).batch(20));
  EXPECT_NE(flat(twice), order(mixed));
  const auto label = flat(twice, 1);
  for (size_t i = 0; i < 20; ++i) EXPECT_NEAR(label[3 * i] + label[3 * i + 1] + label[3 * i + 2], 1, 1e-6);
}

TEST(Mixup, WeighsAsTheBetaDistributionSays) {
  for (const double alpha : {0.2, 1.0, 4.0}) {
    double sum = 0, squares = 0;
    constexpr int64_t kRows = 6000;
    const auto rows = all(classified(kRows).mixup(alpha, 3));
    int64_t num = 0;
    for (int64_t i = 0; i < kRows; ++i) {
      const auto probabilities = rows[static_cast<size_t>(i)][1].to_doubles();
      if (*std::max_element(probabilities.begin(), probabilities.end()) == 1)
        continue;  // maybe of two rows of one class
      const double weight = probabilities[static_cast<size_t>(i % 3)];
      ++num;
      sum += weight;
      squares += (weight - 0.5) * (weight - 0.5);
    }
    const auto count = static_cast<double>(num);
    EXPECT_GT(num, kRows / 2);
    EXPECT_NEAR(sum / count, 0.5, 0.03) << alpha;
    EXPECT_NEAR(squares / count, 1 / (4 * (2 * alpha + 1)), 0.01) << alpha;
  }
}

TEST(Mixup, RefusesWhatCannotBeMixed) {
  const auto refuses = [](const std::function<Dataset()>& f, const char* words) {
    EXPECT_THAT(f, ThrowsMessage<InvalidArgument>(HasSubstr(words)));
  };
  refuses([] { return classified(9).mixup(0, 3); }, "mixup: alpha must be a number above 0, got 0");
  refuses([] { return classified(9).mixup(1, -1); }, "mixup: num_classes must be 0, where labels are f32, or positive");
  refuses([] { return classified(9).mixup(1); },
          "mixup: the last column, the label \"label\", is i32[]: where it is a class number, num_classes says");
  refuses([] { return classified(9).mixup(1, 3).mixup(1, 3); }, "f32[3]: leave num_classes out");
  refuses([] { return augmented(9).map("image", {type_cast(DType::kF16)}).mixup(1, 9); },
          "column \"image\" is f16[3,8,8], and means are taken of f32");
  refuses([] { return ids(9).mixup(1, 9); }, "needs columns to mix and, as the last, the label");
  refuses([] { return classified(9).batch(3).mixup(1, 3); }, "mixup: stands after batch");
  refuses([] { return classified(9).repeat(2).mixup(1, 3); }, "mixup: stands after repeat");
  refuses([] { return classified(9, {.num_shards = 2}).take(2).mixup(1, 3); }, "stands after take or skip of one of 2");
  EXPECT_THAT([] { all(classified(9).mixup(1, 2)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("label \"label\" is 2, it must be in [0, 2)")));
}

// Pictures u8[6,8,3], each of one colour and of the class of that number.
Dataset colours(int64_t n) {
  return generator({{"image", {DType::kU8, {6, 8, 3}}}, {"label", {DType::kU32, {}}}}, n,
                   [](int64_t index, std::span<const TensorView> out) {
                     std::fill_n(out[0].as<uint8_t>(), 144, static_cast<uint8_t>(index));
                     *out[1].as<uint32_t>() = static_cast<uint32_t>(index);
                   },
                   {.seed = 2});
}

TEST(CutMix, PutsAWindowOfAnotherImageOverEachAndItsAreaIntoTheLabel) {
  const auto rows = all(colours(40).cutmix(1, 40));
  int num_cut = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto pixels = rows[i][0].to_doubles();
    const auto label = rows[i][1].to_doubles();
    int64_t top = 6, bottom = -1, left = 8, right = -1, area = 0, other = 0;
    for (int64_t p = 0; p < 48; ++p) {
      const auto pixel = static_cast<int64_t>(pixels[static_cast<size_t>(3 * p)]);
      if (pixel == static_cast<int64_t>(i)) continue;
      if (area++ == 0) other = pixel;
      EXPECT_EQ(pixel, other);
      top = std::min(top, p / 8);
      bottom = std::max(bottom, p / 8);
      left = std::min(left, p % 8);
      right = std::max(right, p % 8);
    }
    if (area == 0) continue;  // or a window of its own colour
    ++num_cut;
    EXPECT_EQ(area, (bottom - top + 1) * (right - left + 1)) << "a rectangle";
    EXPECT_NEAR(label[i], 1 - static_cast<double>(area) / 48, 1e-6);
    EXPECT_NEAR(label[static_cast<size_t>(other)], static_cast<double>(area) / 48, 1e-6);
  }
  EXPECT_GE(num_cut, 20);
}

TEST(CutMix, CutsChannelsFirstAlike) {
  const std::vector<Transform> turned = {hwc2chw()};
  expect_equal(all(colours(20).map("image", turned).cutmix(0.7, 20, /*channels_first=*/true).batch(7)),
               all(colours(20).cutmix(0.7, 20).map("image", turned).batch(7)));
  EXPECT_THAT([&] { colours(20).map("image", turned).cutmix(1, 20); },
              ThrowsMessage<InvalidArgument>(HasSubstr("looks like an image [c,h,w]: say channels_first=true")));
  EXPECT_THAT([] { colours(20).cutmix(1, 20, true); },
              ThrowsMessage<InvalidArgument>(HasSubstr("looks like an image [h,w,c]: say channels_first=false")));
  EXPECT_THAT([] { classified(9).cutmix(1, 3); },
              ThrowsMessage<InvalidArgument>(HasSubstr("needs an image and a label, and column \"x\" of 2 is f32[2]")));
}

}  // namespace
}  // namespace tessera::data
