// Power loss at any instant of a commit: the operations of a save that replaces the only checkpoint there is are
// recorded, and what a disk may have kept of them is put together again, every prefix and samples of what was not
// synced. A job must always find the step before or the one that was being saved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <iostream>

#include "tessera/base/random.h"
#include "tessera/checkpoint/lock/find_writer.h"
#include "tessera/checkpoint/write/best_retention.h"
#include "tessera/checkpoint/write/checkpoint_config.h"
#include "tessera/checkpoint/write/retention.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"
#include "tests/faults/storage.h"

namespace tessera::checkpoint::faults {
namespace {

using testing::AnyOf;
using testing::Optional;

constexpr uint64_t kSeed = 20250309;
constexpr int64_t kStates = 10'000;
constexpr int64_t kFlips = 100'000;

// How step n is saved where step n-1 is the only one that is kept.
struct Commit {
  std::string name;
  std::function<void(FileSystem&, int64_t step)> save;
  std::function<std::optional<int64_t>(FileSystem&)> recover = [](FileSystem& files) { return recovered_step(files); };
};

void save_over(FileSystem& files, int64_t step) {
  save(files, {.path = "d/CKP-1_1.ckpt", .append_info = {Entry::number("step_num", step)}}, entries_of_step(step),
       info_of_step(step));
}

constexpr int kRanks = 4;

// All ranks call save, the lowest writes and removes.
void save_by_ranks(FileSystem& files, int64_t step) {
  const auto messages = ThreadBarrier::run(kRanks, [&](Barrier& barrier) {
    const int writer = find_writer(files, barrier, "d");
    save(files,
         {.path = path_of_step(step),
          .append_info = {Entry::number("step_num", step)},
          .barrier = &barrier,
          .writer = writer},
         entries_of_step(step), info_of_step(step));
    if (writer == barrier.rank()) Retention(files, "d", "CKP", validated({.keep_checkpoint_max = 1})).apply();
  });
  ASSERT_THAT(messages, testing::Each("no error"));
}

const std::vector<Commit>& commits() {
  static const std::vector<Commit> all = {
      {"ANewName", [](FileSystem& files, int64_t step) { save_step_keeping(files, step, 1); }},
      {"TheSameName", save_over},
      {"FourRanksOneWrites", save_by_ranks},
      {"FourRanksWriteSlices",
       [](FileSystem& files, int64_t step) { save_step_in_slices(files, step, kRanks, path_of_step(step), 1); }},
      {"FourRanksWriteSlicesOverTheSameName",
       [](FileSystem& files, int64_t step) { save_step_in_slices(files, step, kRanks, "d/CKP-1_1.ckpt"); }},
  };
  return all;
}

struct CrashStates : testing::TestWithParam<Commit> {
  // Records the commit of step 2 after that of step 1.
  void SetUp() override {
    GetParam().save(files, 1);
    first = files.num_operations();
    GetParam().save(files, 2);
    last = files.num_operations();
  }
  void expect_recovery(size_t count, Unsynced unsynced, uint64_t seed) {
    SCOPED_TRACE(fmt::format("after operation {} ({}), unsynced {}, seed {}", count, files.describe(count),
                             static_cast<int>(unsynced), seed));
    const auto state = files.crash_state(count, unsynced, seed);
    const auto found = GetParam().recover(*state);
    if (HasFailure()) return;  // one report is enough
    ASSERT_THAT(found, AnyOf(Optional(1), Optional(2)));
    seen[*found] = true;
    ASSERT_TRUE(count < last || *found == 2) << "a commit that returned is durable";
    // What the crash left is in nobody's way.
    if (seed % 16 == 0) {
      GetParam().save(*state, 3);
      ASSERT_EQ(GetParam().recover(*state), 3);
    }
    ++cases;
  }
  void TearDown() override {
    EXPECT_TRUE(seen[1] && seen[2]) << "the crashes must fall on both sides of the commit";
    std::cout << cases << " cases, " << (HasFailure() ? 1 : 0) << " failures: crash states of a commit, "
              << GetParam().name << ", " << last - first << " operations, seed " << kSeed << "\n";
  }

  CrashFileSystem files;
  size_t first = 0;
  size_t last = 0;
  int64_t cases = 0;
  std::map<int64_t, bool> seen;
};
INSTANTIATE_TEST_SUITE_P(, CrashStates, testing::ValuesIn(commits()),
                         [](const auto& parameter) { return parameter.param.name; });

TEST_P(CrashStates, F29_EveryPrefixLeavesThisStepOrTheOneBefore) {
  for (size_t count = first; count <= last; ++count) {
    for (const auto unsynced : {Unsynced::kKept, Unsynced::kLost, Unsynced::kContentLost}) {
      expect_recovery(count, unsynced, 0);
    }
  }
}

TEST_P(CrashStates, F29_SampledLossesAndOrdersLeaveThisStepOrTheOneBefore) {
  const auto operations = static_cast<int64_t>(last - first) + 1;
  for (int64_t i = 0; i < sample_size(kStates); ++i) {
    const auto draw = static_cast<uint64_t>(i);
    const auto count = first + static_cast<size_t>(random_below({.seed = kSeed}, draw, operations));
    expect_recovery(count, Unsynced::kRandom, kSeed + draw);
    if (HasFailure()) return;
  }
}

// The names of files that are of no whole checkpoint.
std::vector<std::string> remains(FileSystem& files) {
  auto names = files.list("d");
  for (const auto& name : files.list("d")) {
    const auto path = join_path("d", name);
    if (!name.ends_with(".ckpt") || verify(files, path).state != Verified::kYes) continue;
    std::erase_if(names, [&](const std::string& other) { return other.starts_with(name); });
  }
  return names;
}

// The second run of a training removes what is left of the first, so that no other checkpoint says whose the remains
// are; the third goes on.
TEST(Removals, F29_EveryPrefixIsEndedByTheNextRunWhichRemovesNothingElse) {
  constexpr int kSavers = 3;
  const auto retention_of = [](FileSystem& files, const std::string& prefix) {
    return Retention(files, "d", prefix, validated({.keep_checkpoint_max = 1}),
                     {.base_prefix = "CKP", .training_id = "training"});
  };
  CrashFileSystem files;
  for (const int64_t step : {1, 2}) save_step_in_slices(files, step, kSavers, path_of_step(step));
  save_step_in_slices(files, 3, kSavers, "d/CKP_1-1_3.ckpt");
  // Another training's, under the same prefix and under another one.
  const auto save_of_another = [&](const std::string& path) {
    save(files, {.path = path}, entries_of_step(9), {.epoch = 1, .step_in_epoch = 9, .training_id = "another"});
  };
  save_of_another("d/CKP_7-1_9.ckpt");
  save_of_another("d/other-1_9.ckpt");
  const size_t first = files.num_operations();
  EXPECT_THAT(retention_of(files, "CKP_1").apply(), testing::ElementsAre("CKP-1_1.ckpt", "CKP-1_2.ckpt"));
  int64_t interrupted = 0;
  const auto cases = for_each_crash(files, first, [&](MemoryFileSystem& state) {
    ASSERT_EQ(verify(state, "d/CKP_1-1_3.ckpt").state, Verified::kYes);
    interrupted += remains(state).empty() ? 0 : 1;
    // When the next run begins, and when it has saved.
    auto retention = retention_of(state, "CKP_2");
    retention.finish_removals();
    EXPECT_THAT(remains(state), testing::IsEmpty());
    save_step_in_slices(state, 4, kSavers, "d/CKP_2-1_4.ckpt");
    retention.apply();
    EXPECT_THAT(state.list("d"),
                testing::ElementsAre("CKP_2-1_4.ckpt", "CKP_2-1_4.ckpt.manifest", "CKP_2-1_4.ckpt.rank_1",
                                     "CKP_2-1_4.ckpt.rank_2", "CKP_7-1_9.ckpt", "CKP_7-1_9.ckpt.manifest",
                                     "other-1_9.ckpt", "other-1_9.ckpt.manifest"));
  });
  EXPECT_GT(interrupted, cases / 2);
  std::cout << cases << " cases, " << (testing::Test::HasFailure() ? 1 : 0) << " failures: crash states of a removal, "
            << files.num_operations() - first << " operations\n";
}

// The best two of a training, of which the worse one goes when a better one is committed: by four ranks, each with a
// file of slices of its own.
TEST(Removals, F29_TheBestOnesAreWholeWhenAWorseOneGoes) {
  constexpr int kSavers = 4;
  const auto scored = [](int64_t step) {
    // The best first: 2, 3, 1.
    return ScoredCheckpoint{base_name(path_of_step(step)), step, step == 1 ? 9.0 : static_cast<double>(step)};
  };
  const auto whole_steps = [](FileSystem& state) {
    std::vector<int64_t> steps;
    for (const int64_t step : {1, 2, 3}) {
      const auto path = path_of_step(step);
      if (!state.exists(path) || verify(state, path).state != Verified::kYes) continue;
      if (step_of(load(state, path)) == step) steps.push_back(step);
    }
    return steps;
  };
  CrashFileSystem files;
  // What these checkpoints carry beside their values is the number of their step.
  BestRetention retention(files, "d", "CKP", "training", "step_num");
  for (const int64_t step : {1, 2}) save_step_in_slices(files, step, kSavers, path_of_step(step));
  EXPECT_EQ(retention.find().size(), 2U);
  const size_t first = files.num_operations();
  save_step_in_slices(files, 3, kSavers, path_of_step(3));
  EXPECT_THAT(retention.keep_only(std::vector{scored(2), scored(3)}), testing::ElementsAre("CKP-1_1.ckpt"));
  const auto cases = for_each_crash(files, first, [&](MemoryFileSystem& state) {
    const auto steps = whole_steps(state);
    EXPECT_GE(steps.size(), 2U) << "as many as before the save";
    EXPECT_THAT(steps, testing::Contains(2)) << "the best one of all";
    BestRetention next(state, "d", "CKP", "training", "step_num");
    EXPECT_EQ(next.find().size(), steps.size());
  });
  std::cout << cases << " cases, " << (testing::Test::HasFailure() ? 1 : 0)
            << " failures: crash states of the best checkpoints, " << files.num_operations() - first << " operations\n";
}

// In the newest of two checkpoints, in any of its files.
void flip_bits(MemoryFileSystem& files, const std::string& what) {
  std::vector<std::string> names;
  std::vector<std::string> contents;
  size_t bits = 0;
  const auto path = path_of_step(2);
  for (const auto& name : files.list("d")) {
    if (!name.starts_with(base_name(path))) continue;
    names.push_back(join_path("d", name));
    contents.push_back(files.read_text(names.back()));
    bits += 8 * contents.back().size();
  }
  int64_t missed = 0;
  const auto flips = sample_size(kFlips);
  for (int64_t i = 0; i < flips; ++i) {
    auto bit = static_cast<size_t>(
        random_below({.seed = kSeed, .stream = 1}, static_cast<uint64_t>(i), static_cast<int64_t>(bits)));
    size_t which = 0;
    for (; bit >= 8 * contents[which].size(); ++which) bit -= 8 * contents[which].size();
    overwrite(files, names[which], with_flipped_bit(contents[which], bit));
    const auto choice = find_newest(files, "d", "CKP");
    // The step before stands in, and the reason names the file.
    const bool detected = choice.path == path_of_step(1) && choice.skipped.size() == 1 &&
                          choice.skipped[0].reason.find(names[which]) != std::string::npos;
    if (!detected && missed++ < 5) ADD_FAILURE() << "not detected: bit " << bit << " of " << names[which];
    overwrite(files, names[which], contents[which]);
  }
  std::cout << flips << " cases, " << missed << " failures: single bit flips in " << what << ", " << names.size()
            << " files, seed " << kSeed << "\n";
}

TEST(BitFlips, F35_EachOneIsDetected) {
  MemoryFileSystem files;
  save_step(files, 1);
  save_step(files, 2);
  flip_bits(files, "a checkpoint and its manifest");
}

TEST(BitFlips, F35_EachOneIsDetectedInTheFilesOfFourRanks) {
  MemoryFileSystem files;
  for (int64_t step = 1; step <= 2; ++step) save_step_in_slices(files, step, kRanks, path_of_step(step));
  flip_bits(files, "the files of four ranks and their manifest");
}

}  // namespace
}  // namespace tessera::checkpoint::faults
