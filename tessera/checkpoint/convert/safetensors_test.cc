#include "tessera/checkpoint/convert/safetensors.h"
#include "tessera/checkpoint/read/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tessera/checkpoint/read/load.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"
#include "tessera/testing/checkpoints/saved_together.h"
#include "tessera/testing/checkpoints/transform_cases.h"

namespace tessera::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

std::string file_with(const std::string& header, const std::string& content) {
  auto length = static_cast<uint64_t>(header.size());
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
  return bytes + header + content;
}

// f32[2] {1, 2} and bf16[] 1, as the format's own library writes them.
const std::string kGolden = file_with(
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}})",
    std::string("\0\0\x80\x3F\0\0\0\x40\x80\x3F", 10));

TEST(Safetensors, AreReadWhereTheyLie) {
  MemoryFileSystem files;
  overwrite(files, "net.safetensors", kGolden);
  const auto tensors = read_safetensors_header(files, "net.safetensors");
  ASSERT_EQ(tensors.size(), 2);
  EXPECT_EQ(tensors[0].type_text(), "f32[2]");
  EXPECT_EQ(tensors[1].type_text(), "bf16[]");
  import_safetensors(files, "net.safetensors", "net.ckpt");
  const auto checkpoint = load(files, "net.ckpt");
  EXPECT_TRUE(checkpoint.is_verified());
  EXPECT_THAT(checkpoint.find("a")->read().to_doubles(), ElementsAre(1, 2));
  EXPECT_THAT(checkpoint.find("b")->read().to_doubles(), ElementsAre(1));
}

TEST(Safetensors, TensorsAreSavedAndLoaded) {
  MemoryFileSystem files;
  const std::vector<Entry> entries = {
      {"a", Tensor::of<float>({2}, {1, 2})}, {"name", "a text"}, {"b", Tensor::scalar(int64_t{7})}};
  save_safetensors(files, "d/net.safetensors", entries);
  const auto loaded = load_safetensors(files, "d/net.safetensors");
  ASSERT_EQ(loaded.size(), 2);
  EXPECT_EQ(loaded[0].first, "a");
  EXPECT_TRUE(bit_equal(loaded[0].second, entries[0].owner));
  EXPECT_EQ(loaded[1].first, "b");
  EXPECT_TRUE(bit_equal(loaded[1].second, entries[2].owner));
  EXPECT_FALSE(files.exists("d/net.safetensors.tmp"));
  EXPECT_THROW(save_safetensors(files, "net.ckpt", entries), InvalidArgument);
  const std::vector<Entry> twice = {entries[0], entries[0]};
  EXPECT_THAT(message_of([&] { save_safetensors(files, "net.safetensors", twice); }),
              HasSubstr("two tensors are named \"a\""));
}

TEST(Safetensors, ThereAndBackGivesTheSameBytes) {
  MemoryFileSystem files;
  std::mt19937 random(3);
  const auto c = make_case(mesh::StageRanks::equal(2, 3), mesh::StageRanks::equal(1, 1), random);
  write_strategy_file(files, "from.ckpt", c.from.strategy);
  save_side(files, c.from, "src", "CKP");
  export_safetensors(files, "src", "a/net.safetensors", "from.ckpt");
  import_safetensors(files, "a/net.safetensors", "net.ckpt");
  const auto checkpoint = load(files, "net.ckpt");
  for (const auto& parameter : c.from.parameters) {
    EXPECT_TRUE(bit_equal(checkpoint.find(parameter.name)->read(), parameter.value)) << parameter.name;
  }
  export_safetensors(files, "net.ckpt", "again.safetensors");
  import_safetensors(files, "again.safetensors", "again.ckpt");
  EXPECT_EQ(files.read_text("again.ckpt"), files.read_text("net.ckpt"));
  EXPECT_FALSE(files.exists("a/net.safetensors.tmp"));
}

TEST(Safetensors, AllFilesOfRanksThatSavedTogetherAreExported) {
  for (const bool has_split : {true, false}) {
    MemoryFileSystem files;
    write_strategy_file(files, "three.json", {.layouts = {{.name = "a", .device_matrix = {3}, .tensor_map = {{0}}}}});
    const auto path = save_together(files, "d/CKP-1_4.ckpt", 4, has_split);
    export_safetensors(files, save_whole(files, "whole.ckpt", 4, has_split), "expected.safetensors");
    for (const auto& given : {path, path + ".rank_1", std::string("d")}) {
      for (const char* strategy : {"", "three.json"}) {
        export_safetensors(files, given, "net.safetensors", strategy);
        EXPECT_EQ(files.read_text("net.safetensors"), files.read_text("expected.safetensors")) << given << strategy;
      }
    }
  }
}

TEST(Safetensors, APartOfACheckpointIsNotExported) {
  MemoryFileSystem files;
  const auto path = save_together(files, "d/CKP-1_4.ckpt", 4, /*has_split=*/false);
  const auto refusal = [&](const std::string& given) {
    const auto message = message_of([&] { export_safetensors(files, given, "net.safetensors"); });
    EXPECT_FALSE(files.exists("net.safetensors"));
    return message;
  };
  overwrite(files, path + ".rank_7", files.read_text(path + ".rank_1"));
  EXPECT_EQ(refusal(path + ".rank_7"),
            path + ".rank_7: " + path + ".manifest does not describe it; it is left of a save that was not finished");
  EXPECT_EQ(refusal(path + ".rank_8"), path + ".rank_8: no such file or directory");
  files.rename(path, "d/elsewhere");
  EXPECT_EQ(refusal(path + ".rank_2"), path + ".rank_2: holds one rank's slices of " + path +
                                           ", which is missing; all its files must lie beside each other");
  files.rename("d/elsewhere", path);
  files.rename(path + ".manifest", "d/elsewhere");
  EXPECT_EQ(refusal(path), path + ": holds one rank's slices, for CKP-1_4.ckpt.rank_1 lies beside it; " + path +
                               ".manifest, which says where they belong, is missing");
  EXPECT_EQ(refusal("d"), refusal(path));
  files.rename("d/elsewhere", path + ".manifest");
  files.remove(path + ".rank_2");
  EXPECT_EQ(refusal(path), path + ".rank_2: is missing; " + path + ".manifest describes it");
  EXPECT_EQ(refusal("d"), refusal(path));
}

TEST(Safetensors, HostileFilesAreRefused) {
  MemoryFileSystem files;
  const auto refusal = [&](const std::string& bytes) {
    overwrite(files, "x.safetensors", bytes);
    const auto message = message_of([&] { import_safetensors(files, "x.safetensors", "x.ckpt"); });
    EXPECT_FALSE(files.exists("x.ckpt"));
    EXPECT_THAT(message, StartsWith("x.safetensors: "));
    return message;
  };
  const std::string eight(8, '\0');
  const auto tensor = [](const std::string& rest) { return R"({"a":{"dtype":"F32",)" + rest + "}}"; };
  EXPECT_THAT(refusal("1234567"), HasSubstr("too few"));
  EXPECT_THAT(refusal(std::string(8, '\xFF')), HasSubstr("at most 0 can be"));
  EXPECT_THAT(refusal(file_with("{", "")), HasSubstr("JSON"));
  EXPECT_THAT(refusal(file_with(std::string(10000, '['), "")), HasSubstr("deep"));
  EXPECT_THAT(refusal(file_with("{}", "")), HasSubstr("holds no tensor"));
  EXPECT_THAT(refusal(file_with("{}", "x")), HasSubstr("its tensors end at"));
  EXPECT_THAT(refusal(file_with(R"({"a":{"dtype":"F8","shape":[2],"data_offsets":[0,8]}})", eight)),
              HasSubstr(".dtype must be a dtype"));
  EXPECT_THAT(refusal(file_with(tensor(R"("shape":[3],"data_offsets":[0,8])"), eight)), HasSubstr("12 bytes apart"));
  EXPECT_THAT(refusal(file_with(tensor(R"("shape":[2],"data_offsets":[0,9])"), eight)), HasSubstr("data_offsets"));
  EXPECT_THAT(refusal(file_with(tensor(R"("shape":[2],"data_offsets":[8,0])"), eight)), HasSubstr("data_offsets"));
  EXPECT_THAT(refusal(file_with(tensor(R"("shape":[-2],"data_offsets":[0,8])"), eight)), HasSubstr("shape"));
  EXPECT_THAT(refusal(file_with(tensor(R"("shape":[4611686018427387904,4],"data_offsets":[0,0])"), "")),
              HasSubstr("more bytes than"));
  const std::string overlap = R"({"a":{"dtype":"U8","shape":[6],"data_offsets":[0,6]},)"
                              R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})";
  EXPECT_THAT(refusal(file_with(overlap, eight)), HasSubstr("a hole, or an overlap"));
  for (size_t size = 0; size < kGolden.size(); ++size) refusal(kGolden.substr(0, size));
}

TEST(Safetensors, DamagedSourcesAreNotExported) {
  MemoryFileSystem files;
  overwrite(files, "net.safetensors", kGolden);
  import_safetensors(files, "net.safetensors", "net.ckpt");
  auto bytes = files.read_text("net.ckpt");
  bytes[30] = static_cast<char>(bytes[30] ^ 4);
  overwrite(files, "net.ckpt", bytes);
  EXPECT_THAT(message_of([&] { export_safetensors(files, "net.ckpt", "out.safetensors"); }), StartsWith("net.ckpt"));
  EXPECT_FALSE(files.exists("out.safetensors"));
  EXPECT_FALSE(files.exists("out.safetensors.tmp"));
}

}  // namespace
}  // namespace tessera::checkpoint
