#include "tessera/checkpoint/convert/diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "tessera/base/strings.h"
#include "tessera/checkpoint/convert/transform.h"
#include "tessera/checkpoint/read/inspect.h"
#include "tessera/checkpoint/read/list.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"
#include "tessera/testing/checkpoints/saved_together.h"
#include "tessera/testing/checkpoints/transform_cases.h"

namespace tessera::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Diff, NamesWhatIsMissingOtherAndChanged) {
  MemoryFileSystem files;
  const auto tensor = [](float value) { return Tensor::full({DType::kF32, {3}}, value); };
  auto changed = tensor(2);
  changed.values<float>()[1] = 2.5F;
  changed.values<float>()[2] = std::nanf("");
  save(files, {.path = "a"},
       std::vector{Entry("same", tensor(1)), Entry("left", tensor(1)), Entry("type", tensor(1)),
                   Entry("values", tensor(2))},
       {});
  save(files, {.path = "b"},
       std::vector{Entry("values", changed), Entry("same", tensor(1)), Entry("type", tensor(1).cast(DType::kF64)),
                   Entry("right", tensor(1))},
       {});
  EXPECT_EQ(diff_table(diff_checkpoints(files, "a.ckpt", "b.ckpt")),
            "- left f32[3]\n"
            "! type f32[3] -> f64[3]\n"
            "~ values f32[3]: 2 of 3 elements differ, by at most inf\n"
            "+ right f32[3]\n"
            "1 equal (1 by their hashes), 4 different\n");
  EXPECT_THAT(diff_table(diff_checkpoints(files, "a.ckpt", "b.ckpt", "", "", /*read_all=*/true)),
              HasSubstr("\n1 equal, 4 different\n"));
  EXPECT_TRUE(diff_checkpoints(files, "a.ckpt", "a.ckpt").differences.empty());
}

TEST(Diff, SeesThroughSplits) {
  MemoryFileSystem files;
  std::mt19937 random(5);
  const auto c = make_case(mesh::StageRanks::equal(2, 4), mesh::StageRanks::equal(1, 3), random);
  write_strategy_file(files, "from.ckpt", c.from.strategy);
  write_strategy_file(files, "to.ckpt", c.to.strategy);
  save_side(files, c.from, "src", "CKP");
  transform_checkpoints(files, "src", "dst", "out", "from.ckpt", "to.ckpt");
  const auto equal = diff_checkpoints(files, "src", "dst", "from.ckpt");
  constexpr int64_t kAppended = 4;  // "nothing" is one of them, an empty text
  EXPECT_EQ(equal.num_equal, std::ssize(c.from.parameters) + kAppended);
  EXPECT_TRUE(equal.differences.empty());
  // What was converted says where its slices lie: after that, no value need be compared.
  transform_checkpoints(files, "dst", "back", "CKP", "to.ckpt", "from.ckpt");
  const auto again = diff_checkpoints(files, "dst", "back");
  // All but texts, and values of which there is nothing.
  const auto num_empty = std::ranges::count_if(
      c.from.parameters, [](const auto& parameter) { return parameter.value.shape().num_elements() == 0; });
  EXPECT_EQ(again.num_by_hash, again.num_equal - 2 - num_empty);
  EXPECT_EQ(again.num_equal, equal.num_equal);
  EXPECT_EQ(diff_checkpoints(files, "dst", "back", "", "", /*read_all=*/true).num_equal, equal.num_equal);
  EXPECT_THAT(message_of([&] { diff_checkpoints(files, "src", "nothing", "from.ckpt"); }), HasSubstr("nothing"));
}

TEST(Diff, ComparesAllFilesOfRanksThatSavedTogether) {
  for (const bool has_split : {true, false}) {
    MemoryFileSystem files;
    const int64_t num_values = has_split ? 4 : 3;
    const auto together = save_together(files, "d/CKP-1_4.ckpt", 4, has_split);
    const auto whole = save_whole(files, "whole/x.ckpt", 4, has_split);
    for (const auto& path : {together, together + ".rank_2", std::string("d")}) {
      const auto diff = diff_checkpoints(files, path, whole);
      EXPECT_EQ(diff.num_equal, num_values) << diff_table(diff);
      EXPECT_TRUE(diff.differences.empty()) << diff_table(diff);
      EXPECT_THAT(diff.left.paths, ElementsAre(together, together + ".rank_1", together + ".rank_2"));
      EXPECT_EQ(diff_sides(diff), "comparing d/CKP-1_4.ckpt to d/CKP-1_4.ckpt.rank_2 (3 files) with whole/x.ckpt");
      EXPECT_THAT(diff_json(diff), HasSubstr("\"d/CKP-1_4.ckpt.rank_1\""));
    }
    // What differs lies in the files of ranks 1 and 2.
    save_whole(files, "whole/x.ckpt", 5, has_split);
    EXPECT_EQ(diff_checkpoints(files, together, whole).differences.size(), 3U);
  }
}

TEST(Diff, NamesADamagedFileThoughItsManifestHasTheSameHashes) {
  MemoryFileSystem files;
  const auto sound = save_whole(files, "s/x.ckpt", 4);
  const auto damaged = save_whole(files, "d/x.ckpt", 4);
  const auto another = save_whole(files, "o/x.ckpt", 5);
  overwrite(files, damaged, files.read_text(another));  // as large, and of the same names and types
  const auto problem = verify(files, damaged).problem;
  EXPECT_THAT(problem, testing::StartsWith("d/x.ckpt: crc32c is "));
  EXPECT_THAT(problem, HasSubstr("; the tensor \"a\" i32[4] at byte "));
  // Against a file of the same manifest, and against that whose bytes it has.
  for (const auto& other : {sound, another}) {
    EXPECT_EQ(message_of([&] { diff_checkpoints(files, other, damaged); }), problem);
    EXPECT_EQ(message_of([&] { diff_checkpoints(files, damaged, other); }), problem);
  }
  EXPECT_EQ(diff_checkpoints(files, sound, damaged, "", "", /*read_all=*/true).differences.size(), 3U);
  EXPECT_TRUE(diff_checkpoints(files, another, damaged, "", "", /*read_all=*/true).differences.empty());
}

TEST(Diff, NamesADamagedFileOfSeveralAndOfAFolderRankN) {
  MemoryFileSystem files;
  const auto whole = save_whole(files, "whole/x.ckpt", 4);
  const auto together = save_together(files, "d/CKP-1_4.ckpt", 4);
  write_strategy_file(files, "two.ckpt", {.layouts = {{.name = "w", .device_matrix = {2}, .tensor_map = {{0}, {}}}}});
  transform_checkpoints(files, "d", "dst", "net", "", "two.ckpt");
  const auto flip_last_bit = [&](const std::string& path) {
    auto bytes = files.read_text(path);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    overwrite(files, path, bytes);
  };
  EXPECT_TRUE(diff_checkpoints(files, "dst", whole).differences.empty());
  flip_last_bit("dst/rank_1/net1.ckpt");
  EXPECT_THAT(message_of([&] { diff_checkpoints(files, "dst", whole); }),
              testing::StartsWith("dst/rank_1/net1.ckpt: crc32c is "));
  flip_last_bit(together + ".rank_1");
  for (const auto& path : {together, together + ".rank_2", std::string("d")}) {
    EXPECT_THAT(message_of([&] { diff_checkpoints(files, path, whole); }),
                testing::StartsWith("d/CKP-1_4.ckpt.rank_1: crc32c is "));
  }
}

TEST(Diff, NeedsNoStrategyForRanksThatSavedTogether) {
  MemoryFileSystem files;
  write_strategy_file(files, "three.ckpt", {.layouts = {{.name = "w", .device_matrix = {3}, .tensor_map = {{0}, {}}}}});
  save_together(files, "d/CKP-1_4.ckpt", 4);
  const auto whole = save_whole(files, "whole/x.ckpt", 4);
  testing::internal::CaptureStderr();
  EXPECT_EQ(diff_table(diff_checkpoints(files, "d", whole, "three.ckpt")),
            "4 equal (4 by their hashes), 0 different\n");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("three.ckpt is not needed: d/CKP-1_4.ckpt.manifest"));
}

TEST(Diff, SaysThatOneRanksFileIsTakenAsItIs) {
  MemoryFileSystem files;
  save_together(files, "d/CKP-1_4.ckpt", 4);
  write_strategy_file(files, "two.ckpt", {.layouts = {{.name = "w", .device_matrix = {2}, .tensor_map = {{0}, {}}}}});
  transform_checkpoints(files, "d", "dst", "net", "", "two.ckpt");
  const auto diff = diff_checkpoints(files, "dst/rank_1/net1.ckpt", "dst");
  EXPECT_EQ(diff_sides(diff),
            "comparing dst/rank_1/net1.ckpt (one rank's part, as it is) with dst/rank_0/net0.ckpt to "
            "dst/rank_1/net1.ckpt (2 files)");
  EXPECT_EQ(diff.differences.size(), 1U);
  EXPECT_EQ(
      message_of([&] { diff_checkpoints(files, "dst/rank_1", "dst"); }),
      "dst/rank_1: is one rank's part of a checkpoint of 2 ranks; give the directory that holds all folders rank_N");
}

TEST(List, AndInspectGiveACheckpointOfSeveralFilesTheSameSizes) {
  MemoryFileSystem files;
  const auto path = save_together(files, "d/CKP-1_4.ckpt", 4);
  int64_t bytes = 0;
  for (const char* suffix : {"", ".rank_1", ".rank_2"}) bytes += files.size_bytes(path + suffix);
  const auto expect_sizes = [&] {
    for (const auto& given : {path, path + ".rank_1"}) {
      const auto list = list_checkpoints(files, given);
      ASSERT_EQ(list.size(), 1U);
      EXPECT_EQ(list[0].size_bytes, bytes);
      EXPECT_EQ(list[0].num_values, 4);
      EXPECT_EQ(list[0].num_elements, 12 + 4 + 4 + 1);
      EXPECT_THAT(
          inspect_table(files, given).text,
          testing::StartsWith(fmt::format("{}: {} in 3 files, 4 values, 21 elements\n", path, format_bytes(bytes))));
      EXPECT_THAT(inspect_json(files, given).text,
                  HasSubstr(fmt::format("\"size_bytes\": {},\n \"num_files\": 3", bytes)));
      EXPECT_EQ(verify_checkpoints(files, given)[0].path, path);
    }
  };
  expect_sizes();
  EXPECT_EQ(inspect_table(files, path).state, Verified::kYes);
  // A damaged one is shown file by file.
  auto damaged = files.read_text(path + ".rank_1");
  damaged[damaged.size() - 1] ^= 1;
  overwrite(files, path + ".rank_1", damaged);
  expect_sizes();
  EXPECT_THAT(inspect_table(files, path).text,
              testing::ContainsRegex("\nb  [^\n]*  DAMAGED  in CKP-1_4.ckpt.rank_1\n"));
  EXPECT_THAT(inspect_table(files, path).text, testing::Not(testing::ContainsRegex("\ncount [^\n]*DAMAGED")));
}

TEST(List, AndInspectGiveWhatCannotBeReadTheSameSizes) {
  MemoryFileSystem files;
  const auto path = save_together(files, "d/CKP-1_4.ckpt", 4);
  const auto expect_sizes = [&](const std::vector<std::string>& suffixes, const std::string& what) {
    int64_t bytes = 0;
    for (const auto& suffix : suffixes) bytes += files.size_bytes(path + suffix);
    const auto list = list_checkpoints(files, "d");
    EXPECT_EQ(list[0].size_bytes, bytes) << what;
    EXPECT_EQ(list[0].num_files, std::ssize(suffixes)) << what;
    EXPECT_NE(list[0].problem, "") << what;
    EXPECT_THAT(inspect_json(files, path).text,
                HasSubstr(fmt::format("\"size_bytes\": {},\n \"num_files\": {}", bytes, suffixes.size())))
        << what;
  };
  const auto first = files.read_text(path);
  overwrite(files, path, first.substr(0, 20));
  expect_sizes({"", ".rank_1", ".rank_2"}, "a truncated file");
  overwrite(files, path, first);
  files.rename(manifest_path(path), pending_manifest_path(path));
  files.remove(path + ".rank_1");
  expect_sizes({"", ".rank_2"}, "a missing file, and a manifest that a crash has kept from its name");
}

// That what looks at the checkpoint at `path` says this of it, and what needs its values refuses it with these words.
// It lies alone in its directory; `sound` is another one.
void expect_problem(FileSystem& files, const std::string& path, const std::string& sound, const std::string& problem) {
  EXPECT_EQ(list_checkpoints(files, parent_path(path))[0].problem, problem);
  EXPECT_EQ(verify_checkpoints(files, parent_path(path))[0].problem, problem);
  EXPECT_EQ(inspect_table(files, path).state, Verified::kNo);
  EXPECT_EQ(inspect_table(files, path).problem, problem);
  EXPECT_EQ(message_of([&] { diff_checkpoints(files, path, sound); }), problem);
  EXPECT_EQ(message_of([&] { load(files, path); }), problem);
}

// One of its files has grown by a terabyte.
class GrownFileSystem : public MemoryFileSystem {
 public:
  std::unique_ptr<ReadableFile> open(const std::string& path) override {
    EXPECT_NE(path, grown) << "it must not be mapped";
    return MemoryFileSystem::open(path);
  }
  int64_t size_bytes(const std::string& path) override {
    return MemoryFileSystem::size_bytes(path) + (path == grown ? int64_t{1} << 40 : 0);
  }
  std::string grown;
};

TEST(List, AndInspectAndDiffRefuseAFileThatHasGrownBeforeItIsMapped) {
  GrownFileSystem files;
  const auto path = save_together(files, "d/CKP-1_4.ckpt", 4);
  const auto whole = save_whole(files, "whole/x.ckpt", 4);
  for (const char* suffix : {"", ".rank_1"}) {
    const auto grown = path + suffix;
    const auto size = files.MemoryFileSystem::size_bytes(grown);
    files.grown = grown;
    const auto problem =
        fmt::format("{}: has {} bytes, {} were written: the file was changed", grown, size + (int64_t{1} << 40), size);
    expect_problem(files, path, whole, problem);
    files.grown = "";
    EXPECT_EQ(list_checkpoints(files, "d")[0].problem, "");
  }
}

TEST(List, AndDiffSayOfATruncatedFileWhatVerifySays) {
  MemoryFileSystem files;
  const auto path = save_together(files, "d/CKP-1_4.ckpt", 4);
  const auto whole = save_whole(files, "whole/x.ckpt", 4);
  for (const char* suffix : {"", ".rank_1"}) {
    const auto cut = path + suffix;
    const auto content = files.read_text(cut);
    overwrite(files, cut, content.substr(0, 20));
    const auto problem = verify(files, path).problem;
    EXPECT_THAT(problem, testing::StartsWith(cut + ": has 20 bytes, "));
    EXPECT_THAT(problem, HasSubstr("the file is truncated; \""));
    expect_problem(files, path, whole, problem);
    overwrite(files, cut, content);
  }
}

TEST(List, NamesPipesAndSocketsWithoutWaitingForThemAndShowsTheOthers) {
  auto& files = FileSystem::local();
  const auto directory = join_path(testing::TempDir(), fmt::format("tessera-list-pipes-{}", ::getpid()));
  const auto in = [&](const std::string& name) { return join_path(directory, name); };
  files.create_directories(directory);
  save_whole(files, in("good.ckpt"), 4);
  save_whole(files, in("manifest.ckpt"), 4);
  files.remove(in("manifest.ckpt.manifest"));
  ASSERT_EQ(::mkfifo(in("manifest.ckpt.manifest").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo(in("pipe.ckpt").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", in("zeros.ckpt"));
  const auto list = list_checkpoints(files, directory);
  ASSERT_EQ(list.size(), 4);
  EXPECT_EQ(list[0].problem, "");
  EXPECT_EQ(list[1].problem, in("manifest.ckpt.manifest") + ": cannot open: it is a pipe, not a regular file");
  EXPECT_EQ(list[2].problem, in("pipe.ckpt") + ": cannot open: it is a pipe, not a regular file");
  EXPECT_EQ(list[3].problem, in("zeros.ckpt") + ": cannot open: it is a device, not a regular file");
  const auto verified = verify_checkpoints(files, directory);
  ASSERT_EQ(verified.size(), 4);
  EXPECT_EQ(verified[0].state, Verified::kYes);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(verified[i].state, Verified::kNo);
    EXPECT_EQ(verified[i].problem, list[i].problem);
  }
  files.remove_directory_tree(directory);
}

TEST(List, AndVerifyNameADirectoryThatHasTheNameOfACheckpointsFile) {
  auto& files = FileSystem::local();
  const auto directory = join_path(testing::TempDir(), fmt::format("tessera-list-directories-{}", ::getpid()));
  const auto in = [&](const std::string& name) { return join_path(directory, name); };
  files.create_directories(in("somebodys.ckpt"));  // no manifest says that it should be a file
  save_whole(files, in("good.ckpt"), 4);
  const auto path = save_whole(files, in("large.ckpt"), 4);
  const auto size = files.size_bytes(path);
  files.remove(path);
  files.create_directories(path);
  const auto problem = fmt::format("{}: is a directory; a file of {} bytes was written", path, size);
  const auto list = list_checkpoints(files, directory);
  ASSERT_EQ(list.size(), 2);
  EXPECT_EQ(list[0].problem, "");
  EXPECT_EQ(list[1].path, path);
  EXPECT_EQ(list[1].problem, problem);
  EXPECT_EQ(list[1].size_bytes, 0);
  for (const auto& given : {directory, path}) {
    const auto verified = verify_checkpoints(files, given);
    ASSERT_EQ(verified.size(), given == path ? 1 : 2);
    EXPECT_EQ(verified.back().state, Verified::kNo);
    EXPECT_EQ(verified.back().problem, problem);
    EXPECT_FALSE(verified.back().is_unreadable);
  }
  EXPECT_TRUE(verify_checkpoints(files, in("somebodys.ckpt")).empty());
  // That of another rank is damaged, too.
  const auto slice = save_together(files, in("together/x.ckpt"), 4) + ".rank_1";
  files.remove(slice);
  files.create_directories(slice);
  EXPECT_THAT(verify_checkpoints(files, in("together"))[0].problem, testing::StartsWith(slice + ": is a directory; "));
  files.remove_directory_tree(directory);
}

TEST(List, AndAllReadersRefuseAManifestThatIsALinkToNothing) {
  auto& files = FileSystem::local();
  const auto directory = join_path(testing::TempDir(), fmt::format("tessera-list-links-{}", ::getpid()));
  const auto path = save_whole(files, join_path(directory, "CKP-1_4.ckpt"), 4);
  const auto whole = save_whole(files, join_path(directory, "whole/x.ckpt"), 4);
  files.remove(manifest_path(path));
  for (const auto& manifest : {manifest_path(path), pending_manifest_path(path)}) {
    for (const auto& target : {std::string("/no/such/file"), base_name(manifest)}) {  // the second leads to itself
      std::filesystem::create_symlink(target, manifest);
      const auto problem = verify(files, path).problem;
      EXPECT_THAT(problem, testing::StartsWith(manifest + ": is a link that leads to nothing; a manifest is a file "));
      EXPECT_EQ(verify(files, path).state, Verified::kNo);
      expect_problem(files, path, whole, problem);
      files.remove(manifest);
    }
  }
  EXPECT_EQ(verify(files, path).state, Verified::kNoManifest);
  // A save leaves none behind.
  std::filesystem::create_symlink("/no/such/file", pending_manifest_path(path));
  save_whole(files, path, 5);
  EXPECT_EQ(verify(files, path).state, Verified::kYes);
  EXPECT_EQ(files.kind_of(pending_manifest_path(path)), PathKind::kNothing);
  files.remove_directory_tree(directory);
}

TEST(List, ShowsStepsPartsAndWhatIsBroken) {
  MemoryFileSystem files;
  std::mt19937 random(5);
  const auto c = make_case(mesh::StageRanks::equal(1, 2), mesh::StageRanks::equal(1, 3), random);
  write_strategy_file(files, "dst/from.ckpt", c.from.strategy);
  save_side(files, c.from, "src", "CKP");
  files.create_directories("dst");
  overwrite(files, "dst/broken.ckpt", "nothing");
  for (int rank = 0; rank < 2; ++rank) {
    files.create_directories(fmt::format("dst/rank_{}", rank));
    overwrite(files, fmt::format("dst/rank_{}/a.ckpt", rank),
              files.read_text(fmt::format("src/rank_{0}/CKP{0}.ckpt", rank)));
  }
  const auto list = list_checkpoints(files, "dst");
  ASSERT_EQ(list.size(), 4);
  EXPECT_EQ(list[0].path, "dst/broken.ckpt");
  EXPECT_FALSE(list[0].problem.empty());
  EXPECT_TRUE(list[1].is_strategy);
  EXPECT_FALSE(list[2].info.has_value());
  EXPECT_THAT(list_table(list), HasSubstr("no manifest"));
  const auto saved = list_checkpoints(files, "src/rank_0");
  ASSERT_EQ(saved.size(), 1);
  EXPECT_EQ(saved[0].info->step, 21);
  EXPECT_THAT(list_json(saved), HasSubstr("\"step_in_epoch\": 7"));
  EXPECT_THAT(message_of([&] { list_checkpoints(files, "nowhere"); }), HasSubstr("no such file"));

  const auto verified = verify_checkpoints(files, "dst");
  ASSERT_EQ(verified.size(), 3);  // the strategy file is none
  EXPECT_EQ(verified[0].state, Verified::kNo);
  EXPECT_THAT(verify_table(verified), HasSubstr("0 verified, 2 without a manifest, 1 damaged"));
  EXPECT_THAT(verify_table(verify_checkpoints(files, "src/rank_1")), HasSubstr("1 verified, 0 without"));
}

}  // namespace
}  // namespace tessera::checkpoint
