#include "tessera/checkpoint/convert/transform.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "tessera/checkpoint/convert/merge_strategies.h"
#include "tessera/checkpoint/convert/safetensors.h"
#include "tessera/checkpoint/convert/sources.h"
#include "tessera/checkpoint/convert/tilings.h"
#include "tessera/checkpoint/format/ckpt_writer.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/checkpoint/strategy/placement.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/checkpoint/write/save_slices.h"
#include "tessera/testing/checkpoints/open_newest.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"
#include "tessera/testing/checkpoints/saved_together.h"

namespace tessera::checkpoint {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using testing::StartsWith;

Tensor rows(int64_t first, int64_t last, int64_t columns = 2) {
  Tensor tensor(DType::kF32, {last - first, columns});
  for (int64_t i = 0; i < tensor.num_elements(); ++i) {
    tensor.values<float>()[static_cast<size_t>(i)] = static_cast<float>(first * columns + i);
  }
  return tensor;
}

ParameterLayout split_rows(const std::string& name, int64_t num_ranks) {
  return {.name = name, .device_matrix = {num_ranks}, .tensor_map = {{0}, {}}};
}

// "w" f32[8,2] in rows over two ranks, beside a learning rate.
struct TwoRanks : testing::Test {
  MemoryFileSystem files;

  void SetUp() override {
    for (int rank = 0; rank < 2; ++rank) save_rank(rank, 4 * rank, 4 * rank + 4);
    write_strategy_file(files, "two.ckpt", {.layouts = {split_rows("w", 2)}});
    write_strategy_file(files, "four.ckpt", {.layouts = {split_rows("w", 4)}});
  }
  void save_rank(int rank, int64_t first, int64_t last, const std::string& name = "CKP-1_4", int64_t step = 4) {
    save(files, {.path = fmt::format("src/rank_{}/{}", rank, name)},
         std::vector{Entry("w", rows(first, last)), Entry("learning_rate", Tensor::scalar(0.1F))},
         {.epoch = 1, .step_in_epoch = step, .step = step});
  }
  TransformReport transform(const std::string& from = "two.ckpt", const std::string& to = "four.ckpt") {
    return transform_checkpoints(files, "src", "dst", "out", from, to);
  }
  std::string refusal(const std::string& from = "two.ckpt", const std::string& to = "four.ckpt") {
    const auto message = message_of([&] { transform(from, to); });
    EXPECT_FALSE(files.exists("dst"));
    EXPECT_FALSE(files.exists("dst.partial"));
    return message;
  }
};

TEST_F(TwoRanks, BecomeFour) {
  const auto report = transform();
  EXPECT_THAT(report.files, ElementsAre("dst/rank_0/out0.ckpt", "dst/rank_1/out1.ckpt", "dst/rank_2/out2.ckpt",
                                        "dst/rank_3/out3.ckpt"));
  EXPECT_EQ(report.num_bytes, 4 * (4 * 4 + 4));
  for (int rank = 0; rank < 4; ++rank) {
    const auto checkpoint = load(files, report.files[static_cast<size_t>(rank)]);
    EXPECT_TRUE(bit_equal(checkpoint.find("w")->read(), rows(2 * rank, 2 * rank + 2)));
    EXPECT_EQ(checkpoint.find("learning_rate")->read().item(), 0.1F);
    const auto& described = checkpoint.manifest()->tensors[0];
    EXPECT_EQ(described.shape, (Shape{8, 2}));
    EXPECT_EQ(described.slices[0].offset, (Shape{2 * rank, 0}));
    EXPECT_EQ(checkpoint.manifest()->info.world_size, 4);
    EXPECT_EQ(checkpoint.manifest()->info.step, 4);
  }
}

TEST_F(TwoRanks, AreReadFromTheNewestStepThatBothHave) {
  save_rank(0, 100, 104, "CKP-1_10", 10);
  save_rank(1, 104, 108, "CKP-1_10", 10);
  save_rank(0, 200, 204, "CKP-1_9", 9);
  save_rank(1, 200, 204, "CKP-1_11", 11);
  const auto sources = open_sources(files, "src");
  EXPECT_EQ(sources.at(0).path(), "src/rank_0/CKP-1_10.ckpt");
  EXPECT_EQ(sources.at(1).path(), "src/rank_1/CKP-1_10.ckpt");
  // One that is damaged is passed over, and stays where it is.
  overwrite(files, "src/rank_1/CKP-1_10.ckpt", "nothing");
  EXPECT_EQ(open_sources(files, "src").at(0).path(), "src/rank_0/CKP-1_4.ckpt");
  EXPECT_TRUE(files.exists("src/rank_1/CKP-1_10.ckpt"));
}

TEST_F(TwoRanks, AnyBitFlipIsNoticedBeforeTheDestinationAppears) {
  const std::string path = "src/rank_1/CKP-1_4.ckpt";
  const auto good = files.read_text(path);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    overwrite(files, path, bad);
    ASSERT_THAT(refusal(), AllOf(HasSubstr(path), testing::Not("no error"))) << "bit " << bit;
  }
  for (size_t size = 0; size < good.size(); ++size) {
    overwrite(files, path, good.substr(0, size));
    ASSERT_THAT(refusal(), HasSubstr(path)) << size << " bytes";
  }
}

TEST_F(TwoRanks, DamageIsNamed) {
  auto bytes = files.read_text("src/rank_1/CKP-1_4.ckpt");
  bytes[40] = static_cast<char>(bytes[40] ^ 1);
  overwrite(files, "src/rank_1/CKP-1_4.ckpt", bytes);
  EXPECT_THAT(refusal(), StartsWith("src/rank_1/CKP-1_4.ckpt: the tensor \"w\" f32[4,2] at byte 2"));
}

TEST_F(TwoRanks, AMissingRankIsNamed) {
  files.remove("src/rank_1/CKP-1_4.ckpt");
  EXPECT_EQ(refusal(), "src/rank_1/CKP-1_4.ckpt: is missing; src/rank_1/CKP-1_4.ckpt.manifest describes it");
  files.remove("src/rank_1/CKP-1_4.ckpt.manifest");
  EXPECT_EQ(refusal(), "the checkpoint of rank 1 is needed for rank 1's, but it is missing: none in src/rank_1");
  EXPECT_THAT(message_of([&] { transform_checkpoints(files, "none", "dst", ""); }), "none: no such file or directory");
}

TEST_F(TwoRanks, F48_AnotherStrategyIsRefused) {
  EXPECT_EQ(refusal("four.ckpt", "two.ckpt"),
            "the checkpoint of rank 2 is needed for rank 1's, but it is missing: none in src/rank_2");
  write_strategy_file(files, "one.ckpt", {.layouts = {split_rows("w", 1)}});
  EXPECT_EQ(refusal("one.ckpt", "two.ckpt"), "src/rank_1/CKP-1_4.ckpt: is of rank 1, but one.ckpt is of ranks 0 to 0");
  auto layout = split_rows("w", 2);
  layout.tensor_shape = {9, 2};
  write_strategy_file(files, "nine.json", {.layouts = {layout}});
  EXPECT_EQ(
      refusal("nine.json"),
      "src/rank_0/CKP-1_4.ckpt: \"w\" is f32[4,2]; by nine.json rank 0 holds [0:5,0:2] of f32[9,2]; give the strategy "
      "file of the run that saved it");
  EXPECT_EQ(refusal("two.ckpt", "nine.json"), "nine.json: \"w\" has shape [9,2] there, [8,2] in the checkpoint");
  layout = split_rows("w", 2);
  layout.tensor_map.pop_back();
  write_strategy_file(files, "one_dim.ckpt", {.layouts = {layout}});
  EXPECT_EQ(refusal("one_dim.ckpt"), "one_dim.ckpt: the layout of \"w\" has 1 dims, the tensor has 2");
  layout = split_rows("w", 2);
  layout.param_split_shape = {3, 5};
  layout.indices_offset = {0, 3};
  write_strategy_file(files, "hand.ckpt", {.layouts = {layout}});
  EXPECT_THAT(refusal("hand.ckpt"), HasSubstr("is split by hand"));
}

TEST_F(TwoRanks, F52_ReplicasThatDifferAreRefused) {
  ParameterLayout whole{.name = "w", .device_matrix = {2}, .tensor_map = {{}, {}}};
  write_strategy_file(files, "whole.ckpt", {.layouts = {whole}});
  EXPECT_THAT(refusal("whole.ckpt"), HasSubstr("ranks 0 and 1 hold the same part of \"w\", but not the same values"));
  transform_checkpoints(files, "src", "dst", "out", "whole.ckpt", "", {.check_replicas = false});
  EXPECT_TRUE(bit_equal(load(files, "dst/rank_0/out0.ckpt").find("w")->read(), rows(0, 4)));
}

TEST_F(TwoRanks, F51_SourceAndOtherFilesStayAsTheyAre) {
  EXPECT_THAT(message_of([&] { transform_checkpoints(files, "src", "./src/", "", "two.ckpt", ""); }),
              HasSubstr("is source and destination"));
  files.create("dst/rank_4/out4.ckpt")->append("x");
  files.create_directories("dst/rank_4");
  files.create_directories("dst");
  EXPECT_EQ(message_of([&] { transform(); }),
            "dst: holds rank_4, which would not belong to the new checkpoint; give an empty directory");
  files.remove_directory_tree("dst");
  transform();
  const auto first = files.read_text("dst/rank_3/out3.ckpt");
  transform();  // over itself
  EXPECT_EQ(files.read_text("dst/rank_3/out3.ckpt"), first);
  EXPECT_FALSE(files.exists("dst.partial"));
  files.create_directories("other.partial");
  files.create("other.partial/mine")->append("x");
  EXPECT_THAT(message_of([&] { transform_checkpoints(files, "src", "other", "", "two.ckpt", ""); }),
              HasSubstr("was not made by a conversion"));
}

// As the ranks of a job do.
TEST_F(TwoRanks, ManyWhoConvertAtOnceDoItOnce) {
  constexpr size_t kCallers = 4;
  std::vector<TransformReport> reports(kCallers);
  std::vector<std::string> messages(kCallers);
  const auto convert = [&](const std::string& to) {
    std::vector<std::thread> callers;
    for (size_t i = 0; i < kCallers; ++i) {
      callers.emplace_back([&, i] { messages[i] = message_of([&] { reports[i] = transform("two.ckpt", to); }); });
    }
    for (auto& caller : callers) caller.join();
  };
  for (int round = 0; round < 5; ++round) {
    files.remove_directory_tree("dst");
    convert("four.ckpt");
    EXPECT_THAT(messages, testing::Each("no error"));
    size_t workers = 0;
    for (const auto& report : reports) {
      EXPECT_EQ(report.files, reports[0].files);
      workers += report.files_kept == 0;
    }
    EXPECT_EQ(workers, 1U);
    for (int rank = 0; rank < 4; ++rank) {
      const auto checkpoint = load(files, fmt::format("dst/rank_{0}/out{0}.ckpt", rank));
      EXPECT_TRUE(bit_equal(checkpoint.find("w")->read(), rows(2 * rank, 2 * rank + 2)));
    }
  }
  convert("missing.ckpt");
  EXPECT_THAT(messages, testing::Each(HasSubstr("missing.ckpt: cannot open")));
}

TEST_F(TwoRanks, AreConvertedAnewWhereTheDestinationIsDamaged) {
  transform();
  auto bytes = files.read_text("dst/rank_3/out3.ckpt");
  bytes.back() ^= 1;
  overwrite(files, "dst/rank_3/out3.ckpt", bytes);
  EXPECT_EQ(transform().files_kept, 0);
  EXPECT_TRUE(load(files, "dst/rank_3/out3.ckpt").is_verified());
  EXPECT_EQ(transform().files_kept, 4) << "whole, and of these sources";
  save_rank(0, 100, 104);
  EXPECT_EQ(transform().files_kept, 0) << "of other sources";
  EXPECT_TRUE(bit_equal(load(files, "dst/rank_0/out0.ckpt").find("w")->read(), rows(100, 102)));
}

TEST_F(TwoRanks, AnInterruptedConversionGoesOn) {
  // The disk fails after each operation in turn; then the same call is made on what a crash left.
  int resumed = 0;
  for (size_t operation = 0;; ++operation) {
    CrashFileSystem disk;
    for (const char* path : {"src/rank_0/CKP-1_4.ckpt", "src/rank_1/CKP-1_4.ckpt"}) {
      disk.create_directories(parent_path(path));
      disk.create(path)->append(files.read_text(path));
      disk.create(manifest_path(path))->append(files.read_text(manifest_path(path)));
    }
    for (const char* path : {"two.ckpt", "four.ckpt"}) disk.create(path)->append(files.read_text(path));
    for (const char* directory : {"src/rank_0", "src/rank_1", "src", "."}) disk.sync_directory(directory);
    const size_t first = disk.num_operations();
    disk.fail_from(first + operation);
    const auto convert = [](FileSystem& on) {
      return transform_checkpoints(on, "src", "dst", "out", "two.ckpt", "four.ckpt", {.num_threads = 1});
    };
    if (message_of([&] { convert(disk); }) == "no error") break;
    const auto after = disk.crash_state(disk.num_operations(), Unsynced::kKept);
    if (after->exists("dst")) {
      EXPECT_TRUE(after->exists("dst/rank_3/out3.ckpt"));
      EXPECT_FALSE(after->exists("dst.partial"));
    }
    const auto report = convert(*after);
    resumed += report.files_kept > 0;
    for (int rank = 0; rank < 4; ++rank) {
      const auto checkpoint = load(*after, fmt::format("dst/rank_{0}/out{0}.ckpt", rank));
      EXPECT_TRUE(bit_equal(checkpoint.find("w")->read(), rows(2 * rank, 2 * rank + 2)));
    }
    EXPECT_FALSE(after->exists("dst.partial"));
  }
  EXPECT_GT(resumed, 4);
}

TEST_F(TwoRanks, ProgressReachesItsEnd) {
  TransformProgress last;
  transform_checkpoints(files, "src", "dst", "out", "two.ckpt", "four.ckpt",
                        {.progress = [&](const TransformProgress& progress) {
                          EXPECT_GE(progress.bytes_done, last.bytes_done);
                          EXPECT_LE(progress.bytes_done, progress.num_bytes);
                          last = progress;
                        }});
  EXPECT_EQ(last.files_done, 4);
  EXPECT_EQ(last.bytes_done, last.num_bytes);
}

TEST_F(TwoRanks, WhatAStrategyDoesNotListIsCopiedFromTheRankOfEqualNumber) {
  write_strategy_file(files, "other.ckpt", {.layouts = {split_rows("v", 3)}});
  transform("two.ckpt", "other.ckpt");
  EXPECT_TRUE(bit_equal(load(files, "dst/rank_1/out1.ckpt").find("w")->read(), rows(4, 8)));
  EXPECT_TRUE(bit_equal(load(files, "dst/rank_2/out2.ckpt").find("w")->read(), rows(0, 4)));
}

TEST_F(TwoRanks, OnceConvertedSayThemselvesWhatTheyHold) {
  transform();
  transform_checkpoints(files, "dst", "whole", "net");
  EXPECT_TRUE(bit_equal(load(files, "whole/rank_0/net0.ckpt").find("w")->read(), rows(0, 8)));
  files.remove_directory_tree("dst/rank_2");
  EXPECT_EQ(message_of([&] { transform_checkpoints(files, "dst", "again", "net"); }),
            "dst: of 4 ranks only the folders rank_0, rank_1, rank_3 have checkpoints");
  for (const int rank : {0, 3}) files.remove_directory_tree(fmt::format("dst/rank_{}", rank));
  const auto refusal = [&](const std::string& source, const std::string& strategy) {
    return message_of([&] { transform_checkpoints(files, source, "again", "net", strategy); });
  };
  EXPECT_EQ(refusal("dst", ""), "dst: of 4 ranks only the folder rank_1 has a checkpoint");
  const std::string rest = "; give the directory that holds all folders rank_N";
  for (const char* source : {"dst/rank_1", "dst/rank_1/out1.ckpt"}) {
    EXPECT_EQ(refusal(source, ""), source + (": is one rank's part of a checkpoint of 4 ranks" + rest));
  }
  EXPECT_EQ(refusal("src/rank_0", "two.ckpt"),
            "src/rank_0: is one rank's part of a checkpoint of 2 ranks by two.ckpt" + rest);
}

TEST_F(TwoRanks, OnceConvertedAreNoWholesWhereAStrategyDoesNotListThem) {
  transform();
  write_strategy_file(files, "other.ckpt", {.layouts = {split_rows("v", 4)}});
  const auto refusal = message_of([&] { transform_checkpoints(files, "dst", "one", "net", "other.ckpt"); });
  EXPECT_THAT(refusal,
              AllOf(StartsWith("other.ckpt: does not list \"w\", of which dst/rank_0/out0.ckpt holds [0:2,0:2] of "
                               "[8,2] by its manifest"),
                    HasSubstr("here 4 become 1")));
  EXPECT_FALSE(files.exists("one"));
  transform_checkpoints(files, "dst", "four", "net", "other.ckpt", "other.ckpt");
  EXPECT_TRUE(bit_equal(load(files, "four/rank_3/net3.ckpt").find("w")->read(), rows(6, 8)));
}

TEST_F(TwoRanks, OnceConvertedAreOneCheckpointHoweverItIsNamed) {
  for (const std::string prefix : {"out", "", "CKP-1_7"}) {
    SCOPED_TRACE(prefix);
    files.remove_directory_tree("dst");
    const auto report = transform_checkpoints(files, "src", "dst", prefix, "two.ckpt", "four.ckpt");
    auto named = report.files;
    named.emplace_back("dst");
    if (prefix == "out") named.emplace_back("dst/rank_9/out9.ckpt");  // the tenth of a larger job
    for (const auto& path : named) {
      const auto checkpoint = path == "dst" ? open_newest(files, path) : GlobalCheckpoint::open(files, path);
      checkpoint.require_all_files();
      EXPECT_TRUE(bit_equal(checkpoint.read_whole("w"), rows(0, 8))) << path;
    }
    EXPECT_EQ(find_newest(files, "dst", "").path, report.files[0]);
  }
}

TEST_F(TwoRanks, OnceConvertedNeedAllTheirFiles) {
  const auto report = transform();
  EXPECT_EQ(find_newest(files, "dst", "out").path, report.files[0]);
  EXPECT_FALSE(find_newest(files, "dst", "other").found());
  files.remove(report.files[2]);
  const auto problem = "dst/rank_2/out2.ckpt: is missing; dst/rank_0/out0.ckpt";
  EXPECT_THAT(message_of([&] { open_newest(files, "dst"); }), HasSubstr(problem));
  EXPECT_THAT(message_of([&] { find_newest(files, "dst", "").require_usable(); }), HasSubstr(problem));
}

// Each rank saves one step after the other; the second rank has lost a file.
TEST_F(TwoRanks, NamesThatEndInTheFoldersNumberAreNotTakenForPartsWhereTheyAreOfOtherSteps) {
  const auto report = transform("two.ckpt", "two.ckpt");
  const auto save_as = [&](const std::string& from, const std::string& to, const std::string& name, int64_t step) {
    auto checkpoint = load(files, from);
    std::vector<Slice> slices;
    auto info = checkpoint.manifest()->info;
    info.step = info.step_in_epoch = step;
    const auto& described = checkpoint.manifest()->tensors[0];
    const auto value = checkpoint.find("w")->read();
    slices.push_back(
        {"w", {DType::kF32, described.shape}, Region{described.slices[0].offset, value.shape()}, value.view()});
    const auto messages = ThreadBarrier::run(
        1, [&](Barrier& barrier) { save_slices(files, barrier, {.path = to + name, .together = {0}}, slices, info); });
    EXPECT_THAT(messages, testing::Each("no error"));
  };
  save_as(report.files[0], "src2/rank_0/", "CKP-1_20.ckpt", 20);
  save_as(report.files[1], "src2/rank_1/", "CKP-1_21.ckpt", 21);
  EXPECT_THAT(message_of([&] { open_newest(files, "src2"); }), HasSubstr("src2/rank_1/CKP-1_20.ckpt: is missing"));
}

TEST_F(TwoRanks, ManifestsThatLieAreRefused) {
  transform();
  const auto path = manifest_path("dst/rank_1/out1.ckpt");
  const auto good = parse_manifest(files.read_text(path), path);
  const auto refusal = [&](int64_t offset, int64_t rows) {
    auto bad = good;
    bad.tensors[0].slices[0].offset[0] = offset;
    bad.tensors[0].shape[0] = rows;
    overwrite(files, path, to_text(bad));
    return message_of([&] { transform_checkpoints(files, "dst", "whole", "net"); });
  };
  EXPECT_THAT(refusal(0, 8), HasSubstr("ranks 0 and 1 hold the same part of \"w\", but not the same values"));
  EXPECT_THAT(refusal(1, 8), HasSubstr("\"w\" of rank 1 overlaps that of rank 0"));
  EXPECT_THAT(refusal(4, 8), HasSubstr("ranks 1 and 2 hold the same part"));
  EXPECT_THAT(refusal(2, 9), HasSubstr("another rank's is of f32[8,2]"));
  EXPECT_EQ(refusal(2, 8), "no error");
}

TEST_F(TwoRanks, ProveThemselvesByTheHashesOfTheirSlices) {
  transform();
  const auto hash_of = [&](const std::string& path) {
    return *parse_manifest(files.read_text(manifest_path(path)), path).tensors[0].slices[0].hash;
  };
  uint64_t sum = 0;
  for (int rank = 0; rank < 4; ++rank) sum += hash_of(fmt::format("dst/rank_{0}/out{0}.ckpt", rank));
  transform_checkpoints(files, "dst", "whole", "net");
  EXPECT_EQ(hash_of("whole/rank_0/net0.ckpt"), sum);
  // Values and checksums are right, and yet these were not the values that were saved.
  const auto path = manifest_path("dst/rank_1/out1.ckpt");
  auto manifest = parse_manifest(files.read_text(path), path);
  *manifest.tensors[0].slices[0].hash += 1;
  overwrite(files, path, to_text(manifest));
  const auto convert = [&] { transform_checkpoints(files, "dst", "again", "net"); };
  EXPECT_EQ(message_of(convert), fmt::format("again: \"w\" [8,2] has other values than the source: the hashes of its "
                                             "slices add up to {:016x}, those of the source's to {:016x}",
                                             sum, sum + 1));
  EXPECT_FALSE(files.exists("again"));
  // A manifest of an earlier version has none.
  manifest.tensors[0].slices[0].hash.reset();
  overwrite(files, path, to_text(manifest));
  EXPECT_EQ(message_of(convert), "no error");
}

TEST_F(TwoRanks, SharedByTwoStagesMustHaveEqualValues) {
  ParameterLayout stage{.name = "0-w", .device_matrix = {1}, .tensor_map = {{}, {}}};
  auto next = stage;
  next.name = "1-w";
  write_strategy_file(files, "stages.ckpt", {.layouts = {stage, next}});
  EXPECT_THAT(refusal("stages.ckpt", ""), HasSubstr("ranks 0 and 1 hold the same part of \"w\""));
}

TEST_F(TwoRanks, OneRankAtATimeNeedsOnlyItsOwnSources) {
  EXPECT_THAT(rank_list_for_transform(files, 3, "two.ckpt", "four.ckpt"), ElementsAre(1));
  EXPECT_THAT(rank_list_for_transform(files, 0, "two.ckpt"), ElementsAre(0, 1));
  EXPECT_THAT(rank_list_for_transform(files, 1, "", "four.ckpt"), ElementsAre(0));
  EXPECT_THROW(rank_list_for_transform(files, 4, "two.ckpt", "four.ckpt"), InvalidArgument);
  transform_checkpoint_by_rank(files, 3, {{1, "src/rank_1/CKP-1_4.ckpt"}}, "three.ckpt", "two.ckpt", "four.ckpt");
  EXPECT_TRUE(bit_equal(load(files, "three.ckpt").find("w")->read(), rows(6, 8)));
  EXPECT_EQ(
      message_of([&] {
        transform_checkpoint_by_rank(files, 0, {{1, "src/rank_1/CKP-1_4.ckpt"}}, "no.ckpt", "two.ckpt", "four.ckpt");
      }),
      "the checkpoint of rank 0 is needed for rank 0's, but it is missing");
  EXPECT_THROW(transform_checkpoint_by_rank(files, 0, {}, "no", "two.ckpt", "four.ckpt"), InvalidArgument);
}

TEST_F(TwoRanks, APathThatIsTooLongIsAnIoError) {
  const std::string folder = testing::TempDir() + fmt::format("transform_long_name_{}", getpid());
  FileSystem& disk = FileSystem::local();
  disk.create_directories(folder);
  save(disk, {.path = folder + "/a.ckpt"}, std::vector{Entry("w", rows(0, 4))}, {});
  EXPECT_THROW(transform_checkpoint_by_rank(disk, 0, {{0, folder + "/a.ckpt"}},
                                            folder + "/" + std::string(300, 'x') + "/b.ckpt"),
               IoError);
  disk.remove_directory_tree(folder);
}

TEST(Transform, FilesOfOthersHaveNoManifestAndConvertAll) {
  // As the system of the tutorials names and places them: four ranks, data parallel 2 x model parallel 2, optimizer
  // shards over the replicas.
  MemoryFileSystem files;
  ParameterLayout layout{.name = "fc.weight",
                         .device_matrix = {2, 2},
                         .tensor_map = {{0}, {}},
                         .opt_weight_shard_step = 2,
                         .opt_weight_shard_size = 2};
  write_strategy_file(files, "src_strategy.ckpt", {.layouts = {layout}});
  const int64_t first_row[] = {0, 4, 2, 6};  // shard r / 2 of half r % 2
  for (int rank = 0; rank < 4; ++rank) {
    const auto path = fmt::format("src/rank_{}/src_checkpoint-2_73.ckpt", rank);
    files.create_directories(parent_path(path));
    const auto file = files.create(path);
    CkptWriter writer(*file);
    writer.add(Entry("fc.weight", rows(first_row[rank], first_row[rank] + 2)));
    writer.finish();
  }
  transform_checkpoints(files, "src/", "dst/", "transformed", "src_strategy.ckpt");
  EXPECT_TRUE(bit_equal(load(files, "dst/rank_0/transformed0.ckpt").find("fc.weight")->read(), rows(0, 8)));
}

TEST(Transform, TextsAndTensorsWithoutContentAreCopied) {
  MemoryFileSystem files;
  const std::vector<Entry> entries = {
      {"w", rows(0, 2)}, {"nothing", ""}, {"none", Tensor(DType::kF32, {0, 3})}, {"note", "a text"}};
  save(files, {.path = "ours/rank_0/a.ckpt"}, entries, {});
  files.create_directories("others/rank_0");
  const auto file = files.create("others/rank_0/a.ckpt");
  CkptWriter writer(*file);
  for (const auto& entry : entries) writer.add(entry);
  writer.finish();
  for (const std::string source : {"ours", "others"}) {
    SCOPED_TRACE(source);
    transform_checkpoints(files, source, source + "_converted", "out", "", "");
    const auto checkpoint = load(files, source + "_converted/rank_0/out0.ckpt");
    EXPECT_TRUE(bit_equal(checkpoint.find("w")->read(), rows(0, 2)));
    EXPECT_EQ(checkpoint.find("nothing")->read_text(), "");
    EXPECT_EQ(checkpoint.find("note")->read_text(), "a text");
    export_safetensors(files, source, source + ".safetensors");
    const auto exported = load_safetensors(files, source + ".safetensors");
    EXPECT_TRUE(std::any_of(exported.begin(), exported.end(), [](const auto& tensor) {
      return tensor.first == "w" && bit_equal(tensor.second, rows(0, 2));
    }));
  }
  EXPECT_EQ(load(files, "ours_converted/rank_0/out0.ckpt").find("none")->type(), (Type{DType::kF32, {0, 3}}));
}

// Each value lies somewhere: in slices, or whole in the file of any rank.
struct SavedTogether : testing::Test {
  MemoryFileSystem files;
  const std::string path = save_together(files, "d/CKP-1_4.ckpt", 4);
  const ValuesOfThreeRanks values{4};

  void SetUp() override {
    write_strategy_file(files, "two.ckpt", {.layouts = {split_rows("w", 2)}});
    ParameterLayout vector{.name = "b", .device_matrix = {2}, .tensor_map = {{0}}};
    write_strategy_file(files, "only_b.ckpt", {.layouts = {vector}});
  }
  // `w` has these rows.
  void expect_values(const std::string& converted, int64_t first_row, int64_t last_row) {
    const auto checkpoint = load(files, converted);
    EXPECT_EQ(checkpoint.entries().size(), 4U);
    EXPECT_TRUE(bit_equal(checkpoint.find("w")->read(), rows(first_row, last_row)));
    for (const char* name : {"a", "b"}) EXPECT_TRUE(bit_equal(checkpoint.find(name)->read(), values.b)) << name;
    EXPECT_EQ(checkpoint.find("count")->read().item(), 4);
  }
};

TEST_F(SavedTogether, AreConvertedWithAllTheirFilesHoweverTheyAreNamed) {
  for (const auto& source : {path, path + ".rank_2", std::string("d")}) {
    files.remove_directory_tree("dst");
    transform_checkpoints(files, source, "dst", "net", "", "two.ckpt");
    expect_values("dst/rank_0/net0.ckpt", 0, 3);
    expect_values("dst/rank_1/net1.ckpt", 3, 6);
  }
}

TEST_F(SavedTogether, NeedNoStrategyOfTheSource) {
  testing::internal::CaptureStderr();
  transform_checkpoints(files, "d", "dst", "net", "two.ckpt", "");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("two.ckpt is not needed: " + path + ".manifest says"));
  expect_values("dst/rank_0/net0.ckpt", 0, 6);
}

TEST_F(SavedTogether, AreWholeOnEachRankWhereTheDestinationsStrategyDoesNotListThem) {
  transform_checkpoints(files, "d", "dst", "net", "", "only_b.ckpt");
  for (int rank = 0; rank < 2; ++rank) {
    const auto checkpoint = load(files, fmt::format("dst/rank_{0}/net{0}.ckpt", rank));
    EXPECT_TRUE(bit_equal(checkpoint.find("w")->read(), rows(0, 6)));
    EXPECT_EQ(checkpoint.find("b")->shape, Shape({2}));
    EXPECT_EQ(checkpoint.find("count")->read().item(), 4);
  }
}

TEST_F(SavedTogether, AreReadWholeByOneRankAtATime) {
  transform_checkpoint_by_rank(files, 1, {{0, path}}, "one.ckpt", "", "two.ckpt");
  expect_values("one.ckpt", 3, 6);
  transform_checkpoint_by_rank(files, 0, {{0, path}, {1, path + ".rank_1"}}, "zero.ckpt", "", "two.ckpt");
  expect_values("zero.ckpt", 0, 3);
}

TEST_F(SavedTogether, AreTakenFromAFolderThatIsCalledAsARanks) {
  save_together(files, "src/rank_0/CKP-1_4.ckpt", 4);
  transform_checkpoints(files, "src", "dst", "net");
  expect_values("dst/rank_0/net0.ckpt", 0, 6);
}

TEST(Slicing, OptimizerShardsMustMeetEachOther) {
  ParameterLayout layout{.name = "w",
                         .device_matrix = {2, 4},
                         .tensor_map = {{0}},
                         .opt_weight_shard_step = 4,
                         .opt_weight_shard_size = 2};
  EXPECT_EQ(Slicing(layout, "s").region({17}, 5), (Region{{7}, {2}}));  // 5,4,4,4 rows; of the second, the second half
  EXPECT_EQ(Slicing(layout, "s").replica(5), 0);
  layout.opt_weight_shard_step = 1;
  EXPECT_THAT(message_of([&] { const Slicing slicing(layout, "s"); }), HasSubstr("some are on no rank"));
  layout.opt_weight_shard_step = 4;
  layout.opt_weight_shard_size = -1;  // all
  EXPECT_EQ(Slicing(layout, "s").num_parts(0), 8);
}

TEST(Slicing, RefusesLayoutsThatNoFileCouldHold) {
  const auto refusal = [](const ParameterLayout& layout) { return message_of([&] { Slicing(layout, "s"); }); };
  // Their products wrap round to 0 and to 1.
  const int64_t large = int64_t{1} << 32;
  EXPECT_THAT(refusal({.name = "w", .device_matrix = {large, large}, .tensor_map = {{0}}}),
              HasSubstr("s: the layout of \"w\": dev_matrix[0] is 4294967296"));
  EXPECT_THAT(refusal({.name = "w", .device_matrix = {1 << 16, 1 << 16, 1 << 16, 1 << 16}, .tensor_map = {{}}}),
              HasSubstr("dev_matrix has more than"));
  EXPECT_THAT(refusal({.name = "w", .device_matrix = {1 << 21}, .tensor_map = {{0}}}),
              HasSubstr("is on 2097152 devices, at most 1048576 are accepted"));
  EXPECT_THAT(refusal({.name = "w", .device_matrix = {0}, .tensor_map = {{0}}}), HasSubstr("dev_matrix[0] is 0"));
  EXPECT_THAT(refusal({.name = "w", .device_matrix = {2}, .tensor_map = {{5}}}), HasSubstr("names axis 5"));
}

TEST(ParameterPlacement, RefusesStagesThatDoNotBelongTogether) {
  const auto refusal = [](const StrategyFile& file) { return message_of([&] { ParameterPlacement(file, "f"); }); };
  EXPECT_THAT(refusal({.layouts = {split_rows("a", 0x7FFFFFFF)}}), HasSubstr("at most 1048576 are accepted"));
  EXPECT_EQ(refusal({}), "f: has no layouts, so it says nothing of any parameter");
  EXPECT_EQ(refusal({.layouts = {split_rows("0-a", 2), split_rows("2-b", 2)}}),
            "f: has layouts of stage 2, but none of stage 1");
  EXPECT_EQ(refusal({.layouts = {split_rows("0-a", 2), split_rows("1-b", 2), split_rows("1-c", 4)}}),
            "f: \"1-c\" is laid out on 4 devices, \"1-b\" on 2; they are of one stage");
  const ParameterLayout vector{.name = "1-a", .device_matrix = {2}, .tensor_map = {{0}}};
  EXPECT_THAT(refusal({.layouts = {split_rows("0-a", 2), vector}}),
              StartsWith("f: \"a\" is of 2 dims in stage 0 and of 1 dims in stage 1;"));
  auto wide = split_rows("0-a", 2);
  auto narrow = split_rows("1-a", 2);
  wide.tensor_shape = {4, 3};
  narrow.tensor_shape = {4, 2};
  EXPECT_THAT(refusal({.layouts = {wide, narrow}}), StartsWith("f: \"a\" is [4,3] in stage 0 and [4,2] in stage 1;"));
  EXPECT_EQ(refusal({.layouts = {split_rows("0-a", 2), split_rows("00-a", 2)}}), "f: \"a\" has two layouts in stage 0");
  EXPECT_THAT(refusal({.strategies = {{.node = "n", .stage = 1}}, .layouts = {split_rows("a", 2)}}),
              HasSubstr("of stage 1 alone"));
}

TEST(ParameterPlacement, NumbersTheRanksOfUnequalStages) {
  const ParameterPlacement placement({.layouts = {split_rows("0-a", 3), split_rows("1-b", 1), split_rows("2-c", 2)}},
                                     "f");
  EXPECT_EQ(placement.num_ranks(), 6);
  EXPECT_EQ(placement.stage_of(2), 0);
  EXPECT_EQ(placement.stage_of(3), 1);
  EXPECT_EQ(placement.first_rank_of(2), 4);
  EXPECT_EQ(placement.num_ranks_of(2), 2);
  EXPECT_EQ(placement.position_of(5), 1);
  EXPECT_EQ(message_of([&] { placement.stage_of(6); }), "f: has ranks 0 to 5, none of number 6");
}

// A table that two stages of 2 and 3 ranks share: the first has its rows in two parts, the second its columns in three.
struct SharedTable : testing::Test {
  MemoryFileSystem files;
  const Tensor table = rows(0, 5, 3);

  void SetUp() override {
    const ParameterLayout columns{.name = "1-table", .device_matrix = {3}, .tensor_map = {{}, {0}}};
    write_strategy_file(
        files, "two_stages.ckpt",
        {.layouts = {split_rows("0-table", 2), split_rows("0-first", 2), columns, split_rows("1-last", 3)}});
    // On the other side the first stage is one rank, and the second has halves of rows.
    const ParameterLayout whole{.name = "0-table", .device_matrix = {1}, .tensor_map = {{}, {}}};
    write_strategy_file(
        files, "others.ckpt",
        {.layouts = {whole, split_rows("0-first", 1), split_rows("1-table", 2), split_rows("1-last", 2)}});
    const ParameterLayout last{.name = "last", .device_matrix = {2}, .tensor_map = {{0}, {}}};
    write_strategy_file(files, "no_table.ckpt", {.layouts = {split_rows("first", 2), last}});
    for (int rank = 0; rank < 5; ++rank) save_rank(rank, table);
  }
  Tensor slice_of(int rank, const Tensor& of) const {
    if (rank < 2) return Tensor::copy_of(view_of(of.view(), {{3 * rank, 0}, {3 - rank, 3}}));
    return Tensor::copy_of(view_of(of.view(), {{0, rank - 2}, {5, 1}}));
  }
  void save_rank(int rank, const Tensor& of, bool has_table = true) {
    const auto other = rank < 2 ? Entry("first", rows(rank, rank + 1)) : Entry("last", rows(rank - 2, rank - 1));
    std::vector<Entry> entries = {other};
    if (has_table) entries.insert(entries.begin(), Entry("table", slice_of(rank, of)));
    save(files, {.path = fmt::format("src/rank_{}/net", rank)}, entries, {.world_size = 5});
  }
  void expect_converted(const std::string& directory) {
    const auto held = [&](int rank) { return load(files, fmt::format("{0}/rank_{1}/out{1}.ckpt", directory, rank)); };
    EXPECT_TRUE(bit_equal(held(0).find("table")->read(), table));
    EXPECT_TRUE(bit_equal(held(1).find("table")->read(), rows(0, 3, 3)));
    EXPECT_TRUE(bit_equal(held(2).find("table")->read(), rows(3, 5, 3)));
    EXPECT_TRUE(bit_equal(held(0).find("first")->read(), rows(0, 2)));
    EXPECT_TRUE(bit_equal(held(1).find("last")->read(), rows(0, 2)));
    EXPECT_EQ(held(1).find("first"), nullptr);
  }
  std::string refusal() {
    return message_of([&] { transform_checkpoints(files, "src", "dst", "out", "two_stages.ckpt", "others.ckpt"); });
  }
};

TEST_F(SharedTable, LiesOnEachStageAsThatOnesLayoutSays) {
  transform_checkpoints(files, "src", "dst", "out", "two_stages.ckpt", "others.ckpt");
  expect_converted("dst");
  // And back: each file as it was.
  transform_checkpoints(files, "dst", "back", "net", "others.ckpt", "two_stages.ckpt");
  for (int rank = 0; rank < 5; ++rank) {
    EXPECT_EQ(files.read_text(fmt::format("back/rank_{0}/net{0}.ckpt", rank)),
              files.read_text(fmt::format("src/rank_{}/net.ckpt", rank)));
  }
}

TEST_F(SharedTable, IsReadOfTheFirstStageWhoseFilesHaveIt) {
  for (const int rank : {0, 1}) save_rank(rank, table, /*has_table=*/false);
  transform_checkpoints(files, "src", "dst", "out", "two_stages.ckpt", "others.ckpt");
  expect_converted("dst");
}

TEST_F(SharedTable, IsReadOfALaterStageWhereAFileOfTheFirstIsNotThere) {
  const ParameterLayout whole{.name = "1-table", .device_matrix = {2}, .tensor_map = {{}, {}}};
  write_strategy_file(files, "whole.ckpt", {.layouts = {split_rows("0-first", 1), whole, split_rows("1-last", 2)}});
  std::map<int64_t, std::string> given;  // none of rank 1, which has the last two of five rows
  for (const int rank : {0, 2, 3, 4}) given[rank] = fmt::format("src/rank_{}/net.ckpt", rank);
  transform_checkpoint_by_rank(files, 1, given, "one.ckpt", "two_stages.ckpt", "whole.ckpt");
  EXPECT_TRUE(bit_equal(load(files, "one.ckpt").find("table")->read(), table));
  given.erase(4);
  EXPECT_THAT(
      message_of([&] { transform_checkpoint_by_rank(files, 1, given, "two.ckpt", "two_stages.ckpt", "whole.ckpt"); }),
      HasSubstr("the checkpoint of rank 1 is needed for rank 1's, but it is missing"));
}

TEST_F(SharedTable, OfWhichStagesHaveUnlikeValuesIsRefused) {
  transform_checkpoints(files, "src", "placed", "out", "two_stages.ckpt", "two_stages.ckpt");  // with their places
  files.remove_directory_tree("src");
  for (int rank = 0; rank < 5; ++rank) {
    const auto checkpoint = load(files, fmt::format("placed/rank_{0}/out{0}.ckpt", rank));
    const auto& described = *checkpoint.manifest();
    std::vector<Slice> slices;
    std::vector<Tensor> values;
    for (const auto& tensor : described.tensors) {
      values.push_back(checkpoint.find(tensor.name)->read());
      if (rank == 4 && tensor.name == "table") values.back().values<float>()[0] += 1;
      const Region region{tensor.slices[0].offset, values.back().shape()};
      slices.push_back({tensor.name, {DType::kF32, tensor.shape}, region, values.back().view()});
    }
    const auto path = fmt::format("src/rank_{0}/net.ckpt", rank);
    const auto messages = ThreadBarrier::run(1, [&](Barrier& barrier) {
      save_slices(files, barrier, {.path = path, .together = {0}}, slices, described.info);
    });
    EXPECT_THAT(messages, testing::Each("no error"));
  }
  EXPECT_THAT(refusal(), HasSubstr("two_stages.ckpt: stages 0 and 1 both have \"table\", but not the same values"));
  EXPECT_FALSE(files.exists("dst"));
  const auto by_manifests = message_of([&] { transform_checkpoints(files, "src", "whole", "net"); });
  EXPECT_THAT(by_manifests, HasSubstr("has other values than that of rank 0"));
}

TEST_F(SharedTable, IsJoinedByManifestsAlone) {
  transform_checkpoints(files, "src", "dst", "out", "two_stages.ckpt", "two_stages.ckpt");
  transform_checkpoints(files, "dst", "whole", "net");
  EXPECT_TRUE(bit_equal(load(files, "whole/rank_0/net0.ckpt").find("table")->read(), table));
  EXPECT_TRUE(bit_equal(load(files, "whole/rank_0/net0.ckpt").find("last")->read(), rows(0, 3)));
  const auto resumed = GlobalCheckpoint::open(files, "dst/rank_3/out3.ckpt");
  EXPECT_TRUE(bit_equal(resumed.read_whole("table"), table));
}

TEST_F(SharedTable, ThatTheDestinationDoesNotListIsNoStagesSlice) {
  EXPECT_THAT(
      message_of([&] { transform_checkpoints(files, "src", "dst", "out", "two_stages.ckpt", "no_table.ckpt"); }),
      HasSubstr("no_table.ckpt: does not list \"table\", which the stages of two_stages.ckpt cut in different"));
}

TEST(Tilings, AreFoundOfRegionsThatOverlap) {
  const auto range = [](int64_t first, int64_t last) { return Region{{first}, {last - first}}; };
  const auto tilings = [&](const std::vector<Region>& regions) { return tilings_of(regions, Region::whole({6})); };
  using Groups = std::vector<std::vector<size_t>>;
  EXPECT_EQ(tilings({range(0, 3), range(3, 6)}), (Groups{{0, 1}}));
  EXPECT_EQ(tilings({range(0, 3), range(3, 6), range(0, 2), range(2, 4), range(4, 6)}), (Groups{{0, 1}, {2, 3, 4}}));
  EXPECT_EQ(tilings({range(0, 3), range(3, 6), range(0, 2), range(2, 3)}),
            (Groups{{0, 1}, {2, 3, 1}}));  // [3,6) in both
  EXPECT_TRUE(tilings({range(0, 3), range(2, 6)}).empty());
  EXPECT_TRUE(tilings({range(0, 3)}).empty());
  EXPECT_TRUE(tilings({range(0, 6), range(2, 4)}).empty());
}

struct Stages : testing::Test {
  MemoryFileSystem files;
  void SetUp() override { files.create_directories("stages"); }
  void write(const std::string& name, int64_t stage, const std::string& parameter, int64_t ranks = 2) {
    write_strategy_file(files, "stages/" + name,
                        {.strategies = {{.node = "MatMul_" + parameter, .stage = stage, .inputs = {{1, 1}}}},
                         .layouts = {split_rows(parameter, ranks)}});
  }
};

TEST_F(Stages, AreMergedUnderTheirNumbers) {
  write("src_strategy0.ckpt", 0, "a");
  write("src_strategy1.ckpt", 0, "a");
  write("src_strategy2.ckpt", 1, "b");
  merge_pipeline_strategys(files, "stages", "merged/all.ckpt");
  const auto merged = build_searched_strategy(files, "merged/all.ckpt");
  EXPECT_THAT(merged, ElementsAre(Pair("0-a", split_rows("0-a", 2)), Pair("1-b", split_rows("1-b", 2))));
  const auto strategies = read_strategy_file(files, "merged/all.ckpt").strategies;
  EXPECT_EQ(strategies.size(), 2);
  EXPECT_EQ(strategies[1].stage, 1);
}

TEST_F(Stages, MayCutASharedParameterInWaysOfTheirOwn) {
  write("s0.ckpt", 0, "a");
  const ParameterLayout columns{.name = "a", .device_matrix = {3}, .tensor_map = {{}, {0}}};
  write_strategy_file(files, "stages/s1.ckpt",
                      {.strategies = {{.node = "MatMul_a", .stage = 1, .inputs = {{1, 1}}}}, .layouts = {columns}});
  merge_pipeline_strategys(files, "stages", "merged.ckpt");
  const auto placement = ParameterPlacement::read(files, "merged.ckpt");
  const auto* parameter = placement.find("a");
  ASSERT_NE(parameter, nullptr);
  EXPECT_EQ(parameter->in(0).slicing.num_parts(0), 2);
  EXPECT_EQ(parameter->in(1).slicing.num_parts(0), 1);
  EXPECT_EQ(parameter->in(1).slicing.num_parts(1), 3);
  EXPECT_FALSE(parameter->is_cut_alike());
  EXPECT_EQ(placement.num_ranks(), 5);
}

TEST_F(Stages, F47_ThatAreMissingOrDifferAreRefused) {
  const auto refusal = [&] {
    const auto message = message_of([&] { merge_pipeline_strategys(files, "stages", "merged.ckpt"); });
    EXPECT_FALSE(files.exists("merged.ckpt"));
    return message;
  };
  EXPECT_THAT(refusal(), HasSubstr("holds no strategy file"));
  write("s2.ckpt", 1, "b");
  EXPECT_THAT(refusal(), HasSubstr("none of stage 0"));
  write("s0.ckpt", 0, "a");
  write("s1.ckpt", 0, "other");
  EXPECT_EQ(refusal(), "stages/s0.ckpt and stages/s1.ckpt are both of stage 0, but differ: they must be of one run");
  write("s1.ckpt", 0, "a");
  write_strategy_file(files, "stages/s3.ckpt",
                      {.strategies = {{.node = "MatMul_c", .stage = 2, .inputs = {{1, 1}}}},
                       .layouts = {split_rows("c", 2), split_rows("d", 4)}});
  EXPECT_THAT(refusal(), HasSubstr("laid out on 4 devices"));
  write_strategy_file(files, "stages/s3.ckpt", {.layouts = {split_rows("a", 2)}});
  EXPECT_EQ(refusal(), "stages/s3.ckpt: the strategy file is empty: it must have strategies and layouts");
  files.remove("stages/s3.ckpt");
  files.create("stages/s3.json")->append("{}");
  EXPECT_THAT(refusal(), HasSubstr("keep one form"));
  EXPECT_THAT(message_of([&] { merge_pipeline_strategys(files, "nowhere", "merged.ckpt"); }),
              "nowhere: is no directory of strategy files");
}

TEST(MergeSlicedParameter, JoinsWhatTheRanksHold) {
  EXPECT_TRUE(bit_equal(merge_sliced_parameter({rows(0, 3), rows(3, 4)}), rows(0, 4)));
  const ParameterLayout columns{.name = "w", .device_matrix = {2, 2}, .tensor_map = {{}, {1}}};
  const auto left = Tensor::of<float>({2, 2}, {0, 1, 3, 4});
  const auto right = Tensor::of<float>({2, 1}, {2, 5});
  EXPECT_TRUE(bit_equal(merge_sliced_parameter({left, left, right, right}, &columns), rows(0, 2, 3)));
  EXPECT_THAT(message_of([&] { merge_sliced_parameter({left, right}, &columns); }), HasSubstr("on 4 ranks, 2 slices"));
  EXPECT_THAT(message_of([&] { merge_sliced_parameter({left, left, left, right}, &columns); }), HasSubstr("its place"));
  EXPECT_THROW(merge_sliced_parameter({}), InvalidArgument);
}

TEST(SliceParameter, GivesWhatMergingJoins) {
  const ParameterLayout layout{.name = "w",
                               .device_matrix = {2, 2},
                               .tensor_map = {{0}, {}},
                               .opt_weight_shard_step = 2,
                               .opt_weight_shard_size = 2};
  const auto whole = rows(0, 7, 3);
  std::vector<Tensor> slices;
  for (int64_t rank = 0; rank < 4; ++rank) slices.push_back(slice_parameter(whole, layout, rank));
  EXPECT_TRUE(bit_equal(slices[1], rows(4, 6, 3)));
  EXPECT_TRUE(bit_equal(merge_sliced_parameter(slices, &layout), whole));
  EXPECT_THAT(message_of([&] { slice_parameter(whole, layout, 4); }), HasSubstr("there is no rank 4"));
  EXPECT_THAT(message_of([&] { slice_parameter(Tensor::scalar(1.0F), layout, 0); }),
              HasSubstr("its layout has 2 dims"));
}

TEST(Strategy, WithoutLayoutsSaysNothing) {
  MemoryFileSystem files;
  write_strategy_file(files, "s.ckpt", {.strategies = {{.node = "MatMul_a", .inputs = {{1, 1}}}}});
  EXPECT_TRUE(build_searched_strategy(files, "s.ckpt").empty());
  EXPECT_THROW(ParameterPlacement::read(files, "s.ckpt"), InvalidArgument);
}

}  // namespace
}  // namespace tessera::checkpoint
