#include "tessera/checkpoint/write/retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/checkpoint/convert/sources.h"
#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/read/candidates.h"
#include "tessera/checkpoint/read/choose.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"

namespace tessera::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string save_at(FileSystem& files, int64_t epoch, int64_t step, const std::string& prefix = "CKP",
                    int64_t saved_at_ms = 0, const std::string& training_id = "", const std::string& job_name = "") {
  const std::vector<Entry> entries = {Entry("w", Tensor::full({DType::kF32, {8}}, static_cast<double>(epoch)))};
  return save(files, {.path = "d/" + checkpoint_name(prefix, epoch, step)}, entries,
              {.epoch = epoch,
               .step_in_epoch = step,
               .step = epoch * 100 + step,
               .saved_at_ms = saved_at_ms,
               .job_name = job_name,
               .training_id = training_id});
}

void damage(FileSystem& files, const std::string& path) {
  auto bytes = files.read_text(path);
  bytes.back() ^= 1;
  overwrite(files, path, bytes);
}

std::vector<std::string> checkpoints_in(FileSystem& files) {
  auto names = files.list("d");
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".ckpt"); });
  return names;
}

TEST(CheckpointName, ParsesWhatItPrints) {
  EXPECT_EQ(checkpoint_name("CKP", 2, 73), "CKP-2_73.ckpt");
  const auto name = parse_checkpoint_name("my-net_1-10_4.ckpt");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "my-net_1");
  EXPECT_EQ(name->epoch, 10);
  EXPECT_EQ(name->step_in_epoch, 4);
  for (const char* other : {"CKP.ckpt", "CKP-1.ckpt", "CKP-1_x.ckpt", "CKP-1_2.ckpt.tmp", "-1_2.ckpt", "CKP-_2.ckpt",
                            "CKP-1_99999999999999999999.ckpt", "CKP-1_2_3.ckpt"}) {
    EXPECT_FALSE(parse_checkpoint_name(other)) << other;
  }
  EXPECT_THAT(message_of([] { checkpoint_name("a/b", 1, 1); }), HasSubstr("prefix must not be empty nor contain '/'"));
}

TEST(UnusedPrefix, CountsUpFromWhatIsThere) {
  MemoryFileSystem files;
  EXPECT_EQ(unused_prefix(files, "d", "CKP"), "CKP") << "no directory yet";
  files.create_directories("d");
  overwrite(files, "d/CKPS-1_1.ckpt", "x");
  overwrite(files, "d/CKP-graph.meta", "x");
  EXPECT_EQ(unused_prefix(files, "d", "CKP"), "CKP");
  overwrite(files, "d/CKP-1_4.ckpt", "x");
  EXPECT_EQ(unused_prefix(files, "d", "CKP"), "CKP_1");
  overwrite(files, "d/CKP_9-1_4.ckpt", "x");
  overwrite(files, "d/CKP_10-1_4.ckpt", "x");
  EXPECT_EQ(unused_prefix(files, "d", "CKP"), "CKP_11");
  overwrite(files, "d/CKP_20-1_4.ckpt.manifest", "of a file that has gone");
  EXPECT_EQ(unused_prefix(files, "d", "CKP"), "CKP_21");
}

TEST(Retention, KeepsTheNewestByNumber) {
  MemoryFileSystem files;
  Retention retention(files, "d", "CKP", validated({.keep_checkpoint_max = 2}));
  for (const int64_t epoch : {8, 9, 10}) save_at(files, epoch, 1);
  save_at(files, 7, 1, "CKP_1");  // another run's
  EXPECT_THAT(retention.apply(), ElementsAre("CKP-8_1.ckpt"));
  EXPECT_THAT(files.list("d"), ElementsAre("CKP-10_1.ckpt", "CKP-10_1.ckpt.manifest", "CKP-9_1.ckpt",
                                           "CKP-9_1.ckpt.manifest", "CKP_1-7_1.ckpt", "CKP_1-7_1.ckpt.manifest"));
  EXPECT_THAT(retention.apply(), IsEmpty());
}

TEST(Retention, CountsOnlyVerifiedOnesAndDeletesNoDamagedOne) {
  MemoryFileSystem files;
  Retention retention(files, "d", "CKP", validated({.keep_checkpoint_max = 2}));
  for (const int64_t epoch : {1, 2, 3, 4}) save_at(files, epoch, 1);
  damage(files, "d/CKP-4_1.ckpt");
  files.remove("d/CKP-3_1.ckpt.manifest");
  EXPECT_THAT(retention.apply(), IsEmpty()) << "1 and 2 are the two verified ones";
  save_at(files, 5, 1);
  EXPECT_THAT(retention.apply(), ElementsAre("CKP-1_1.ckpt"));
  overwrite(files, "d/CKP-5_1.ckpt", "cut");  // after it was verified
  save_at(files, 6, 1);
  EXPECT_THAT(retention.apply(), IsEmpty());
  EXPECT_THAT(checkpoints_in(files),
              ElementsAre("CKP-2_1.ckpt", "CKP-3_1.ckpt", "CKP-4_1.ckpt", "CKP-5_1.ckpt", "CKP-6_1.ckpt"));
}

TEST(Retention, CountsTheRunsOfATrainingTogether) {
  MemoryFileSystem files;
  const auto config = validated({.keep_checkpoint_max = 3});
  const auto run = [&](const std::string& prefix, int64_t first, int64_t last) {
    Retention retention(files, "d", prefix, config, {.base_prefix = "LM", .training_id = "one"});
    for (int64_t epoch = first; epoch <= last; ++epoch) {
      save_at(files, epoch, 1, prefix, 0, "one");
      retention.apply();
    }
  };
  run("LM", 1, 5);
  run("LM_1", 6, 6);
  EXPECT_THAT(checkpoints_in(files), ElementsAre("LM-4_1.ckpt", "LM-5_1.ckpt", "LM_1-6_1.ckpt"));
  run("LM_2", 5, 6);  // goes on from an earlier epoch: what it saves is newer all the same
  EXPECT_THAT(checkpoints_in(files), ElementsAre("LM_1-6_1.ckpt", "LM_2-5_1.ckpt", "LM_2-6_1.ckpt"));
}

TEST(Retention, LeavesOtherTrainingsAlone) {
  MemoryFileSystem files;
  save_at(files, 1, 1, "LM", 0, "another");
  save_at(files, 2, 1, "LM_1", 0, "");
  save_at(files, 3, 1, "LM_2", 0, "one");
  files.remove("d/LM_2-3_1.ckpt.manifest");
  save_at(files, 4, 1, "LM_3", 0, "one", "named otherwise");
  save_at(files, 5, 1, "LMX", 0, "one");
  overwrite(files, "d/LM-9_9.ckpt.tmp", "left by a crash of the other");
  const auto before = files.list("d");
  Retention retention(files, "d", "LM_4", validated({.keep_checkpoint_max = 1}),
                      {.base_prefix = "LM", .job_name = "texts", .training_id = "one"});
  EXPECT_THAT(retention.apply(), IsEmpty());
  EXPECT_EQ(files.list("d"), before);
  save_at(files, 6, 1, "LM_4", 0, "two", "texts");
  save_at(files, 7, 1, "LM_5", 0, "three", "texts");
  overwrite(files, "d/LM_4-8_8.ckpt.tmp", "left by a crash of an earlier run");
  overwrite(files, "d/LM_4-8_8.ckpt.saving", "");
  Retention next(files, "d", "LM_5", validated({.keep_checkpoint_max = 1}),
                 {.base_prefix = "LM", .job_name = "texts", .training_id = "three"});
  EXPECT_THAT(next.apply(), ElementsAre("LM_4-6_1.ckpt")) << "of the same name";
  EXPECT_TRUE(files.exists("d/LM-9_9.ckpt.tmp"));
  EXPECT_FALSE(files.exists("d/LM_4-8_8.ckpt.tmp"));
  EXPECT_FALSE(files.exists("d/LM_4-8_8.ckpt.saving"));
}

TEST(Retention, KeepsTheOldestOfEachWindowAndTheNewest) {
  MemoryFileSystem files;
  Retention retention(files, "d", "CKP", validated({.keep_checkpoint_max = 0, .keep_checkpoint_per_n_minutes = 10}));
  for (int64_t step = 1; step <= 8; ++step) {  // every four minutes
    save_at(files, 1, step, "CKP", step * 240'000);
    retention.apply();
  }
  // Minutes 4, 16 and 28 begin windows; minute 32 is the newest.
  EXPECT_THAT(checkpoints_in(files), ElementsAre("CKP-1_1.ckpt", "CKP-1_4.ckpt", "CKP-1_7.ckpt", "CKP-1_8.ckpt"));
}

TEST(Retention, KeepingOneSurvivesACrashAtAnyInstant) {
  CrashFileSystem files;
  Retention retention(files, "d", "CKP", validated({.keep_checkpoint_max = 1}));
  save_at(files, 1, 1);
  retention.apply();
  const size_t first = files.num_operations();
  for (const int64_t epoch : {2, 3}) {
    save_at(files, epoch, 1);
    retention.apply();
  }
  int64_t newest = 1;
  for_each_crash(files, first, [&](MemoryFileSystem& state) {
    const auto choice = find_newest(state, "d", "CKP");
    ASSERT_TRUE(choice.found());
    EXPECT_EQ(choice.state, Verified::kYes);
    EXPECT_THAT(load(state, choice.path).find("w")->read().to_doubles(),
                testing::Each(static_cast<double>(choice.position.epoch)));
    newest = std::max(newest, choice.position.epoch);
  });
  EXPECT_EQ(newest, 3);
  EXPECT_THAT(checkpoints_in(files), ElementsAre("CKP-3_1.ckpt"));
}

// As versions before marks were written left them: NAME.ckpt went first.
TEST(Retention, RemovesWhatIsLeftOfARunOfItsTrainingOfWhichNothingIsWhole) {
  MemoryFileSystem files;
  save_at(files, 1, 1, "LM", 0, "one");
  save_at(files, 2, 1, "LM_1", 0, "another");
  for (const char* path : {"d/LM-1_1.ckpt", "d/LM_1-2_1.ckpt"}) files.remove(path);
  overwrite(files, "d/LM-1_1.ckpt.rank_1", "slices");
  overwrite(files, "d/LM_1-2_1.ckpt.rank_1", "slices");
  save_at(files, 3, 1, "LM_2", 0, "one");
  Retention(files, "d", "LM_2", validated({.keep_checkpoint_max = 1}), {.base_prefix = "LM", .training_id = "one"})
      .apply();
  EXPECT_THAT(files.list("d"),
              ElementsAre("LM_1-2_1.ckpt.manifest", "LM_1-2_1.ckpt.rank_1", "LM_2-3_1.ckpt", "LM_2-3_1.ckpt.manifest"))
      << "what is left of another training's is its own";
}

// They stay as long as the checkpoint would: whoever has the missing file can put it back.
TEST(Retention, RemovesWhatIsLeftOfACheckpointThatHasLostItsFileOnceEnoughNewerOnesAreWhole) {
  const CheckpointConfig by_number{.keep_checkpoint_max = 2};
  const CheckpointConfig by_time{.keep_checkpoint_max = 0, .keep_checkpoint_per_n_minutes = 10};
  for (const int64_t newest : {4, 3}) {
    MemoryFileSystem files;
    Retention retention(files, "d", "CKP", validated(newest == 4 ? by_number : by_time));
    for (const int64_t epoch : {1, 2}) save_at(files, epoch, 1, "CKP", epoch * 3'600'000);
    overwrite(files, "d/CKP-2_1.ckpt.rank_1", "slices");
    files.remove("d/CKP-2_1.ckpt");
    for (int64_t epoch = 3; epoch <= newest; ++epoch) {
      retention.apply();
      EXPECT_TRUE(files.exists("d/CKP-2_1.ckpt.rank_1")) << epoch;
      save_at(files, epoch, 1, "CKP", epoch * 3'600'000);
    }
    testing::internal::CaptureStderr();
    retention.apply();
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                HasSubstr("d/CKP-2_1.ckpt: is missing; d/CKP-2_1.ckpt.manifest describes it; what is left of it is "
                          "removed, for"));
    for (const auto& name : files.list("d")) EXPECT_FALSE(name.starts_with("CKP-2_1.ckpt")) << name;
    EXPECT_TRUE(files.exists(fmt::format("d/CKP-{}_1.ckpt", newest)));
  }
}

TEST(Retention, LeavesAloneWhatSomebodyIsSaving) {
  MemoryFileSystem files;
  save_at(files, 1, 1);
  for (const char* name : {"CKP-2_1.ckpt.tmp", "CKP-2_1.ckpt.manifest.new", "CKP-2_1.ckpt.rank_1"}) {
    overwrite(files, join_path("d", name), "x");
  }
  Retention retention(files, "d", "CKP", validated({.keep_checkpoint_max = 1}));
  {
    const auto held = files.try_lock("d/CKP-2_1.ckpt.saving");
    const auto before = files.list("d");
    retention.apply();
    EXPECT_EQ(files.list("d"), before);
  }
  retention.apply();
  EXPECT_THAT(files.list("d"), ElementsAre("CKP-1_1.ckpt", "CKP-1_1.ckpt.manifest"))
      << "whoever was saving has ended without";
}

TEST(Retention, EndsRemovalsThatWereBegunWhoeverBeganThem) {
  MemoryFileSystem files;
  files.create_directories("d");
  for (const char* name : {"LM-1_1.ckpt.removing", "LM-1_1.ckpt.manifest", "LM-1_1.ckpt.rank_1",
                           "LM_1-1_1.ckpt.removing", "other-1_1.ckpt.removing"}) {
    overwrite(files, join_path("d", name), "x");
  }
  Retention(files, "d", "LM_2", validated({}), {.base_prefix = "LM", .training_id = "one"}).finish_removals();
  EXPECT_THAT(files.list("d"), ElementsAre("other-1_1.ckpt.removing")) << "of another prefix";
  // A name that is in use again.
  save_at(files, 1, 1, "LM", 0, "one");
  overwrite(files, "d/LM-1_1.ckpt.removing", "x");
  Retention(files, "d", "LM", validated({}), {}).apply();
  EXPECT_THAT(files.list("d"), ElementsAre("LM-1_1.ckpt", "LM-1_1.ckpt.manifest", "other-1_1.ckpt.removing"));
}

TEST(FindNewest, GoesByNumbersNotNames) {
  MemoryFileSystem files;
  for (const auto& [epoch, step] : std::vector<std::pair<int64_t, int64_t>>{{9, 5}, {10, 2}, {10, 10}, {10, 9}}) {
    save_at(files, epoch, step);
  }
  EXPECT_EQ(find_newest(files, "d", "CKP").path, "d/CKP-10_10.ckpt");
}

TEST(FindNewest, SkipsDamagedOnesWithTheirReasonAndDeletesNothing) {
  MemoryFileSystem files;
  for (const int64_t epoch : {1, 2, 3}) save_at(files, epoch, 4);
  damage(files, "d/CKP-3_4.ckpt");
  overwrite(files, "d/CKP-2_4.ckpt.manifest", "junk");
  const auto before = files.list("d");
  const auto choice = find_newest(files, "d", "CKP");
  EXPECT_EQ(choice.path, "d/CKP-1_4.ckpt");
  ASSERT_EQ(choice.skipped.size(), 2U);
  EXPECT_THAT(choice.skipped[0].reason, HasSubstr("the tensor \"w\" f32[8] at byte 0 is damaged"));
  EXPECT_THAT(choice.skipped[1].reason, HasSubstr("d/CKP-2_4.ckpt.manifest: is no manifest"));
  EXPECT_THAT(choice.describe(), testing::EndsWith("chosen d/CKP-1_4.ckpt (epoch 1, step 4)"));
  EXPECT_EQ(files.list("d"), before);
}

TEST(FindNewest, TakesSuccessorsOfThePrefix) {
  MemoryFileSystem files;
  save_at(files, 5, 4);
  save_at(files, 6, 4, "CKP_2");
  save_at(files, 9, 4, "CKPX");
  EXPECT_EQ(find_newest(files, "d", "CKP").path, "d/CKP_2-6_4.ckpt");
  EXPECT_EQ(find_newest(files, "d", "").path, "d/CKPX-9_4.ckpt");
}

TEST(FindNewest, TakesTheLatestSuccessorWhoeverLooks) {
  MemoryFileSystem files;
  for (const char* prefix : {"CKP", "CKP_10", "CKP_9"}) save_at(files, 5, 4, prefix);
  EXPECT_EQ(find_newest(files, "d", "CKP").path, "d/CKP_10-5_4.ckpt");
  EXPECT_EQ(find_newest(files, "d", "").path, "d/CKP_10-5_4.ckpt");
  EXPECT_EQ(Candidates(files, "d").chosen().path, "d/CKP_10-5_4.ckpt");
  EXPECT_EQ(paths_of(open_checkpoint(files, "d")), std::vector<std::string>{"d/CKP_10-5_4.ckpt"});
}

TEST(FindNewest, TakesAVerifiedOneBeforeANewerOneWithoutAManifest) {
  MemoryFileSystem files;
  for (const int64_t epoch : {5, 6, 7, 8}) save_at(files, epoch, 4);
  for (const int64_t epoch : {6, 8}) files.remove(fmt::format("d/CKP-{}_4.ckpt.manifest", epoch));
  damage(files, "d/CKP-7_4.ckpt");
  const auto choice = find_newest(files, "d", "CKP");
  EXPECT_EQ(choice.path, "d/CKP-5_4.ckpt");
  EXPECT_EQ(choice.state, Verified::kYes);
  ASSERT_EQ(choice.skipped.size(), 3U);
  EXPECT_EQ(choice.skipped[0].reason,
            "d/CKP-8_4.ckpt: is newer, but has no manifest, so nothing shows whether it is whole; to take it, name it");
  EXPECT_THAT(choice.skipped[1].reason, HasSubstr("d/CKP-7_4.ckpt: crc32c is"));
  EXPECT_THAT(choice.skipped[2].reason, HasSubstr("d/CKP-6_4.ckpt: is newer, but has no manifest"));
}

TEST(FindNewest, TakesOneWithoutAManifestWhereNoneIsVerified) {
  MemoryFileSystem files;
  for (const int64_t epoch : {5, 6, 7}) save_at(files, epoch, 4);
  for (const int64_t epoch : {5, 6}) files.remove(fmt::format("d/CKP-{}_4.ckpt.manifest", epoch));
  damage(files, "d/CKP-7_4.ckpt");
  const auto choice = find_newest(files, "d", "CKP");
  EXPECT_EQ(choice.path, "d/CKP-6_4.ckpt");
  EXPECT_EQ(choice.state, Verified::kNoManifest);
  EXPECT_THAT(choice.describe(), HasSubstr("not verified"));
  ASSERT_EQ(choice.skipped.size(), 1U) << "what is older was not passed over";
  EXPECT_EQ(choice.skipped[0].path, "d/CKP-7_4.ckpt");
}

TEST(FindNewest, NoneIsNotAnErrorButAllDamagedIs) {
  MemoryFileSystem files;
  EXPECT_NO_THROW(find_newest(files, "d", "CKP").require_usable());
  save_at(files, 1, 4);
  damage(files, "d/CKP-1_4.ckpt");
  EXPECT_THAT(message_of([&] { find_newest(files, "d", "CKP").require_usable(); }),
              HasSubstr("d: the only checkpoint there cannot be used:\n    d/CKP-1_4.ckpt: crc32c is"));
}

TEST(FindNewest, NamesTenOfManyThatCannotBeUsed) {
  MemoryFileSystem files;
  for (int64_t epoch = 1; epoch <= 12; ++epoch) {
    save_at(files, epoch, 4);
    damage(files, fmt::format("d/CKP-{}_4.ckpt", epoch));
  }
  const auto message = message_of([&] { find_newest(files, "d", "CKP").require_usable(); });
  EXPECT_THAT(message, HasSubstr("d: none of the 12 checkpoints there can be used:\n    d/CKP-12_4.ckpt: crc32c is"));
  EXPECT_THAT(message, HasSubstr("\n    d/CKP-3_4.ckpt: crc32c is"));
  EXPECT_THAT(message, testing::Not(HasSubstr("d/CKP-2_4.ckpt")));
  EXPECT_THAT(message, testing::EndsWith("\n    and 2 more"));
}

TEST(FindNewest, ManyLinesAreSaidOfTheNewestOnly) {
  const std::string differences = ": is of another network\n  different (2):\n    a: f32[2] there\n    b: f32[3] there";
  const auto message = message_of([&] {
    refuse_all({{"d/CKP-3_4.ckpt", "d/CKP-3_4.ckpt" + differences},
                {"d/CKP-2_4.ckpt", "d/CKP-2_4.ckpt" + differences},
                {"d/CKP-1_4.ckpt", "d/CKP-1_4.ckpt: is of another network\n  different (1):\n    a: f32[2] there"}});
  });
  EXPECT_EQ(message, "d: none of the 3 checkpoints there can be used:\n    d/CKP-3_4.ckpt" + differences +
                         "\n    d/CKP-2_4.ckpt: is of another network: the same as above"
                         "\n    d/CKP-1_4.ckpt: is of another network: other differences than above");
}

TEST(FindNewest, WhatTheDiskDoesNotGiveIsPassedOverAndStaysAnErrorOfTheDisk) {
  BadSector files;
  for (const int64_t epoch : {1, 2}) save_at(files, epoch, 4);
  files.path = "d/CKP-2_4.ckpt";
  const auto choice = find_newest(files, "d", "CKP");
  EXPECT_EQ(choice.path, "d/CKP-1_4.ckpt");
  ASSERT_EQ(choice.skipped.size(), 1U);
  EXPECT_EQ(choice.skipped[0].reason, "d/CKP-2_4.ckpt: Input/output error");
  damage(files, "d/CKP-1_4.ckpt");
  EXPECT_THROW(find_newest(files, "d", "CKP").require_usable(), IoError);
  files.path.clear();
  damage(files, "d/CKP-2_4.ckpt");
  EXPECT_THROW(find_newest(files, "d", "CKP").require_usable(), NoUsableCheckpoint);
}

}  // namespace
}  // namespace tessera::checkpoint
