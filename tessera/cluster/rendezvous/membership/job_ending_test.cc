// Claims about jobs that a loss ends: those nodes that are left save in a last generation, on a clock that stands still
// until it is moved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/cluster/rendezvous/membership/job_scheduler.h"
#include "tessera/cluster/rendezvous/membership/test_scheduler.h"

namespace tessera::cluster::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr SchedulerOptions kOneRestart = {.num_workers = 4, .max_restarts = 1};
constexpr const char* kLost = "node b (rank 1 at left) is lost: killed by SIGKILL";

Leave lost(const std::string& node_id, uint64_t at_ns) {
  return {.node_id = node_id, .at_ns = at_ns, .failed = true, .reason = "killed by SIGKILL"};
}

// Four nodes, of which a launcher has b and c; rank 0 has said that those that are left would save.
struct EndingJob : Job {
  explicit EndingJob(const SchedulerOptions& options, const TellLastSave& said = {.is_training = true})
      : Job(options), launcher(launch({"b", "c"})) {
    for (const char* id : {"a", "b", "c", "d"}) peers.push_back(begin(id, 1));
    say(peers[0], said);
  }
  // The first loss is survived, the second one ends the job.
  void lose_twice() {
    say(launcher, lost("b", 2));
    say(launcher, lost("b", 4));
  }
  void meet() {
    peers.clear();
    for (const char* id : {"a", "c", "d"}) peers.push_back(begin(id, 5));
  }
  std::string last_reason(PeerId peer) {
    const auto* assigned = last_of<Assigned>(peer);
    return assigned == nullptr ? "" : assigned->last_reason;
  }

  PeerId launcher;
  std::vector<PeerId> peers;
};

TEST(LastGeneration, IsOfTheNodesThatAreLeftWithDenseRanksWhoSaveAndEndTheJob) {
  EndingJob job(kOneRestart);
  job.lose_twice();
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
  ASSERT_NE(job.last_of<NodeDropped>(job.launcher), nullptr) << "it is not started again";
  EXPECT_EQ(job.last_of<NodeDropped>(job.launcher)->reason,
            "killed by SIGKILL; the ranks that are left save what they have kept, and the job ends");
  EXPECT_TRUE(job.last_of<NodeDropped>(job.launcher)->ends_job);
  job.meet();
  ASSERT_EQ(job.scheduler.generation(), 2U);
  EXPECT_THAT((std::vector<int>{job.rank_of(job.peers[0]), job.rank_of(job.peers[1]), job.rank_of(job.peers[2])}),
              ElementsAre(0, 1, 2));
  EXPECT_EQ(job.last_of<Assigned>(job.peers[0])->size, 3U);
  EXPECT_EQ(job.last_reason(job.peers[0]), kLost);
  EXPECT_EQ(job.last_of<Assigned>(job.launcher)->nodes.size(), 1U) << "b has no rank";
  EXPECT_EQ(job.scheduler.status().reason, kLost);
  const std::string words = std::string(kLost) + "; the ranks that are left have saved what was kept";
  job.say(job.peers[0], Leave{.node_id = "a", .at_ns = 6, .failed = true, .reason = words, .for_good = true});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  EXPECT_EQ(job.scheduler.failure(), words);
}

TEST(LastGeneration, ComesOfALossThatEndsAJobWhichRuns) {
  EndingJob job({.num_workers = 4, .min_ranks = 4, .max_ranks = 4});
  job.say(job.launcher, lost("b", 2));
  job.meet();
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_THAT(job.last_reason(job.peers[0]), HasSubstr("killed by SIGKILL; the job needs 4 ranks at least"));
}

TEST(LastGeneration, ComesWhenTheTimeToJoinIsOver) {
  EndingJob job({.num_workers = 4, .max_restarts = 9, .join_timeout_ms = 5000});
  job.say(job.launcher, lost("b", 2));
  job.meet();
  job.pass(4900);
  EXPECT_EQ(job.scheduler.generation(), 1U) << "b may come back";
  job.pass(200);
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_THAT(job.last_reason(job.peers[2]), HasSubstr("not there: b within 5000 ms"));
}

TEST(LastGeneration, IsThereOnlyWhereItWouldSave) {
  const auto failure = [](const TellLastSave& said) {
    EndingJob job(kOneRestart, said);
    job.lose_twice();
    EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
    return job.scheduler.failure();
  };
  EXPECT_EQ(failure({.is_training = false}), "node b failed: killed by SIGKILL");
  EXPECT_EQ(failure({.is_training = true, .unsaved_for = "no ModelCheckpoint is among the callbacks: add one"}),
            "node b failed: killed by SIGKILL; what the ranks that are left have kept is not saved: no ModelCheckpoint "
            "is among the callbacks: add one");
}

TEST(LastGeneration, IsWithoutThoseThatAreLostBeforeItBegins) {
  EndingJob job(kOneRestart);
  job.lose_twice();
  const PeerId a = job.begin("a", 5);
  const PeerId d = job.begin("d", 5);
  job.say(job.launcher, lost("c", 6));
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_THAT((std::vector<int>{job.rank_of(a), job.rank_of(d)}), ElementsAre(0, 1));
  EXPECT_EQ(job.last_reason(a), kLost) << "the first one has ended the job";
}

TEST(LastGeneration, OfNobodyIsNone) {
  EndingJob job(kOneRestart);
  job.lose_twice();
  job.say(job.launcher, lost("c", 6));
  for (const size_t place : {0U, 3U}) job.say(job.peers[place], lost(place == 0 ? "a" : "d", 6));
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  EXPECT_THAT(job.scheduler.failure(), HasSubstr(std::string(kLost) + "; the ranks that were left have not said"));
}

TEST(LastGeneration, ThatLosesARankEndsTheJobWithTheFirstLoss) {
  EndingJob job(kOneRestart);
  job.lose_twice();
  job.meet();
  job.say(job.launcher, lost("c", 6));
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  EXPECT_EQ(job.scheduler.failure(), std::string(kLost) +
                                         "; the ranks that were left have not said that what they had kept is saved: "
                                         "node c (rank 1 at left): killed by SIGKILL");
}

TEST(LastGeneration, OfWhichOneHasSaidWhatIsSavedSaysSoHoweverItEnds) {
  const std::string saved = "the ranks that are left have saved what was kept";
  const auto failure = [&](const auto& end) {
    EndingJob job(kOneRestart);
    job.lose_twice();
    job.meet();
    job.say(job.peers[0], SetBlob{std::string(kLastSave), saved});
    end(job);
    return job.scheduler.failure();
  };
  const std::string words = std::string(kLost) + "; " + saved;
  EXPECT_EQ(failure([](EndingJob& job) { job.say(job.launcher, lost("c", 6)); }), words);
  EXPECT_EQ(failure([](EndingJob& job) {
              const char* ids[] = {"a", "c", "d"};
              for (size_t i = 0; i < 3; ++i) job.say(job.peers[i], Leave{.node_id = ids[i], .at_ns = 6});
            }),
            words);
  EXPECT_EQ(failure([](EndingJob& job) {
              job.say(job.peers[0],
                      Leave{.node_id = "a", .at_ns = 6, .failed = true, .reason = "its own", .for_good = true});
            }),
            words);
}

TEST(LastGeneration, WhoseRanksEndWellHasFailedAllTheSame) {
  EndingJob job(kOneRestart);
  job.lose_twice();
  job.meet();
  const char* ids[] = {"a", "c", "d"};
  for (size_t i = 0; i < 3; ++i) job.say(job.peers[i], Leave{.node_id = ids[i], .at_ns = 6});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  EXPECT_THAT(job.scheduler.failure(), HasSubstr("is saved: its ranks have ended without it"));
}

TEST(LastGeneration, WhoseRankEndsWithAnotherErrorNamesTheLossAllTheSame) {
  EndingJob job(kOneRestart);
  job.lose_twice();
  job.meet();
  job.say(job.peers[0], Leave{.node_id = "a", .at_ns = 6, .failed = true, .reason = "exit code 1", .for_good = true});
  EXPECT_EQ(job.scheduler.failure(), std::string(kLost) + "; exit code 1");
}

TEST(LastGeneration, GoesOnWithoutThoseThatHaveNotComeInTime) {
  EndingJob job({.num_workers = 4, .max_restarts = 1, .join_timeout_ms = 5000});
  job.lose_twice();
  const PeerId a = job.begin("a", 5);
  const PeerId d = job.begin("d", 5);
  job.pass(4900);
  EXPECT_EQ(job.scheduler.generation(), 1U) << "c may come";
  job.pass(200);
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_THAT((std::vector<int>{job.rank_of(a), job.rank_of(d)}), ElementsAre(0, 1));
}

TEST(LastGeneration, IsNotSaidToBeAJobThatGoesOn) {
  EndingJob job({.num_workers = 4, .max_restarts = 1, .join_timeout_ms = 5000});
  job.lose_twice();
  job.say(job.launcher, lost("c", 6));
  const auto* dropped = job.last_of<NodeDropped>(job.launcher);
  EXPECT_EQ(dropped->node_id, "c");
  EXPECT_TRUE(dropped->ends_job);
  EXPECT_THAT(dropped->reason, HasSubstr("killed by SIGKILL; the ranks that are left save what they have kept"));
  // d is connected, and has not come when the time to meet is over.
  const PeerId a = job.begin("a", 5);
  job.pass(5100);
  ASSERT_EQ(job.scheduler.generation(), 2U);
  EXPECT_EQ(job.rank_of(a), 0);
  ASSERT_NE(job.last_of<Fenced>(job.peers[3]), nullptr);
  EXPECT_THAT(job.last_of<Fenced>(job.peers[3])->reason, testing::StartsWith("the job cannot go on without node d: "));
  const PeerId late = job.begin("d", 1);
  EXPECT_EQ(job.last_of<Fenced>(late)->reason, "the job ends: its ranks save what they have kept");
  for (const std::string& news : job.scheduler.take_news()) EXPECT_THAT(news, testing::Not(HasSubstr("goes on")));
}

TEST(LastGeneration, TakesNobodyIn) {
  EndingJob job({.num_workers = 4, .min_ranks = 4, .max_ranks = 6});
  job.say(job.launcher, lost("b", 2));
  const PeerId newcomer = job.begin("x", 3);
  EXPECT_EQ(job.refusal_of(newcomer), "the job ends: its ranks save what they have kept");
}

}  // namespace
}  // namespace tessera::cluster::rendezvous
