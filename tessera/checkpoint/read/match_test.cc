#include "tessera/checkpoint/read/match.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/checkpoint/read/inspect.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"

namespace tessera::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Checkpoint saved(FileSystem& files, const std::vector<Entry>& entries) {
  save(files,
       {.path = "d/x.ckpt",
        .append_info = {Entry::number("epoch_num", int64_t{2}), Entry("note", std::string("a \"text\""))}},
       entries, {.epoch = 2, .step_in_epoch = 3, .step = 13, .saved_at_ms = 1700000000000, .network_name = "mlp"});
  return load(files, "d/x.ckpt");
}

std::vector<Entry> mlp() {
  return {Entry("up.weight", Tensor::full({DType::kF32, {2, 3}}, 1)),
          Entry("up.bias", Tensor::full({DType::kF32, {2}}, 2)), Entry("state.empty", Tensor(DType::kF32, {0}))};
}

// A network whose parameters are all 9.
struct Network {
  std::vector<Tensor> tensors;
  std::vector<Destination> destinations;

  explicit Network(const std::vector<std::pair<std::string, Type>>& parameters) {
    for (const auto& [name, type] : parameters) {
      tensors.push_back(Tensor::full(type, 9));
      destinations.push_back({name, tensors.back().view()});
    }
  }
  bool is_untouched() const {
    for (const auto& tensor : tensors) {
      for (const double value : tensor.to_doubles()) {
        if (value != 9) return false;
      }
    }
    return true;
  }
};

TEST(LoadInto, CopiesEveryParameter) {
  MemoryFileSystem files;
  Network network(
      {{"up.bias", {DType::kF32, {2}}}, {"up.weight", {DType::kF32, {2, 3}}}, {"state.empty", {DType::kF32, {0}}}});
  const auto match = load_into(saved(files, mlp()), network.destinations);
  EXPECT_TRUE(match.missing.empty() && match.unexpected.empty());
  EXPECT_THAT(network.tensors[0].to_doubles(), testing::Each(2));
  EXPECT_THAT(network.tensors[1].to_doubles(), testing::Each(1));
}

TEST(LoadInto, AnotherNetworksCheckpointIsRefusedWithAllNamesAndNothingIsTouched) {
  MemoryFileSystem files;
  Network network({{"up.weight", {DType::kF32, {3, 2}}},
                   {"up.bias", {DType::kF16, {2}}},
                   {"down.bias", {DType::kF32, {}}},
                   {"state.empty", {DType::kF32, {0}}}});
  auto entries = mlp();
  entries.emplace_back("head.weight", Tensor::full({DType::kI32, {4}}, 0));
  const auto checkpoint = saved(files, entries);
  EXPECT_EQ(message_of([&] { load_into(checkpoint, network.destinations); }),
            "d/x.ckpt: is of another network or optimizer; nothing was loaded\n"
            "  missing in the checkpoint (1):\n    down.bias f32[]\n"
            "  unexpected in the checkpoint (1):\n    head.weight i32[4]\n"
            "  different (2):\n"
            "    up.weight: f32[2,3] in the checkpoint, f32[3,2] in the network\n"
            "    up.bias: f32[2] in the checkpoint, f16[2] in the network");
  EXPECT_TRUE(network.is_untouched());
}

TEST(LoadInto, OptionsSayWhatMayBeLeftOutOrConverted) {
  MemoryFileSystem files;
  Network network({{"up.weight", {DType::kF16, {2, 3}}}, {"down.bias", {DType::kF32, {1}}}});
  const auto checkpoint = saved(files, mlp());
  const MatchOptions all{.allow_missing = true, .allow_unexpected = true, .convert_dtypes = true};
  for (auto options :
       {MatchOptions{false, true, true}, MatchOptions{true, false, true}, MatchOptions{true, true, false}}) {
    EXPECT_THROW(load_into(checkpoint, network.destinations, options), InvalidArgument);
    EXPECT_TRUE(network.is_untouched());
  }
  const auto match = load_into(checkpoint, network.destinations, all);
  EXPECT_THAT(match.missing, ElementsAre("down.bias f32[1]"));
  EXPECT_THAT(match.unexpected, ElementsAre("up.bias f32[2]", "state.empty f32[0]"));
  EXPECT_THAT(network.tensors[0].to_doubles(), testing::Each(1));
  EXPECT_THAT(network.tensors[1].to_doubles(), testing::Each(9));
}

TEST(LoadInto, FloatsDoNotBecomeIntegers) {
  MemoryFileSystem files;
  Network network({{"up.weight", {DType::kI32, {2, 3}}}});
  EXPECT_THROW(load_into(saved(files, mlp()), network.destinations, {.allow_unexpected = true, .convert_dtypes = true}),
               InvalidArgument);
}

TEST(LoadInto, WithoutAManifestAppendedNumbersAndEmptyParametersStillFit) {
  MemoryFileSystem files;
  saved(files, mlp());
  files.remove("d/x.ckpt.manifest");
  Network network(
      {{"up.weight", {DType::kF32, {2, 3}}}, {"up.bias", {DType::kF32, {2}}}, {"state.empty", {DType::kF32, {0}}}});
  EXPECT_NO_THROW(load_into(load(files, "d/x.ckpt"), network.destinations));
}

TEST(Match, NamesThePrefixByWhichAllNamesDiffer) {
  MemoryFileSystem files;
  Network network({{"net.up.weight", {DType::kF32, {2, 3}}},
                   {"net.up.bias", {DType::kF32, {2}}},
                   {"net.state.empty", {DType::kF32, {1}}}});
  EXPECT_THAT(message_of([&] { load_into(saved(files, mlp()), network.destinations); }),
              HasSubstr("the network's names begin with \"net.\", the checkpoint's do not"));
}

TEST(Match, WhatMayBeLeftOutIsNotListedWithWhatMustNot) {
  MemoryFileSystem files;
  auto entries = mlp();
  entries.emplace_back("moments.up.weight", Tensor::full({DType::kF32, {2, 3}}, 0));
  Network network(
      {{"up.weight", {DType::kF32, {2, 4}}}, {"up.bias", {DType::kF32, {2}}}, {"state.empty", {DType::kF32, {0}}}});
  EXPECT_THAT(message_of([&] { load_into(saved(files, entries), network.destinations, {.allow_unexpected = true}); }),
              AllOf(HasSubstr("up.weight: f32[2,3] in the checkpoint, f32[2,4] in the network"),
                    Not(HasSubstr("unexpected")), Not(HasSubstr("moments.up.weight"))));
}

TEST(Match, LongListsAreCut) {
  Match match;
  for (int i = 0; i < 30; ++i) match.missing.push_back(fmt::format("p{}", i));
  EXPECT_THAT(match.describe({}, /*max_names=*/3),
              "\n  missing in the checkpoint (30):\n    p0\n    p1\n    p2\n    and 27 more");
}

TEST(Inspect, TableShowsManifestAndValues) {
  MemoryFileSystem files;
  saved(files, mlp());
  const auto inspection = inspect_table(files, "d/x.ckpt");
  EXPECT_EQ(inspection.state, Verified::kYes);
  EXPECT_EQ(inspection.text, R"(d/x.ckpt: 171 B, 5 values, 9 elements
verified: yes, every byte is as it was written
epoch 2, step 3 of it, step 13 in all
saved 2023-11-14 22:13:20 UTC
job "", 1 rank, seed 0
network mlp

name         type             bytes  crc32c    value
up.weight    f32[2,3]            24  a9c982db
up.bias      f32[2]               8  fa02c598
state.empty  f32[0]               0  00000000
epoch_num    i64[]                8  1e5048c4  2
note         str                 32  d4aeb05c  "a \"text\""
)");
}

TEST(Inspect, JsonShowsTheSame) {
  MemoryFileSystem files;
  saved(files, mlp());
  const auto text = inspect_json(files, "d/x.ckpt").text;
  for (const char* part : {"\"state\": \"verified\"", "\"step_in_epoch\": 3", "\"name\": \"mlp\"", "\"dtype\": \"f32\"",
                           "\"appended\": true", "\"value\": 2\n", "\"value\": \"a \\\"text\\\"\""}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
}

TEST(Inspect, MarksDamagedTensors) {
  MemoryFileSystem files;
  const auto offset = [&] {
    const auto checkpoint = saved(files, mlp());
    return checkpoint.find("up.bias")->pieces[0].data() - checkpoint.file().bytes().data();
  }();
  auto bytes = files.read_text("d/x.ckpt");
  bytes[static_cast<size_t>(offset)] ^= 1;
  overwrite(files, "d/x.ckpt", bytes);
  const auto table = inspect_table(files, "d/x.ckpt");
  EXPECT_EQ(table.state, Verified::kNo);
  EXPECT_THAT(table.problem, HasSubstr("the tensor \"up.bias\""));
  EXPECT_THAT(table.text, testing::ContainsRegex("up.bias [^\n]*  DAMAGED"));
  EXPECT_THAT(table.text, Not(testing::ContainsRegex("up.weight [^\n]*DAMAGED")));
  EXPECT_THAT(inspect_json(files, "d/x.ckpt").text, HasSubstr("\"damaged\": true"));
  overwrite(files, "d/x.ckpt", "junk");
  EXPECT_THAT(inspect_table(files, "d/x.ckpt").text, HasSubstr("verified: NO"));
  files.remove("d/x.ckpt.manifest");
  EXPECT_THAT(inspect_table(files, "d/x.ckpt").problem, HasSubstr("not a .ckpt file"));
}

}  // namespace
}  // namespace tessera::checkpoint
