// `tessera ckpt`, run as its users run it, on checkpoints of two ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/strings.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/testing/checkpoints/saved_together.h"

namespace tessera::checkpoint {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

struct Outcome {
  int exit_code;
  std::string text;  // of standard output and standard error
};

struct CkptCommand : testing::Test {
  FileSystem& files = FileSystem::local();
  const std::string folder = join_path(TESSERA_BINARY_DIR, "ckpt_test");

  void SetUp() override {
    files.remove_directory_tree(folder);
    for (int rank = 0; rank < 2; ++rank) {
      save(files, {.path = fmt::format("{}/src/rank_{}/CKP-1_4", folder, rank)},
           std::vector{Entry("w", Tensor::full({DType::kF32, {4, 2}}, rank)),
                       Entry("learning_rate", Tensor::scalar(0.1F))},
           {.epoch = 1, .step_in_epoch = 4, .step = 4, .world_size = 2});
    }
    for (const int64_t num_ranks : {2, 3}) {
      write_strategy_file(files, fmt::format("{}/{}.ckpt", folder, num_ranks),
                          {.strategies = {{.node = "MatMul_w", .inputs = {{1, 1}, {1, 1}}}},
                           .layouts = {{.name = "w", .device_matrix = {num_ranks}, .tensor_map = {{0}, {}}}}});
    }
  }
  // Runs in the folder, after what a shell does before.
  Outcome run(const std::string& arguments, const std::string& before = "") const {
    const auto command =
        fmt::format("cd {} && {} {}/bin/tessera ckpt {} 2>&1", folder, before, TESSERA_BINARY_DIR, arguments);
    FILE* pipe = popen(command.c_str(), "r");
    check(pipe != nullptr, "cannot start a process");
    Outcome outcome;
    std::array<char, 4096> part{};
    for (size_t n = 0; (n = fread(part.data(), 1, part.size(), pipe)) > 0;) outcome.text.append(part.data(), n);
    outcome.exit_code = WEXITSTATUS(pclose(pipe));
    return outcome;
  }
  std::string output(const std::string& arguments) const {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    return outcome.text;
  }
};

TEST_F(CkptCommand, ConvertsAndProvesIt) {
  EXPECT_EQ(output("transform src dst --prefix net --src_strategy 2.ckpt --dst_strategy 3.ckpt"),
            "read src/rank_0/CKP-1_4.ckpt to src/rank_1/CKP-1_4.ckpt (2 files)\ndst: 3 checkpoints, 76 B written\n");
  const std::string compared =
      "comparing src/rank_0/CKP-1_4.ckpt to src/rank_1/CKP-1_4.ckpt (2 files) with dst/rank_0/net0.ckpt to "
      "dst/rank_2/net2.ckpt (3 files)\n";
  EXPECT_EQ(output("diff src dst --left_strategy 2.ckpt"), compared + "2 equal (1 by their hashes), 0 different\n");
  EXPECT_EQ(output("diff src dst --left_strategy 2.ckpt --bytes"), compared + "2 equal, 0 different\n");
  EXPECT_THAT(output("verify dst"), HasSubstr("3 verified, 0 without a manifest, 0 damaged"));
  const auto list = Json::parse(output("ls dst --json"))["files"];
  ASSERT_EQ(list.size(), 3);
  EXPECT_EQ(list[2]["file"], "dst/rank_2/net2.ckpt");
  EXPECT_EQ(list[2]["holds_parts"], true);
  EXPECT_EQ(list[2]["step"], 4);
  const auto report = Json::parse(output("transform dst whole --json"));
  EXPECT_EQ(report["files"][0], "whole/rank_0/0.ckpt");
  EXPECT_EQ(report["sources"].size(), 3);
  EXPECT_EQ(report["sources"][2], "dst/rank_2/net2.ckpt");
  EXPECT_EQ(load(files, folder + "/whole/rank_0/0.ckpt").find("w")->shape, (Shape{8, 2}));
}

TEST_F(CkptCommand, GoesOutToSafetensorsAndBack) {
  const auto size = [&](const char* name) { return format_bytes(files.size_bytes(join_path(folder, name))); };
  // The sizes are those of the files that the commands have written.
  const auto exported = output("export src net.safetensors --strategy 2.ckpt");
  EXPECT_EQ(exported, fmt::format("read src/rank_0/CKP-1_4.ckpt to src/rank_1/CKP-1_4.ckpt (2 files)\n"
                                  "net.safetensors: 2 tensors, {} written\n",
                                  size("net.safetensors")));
  EXPECT_EQ(output("export src quiet.safetensors --strategy 2.ckpt --quiet"), "");
  const auto imported = output("import net.safetensors net.ckpt");
  EXPECT_EQ(imported, fmt::format("net.ckpt: 2 tensors, {} written\n", size("net.ckpt")));
  EXPECT_EQ(output("import net.safetensors net.ckpt --quiet"), "");
  const auto json = Json::parse(output("export net.ckpt again.safetensors --json"));
  EXPECT_EQ(json.at("file"), "again.safetensors");
  EXPECT_EQ(json.at("sources"), Json({"net.ckpt"}));
  EXPECT_EQ(json.at("num_tensors"), 2);
  EXPECT_EQ(json.at("size_bytes"), files.size_bytes(join_path(folder, "again.safetensors")));
  EXPECT_EQ(output("diff net.ckpt net.safetensors"), "comparing net.ckpt with net.safetensors\n2 equal, 0 different\n");
}

TEST_F(CkptCommand, TakesAllFilesOfRanksThatSavedTogether) {
  const auto path = save_together(files, folder + "/d/CKP-1_4.ckpt", 4, /*has_split=*/false);
  save_whole(files, folder + "/whole.ckpt", 4, /*has_split=*/false);
  const std::string equal = " with whole.ckpt\n3 equal (3 by their hashes), 0 different\n";
  const std::string together = "comparing d/CKP-1_4.ckpt to d/CKP-1_4.ckpt.rank_2 (3 files)";
  EXPECT_EQ(output("diff d whole.ckpt"), together + equal);
  EXPECT_EQ(output("diff d/CKP-1_4.ckpt whole.ckpt"), together + equal);
  const auto json = Json::parse(output("diff d/CKP-1_4.ckpt.rank_1 whole.ckpt --json"));
  EXPECT_EQ(json["left"], Json({"d/CKP-1_4.ckpt", "d/CKP-1_4.ckpt.rank_1", "d/CKP-1_4.ckpt.rank_2"}));
  EXPECT_EQ(json["right"], Json({"whole.ckpt"}));
  EXPECT_EQ(json["num_equal"], 3);
  EXPECT_THAT(output("export d/CKP-1_4.ckpt net.safetensors"), HasSubstr("net.safetensors: 3 tensors"));
  EXPECT_THAT(output("diff net.safetensors whole.ckpt"), HasSubstr("\n3 equal, 0 different\n"));
  EXPECT_THAT(output("transform d/CKP-1_4.ckpt dst"), HasSubstr("dst: 1 checkpoint,"));
  EXPECT_THAT(output("diff dst whole.ckpt"), HasSubstr("3 equal (3 by their hashes), 0 different"));
  int64_t bytes = 0;
  for (const char* suffix : {"", ".rank_1", ".rank_2"}) bytes += files.size_bytes(path + suffix);
  EXPECT_EQ(Json::parse(output("ls d --json"))["files"][0]["size_bytes"], bytes);
  EXPECT_EQ(Json::parse(output("inspect d/CKP-1_4.ckpt --json"))["size_bytes"], bytes);
}

TEST_F(CkptCommand, MergesStrategies) {
  write_strategy_file(files, folder + "/stages/0.ckpt", read_strategy_file(files, folder + "/2.ckpt"));
  EXPECT_EQ(output("merge-strategies stages merged.ckpt"), "merged.ckpt: 1 parameter\n");
  const auto merged = read_strategy_file(files, folder + "/merged.ckpt");
  EXPECT_EQ(merged.layouts[0].name, "0-w");
}

TEST_F(CkptCommand, FailsWithTheReason) {
  const auto missing = run("transform src dst --src_strategy 3.ckpt");
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_EQ(missing.text,
            "error: the checkpoint of rank 2 is needed for rank 0's, but it is missing: none in src/rank_2\n");
  EXPECT_FALSE(files.exists(folder + "/dst"));
  const auto differs = run("diff src/rank_0/CKP-1_4.ckpt src/rank_1/CKP-1_4.ckpt");
  EXPECT_EQ(differs.exit_code, 1);
  EXPECT_EQ(differs.text,
            "comparing src/rank_0/CKP-1_4.ckpt with src/rank_1/CKP-1_4.ckpt\n"
            "~ w f32[4,2]: 8 of 8 elements differ, by at most 1.0\n1 equal (1 by their hashes), 1 different\n");
  const auto path = folder + "/src/rank_1/CKP-1_4.ckpt";
  auto bytes = files.read_text(path);
  bytes[40] = static_cast<char>(bytes[40] ^ 1);
  files.create(path)->append(bytes);
  const auto damaged = run("verify src");
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.text, HasSubstr("DAMAGED"));
  EXPECT_THAT(damaged.text, HasSubstr("1 verified, 0 without a manifest, 1 damaged"));
  EXPECT_EQ(run("transform").exit_code, 2);
}

TEST_F(CkptCommand, DiffCallsNoDamagedCheckpointEqual) {
  for (const int64_t step : {1, 2}) {
    save(files, {.path = fmt::format("{}/s/CKP-1_{}", folder, step)},
         std::vector{Entry("w", Tensor::full({DType::kF32, {4}}, static_cast<double>(step)))},
         {.epoch = 1, .step_in_epoch = step, .step = step});
  }
  const auto outcome = run("diff s d", "cp -r s d && cp -f s/CKP-1_1.ckpt d/CKP-1_2.ckpt &&");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.text, StartsWith("error: d/CKP-1_2.ckpt: crc32c is "));
  EXPECT_THAT(outcome.text, HasSubstr("; the tensor \"w\" f32[4] at byte "));
  EXPECT_THAT(outcome.text, Not(HasSubstr("equal")));
  const auto compared = run("diff s d --bytes");
  EXPECT_EQ(compared.exit_code, 1);
  EXPECT_THAT(compared.text, HasSubstr("~ w f32[4]: 4 of 4 elements differ, by at most 1.0\n0 equal, 1 different\n"));
}

TEST_F(CkptCommand, ADirectoryInPlaceOfAFileIsNamed) {
  save_whole(files, folder + "/d/CKP-1_4.ckpt", 4);
  const auto verified = run("verify d", "rm d/CKP-1_4.ckpt && mkdir d/CKP-1_4.ckpt &&");
  EXPECT_EQ(verified.exit_code, 1);
  EXPECT_THAT(verified.text, StartsWith("DAMAGED      d/CKP-1_4.ckpt: is a directory; a file of "));
  EXPECT_THAT(verified.text, HasSubstr("0 verified, 0 without a manifest, 1 damaged\n"));
  EXPECT_EQ(run("verify d/CKP-1_4.ckpt").text, verified.text);
  EXPECT_THAT(output("ls d"), HasSubstr("BROKEN: d/CKP-1_4.ckpt: is a directory; a file of "));
}

TEST_F(CkptCommand, AnEmptyPathIsNamedByItsArgument) {
  const std::map<std::string, std::string> cases = {{"ls ''", "path"},
                                                    {"inspect ''", "file"},
                                                    {"verify ''", "path"},
                                                    {"newest ''", "directory"},
                                                    {"diff '' d", "left"},
                                                    {"diff d ''", "right"},
                                                    {"transform '' d", "source"},
                                                    {"transform d ''", "destination"},
                                                    {"merge-strategies '' f", "directory"},
                                                    {"merge-strategies d ''", "file"},
                                                    {"export '' f.safetensors", "checkpoint"}};
  for (const auto& [arguments, argument] : cases) {
    const auto outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments;
    EXPECT_THAT(outcome.text, StartsWith(fmt::format("error: {}: must be a path, got \"\"\n", argument))) << arguments;
  }
}

// Somebody who cuts a file short and writes it again, for as long as this lives.
class Cutter {
 public:
  explicit Cutter(const std::string& path) : path_(path), content_(FileSystem::local().read_text(path)) {}
  ~Cutter() {
    has_ended_ = true;
    thread_.join();
    write(content_.size());
  }
  int64_t num_cuts() const { return num_cuts_; }

 private:
  void write(size_t size) {
    std::ofstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
    file.write(content_.data(), static_cast<std::streamsize>(size));
  }
  void cut() {
    for (size_t i = 0; !has_ended_; ++i, ++num_cuts_) {
      std::filesystem::resize_file(path_, content_.size() * (i % 7) / 7);
      write(content_.size());
    }
  }

  std::string path_;
  std::string content_;
  std::atomic<bool> has_ended_ = false;
  std::atomic<int64_t> num_cuts_ = 0;
  std::thread thread_{[this] { cut(); }};
};

TEST_F(CkptCommand, F34_AFileThatIsCutShortWhileItIsReadEndsNoCommandByASignal) {
  save(files, {.path = folder + "/big"}, std::vector{Entry("w", Tensor::full({DType::kF32, {1024, 1024}}, 1))},
       {.step = 1});
  save(files, {.path = folder + "/whole"}, std::vector{Entry("w", Tensor::full({DType::kF32, {1024, 1024}}, 1))},
       {.step = 1});
  std::filesystem::permissions(folder + "/big.ckpt", std::filesystem::perms::owner_write,
                               std::filesystem::perm_options::add);
  std::map<int, int> codes;
  {
    const Cutter cutter(folder + "/big.ckpt");
    // Longer where the disk is slow.
    const auto is_enough = [&](int trial) { return trial >= 20 && cutter.num_cuts() > 100 && codes[1] > 0; };
    for (int trial = 0; trial < 1000 && !is_enough(trial); ++trial) {
      for (const char* command :
           {"inspect big.ckpt", "inspect big.ckpt --json", "verify big.ckpt", "diff big.ckpt whole.ckpt",
            "diff big.ckpt whole.ckpt --bytes", "export big.ckpt out.safetensors", "transform big.ckpt dst", "ls ."}) {
        const auto outcome = run(command);
        ++codes[outcome.exit_code];
        EXPECT_THAT(outcome.exit_code, AnyOf(0, 1)) << command << "\n" << outcome.text;
        files.remove_directory_tree(folder + "/dst");
      }
    }
    EXPECT_GT(cutter.num_cuts(), 100);
  }
  EXPECT_GT(codes[1], 0) << "some have met it cut short";
  EXPECT_THAT(output("verify big.ckpt"), HasSubstr("1 verified"));
}

// A file that fits nowhere is not damaged.
TEST_F(CkptCommand, F35_WhereThereIsNoRoomForAFileThatIsSaid) {
  save(files, {.path = folder + "/d/big-1_1"}, std::vector{Entry("w", Tensor::full({DType::kF32, {16 << 20}}, 1))},
       {.step = 1});
  std::map<int, int> codes;
  for (const char* command : {"newest d", "verify d", "ls d", "inspect d/big-1_1.ckpt"}) {
    for (int kib = 100'000; kib <= 2'000'000; kib = kib * 3 / 2) {
      const auto outcome = run(command, fmt::format("ulimit -v {}; ", kib));
      ++codes[outcome.exit_code];
      if (outcome.exit_code == 0) continue;
      EXPECT_EQ(outcome.exit_code, 1) << command << ", " << kib << " KiB\n" << outcome.text;
      EXPECT_THAT(outcome.text, AllOf(StartsWith("error: "), HasSubstr("of address space (ulimit -v)"))) << command;
      EXPECT_THAT(outcome.text, Not(ContainsRegex("DAMAGED|BROKEN|skipped|no checkpoint|bad_alloc"))) << command;
    }
  }
  EXPECT_GT(codes[0], 4);
  EXPECT_GT(codes[1], 4);
}

TEST_F(CkptCommand, VerifySaysWhatItFoundInPlaceOfACheckpoint) {
  files.create_directories(folder + "/empty");
  const auto empty = run("verify empty");
  EXPECT_EQ(empty.exit_code, 3);
  EXPECT_THAT(empty.text, HasSubstr("error: empty: is a directory without checkpoints: neither *.ckpt nor"));
  const auto strategy = run("verify 2.ckpt");
  EXPECT_EQ(strategy.exit_code, 3);
  EXPECT_THAT(strategy.text, HasSubstr("error: 2.ckpt: is a strategy file; name a checkpoint's .ckpt file"));
  const auto manifest = run("verify src/rank_0/CKP-1_4.ckpt.manifest");
  EXPECT_EQ(manifest.exit_code, 1);
  EXPECT_THAT(manifest.text,
              HasSubstr("is a manifest; name the checkpoint that it describes, src/rank_0/CKP-1_4.ckpt\n"));
}

TEST_F(CkptCommand, VerifyTellsUnreadableFromDamaged) {
  files.create(folder + "/src/rank_0/CKP-1_4.ckpt")->append("nothing");
  const auto path = folder + "/src/rank_1/CKP-1_4.ckpt";
  files.remove(path);
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);  // which root cannot read as a file either
  const auto outcome = run("verify src");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.text, HasSubstr("DAMAGED      src/rank_0/CKP-1_4.ckpt: has 7 bytes"));
  EXPECT_THAT(outcome.text, HasSubstr("UNREADABLE   src/rank_1/CKP-1_4.ckpt: cannot open: it is a pipe"));
  EXPECT_THAT(outcome.text, HasSubstr("0 verified, 0 without a manifest, 1 damaged, 1 unreadable\n"));
  EXPECT_THAT(run("verify src --json").text, HasSubstr("\"state\": \"unreadable\""));
}

TEST_F(CkptCommand, F35_NewestPrefersAnOlderOneThatIsVerified) {
  for (const int64_t step : {1, 2}) {
    save(files, {.path = fmt::format("{}/d/CKP-1_{}", folder, step)},
         std::vector{Entry("w", Tensor::full({DType::kF32, {4}}, static_cast<double>(step)))},
         {.epoch = 1, .step_in_epoch = step, .step = step});
  }
  files.remove(folder + "/d/CKP-1_2.ckpt.manifest");
  EXPECT_THAT(output("newest d"), AllOf(HasSubstr("skipped d/CKP-1_2.ckpt: is newer, but has no manifest"),
                                        HasSubstr("\nd/CKP-1_1.ckpt\n")));
}

TEST_F(CkptCommand, F37_NewestTellsNoneFromAllDamaged) {
  EXPECT_EQ(output("newest src/rank_0"), "src/rank_0/CKP-1_4.ckpt\n");
  const auto none = run("newest src/rank_0 --prefix other");
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_EQ(none.text, "src/rank_0: no checkpoint\n");
  files.create(folder + "/src/rank_0/CKP-1_4.ckpt")->append("nothing");
  const auto damaged = run("newest src/rank_0");
  EXPECT_EQ(damaged.exit_code, 4);
  EXPECT_THAT(damaged.text, HasSubstr("skipped src/rank_0/CKP-1_4.ckpt: has 7 bytes"));
  EXPECT_THAT(damaged.text, HasSubstr("src/rank_0: no checkpoint that can be used"));
}

TEST_F(CkptCommand, F36_ACheckpointThatHasLostItsFileIsSaid) {
  for (const int step : {3, 4}) {
    save_together(files, fmt::format("{}/d/CKP-1_{}.ckpt", folder, step), step, /*has_split=*/false);
  }
  files.remove(folder + "/d/CKP-1_4.ckpt");
  const std::string reason = "d/CKP-1_4.ckpt: is missing; d/CKP-1_4.ckpt.manifest describes it\n";
  EXPECT_EQ(output("newest d"), "skipped " + reason + "d/CKP-1_3.ckpt\n");
  const auto verified = run("verify d");
  EXPECT_EQ(verified.exit_code, 1);
  EXPECT_THAT(verified.text, HasSubstr("DAMAGED      " + reason));
  EXPECT_THAT(verified.text, HasSubstr("1 verified, 0 without a manifest, 1 damaged\n"));
  EXPECT_THAT(output("ls d"), HasSubstr("BROKEN: " + reason));
  files.remove(folder + "/d/CKP-1_3.ckpt");
  EXPECT_EQ(run("newest d").exit_code, 4) << "there are some, and none can be used";
}

TEST_F(CkptCommand, NewestOfFoldersOfRanksIsTheOneThatTheyHoldTogether) {
  output("transform src dst --src_strategy 2.ckpt --dst_strategy 3.ckpt --prefix net");
  EXPECT_EQ(output("newest src"), "src/rank_0/CKP-1_4.ckpt\n");
  EXPECT_EQ(output("newest dst"), "dst/rank_0/net0.ckpt\n");
  files.remove(folder + "/dst/rank_1/net1.ckpt");
  const auto partial = run("newest dst");
  EXPECT_EQ(partial.exit_code, 4);
  EXPECT_THAT(partial.text, HasSubstr("skipped dst/rank_1/net1.ckpt: is missing"));
}

// Exit code 3 would let a script begin a new training.
TEST_F(CkptCommand, NewestWithoutRankZeroSaysWhatIsMissing) {
  output("transform src dst --src_strategy 2.ckpt --dst_strategy 3.ckpt --prefix net");
  files.remove(folder + "/dst/rank_0/net0.ckpt");
  for (const char* what : {"an empty folder rank_0", "no folder rank_0"}) {
    const auto partial = run("newest dst");
    EXPECT_EQ(partial.exit_code, 4) << what;
    EXPECT_THAT(partial.text, HasSubstr("skipped dst/rank_0/net0.ckpt: is missing; dst/rank_1/net1.ckpt is only"))
        << what;
    files.remove_directory_tree(folder + "/dst/rank_0");
  }
  // What holds all of the values needs no other rank.
  files.remove_directory_tree(folder + "/src/rank_0");
  EXPECT_EQ(output("newest src"), "src/rank_1/CKP-1_4.ckpt\n");
}

TEST_F(CkptCommand, NewestOfAMisspeltDirectoryIsAnError) {
  const auto misspelt = run("newest scr");
  EXPECT_EQ(misspelt.exit_code, 1);
  EXPECT_THAT(misspelt.text, HasSubstr("error: scr: is no directory"));
  files.create_directories(folder + "/empty");
  EXPECT_EQ(run("newest empty").exit_code, 3);
}

}  // namespace
}  // namespace tessera::checkpoint
