// Recorded values: their text, what pieces make together, and what two runs' records say of each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/records/compare_values.h"
#include "tessera/session/records/run_values.h"
#include "tessera/session/session.h"
#include "tessera/testing/run_ranks.h"

namespace tessera::session {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

const Type kWholeType{DType::kF32, {4, 6}};

Tensor counted(const Type& type, double first = 1) {
  std::vector<double> values;
  for (int64_t i = 0; i < type.shape.num_elements(); ++i) values.push_back(first + static_cast<double>(i) / 8);
  return Tensor::of(type.shape, std::span<const double>(values)).cast(type.dtype);
}

ValueName product(int64_t ordinal = 1) { return {.op = "matmul", .source = "up", .ordinal = ordinal}; }

// The piece of a value that a region is.
ValueEntry entry_with(const ValueName& name, int64_t number, const Tensor& whole, const checkpoint::Region& region) {
  ValueEntry entry{.name = name, .number = number, .type = whole.type(), .line = "model.py:7", .region = region};
  describe_piece(entry, Tensor::copy_of(checkpoint::view_of(whole.view(), region)));
  return entry;
}

std::vector<checkpoint::Region> rows_of(const Shape& shape, std::vector<int64_t> sizes) {
  std::vector<checkpoint::Region> regions;
  int64_t at = 0;
  for (const int64_t size : sizes) {
    regions.push_back({Shape{at, 0}, Shape{size, shape[1]}});
    at += size;
  }
  return regions;
}

RankRecord record_of(int64_t step, int rank, int num_ranks, std::vector<ValueEntry> entries) {
  return {{.step = step, .rank = rank, .num_ranks = num_ranks, .mode = "data_parallel", .precision = "f32"},
          std::move(entries)};
}

// A step of ranks that have rows of one value, and whole copies of a second one.
RecordedStep step_of(const Tensor& whole, const std::vector<int64_t>& rows, const Tensor& copied, int odd_rank = -1,
                     int64_t number = 1) {
  std::vector<RankRecord> records;
  const auto regions = rows_of(whole.shape(), rows);
  for (size_t r = 0; r < rows.size(); ++r) {
    const bool is_odd = static_cast<int>(r) == odd_rank;
    const Tensor& copy = is_odd ? counted(copied.type(), 9) : copied;
    records.push_back(record_of(number, static_cast<int>(r), static_cast<int>(rows.size()),
                                {entry_with(product(), 3, whole, regions[r]),
                                 entry_with(product(2), 5, copy, checkpoint::Region::whole(copied.shape()))}));
  }
  return merge_records(std::move(records));
}

Tensor with_last_bit(const Tensor& tensor, int64_t element) {
  Tensor changed = tensor.clone();
  float& value = changed.values<float>()[static_cast<size_t>(element)];
  value = std::nextafter(value, std::numeric_limits<float>::infinity());
  return changed;
}

TEST(ValueStatistics, OfPiecesTogetherAreThoseOfTheWhole) {
  const Tensor whole = Tensor::of<float>({6}, {1, -3, INFINITY, 2, NAN, 0.5F});
  ValueStatistics together = statistics_of(Tensor::of<float>({3}, {1, -3, INFINITY}));
  together.add(statistics_of(Tensor::of<float>({3}, {2, NAN, 0.5F})));
  together.add(statistics_of(Tensor::of<float>({1}, {NAN})));
  const auto once = statistics_of(whole);
  EXPECT_EQ(once.min, -3);
  EXPECT_EQ(once.max, 2);
  EXPECT_EQ(once.num_not_finite, 2);
  EXPECT_DOUBLE_EQ(once.mean(), 0.125);
  EXPECT_DOUBLE_EQ(once.norm(), std::sqrt(1 + 9 + 4 + 0.25));
  EXPECT_EQ(together.min, once.min);
  EXPECT_EQ(together.max, once.max);
  EXPECT_EQ(together.num_not_finite, 3);
  EXPECT_DOUBLE_EQ(together.norm(), once.norm());
}

TEST(ValueEntry, IsReadAsItWasWritten) {
  ValueEntry entry =
      entry_with({.run = 2, .op = "matmul", .source = "up\"\n", .is_gradient = true, .ordinal = 3, .output = 1}, 17,
                 counted(kWholeType), {Shape{1, 2}, Shape{2, 3}});
  entry.reduction = "sum";
  const auto line = print_entry(entry);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const auto again = parse_entry(line);
  EXPECT_EQ(again.name.key(), entry.name.key());
  EXPECT_EQ(again.number, 17);
  EXPECT_EQ(again.type, entry.type);
  EXPECT_EQ(again.region, entry.region);
  EXPECT_EQ(again.line, "model.py:7");
  EXPECT_EQ(again.reduction, "sum");
  EXPECT_EQ(again.hash, entry.hash);
  EXPECT_EQ(again.statistics.sum_of_squares, entry.statistics.sum_of_squares);
  EXPECT_EQ(print_entry(again), line);
}

TEST(ValueEntry, RefusesWhatIsNone) {
  const auto line = print_entry(entry_with(product(), 3, counted(kWholeType), {Shape{1, 2}, Shape{2, 3}}));
  const auto parse = [](std::string text) { return [text = std::move(text)] { parse_entry(text); }; };
  const auto with = [&](const std::string& from, const std::string& to) {
    const size_t at = line.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return parse(std::string(line).replace(at, from.size(), to));
  };
  EXPECT_THAT(parse("[]"), ThrowsMessage<InvalidArgument>(HasSubstr("no JSON object")));
  EXPECT_THAT(parse("{"), ThrowsMessage<InvalidArgument>(HasSubstr("not JSON: line 1, column 2")));
  EXPECT_THAT(with("\"made\"", "\"later\""), ThrowsMessage<InvalidArgument>(HasSubstr("\"moment\" is \"later\"")));
  EXPECT_THAT(with("\"offset\":[1,2]", "\"offset\":[3,2]"), ThrowsMessage<InvalidArgument>(HasSubstr("is not within")));
  EXPECT_THAT(with("\"offset\":[1,2]", "\"offset\":[1]"), ThrowsMessage<InvalidArgument>(HasSubstr("\"offset\"")));
  EXPECT_THAT(with("f32[4,6]", "f32[4"), ThrowsMessage<InvalidArgument>(HasSubstr("f32[4")));
  EXPECT_THAT(with("\"hash\":\"", "\"hash\":\"x"), ThrowsMessage<InvalidArgument>(HasSubstr("16 hexadecimal digits")));
  EXPECT_THAT(with("\"ordinal\":1", "\"ordinal\":0"), ThrowsMessage<InvalidArgument>(HasSubstr("\"ordinal\"")));
  EXPECT_THAT(with("\"number\":3", "\"number\":1e30"), ThrowsMessage<InvalidArgument>(HasSubstr("\"number\"")));
}

TEST(RankRecord, IsWholeOrNone) {
  const std::vector<ValueEntry> entries{
      entry_with(product(), 3, counted(kWholeType), checkpoint::Region::whole({4, 6}))};
  const RecordHeader header{
      .step = 5, .rank = 1, .num_ranks = 2, .mode = "data_parallel", .precision = "f32", .num_missing = 4};
  const auto text = print_record(header, entries);
  const auto record = parse_record(text);
  EXPECT_EQ(record.header.step, 5);
  EXPECT_EQ(record.header.num_missing, 4);
  ASSERT_EQ(record.entries.size(), 1U);
  EXPECT_THAT([&] { parse_record(text.substr(0, text.size() / 2)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("line 2")));
  const auto end = text.rfind("{\"kind\":\"end\"");
  EXPECT_THAT([&] { parse_record(text.substr(0, end)); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the record has no end")));
  EXPECT_THAT([&] { parse_record(text + "{}\n"); }, ThrowsMessage<InvalidArgument>(HasSubstr("has ended before")));
  EXPECT_THAT([&] { parse_record("{\"kind\":\"step\"}\n"); }, ThrowsMessage<InvalidArgument>(HasSubstr("line 1")));
  EXPECT_THAT([&] { parse_record(""); }, ThrowsMessage<InvalidArgument>(HasSubstr("no end")));
}

TEST(RecordedStep, HashesDoNotDependOnHowAValueIsCut) {
  const Tensor whole = counted(kWholeType);
  const Tensor copied = counted({DType::kF32, {2, 2}});
  const auto one = step_of(whole, {4}, copied);
  const auto three = step_of(whole, {2, 1, 1}, copied);
  const auto four = step_of(whole, {3, 0, 0, 1}, copied);
  ASSERT_EQ(one.values.size(), 2U);
  for (const auto* step : {&three, &four}) {
    ASSERT_EQ(step->values.size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(step->values[i].hash(), one.values[i].hash());
      EXPECT_EQ(step->values[i].statistics()->min, one.values[i].statistics()->min);
    }
    const auto comparison = compare_steps(one, *step);
    EXPECT_EQ(comparison.num_equal, 2);
    EXPECT_TRUE(comparison.are_equal());
  }
}

TEST(RecordedStep, OfAMissingRankHasNoWholeValue) {
  const Tensor whole = counted(kWholeType);
  const auto regions = rows_of(whole.shape(), {2, 2});
  const auto half = merge_records({record_of(1, 1, 2, {entry_with(product(), 3, whole, regions[1])})});
  EXPECT_THAT(half.missing_ranks, ElementsAre(0));
  EXPECT_FALSE(half.values[0].hash().has_value());
  // Rank by rank where both runs have the same ones, else not at all.
  EXPECT_EQ(compare_steps(half, half).num_equal, 1);
  EXPECT_EQ(compare_steps(half, step_of(whole, {4}, whole)).num_not_comparable, 1);
}

TEST(RecordedStep, OfSeveralJobsIsRefused) {
  const auto entry = entry_with(product(), 3, counted(kWholeType), checkpoint::Region::whole({4, 6}));
  EXPECT_THAT(
      [&] {
        merge_records({record_of(1, 0, 2, {entry}), record_of(1, 1, 3, {entry})});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("the records of several jobs")));
  EXPECT_THAT(
      [&] {
        merge_records({record_of(1, 0, 2, {entry}), record_of(1, 0, 2, {entry})});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("rank 0 is there twice")));
}

TEST(CompareValues, NamesTheRankWhosePieceDiffersInItsLastBit) {
  const Tensor whole = counted(kWholeType);
  const Tensor copied = counted({DType::kF32, {2, 2}});
  const auto good = step_of(whole, {2, 1, 1}, copied, -1, 7);
  const auto bad = step_of(with_last_bit(whole, 2 * 6 + 1), {2, 1, 1}, with_last_bit(copied, 0), -1, 7);
  const auto comparison = compare_steps(good, bad);
  ASSERT_TRUE(comparison.first.has_value());
  EXPECT_EQ(comparison.first->name, "matmul \"up\"");
  EXPECT_THAT(comparison.first->ranks, ElementsAre(1));
  EXPECT_THAT(comparison.first->regions, ElementsAre("[2:3,0:6]"));
  EXPECT_TRUE(comparison.first->differs_in_bits);
  EXPECT_EQ(comparison.num_close, 2);
  EXPECT_FALSE(comparison.first_beyond.has_value());
  EXPECT_THAT(describe(7, *comparison.first),
              testing::AllOf(HasSubstr("step 7: matmul \"up\" (model.py:7) f32[4,6] differs on rank 1"),
                             HasSubstr("[2:3,0:6]")));
  // Cut in another way it is still found, but on no rank.
  const auto other_cut = compare_steps(good, step_of(with_last_bit(whole, 13), {1, 3}, copied, -1, 7));
  ASSERT_TRUE(other_cut.first.has_value());
  EXPECT_FALSE(other_cut.first->is_cut_alike);
  EXPECT_THAT(describe(7, *other_cut.first), HasSubstr("no rank can be named"));
}

TEST(CompareValues, GoesByStatisticsWhereDtypesDiffer) {
  const Tensor whole = counted(kWholeType);
  const Tensor copied = counted({DType::kF32, {2, 2}});
  const auto wide = step_of(whole, {4}, copied);
  EXPECT_TRUE(compare_steps(wide, step_of(whole.cast(DType::kBF16), {2, 2}, copied)).num_close == 1);
  const auto apart = compare_steps(wide, step_of(counted(kWholeType, 3).cast(DType::kBF16), {2, 2}, copied));
  ASSERT_TRUE(apart.first_beyond.has_value());
  EXPECT_FALSE(apart.first_beyond->differs_in_bits);
  EXPECT_EQ(apart.num_beyond, 1);
  const auto allowed =
      compare_steps(wide, step_of(counted(kWholeType, 3).cast(DType::kBF16), {2, 2}, copied), {.tolerance = 10});
  EXPECT_FALSE(allowed.first.has_value());
}

TEST(CompareValues, TellsCopiesThatAreNotAlike) {
  const Tensor whole = counted(kWholeType);
  const Tensor copied = counted({DType::kF32, {2, 2}});
  const auto odd = step_of(whole, {2, 1, 1}, copied, /*odd_rank=*/2);
  EXPECT_THAT(odd.values[1].odd_copies(), ElementsAre(2));
  const auto comparison = compare_steps(step_of(whole, {2, 1, 1}, copied), odd);
  EXPECT_THAT(comparison.odd_left, IsEmpty());
  EXPECT_THAT(comparison.odd_right, ElementsAre(HasSubstr("rank 2")));
  ASSERT_TRUE(comparison.first.has_value());
  EXPECT_EQ(comparison.first->name, "matmul \"up\" #2");
  EXPECT_THAT(comparison.first->ranks, ElementsAre(2));
}

TEST(CompareValues, ComparesTermsOfSumsRankByRank) {
  const Tensor whole = counted(kWholeType);
  const auto terms_of = [&](const Tensor& first, const Tensor& second) {
    std::vector<RankRecord> records;
    for (int rank = 0; rank < 2; ++rank) {
      auto entry = entry_with(product(), 3, rank == 0 ? first : second, checkpoint::Region::whole(whole.shape()));
      entry.reduction = "sum";
      records.push_back(record_of(1, rank, 2, {entry}));
    }
    return merge_records(std::move(records));
  };
  const Tensor other = counted(kWholeType, 5);
  EXPECT_EQ(compare_steps(terms_of(whole, other), terms_of(whole, other)).num_equal, 1);
  const auto differing = compare_steps(terms_of(whole, other), terms_of(whole, with_last_bit(other, 3)));
  ASSERT_TRUE(differing.first.has_value());
  EXPECT_THAT(differing.first->ranks, ElementsAre(1));
  EXPECT_THAT(differing.first->name, HasSubstr("the terms of whose sum"));
  // One rank has no terms.
  EXPECT_EQ(compare_steps(terms_of(whole, other), step_of(whole, {4}, whole)).num_not_comparable, 1);
}

TEST(CompareValues, IsInfinitelyFarFromWhatIsNotFinite) {
  const auto a = statistics_of(Tensor::of<float>({2}, {1, 2}));
  EXPECT_EQ(distance(a, statistics_of(Tensor::of<float>({2}, {1, NAN}))), std::numeric_limits<double>::infinity());
  EXPECT_EQ(distance(a, a), 0);
  EXPECT_NEAR(distance(a, statistics_of(Tensor::of<float>({2}, {1, 2.02F}))), 0.01, 0.002);
  EXPECT_EQ(
      distance(statistics_of(Tensor::zeros({DType::kF32, {3}})), statistics_of(Tensor::zeros({DType::kF32, {3}}))), 0);
}

TEST(RecordFiles, AreFoundByStepAndRank) {
  MemoryFileSystem files;
  files.create_directories("/a");
  const Tensor whole = counted(kWholeType);
  const auto regions = rows_of(whole.shape(), {2, 2});
  const auto write = [&](const std::string& folder, int64_t step, const Tensor& value) {
    for (int rank = 0; rank < 2; ++rank) {
      const auto record =
          record_of(step, rank, 2, {entry_with(product(), 3, value, regions[static_cast<size_t>(rank)])});
      files.write_atomically(join_path(folder, record_file_name(step, rank)),
                             print_record(record.header, record.entries));
    }
  };
  files.create_directories("/b");
  for (const int64_t step : {1, 2, 10}) write("/a", step, whole);
  for (const int64_t step : {2, 10, 11}) write("/b", step, step == 10 ? with_last_bit(whole, 20) : whole);
  files.write_atomically("/a/notes.txt", "none");
  EXPECT_THAT(recorded_steps(files, "/a"), ElementsAre(1, 2, 10));
  const auto comparison = compare_records(files, "/a", "/b");
  EXPECT_THAT(comparison.left_only, ElementsAre(1));
  EXPECT_THAT(comparison.right_only, ElementsAre(11));
  ASSERT_EQ(comparison.steps.size(), 2U);
  EXPECT_FALSE(comparison.steps[0].first.has_value());
  EXPECT_EQ(comparison.steps[1].step, 10);
  ASSERT_TRUE(comparison.steps[1].first.has_value());
  EXPECT_THAT(comparison.steps[1].first->ranks, ElementsAre(1));
  EXPECT_THAT([&] { compare_records(files, "/a", "/b", {}, false, 11); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no step 11 in common")));
  EXPECT_THAT([&] { recorded_steps(files, "/nowhere"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("there is no folder")));
  files.write_atomically("/a/step-2.rank-0.jsonl", "damaged");
  EXPECT_THAT([&] { read_step(files, "/a", 2); },
              ThrowsMessage<InvalidArgument>(HasSubstr("step-2.rank-0.jsonl: line 1")));
  remove_later_records(files, "/a", 1, /*rank=*/0, /*num_ranks=*/1);
  EXPECT_THAT(recorded_steps(files, "/a"), ElementsAre(1));
}

// loss = sum(relu(x w)): a graph whose values a session records.
ir::Graph rectified() {
  ir::Graph graph("step");
  const ir::Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {4, 3}});
  const ir::Value w = graph.add_input(ir::InputKind::kParameter, "w", {DType::kF32, {3, 2}});
  ir::Value y;
  {
    const ir::SourceScope scope(graph, "up");
    y = ops::matmul(x, w);
  }
  {
    const ir::SourceScope scope(graph, "act");
    y = ops::relu(y);
  }
  const ir::SourceScope scope(graph, "loss");
  graph.add_output("loss", ops::reduce_sum(y, {0, 1}));
  return graph;
}

// The records of a run of it on so many ranks, whose rows of x they have.
RecordedStep record_rectified(int num_ranks, bool is_debugged) {
  std::vector<RankRecord> records(static_cast<size_t>(num_ranks));
  run_ranks(num_ranks, [&](cluster::Context& context) {
    Session session(context, {.reference_kernels = true, .debug = is_debugged});
    session.declare("w", {DType::kF32, {3, 2}});
    session.set_value("w", counted({DType::kF32, {3, 2}}, -0.3));
    const mesh::Mesh mesh({{"data", num_ranks}});
    const mesh::Layout rows{mesh, {{{0}, {}}, {}}};
    const auto step = session.compile(rectified(), mesh, {{"x", rows}});
    const Tensor x = counted({DType::kF32, {4, 3}}, -1);
    copy_elements(mesh::piece_of(x.view(), step->input_slice("x")), step->input("x"));
    step->run();
    EXPECT_THAT(session.value_watch().entries, IsEmpty());
    session.value_watch().begin();
    step->run();
    session.value_watch().is_on = false;
    step->run();
    EXPECT_EQ(session.value_watch().num_runs, 1);
    records[static_cast<size_t>(context.rank())] =
        record_of(1, context.rank(), num_ranks, session.value_watch().entries);
  });
  return merge_records(std::move(records));
}

TEST(ValueWatch, SeesEachValueOfARunByItsLogicalName) {
  const auto one = record_rectified(1, false);
  std::vector<std::string> names;
  for (const auto& value : one.values) names.push_back(value.text());
  EXPECT_THAT(names, ElementsAre("the data \"x\"", "matmul \"up\"", "relu \"act\"",
                                 testing::StartsWith("reduce_sum \"loss\"")));
  const auto comparison = compare_steps(one, record_rectified(4, false));
  EXPECT_EQ(comparison.num_common, 4);
  EXPECT_EQ(comparison.num_beyond, 0);
  EXPECT_EQ(comparison.num_not_comparable, 0);
  EXPECT_EQ(comparison.num_equal + comparison.num_close, 4);
  EXPECT_GE(comparison.num_equal, 3);  // a sum may be added up in another order
  EXPECT_TRUE(compare_steps(one, record_rectified(1, true)).are_equal());
}

}  // namespace
}  // namespace tessera::session
