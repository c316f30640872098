#include "tessera/checkpoint/strategy/strategy_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "tessera/base/error.h"
#include "tessera/testing/checkpoints/strategy_messages.h"

namespace tessera::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// Written by hand from docs/checkpoint_format.md.
const std::string kGolden = from_hex(R"(
08 01
12 1E  0A 0C 'MatMul_fc1.w'  12 0E
       08 00
       12 04  08 02 08 01
       12 04  08 01 08 04
1A 28  0A 05 'fc1.w'  12 1F
       0A 04  08 02 08 04
       12 0D  08 FF FF FF FF FF FF FF FF FF 01  08 00
       1A 00
       22 00
       28 00
       30 04
       38 02
)");

StrategyFile golden() {
  return {.strategies = {{.node = "MatMul_fc1.w", .inputs = {{2, 1}, {1, 4}}}},
          .layouts = {{.name = "fc1.w",
                       .device_matrix = {2, 4},
                       .tensor_map = {{}, {0}},
                       .opt_weight_shard_step = 4,
                       .opt_weight_shard_size = 2}}};
}

// What testdata/reference_2_10_strategy.ckpt holds: serialized by the reference's release 2.10 from its own message
// classes. Two stages, a scalar, a split by hand, and dims that several axes split.
StrategyFile reference() {
  return {.strategies = {{.node = "MatMul_fc1.weight", .stage = 0, .inputs = {{2, 1}, {1, 4}}},
                         {.node = "MatMul_fc2.weight", .stage = 1, .inputs = {{2, 4}, {4, 300}}}},
          .layouts = {
              {.name = "beta1_power", .device_matrix = {8}},
              {.name = "embedding",
               .device_matrix = {4, 2},
               .tensor_map = {{0}, {}},
               .param_split_shape = {20000, 1},
               .indices_offset = {0, 20000},
               .field = 39},
              {.name = "fc1.weight",
               .device_matrix = {2, 4},
               .tensor_map = {{}, {0}},
               .opt_weight_shard_step = 4,
               .opt_weight_shard_size = 2},
              {.name = "fc2.weight",
               .device_matrix = {2, 2, 2},
               .tensor_map = {{2, 1}, {}},
               .opt_weight_shard_step = 2,
               .opt_weight_shard_size = -1},
              {.name = "fc3.bias", .device_matrix = {2, 4}, .tensor_map = {{1, 0}}},
          }};
}

StrategyFile with_shapes(StrategyFile strategy) {
  for (auto& layout : strategy.layouts) layout.tensor_shape.assign(layout.tensor_map.size(), 64);
  return strategy;
}

std::string message_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}
std::string refusal(const std::string& bytes) {
  return message_of([&] { parse_strategy_file(bytes, "s"); });
}

// The golden layout with the fields of its inner message replaced.
std::string with_layout(const std::string& fields) {
  const auto size = [](const std::string& text) { return static_cast<char>(text.size()); };
  const std::string item = from_hex("0A 01 'w' 12") + size(fields) + fields;
  return from_hex("08 01 1A") + size(item) + item;
}
std::string layout_refusal(std::string_view hex) { return refusal(with_layout(from_hex(hex))); }

// The golden data after an edit, refused by the writer.
std::string edit_refusal(const std::function<void(StrategyFile&)>& edit) {
  auto strategy = golden();
  edit(strategy);
  return message_of([&] { strategy_to_protobuf(strategy); });
}

constexpr const char* kJson =
    R"({"current_stage":1,"parallel_layout_item":{"fc1.w":{"dev_matrix":[2,4],"field":0,"opt_weight_shard_size":2,)"
    R"("opt_weight_shard_step":4,"tensor_map":[-1,0],"tensor_shape":[128,96]}},"parallel_strategy_item":)"
    R"({"MatMul_fc1.w":{"parallel_strategy":[[2,1],[1,4]],"stage":0}}})";

std::string edited_json(const std::string& from, const std::string& to) {
  std::string text = kJson;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(StrategyFile, IsTheGoldenBytes) {
  EXPECT_EQ(strategy_to_protobuf(golden()), kGolden);
  EXPECT_EQ(parse_strategy_file(kGolden, "s"), golden());
}

TEST(StrategyFile, IsTheReferencesBytes) {
  const auto bytes = FileSystem::local().read_text(std::string(TESSERA_SOURCE_DIR) +
                                                   "/tessera/checkpoint/testdata/reference_2_10_strategy.ckpt");
  EXPECT_EQ(parse_strategy_file(bytes, "s"), reference());
  EXPECT_EQ(strategy_to_protobuf(reference()), bytes);
}

TEST(StrategyFile, IsTheDocumentedJson) {
  auto strategy = golden();
  strategy.layouts[0].tensor_shape = {128, 96};
  EXPECT_EQ(strategy_to_json(strategy), kJson);
  EXPECT_EQ(parse_strategy_file(kJson, "s"), strategy);
  EXPECT_EQ(parse_strategy_file(std::string("\n ") + kJson + "\n", "s"), strategy) << "white space around";
}

TEST(StrategyFile, JsonRoundTripsAllFields) {
  const auto strategy = with_shapes(reference());
  const auto text = strategy_to_json(strategy);
  EXPECT_EQ(parse_strategy_file(text, "s"), strategy);
  EXPECT_THAT(text, HasSubstr(R"("tensor_map":[[2,1],-1])"));
  EXPECT_THAT(text, HasSubstr(R"("indices_offset":[0,20000])"));
}

TEST(StrategyFile, ItemsAreWrittenSortedByName) {
  auto strategy = with_shapes(reference());
  const auto bytes = strategy_to_protobuf(strategy);
  const auto text = strategy_to_json(strategy);
  std::swap(strategy.layouts.front(), strategy.layouts.back());
  std::swap(strategy.strategies[0], strategy.strategies[1]);
  EXPECT_EQ(strategy_to_protobuf(strategy), bytes);
  EXPECT_EQ(strategy_to_json(strategy), text);
}

TEST(StrategyFile, OneNodeMayHaveAStrategyInEachStage) {
  StrategyFile merged{.strategies = {{.node = "Gather_table", .stage = 0, .inputs = {{4, 1}, {1}}},
                                     {.node = "Gather_table", .stage = 1, .inputs = {{1, 1}, {4}}}},
                      .layouts = {{.name = "0-table", .device_matrix = {4}, .tensor_map = {{0}, {}}},
                                  {.name = "1-table", .device_matrix = {4}, .tensor_map = {{}, {}}}}};
  EXPECT_EQ(parse_strategy_file(strategy_to_protobuf(merged), "s"), merged);
  merged = with_shapes(merged);
  EXPECT_THAT(message_of([&] { strategy_to_json(merged); }), HasSubstr("the node \"Gather_table\" has strategies in"));
  merged.strategies[1].stage = 0;
  EXPECT_THAT(message_of([&] { strategy_to_protobuf(merged); }), HasSubstr("two strategies in stage 0"));
}

TEST(StrategyFile, NamesAreUtf8) {
  StrategyFile strategy{.layouts = {{.name = "h\xC3\xA9", .device_matrix = {1}}}};
  EXPECT_EQ(parse_strategy_file(strategy_to_protobuf(strategy), "s"), strategy);
  EXPECT_EQ(parse_strategy_file(strategy_to_json(strategy), "s"), strategy);
}

TEST(StrategyFile, WithoutItemsIsFine) {
  EXPECT_EQ(strategy_to_protobuf({}), from_hex("08 01"));
  EXPECT_EQ(parse_strategy_file(from_hex("08 02"), "s"), StrategyFile{.current_stage = 2});
  EXPECT_EQ(parse_strategy_file(strategy_to_json({}), "s"), StrategyFile{});
  EXPECT_EQ(parse_strategy_file(R"({"current_stage":1})", "s"), StrategyFile{}) << "the reference's form";
}

TEST(StrategyFile, FormIsChosenBySuffixOnWritingAndByContentOnReading) {
  MemoryFileSystem files;
  const auto strategy = with_shapes(reference());
  write_strategy_file(files, "a/b/s.ckpt", strategy);
  write_strategy_file(files, "a/s.json", strategy);
  write_strategy_file(files, "a/json.ckpt", strategy, StrategyForm::kJson);
  write_strategy_file(files, "a/protobuf.json", strategy, StrategyForm::kProtobuf);
  EXPECT_EQ(files.read_text("a/b/s.ckpt"), strategy_to_protobuf(strategy));
  EXPECT_EQ(files.read_text("a/s.json"), strategy_to_json(strategy));
  EXPECT_EQ(read_strategy_file(files, "a/s.json"), strategy);
  EXPECT_EQ(read_strategy_file(files, "a/json.ckpt"), strategy);
  EXPECT_EQ(read_strategy_file(files, "a/protobuf.json"), reference()) << "no shapes in this form";
  EXPECT_THROW(read_strategy_file(files, "a/none.ckpt"), IoError);
}

TEST(StrategyFile, BelongsToItsOwnerOnly) {
  const auto directory = testing::TempDir() + fmt::format("tessera_strategy_file_test_{}", getpid());
  write_strategy_file(FileSystem::local(), directory + "/deep/s.ckpt", golden());
  struct stat status {};
  ASSERT_EQ(::stat((directory + "/deep/s.ckpt").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  EXPECT_EQ(read_strategy_file(FileSystem::local(), directory + "/deep/s.ckpt"), golden());
  std::filesystem::remove_all(directory);
}

TEST(StrategyFile, NumberOfOptimizerShards) {
  ParameterLayout layout{.device_matrix = {2, 4, 3}, .tensor_map = {{}, {1}}};
  EXPECT_EQ(layout.num_optimizer_shards(), 1);
  layout.opt_weight_shard_step = 12;
  EXPECT_EQ(layout.num_optimizer_shards(), 1);
  layout.opt_weight_shard_size = 2;
  EXPECT_EQ(layout.num_optimizer_shards(), 2);
  layout.opt_weight_shard_size = -1;
  EXPECT_EQ(layout.num_optimizer_shards(), 6) << "all devices but the axis of size 4";
}

TEST(StrategyFile, TakesPackedNumbersLaterFieldsAndFilesOfTheFirstReleases) {
  // Packed dims, any order, fields 9 (bytes) and 10 (fixed32), no optimizer shards.
  const auto strategy = parse_strategy_file(with_layout(from_hex(R"(
      28 00  12 03 0A 01 00  0A 04 0A 02 02 04  4A 02 'xy'  55 01 02 03 04)")) +
                                                from_hex("4A 01 'z'"),
                                            "s");
  EXPECT_THAT(strategy.layouts,
              ElementsAre(ParameterLayout{.name = "w", .device_matrix = {2, 4}, .tensor_map = {{0}}}));
  EXPECT_EQ(parse_strategy_file(edited_json("\"stage\":0", "\"stage\":0,\"new\":[{}]"), "s").strategies.size(), 1U);
}

TEST(StrategyFile, EmptyAndForeignFilesAreNamed) {
  EXPECT_EQ(refusal(""), "s: is empty, it must hold a strategy file");
  EXPECT_THAT(refusal(from_hex("0A 1C 0A 01 'w'")), HasSubstr("byte 0: is not a strategy file"));
  EXPECT_THAT(refusal(from_hex("4A 01 'x'")), HasSubstr("current_stage is missing"));
  EXPECT_THAT(refusal("garbage"), StartsWith("s: byte "));
  EXPECT_EQ(refusal("[]"), "s: the strategy file must be an object, got []");
}

TEST(StrategyFile, EveryTruncationInsideAnItemIsDetected) {
  for (size_t size = 0; size < kGolden.size(); ++size) {
    if (size == 2 || size == 34) continue;  // between items
    EXPECT_THAT(refusal(kGolden.substr(0, size)), StartsWith("s: ")) << size;
  }
  const std::string text = kJson;
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_THAT(refusal(text.substr(0, size)), StartsWith("s: ")) << size;
  }
}

TEST(StrategyFile, DamageNamesByteAndItem) {
  EXPECT_THAT(layout_refusal("12 00 28 00"), HasSubstr("byte 4: the layout of \"w\" has no dev_matrix"));
  EXPECT_THAT(layout_refusal("0A 00 28 00"), HasSubstr("the layout of \"w\" has no tensor_map"));
  EXPECT_THAT(layout_refusal("0A 00 12 00"), HasSubstr("the layout of \"w\" has no field"));
  EXPECT_THAT(layout_refusal("0A 00 0A 00 12 00 28 00"), HasSubstr("\"w\": dev_matrix is given twice"));
  EXPECT_THAT(layout_refusal("0A 00 12 00 28 00 28 00"), HasSubstr("\"w\": field is given twice"));
  EXPECT_THAT(layout_refusal("0A 02 08 00 12 00 28 00"), HasSubstr("dev_matrix is 0, it must be from 1"));
  EXPECT_THAT(layout_refusal("08 02 12 00 28 00"), HasSubstr("dev_matrix has wire type 0, it must have 2"));
  EXPECT_THAT(layout_refusal("0A 00 12 02 08 00 28 00"), HasSubstr("names axis 0, dev_matrix has 0 axes"));
  EXPECT_THAT(layout_refusal("0A 04 08 02 08 02 12 04 08 01 08 01 28 00"), HasSubstr("names axis 1, which is taken"));
  EXPECT_THAT(layout_refusal("0A 00 12 00 1A 02 08 05 28 00"), HasSubstr("1 elements, indices_offset 0"));
  EXPECT_THAT(layout_refusal("0A 00 12 00 2A 00"), HasSubstr("field must be a number, it has wire type 2"));
  EXPECT_THAT(layout_refusal("0A 00 12 00 28 00 4B"), HasSubstr("wire type 3 is not used by the format"));
  EXPECT_THAT(refusal(from_hex("08 01 1A 02 12 00")), HasSubstr("byte 4: a layout has no name"));
  EXPECT_THAT(refusal(from_hex("08 01 1A 03 0A 01 'w'")), HasSubstr("a layout, \"w\", has no content"));
  EXPECT_THAT(refusal(from_hex("08 01 1A 03 0A 01 FF")), HasSubstr("byte 4: the name of a layout is empty, too long"));
  EXPECT_THAT(refusal(from_hex("08 01 12 05 0A 01 'n' 12 00")), HasSubstr("the strategy of \"n\" has no stage"));
  EXPECT_THAT(refusal(kGolden + kGolden.substr(34)), HasSubstr("the parameter \"fc1.w\" has two layouts"));
  EXPECT_THAT(refusal(kGolden + kGolden.substr(2, 32)), HasSubstr("\"MatMul_fc1.w\" has two strategies in stage 0"));
  EXPECT_THAT(refusal(from_hex("08 01 08 01")), HasSubstr("byte 2: current_stage is given twice"));
}

TEST(StrategyFile, HostileSizesAreRefused) {
  EXPECT_THAT(refusal(from_hex("08 01 1A FF FF FF FF FF FF FF FF 7F")), HasSubstr("but 0 are left"));
  EXPECT_THAT(refusal(from_hex("08 01 1A FF FF FF FF FF FF FF FF FF 7F")), HasSubstr("longer than 64 bits"));
  EXPECT_THAT(refusal(from_hex("08 FF FF FF FF 0F")), HasSubstr("current_stage is 4294967295, it must be"));
  EXPECT_THAT(layout_refusal("0A 0C 08 FF FF FF FF 07 08 FF FF FF FF 07 12 00 28 00"), HasSubstr("more than"));
  EXPECT_THAT(refusal(std::string((size_t{64} << 20) + 1, ' ')), HasSubstr("a strategy file has at most"));
  EXPECT_THAT(refusal(std::string(1'000'000, '[')), HasSubstr("nested deeper than 8 levels"));
  EXPECT_THAT(edit_refusal([](auto& s) { s.layouts[0].device_matrix.assign(65, 1); }), HasSubstr("at most 64"));
  EXPECT_THAT(edit_refusal([](auto& s) { s.layouts[0].name.assign(65537, 'n'); }), HasSubstr("of 1 to 65536 bytes"));
}

TEST(StrategyFile, JsonErrorsNameTheMember) {
  EXPECT_THAT(refusal("{\"current_stage\":1"), HasSubstr("s: not JSON: "));
  EXPECT_EQ(refusal("{}"), "s: current_stage is missing");
  EXPECT_EQ(refusal(edited_json("[2,4]", "[2,0]")),
            "s: parallel_layout_item.\"fc1.w\".dev_matrix[1] must be an integer from 1 to 2147483647, got 0");
  EXPECT_THAT(refusal(edited_json("[-1,0]", "[-2,0]")), HasSubstr("tensor_map[0] must be an integer from -1"));
  EXPECT_THAT(refusal(edited_json("[-1,0]", "[[0,-1],0]")), HasSubstr("tensor_map[0] names axis -1"));
  EXPECT_THAT(refusal(edited_json("[-1,0]", "[-1,2]")), HasSubstr("tensor_map[1] names axis 2, dev_matrix has 2 axes"));
  EXPECT_THAT(refusal(edited_json("[128,96]", "[128]")), HasSubstr("tensor_shape must have 2 dims, as tensor_map has"));
  EXPECT_THAT(refusal(edited_json("\"stage\":0", "\"stage\":1.5")), HasSubstr("\"MatMul_fc1.w\".stage must be an int"));
  EXPECT_THAT(refusal(edited_json("\"stage\":0", "\"stage\":0,\"stage\":0")), HasSubstr("\"stage\" occurs twice"));
  EXPECT_THAT(refusal(edited_json("\"field\":0", "\"field\":99999999999999999999")), HasSubstr("field must be"));
  EXPECT_THAT(refusal(edited_json("\"fc1.w\"", "\"\"")), HasSubstr("the name of a layout, of 0 bytes"));
  EXPECT_THAT(refusal(edited_json("[[2,1],[1,4]]", "[[2,1],3]")), HasSubstr("parallel_strategy[1] must be an array"));
}

TEST(StrategyFile, WritersRefuseWhatNoReaderTakes) {
  EXPECT_THAT(edit_refusal([](auto& s) { s.current_stage = -1; }), HasSubstr("current_stage is -1"));
  EXPECT_THAT(edit_refusal([](auto& s) { s.strategies[0].node = ""; }), HasSubstr("the name of a strategy"));
  EXPECT_THAT(edit_refusal([](auto& s) { s.strategies[0].inputs[1][0] = 0; }),
              HasSubstr("the strategy of \"MatMul_fc1.w\": inputs[1][0] is 0"));
  EXPECT_THAT(edit_refusal([](auto& s) { s.layouts[0].name = "\xFF"; }), HasSubstr("must be UTF-8"));
  EXPECT_THAT(edit_refusal([](auto& s) { s.layouts[0].tensor_map[0] = {-1}; }), HasSubstr("names axis -1"));
  EXPECT_THAT(edit_refusal([](auto& s) { s.layouts[0].tensor_shape = {3}; }), HasSubstr("tensor_shape has 1 dims"));
  EXPECT_THAT(edit_refusal([](auto& s) { s.layouts[0].opt_weight_shard_size = -2; }), HasSubstr("it must be from -1"));
}

TEST(StrategyFile, AShapeThatIsNotKnownIsEmptyInJson) {
  const auto text = strategy_to_json(golden());
  EXPECT_THAT(text, HasSubstr("\"tensor_shape\":[]"));
  EXPECT_EQ(parse_strategy_file(text, "s.json"), golden());
}

// What a damaged file still gives must be data that can be written and read again.
TEST(StrategyFile, AnyDamageIsRefusedOrGivesSoundData) {
  int parsed = 0;
  int refused = 0;
  const auto try_it = [&](const std::string& bytes) {
    StrategyFile strategy;
    try {
      strategy = parse_strategy_file(bytes, "s");
    } catch (const InvalidArgument& error) {
      ASSERT_THAT(error.what(), StartsWith("s: "));
      ++refused;
      return;
    }
    ++parsed;
    const auto again = strategy_to_protobuf(strategy);
    ASSERT_EQ(strategy_to_protobuf(parse_strategy_file(again, "again")), again);
    for (const auto& layout : strategy.layouts) ASSERT_GE(layout.num_optimizer_shards(), 1);
  };
  for_each_damage(strategy_to_protobuf(reference()), 10000, try_it);
  for_each_damage(strategy_to_json(with_shapes(reference())), 5000, try_it);
  EXPECT_GT(parsed, 500);
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace tessera::checkpoint
