// Claims about the scheduler's file: it comes back, and what is damaged is never taken for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tessera/base/error.h"
#include "tessera/cluster/rendezvous/membership/scheduler_state.h"

namespace tessera::cluster::rendezvous {
namespace {

SchedulerState example_state() {
  return {.num_workers = 2,
          .generation = 5,
          .last_token = 9,
          .num_losses = 3,
          .is_running = true,
          .has_ended_by_itself = true,
          .nodes = {{"a/0", "left", 1, 17, 29, 4, 8, true, false, true},
                    {"b/0", "right", 0, 18, 0, 0, 9, true, false, false, true, true, 31}},
          .blobs = {{"seed", "42"}, {"decisions", std::string(1000, 'p')}},
          .num_ranks = 2,
          .num_first_ranks = 3,
          .fixed_by = "its strategies are for 2 ranks",
          .dropped = {{"c/0", 7}},
          .has_told_of_newcomers = true,
          .is_over = true,
          .end = {true, "b/0", 0, "the shape is wrong"}};
}

TEST(SchedulerStateFile, ComesBackAndOnlyItsOwnerReadsIt) {
  const std::string folder = testing::TempDir() + fmt::format("scheduler_state_{}", getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder + "/job";
  save_scheduler_state(FileSystem::local(), path, example_state());
  const SchedulerState loaded = load_scheduler_state(FileSystem::local(), path);
  EXPECT_EQ(print_scheduler_state(loaded), print_scheduler_state(example_state()));
  EXPECT_EQ(loaded.nodes[1].node_id, "b/0");
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  std::filesystem::remove_all(folder);
}

TEST(SchedulerStateFile, HasRoomForAScriptThatMakesThousandsOfModels) {
  constexpr size_t kLineOfSeed = 23;
  constexpr size_t kLineOfTraining = 200;
  EXPECT_GE(find_blob_rules("seed")->max_bytes, 100'000 * kLineOfSeed);
  EXPECT_GE(find_blob_rules("checkpoints")->max_bytes, 10'000 * kLineOfTraining);
  SchedulerState state = example_state();
  for (const char* name : {"seed", "decisions", "kernel table", "checkpoints", "last save"}) {
    state.blobs[name] = std::string(find_blob_rules(name)->max_bytes, 'x');
  }
  MemoryFileSystem files;
  save_scheduler_state(files, "job", state);
  EXPECT_EQ(load_scheduler_state(files, "job").blobs, state.blobs);
}

TEST(SchedulerStateFile, IsEmptyWhereThereIsNone) {
  MemoryFileSystem files;
  EXPECT_EQ(load_scheduler_state(files, "job").generation, 0U);
}

TEST(SchedulerStateFile, EachCutAndEachFlippedBitIsNoticed) {
  const std::string whole = print_scheduler_state(example_state());
  FrameError error;
  ASSERT_TRUE(parse_scheduler_state(whole, error));
  for (size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(parse_scheduler_state(whole.substr(0, length), error)) << length;
  }
  for (size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_FALSE(parse_scheduler_state(damaged, error)) << bit;
  }
}

TEST(SchedulerStateFile, DamageIsSaidWithThePath) {
  MemoryFileSystem files;
  files.write_atomically("job", "no state");
  try {
    load_scheduler_state(files, "job");
    FAIL();
  } catch (const IoError& e) {
    EXPECT_STREQ(e.what(), "the scheduler's state \"job\" is no state of a scheduler: remove it to begin a new job");
  }
}

TEST(SchedulerStateFile, OneOfAnotherVersionIsSaidToBeThat) {
  std::string earlier = print_scheduler_state(example_state());
  earlier.replace(0, 4, "TRS8");
  FrameError error;
  EXPECT_FALSE(parse_scheduler_state(earlier, error));
  EXPECT_EQ(error.what, "is of another version of Tessera: it is a TRS8, this one reads TRS9");
}

TEST(SchedulerStateFile, AStateThatCannotBeIsRefused) {
  const auto why = [](const SchedulerState& state) {
    FrameError error;
    EXPECT_FALSE(parse_scheduler_state(print_scheduler_state(state), error));
    return error.what;
  };
  SchedulerState two_ranks = example_state();
  two_ranks.nodes[1].rank = 1;
  EXPECT_EQ(why(two_ranks), "has two nodes with one rank");
  SchedulerState beyond = example_state();
  beyond.nodes[0].rank = 2;
  EXPECT_EQ(why(beyond), "has a node with a rank that cannot be");
  SchedulerState grown = example_state();
  grown.num_ranks = 3;
  grown.nodes[0].rank = 2;
  FrameError error;
  EXPECT_TRUE(parse_scheduler_state(print_scheduler_state(grown), error))
      << "an elastic job has more ranks than workers";
  SchedulerState unordered = example_state();
  std::swap(unordered.nodes[0], unordered.nodes[1]);
  EXPECT_EQ(why(unordered), "has nodes that are not in order");
  SchedulerState other = example_state();
  other.blobs["weights"] = "w";
  EXPECT_EQ(why(other), "has a state that no job has");
}

}  // namespace
}  // namespace tessera::cluster::rendezvous
