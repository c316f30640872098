#include "tessera/checkpoint/write/best_retention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tessera/checkpoint/manifest/file_names.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/testing/checkpoints/ranks_that_save.h"

namespace tessera::checkpoint {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

ScoredCheckpoint scored(int64_t step, double score) { return {checkpoint_name("best", step, 1), step, score}; }

std::vector<int64_t> steps_of(const BestList& list) {
  std::vector<int64_t> steps;
  for (const auto& checkpoint : list.checkpoints()) steps.push_back(checkpoint.step);
  return steps;
}

// Adds those that it takes, as steps 1, 2, ...
BestList list_of(BestList list, const std::vector<double>& scores) {
  int64_t step = 0;
  for (const double score : scores) {
    ++step;
    if (list.takes(score, step)) list.add(scored(step, score));
  }
  return list;
}

TEST(BestList, HasTheBestFirstAndOfEqualOnesTheEarlier) {
  EXPECT_THAT(steps_of(list_of({3, /*falls=*/true}, {4, 2, 2, 5, 2, 1})), ElementsAre(6, 2, 3));
  EXPECT_THAT(steps_of(list_of({3, /*falls=*/false}, {4, 2, 2, 5, 2, 4})), ElementsAre(4, 1, 6));
  EXPECT_THAT(steps_of(list_of({2, /*falls=*/true, /*min_delta=*/1}, {4, 3, 3, 2.5})), ElementsAre(4, 2));
}

TEST(BestList, TakesNothingThatIsNotFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(steps_of(list_of({3, /*falls=*/true}, {std::nan(""), infinity, -infinity, 1})), ElementsAre(4));
}

TEST(BestList, AStepThatIsSeenAgainTakesItsOwnPlace) {
  BestList list = list_of({2, /*falls=*/true}, {1, 2});
  EXPECT_TRUE(list.takes(9, 2)) << "worse than it was, but there are no two others";
  EXPECT_FALSE(list.takes(9, 3));
  list.add(scored(2, 9));
  EXPECT_THAT(list.checkpoints(), ElementsAre(scored(1, 1), scored(2, 9)));
}

void save_scored(FileSystem& files, const std::string& path, int64_t step, double score,
                 const std::string& training = "training", const std::string& entry = "best_loss") {
  const std::vector<Entry> entries = {Entry("w", Tensor::full({DType::kF32, {8}}, static_cast<double>(step)))};
  save(files, {.path = path, .append_info = {Entry(entry, Tensor::scalar(score))}}, entries,
       {.epoch = step, .step_in_epoch = 1, .step = step, .training_id = training});
}

BestRetention retention_of(FileSystem& files) { return {files, "d", "best", "training", "best_loss"}; }

std::vector<std::string> checkpoints_in(FileSystem& files) {
  auto names = files.list("d");
  std::erase_if(names, [](const std::string& name) { return !name.ends_with(".ckpt"); });
  return names;
}

TEST(BestRetention, FindsWhatIsOfTheTrainingWholeAndHasTheNumber) {
  MemoryFileSystem files;
  EXPECT_THAT(retention_of(files).find(), IsEmpty()) << "a directory that is missing";
  save_scored(files, "d/best-1_1.ckpt", 1, 0.5);
  save_scored(files, "d/best_1-2_1.ckpt", 2, 1e-300);
  save_scored(files, "d/best-3_1.ckpt", 3, 0.5, "another training");
  save_scored(files, "d/best-4_1.ckpt", 4, 0.5, "training", "best_accuracy");
  save_scored(files, "d/CKP-5_1.ckpt", 5, 0.5);
  save_scored(files, "d/best-6_1.ckpt", 6, 0.5);
  auto bytes = files.read_text("d/best-6_1.ckpt");
  bytes.back() ^= 1;
  overwrite(files, "d/best-6_1.ckpt", bytes);
  save_scored(files, "d/best-7_1.ckpt", 7, std::nan(""));
  EXPECT_THAT(retention_of(files).find(), UnorderedElementsAre(ScoredCheckpoint{"best-1_1.ckpt", 1, 0.5},
                                                               ScoredCheckpoint{"best_1-2_1.ckpt", 2, 1e-300}));
}

TEST(BestRetention, RemovesOnlyWhatItHasSeen) {
  MemoryFileSystem files;
  save_scored(files, "d/best-1_1.ckpt", 1, 4);
  auto retention = retention_of(files);
  retention.find();
  save_scored(files, "d/CKP-2_1.ckpt", 2, 4);
  save_scored(files, "d/best-2_1.ckpt", 2, 4, "another training");
  save_scored(files, "d/best-3_1.ckpt", 3, 1);
  EXPECT_THAT(retention.keep_only(std::vector{scored(3, 1)}), ElementsAre("best-1_1.ckpt"));
  EXPECT_THAT(checkpoints_in(files), ElementsAre("CKP-2_1.ckpt", "best-2_1.ckpt", "best-3_1.ckpt"));
}

TEST(BestRetention, ACrashBetweenWriteAndRemovalLeavesWholeCheckpoints) {
  CrashFileSystem files;
  save_scored(files, "d/best-1_1.ckpt", 1, 4);
  save_scored(files, "d/best-2_1.ckpt", 2, 1);
  auto retention = retention_of(files);
  retention.find();
  const size_t first = files.num_operations();
  save_scored(files, "d/best-3_1.ckpt", 3, 2);
  retention.keep_only(std::vector{scored(2, 1), scored(3, 2)});
  bool was_both = false;
  const int states = for_each_crash(files, first, [&](MemoryFileSystem& state) {
    // The best of all is whole at any moment, and two checkpoints at least.
    auto next = retention_of(state);
    const auto found = next.find();
    EXPECT_GE(found.size(), 2U);
    EXPECT_THAT(found, testing::Contains(scored(2, 1)));
    was_both = was_both || found.size() == 3;
    BestList list(2, /*falls=*/true);
    for (const auto& checkpoint : found) list.add(checkpoint);
    // Who goes on ends what was begun.
    save_scored(state, "d/best_1-4_1.ckpt", 4, 0.5);
    list.add({"best_1-4_1.ckpt", 4, 0.5});
    next.keep_only(list.checkpoints());
    EXPECT_THAT(checkpoints_in(state), ElementsAre("best-2_1.ckpt", "best_1-4_1.ckpt"));
  });
  EXPECT_GT(states, 100);
  EXPECT_TRUE(was_both) << "a crash between the commit and the removal";
}

}  // namespace
}  // namespace tessera::checkpoint
