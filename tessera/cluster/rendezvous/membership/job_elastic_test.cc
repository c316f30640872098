// Claims about the membership of elastic jobs, on a clock that stands still until it is moved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/cluster/rendezvous/membership/job_scheduler.h"
#include "tessera/cluster/rendezvous/membership/test_scheduler.h"

namespace tessera::cluster::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr SchedulerOptions kElastic = {.num_workers = 4, .min_ranks = 2, .max_ranks = 6, .rank_timeout_ms = 2000};

SchedulerOptions with_restarts(int64_t max_restarts) {
  SchedulerOptions options = kElastic;
  options.max_restarts = max_restarts;
  return options;
}

// Four nodes whose processes have begun at `started_ns`.
std::vector<PeerId> four(Job& job, uint64_t started_ns = 1) {
  std::vector<PeerId> peers;
  for (const char* id : {"a", "b", "c", "d"}) peers.push_back(job.begin(id, started_ns));
  return peers;
}

Leave killed(const std::string& node_id, uint64_t at_ns) {
  return {.node_id = node_id, .at_ns = at_ns, .failed = true, .reason = "killed by SIGKILL"};
}

uint32_t size_of(Job& job, PeerId peer) {
  const auto* assigned = job.last_of<Assigned>(peer);
  return assigned == nullptr ? 0 : assigned->size;
}

TEST(ElasticJob, ANodeThatIsNotBackInTimeIsDroppedAndTheOthersGoOnWithDenseRanks) {
  Job job(with_restarts(9));
  const PeerId launcher = job.launch({"b"});
  const auto peers = four(job);
  ASSERT_EQ(job.scheduler.generation(), 1U);
  job.say(launcher, killed("b", 2));
  EXPECT_EQ(job.last_of<NodeDropped>(launcher), nullptr) << "it may come back";
  const std::vector<PeerId> anew = {job.begin("a", 3), job.begin("c", 3), job.begin("d", 3)};
  job.pass(1900);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
  job.pass(200);
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_THAT((std::vector<int>{job.rank_of(anew[0]), job.rank_of(anew[1]), job.rank_of(anew[2])}),
              ElementsAre(0, 1, 2));
  EXPECT_EQ(size_of(job, anew[0]), 3U);
  ASSERT_NE(job.last_of<NodeDropped>(launcher), nullptr);
  EXPECT_EQ(job.last_of<NodeDropped>(launcher)->reason, "it has not come back within 2000 ms");
  // What the launcher says of its end comes late, and is no loss.
  job.say(launcher, killed("b", 5));
  EXPECT_EQ(job.refusal_of(launcher), "");
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.scheduler.state().num_losses, 1U);
}

// Whoever waits to be taken in may die when the others have begun to take it in.
TEST(ElasticJob, ANewcomerThatDiesWhileItIsTakenInIsNotWaitedFor) {
  for (const bool is_told : {false, true}) {
    Job job(with_restarts(0));
    const auto peers = four(job);
    const PeerId launcher = job.launch({"x"});
    const PeerId newcomer = job.begin("x", 1);
    job.scheduler.disconnect(newcomer);
    std::vector<PeerId> anew;
    for (const char* id : {"a", "b", "c", "d"}) anew.push_back(job.begin(id, 3));
    ASSERT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
    if (is_told) {
      job.say(launcher, killed("x", 4));
    } else {
      job.scheduler.disconnect(launcher);
      job.beat(anew);
      job.pass(6000);
    }
    EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning) << is_told;
    EXPECT_EQ(size_of(job, anew[3]), 4U) << is_told;
  }
}

TEST(ElasticJob, ANewcomerThatEndsWellBeforeItJoinsIsNotWaitedFor) {
  Job job(with_restarts(0));
  four(job);
  const PeerId launcher = job.launch({"x"});
  job.say(launcher, Leave{.node_id = "x", .at_ns = 2});
  std::vector<PeerId> anew;
  for (const char* id : {"a", "b", "c", "d"}) anew.push_back(job.begin(id, 3));
  // They have heard of somebody who is not there any more.
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  EXPECT_EQ(size_of(job, anew.back()), 4U);
}

TEST(ElasticJob, ANodeThatIsTakenInAndEndsWellBeforeItJoinsIsDropped) {
  Job job(with_restarts(0));
  four(job);
  const PeerId launcher = job.launch({"x"});
  std::vector<PeerId> anew;
  for (const char* id : {"a", "b", "c", "d"}) anew.push_back(job.begin(id, 3));
  ASSERT_EQ(job.scheduler.generation(), 2U);
  ASSERT_EQ(size_of(job, anew[0]), 5U);
  job.say(launcher, Leave{.node_id = "x", .at_ns = 4});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kWaiting) << "the others begin anew without it";
  for (const char* id : {"a", "b", "c", "d"}) anew.push_back(job.begin(id, 5));
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  EXPECT_EQ(size_of(job, anew.back()), 4U);
}

TEST(ElasticJob, ANodeThatTakesPartIsNotDisplacedWhereNoRestartsAreLeft) {
  Job job(with_restarts(0));
  four(job);
  const PeerId again = job.join("a", 2);
  EXPECT_EQ(job.refusal_of(again), "node a takes part in the job already, which has no restarts left");
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
}

TEST(ElasticJob, ANodeThatIsBackInTimeHasItsRank) {
  Job job(with_restarts(9));
  const auto peers = four(job);
  job.say(peers[1], killed("b", 2));
  job.begin("a", 3);
  job.begin("c", 3);
  job.begin("d", 3);
  job.pass(1900);
  const PeerId back = job.join("b", 2);
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_EQ(job.rank_of(back), 1);
  EXPECT_EQ(size_of(job, back), 4U);
}

TEST(ElasticJob, WithoutRestartsLeftItGoesOnAtOnceAndTheLauncherHearsThatFirst) {
  Job job(kElastic);
  const PeerId launcher = job.launch({"b"});
  const auto peers = four(job);
  job.scheduler.take_news();
  job.say(launcher, killed("b", 2));
  const auto& heard = job.heard[launcher];
  ASSERT_GE(heard.size(), 2U);
  EXPECT_TRUE(std::holds_alternative<NodeDropped>(heard[heard.size() - 2].message));
  EXPECT_TRUE(std::holds_alternative<GenerationEnded>(heard.back().message)) << "at which it starts what it may";
  EXPECT_THAT(job.scheduler.take_news(), ElementsAre("node b (rank 1 at left) is lost: killed by SIGKILL; generation 1 "
                                                     "has ended (the job goes on without it)"));
  const PeerId a = job.begin("a", 3);
  job.begin("c", 3);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
  job.begin("d", 3);
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_EQ(size_of(job, a), 3U);
  EXPECT_EQ(job.scheduler.status().num_workers, 3U);
  EXPECT_EQ(job.scheduler.status().num_missing, 0U);
}

TEST(ElasticJob, ASilentNodeOfWhichTheOthersHaveHeardFirstIsALossToo) {
  for (const int64_t restarts : {0, 1}) {
    Job job(with_restarts(restarts));
    const auto peers = four(job);
    job.scheduler.disconnect(peers[3]);
    const PeerId a = job.begin("a", 3);  // it has heard from d's connection that its process has ended
    job.begin("b", 3);
    job.begin("c", 3);
    job.pass(5100);
    EXPECT_EQ(job.scheduler.state().num_losses, 1U);
    EXPECT_EQ(job.scheduler.generation(), restarts == 0 ? 2U : 1U);
    job.pass(2000);
    EXPECT_EQ(job.scheduler.generation(), 2U);
    EXPECT_EQ(size_of(job, a), 3U);
  }
}

TEST(ElasticJob, TwoMoreLossesEndWhatNeedsTwoRanks) {
  Job job(kElastic);
  uint64_t now = 1;
  std::vector<std::string> left = {"a", "b", "c", "d"};
  for (const size_t size : {4U, 3U, 2U}) {
    std::vector<PeerId> peers;
    for (const std::string& id : left) peers.push_back(job.begin(id, now));
    ASSERT_EQ(job.scheduler.phase(), JobPhase::kRunning);
    EXPECT_EQ(size_of(job, peers[0]), size);
    job.say(peers.back(), killed(left.back(), ++now));
    left.pop_back();
    ++now;
  }
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  EXPECT_EQ(job.scheduler.failure(), "node b failed: killed by SIGKILL; the job needs 2 ranks at least");
}

TEST(ElasticJob, WhoComesWhileItRunsIsTakenInWhenTheOthersBeginAnew) {
  Job job(kElastic);
  const auto peers = four(job);
  const PeerId launcher = job.launch({"bb/0", "bb/1"});
  EXPECT_TRUE(job.last_of<Welcome>(launcher)->is_newcomer);
  EXPECT_EQ(job.last_of<Assigned>(launcher), nullptr);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning) << "nobody is disturbed";
  EXPECT_EQ(job.last_of<GenerationEnded>(peers[0]), nullptr);
  ASSERT_NE(job.last_of<HeartbeatAnswer>(peers[3]), nullptr) << "it hears of them at once";
  EXPECT_EQ(job.last_of<HeartbeatAnswer>(peers[3])->num_newcomers, 2U);
  EXPECT_EQ(job.refusal_of(job.join("e")), "the job has up to 6 workers, and all places are taken");

  const auto anew = four(job, 3);  // after the next save
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_EQ(size_of(job, launcher), 6U);
  ASSERT_EQ(job.last_of<Assigned>(launcher)->nodes.size(), 2U);
  EXPECT_EQ(job.last_of<Assigned>(launcher)->nodes[0].rank, 2U) << "in the order of node ids";
  EXPECT_EQ(job.rank_of(anew[3]), 5);
  EXPECT_EQ(job.scheduler.state().num_losses, 0U);
  const PeerId worker = job.join("bb/1");
  EXPECT_EQ(job.rank_of(worker), 3);
}

TEST(ElasticJob, WhoTakesThePlaceOfALostNodeIsWaitedForInItsStead) {
  SchedulerOptions options = with_restarts(9);
  options.max_ranks = 4;
  Job job(options);
  const PeerId launcher = job.launch({"c", "d"});
  const auto peers = four(job);
  job.say(launcher, killed("d", 2));
  const PeerId a = job.begin("a", 3);
  job.begin("b", 3);
  job.begin("c", 3);
  job.join("e");
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_EQ(size_of(job, a), 4U);
  EXPECT_NE(job.last_of<NodeDropped>(launcher), nullptr);
  EXPECT_NE(job.last_of<Fenced>(job.begin("d", 4)), nullptr) << "its launcher has started it again meanwhile";
  job.say(launcher, killed("d", 5));
  EXPECT_EQ(job.refusal_of(launcher), "");
}

TEST(ElasticJob, ANewcomerThatGoesAgainHarmsNobody) {
  Job job(kElastic);
  four(job);
  const PeerId launcher = job.launch({"e"});
  job.scheduler.disconnect(launcher);
  for (int i = 0; i < 6; ++i) job.pass(1000);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.scheduler.status().nodes.size(), 4U);
  EXPECT_EQ(job.scheduler.state().num_losses, 0U);
}

TEST(ElasticJob, AProcessThatWasDroppedStaysOutAndANewOneIsANewcomer) {
  Job job(kElastic);
  const PeerId launcher = job.launch({"c", "d"});
  const auto peers = four(job);
  job.say(launcher, killed("d", 2));
  for (const char* id : {"a", "b", "c"}) job.begin(id, 3);
  ASSERT_EQ(job.scheduler.generation(), 2U);
  const PeerId late = job.begin("d", 4);
  ASSERT_NE(job.last_of<Fenced>(late), nullptr);
  EXPECT_EQ(job.last_of<Fenced>(late)->reason, "the job goes on without node d");
  // The same is so for another scheduler, which has what this one has written; a launcher that comes again speaks for
  // those of its nodes that are left.
  FrameError error;
  const auto saved = parse_scheduler_state(print_scheduler_state(job.scheduler.state()), error);
  ASSERT_TRUE(saved) << error.what;
  Job again(kElastic, *saved);
  const PeerId back = again.launch({"c", "d"});
  EXPECT_EQ(again.refusal_of(back), "");
  ASSERT_EQ(again.last_of<Assigned>(back)->nodes.size(), 1U);
  EXPECT_EQ(again.last_of<Assigned>(back)->nodes[0].rank, 2U);
  EXPECT_EQ(size_of(again, back), 3U);
  EXPECT_NE(again.last_of<Fenced>(again.begin("d", 5, 2)), nullptr);
  const PeerId newer = again.join("d", 2);
  EXPECT_TRUE(again.last_of<Welcome>(newer)->is_newcomer);
}

TEST(ElasticJob, WhoLeavesForGoodIsNoLoss) {
  Job job(with_restarts(9));
  const PeerId launcher = job.launch({"d"});
  const auto peers = four(job);
  job.say(peers[3], Leave{.node_id = "d", .at_ns = 2, .failed = true, .reason = "told to end", .for_good = true});
  EXPECT_NE(job.last_of<NodeDropped>(launcher), nullptr);
  EXPECT_EQ(job.scheduler.state().num_losses, 0U);
  for (const char* id : {"a", "b", "c"}) job.begin(id, 3);
  EXPECT_EQ(job.scheduler.generation(), 2U) << "nobody waits for it";
}

TEST(ElasticJob, ByHandTheHighestRanksLeaveAndNewcomersAreTakenInAtOnce) {
  Job job(kElastic);
  const PeerId launcher = job.launch({"c", "d"});
  const auto peers = four(job);
  const PeerId by_hand = job.connect();
  job.say(by_hand, ResizeJob{2});
  EXPECT_EQ(job.refusal_of(by_hand), "");
  ASSERT_NE(job.last_of<JobStatus>(by_hand), nullptr);
  EXPECT_EQ(job.last_of<JobStatus>(by_hand)->num_missing, 2U) << "they begin anew";
  EXPECT_EQ(job.last_of<Fenced>(peers[3])->reason,
            "the job goes on without node d: the job is resized from 4 to 2 ranks");
  EXPECT_NE(job.last_of<NodeDropped>(launcher), nullptr);
  const PeerId a = job.begin("a", 3);
  job.begin("b", 3);
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_EQ(size_of(job, a), 2U);

  job.launch({"e", "f"});
  job.say(by_hand, ResizeJob{4});
  EXPECT_EQ(job.last_of<GenerationEnded>(a)->reason, "the job is resized from 2 to 4 ranks");
  EXPECT_FALSE(job.last_of<GenerationEnded>(a)->is_lost);
  job.begin("a", 5);
  const PeerId b = job.begin("b", 5);
  EXPECT_EQ(job.scheduler.generation(), 3U);
  EXPECT_EQ(size_of(job, b), 4U);
  EXPECT_EQ(job.scheduler.state().num_losses, 0U);
}

TEST(ElasticJob, ANumberThatItCannotHaveIsRefusedWithTheReason) {
  const auto refusal = [](Job& job, uint32_t num_ranks, const PeerIdentity& identity = {}) {
    const PeerId peer = job.connect(identity);
    job.say(peer, ResizeJob{num_ranks});
    return job.refusal_of(peer);
  };
  Job fixed({.num_workers = 1});
  fixed.join("a");
  EXPECT_EQ(refusal(fixed, 1),
            "the job has 1 rank, a number that stays: its scheduler was started without --min_ranks");
  Job job(kElastic);
  EXPECT_EQ(refusal(job, 3), "the job is waiting: it is resized while it runs");
  four(job);
  EXPECT_EQ(refusal(job, 1), "the job has from 2 to 6 ranks, got 1");
  EXPECT_EQ(refusal(job, 7), "the job has from 2 to 6 ranks, got 7");
  EXPECT_THAT(refusal(job, 5), HasSubstr("none wait to be taken in: start 1 more by `tessera run --join` first"));
  EXPECT_EQ(refusal(job, 3, {true, CertificateRole::kObserver, "*"}), "its certificate does not let it resize the job");
  job.launch({"e", "f"});
  EXPECT_THAT(refusal(job, 5), HasSubstr("2 wait to be taken in: it can be resized to 6, got 5"));
  EXPECT_EQ(job.scheduler.generation(), 1U);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
}

// With a spare, which takes the place of nobody who stops, and with restarts left, which nobody uses up.
TEST(ElasticJob, WhatCannotHaveTheNumberThatItIsAskedForSavesAndStopsWithTheWordsOfItsRanks) {
  SchedulerOptions options = with_restarts(9);
  options.max_ranks = 4;
  options.spares = 1;
  Job job(options);
  const auto peers = four(job);
  const PeerId spare = job.begin("x", 1);
  for (const PeerId peer : peers) job.say(peer, FixRanks{"its strategies are for 4 ranks"});
  job.beat(peers);
  EXPECT_EQ(job.last_of<HeartbeatAnswer>(peers[2])->stop_reason, "");
  job.scheduler.take_news();
  const PeerId by_hand = job.connect();
  job.say(by_hand, ResizeJob{2});
  EXPECT_EQ(job.refusal_of(by_hand), "");
  const std::string reason =
      "asked for 2 ranks in place of 4, which the job cannot have: its strategies are for 4 ranks";
  ASSERT_NE(job.last_of<JobStatus>(by_hand), nullptr);
  EXPECT_EQ(job.last_of<JobStatus>(by_hand)->phase, JobPhase::kRunning) << "until its ranks have saved";
  EXPECT_EQ(job.last_of<JobStatus>(by_hand)->reason, reason);
  EXPECT_THAT(job.scheduler.take_news(), ElementsAre(reason + "; it saves what it has and stops"));
  EXPECT_EQ(job.last_of<HeartbeatAnswer>(peers[2])->stop_reason, reason) << "at once";
  job.beat({peers[3]});
  EXPECT_EQ(job.last_of<HeartbeatAnswer>(peers[3])->stop_reason, reason) << "and whenever it beats";

  const std::string last_words = reason + ": it stops after epoch 1, step 5, saved as saved/job-1_5.ckpt";
  job.say(peers[1], Leave{.node_id = "b", .at_ns = 2, .failed = true, .reason = last_words, .for_good = true});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  EXPECT_EQ(job.scheduler.failure(), last_words) << "which nobody's failure is";
  ASSERT_NE(job.last_of<JobEnded>(peers[0]), nullptr);
  EXPECT_EQ(job.last_of<JobEnded>(peers[0])->reason, last_words);
  EXPECT_NE(job.last_of<JobEnded>(spare), nullptr);
  EXPECT_EQ(job.scheduler.state().num_losses, 0U);
}

TEST(ElasticJob, WhatIsLostWhileItIsToSaveAndStopIsALossAsAnyOther) {
  Job job(with_restarts(9));
  const PeerId launcher = job.launch({"b"});
  const auto peers = four(job);
  job.say(peers[0], FixRanks{"its strategies are for 4 ranks"});
  job.say(job.connect(), ResizeJob{2});
  job.say(launcher, killed("b", 2));
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
  EXPECT_EQ(job.scheduler.state().num_losses, 1U);
  std::vector<PeerId> anew;
  for (const char* id : {"a", "b", "c", "d"}) anew.push_back(job.begin(id, 3));
  job.beat({anew[1]});
  EXPECT_THAT(job.last_of<HeartbeatAnswer>(anew[1])->stop_reason, HasSubstr("asked for 2 ranks in place of 4"))
      << "the next generation saves and stops";
}

// Nothing would be left of it.
TEST(ElasticJob, WhatWouldSaveNothingIsNotStoppedForANumberThatItCannotHave) {
  const auto refusal = [](Job& job, uint32_t num_ranks) {
    const PeerId peer = job.connect();
    job.say(peer, ResizeJob{num_ranks});
    return job.refusal_of(peer);
  };
  Job job(kElastic);
  const auto peers = four(job);
  job.say(peers[0], FixRanks{"it trains in pipeline", "no ModelCheckpoint is among its callbacks: add one"});
  EXPECT_EQ(refusal(job, 2),
            "the job's number of ranks stays 4: it trains in pipeline; it is not stopped for another number, for "
            "nothing of it would be saved: no ModelCheckpoint is among its callbacks: add one");
  EXPECT_EQ(refusal(job, 4), "") << "it has them";
  EXPECT_EQ(refusal(job, 7), "the job has from 2 to 6 ranks, got 7");
  job.beat(peers);
  EXPECT_EQ(job.last_of<HeartbeatAnswer>(peers[0])->stop_reason, "");
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  // Another scheduler in its place knows what the number is fixed by, and hears the rest when ranks come back.
  Job again(kElastic, job.scheduler.state());
  EXPECT_THAT(refusal(again, 2), HasSubstr("its ranks have not said yet whether they save"));
  const PeerId back = again.begin("a", 1, 1);
  again.say(back, FixRanks{"it trains in pipeline", ""});
  EXPECT_EQ(refusal(again, 2), "");
}

// Each rank may train by itself, with callbacks of its own.
TEST(ElasticJob, WhatOneOfSeveralRanksWouldNotSaveIsNotStoppedWhoeverSaysItLast) {
  const auto refusal = [](Job& job) {
    const PeerId peer = job.connect();
    job.say(peer, ResizeJob{2});
    return job.refusal_of(peer);
  };
  Job job(kElastic);
  const auto peers = four(job);
  job.say(peers[1], FixRanks{"its ranks train by themselves", "rank 1 has no ModelCheckpoint"});
  for (const size_t place : {3U, 0U, 2U}) job.say(peers[place], FixRanks{"its ranks train by themselves", ""});
  EXPECT_THAT(refusal(job), HasSubstr("nothing of it would be saved: rank 1 has no ModelCheckpoint"));
  job.say(peers[1], FixRanks{"its ranks train by themselves", ""});
  EXPECT_EQ(refusal(job), "") << "its next training saves";
}

TEST(ElasticJob, WhatWasToStopAndTrainsOnWithoutSavingIsAskedNoMore) {
  Job job(kElastic);
  const auto peers = four(job);
  for (const PeerId peer : peers) job.say(peer, FixRanks{"its strategies are for 4 ranks"});
  job.say(job.connect(), ResizeJob{2});
  ASSERT_NE(job.last_of<HeartbeatAnswer>(peers[2])->stop_reason, "");
  job.scheduler.take_news();
  // Its next training has no callback that saves.
  job.say(peers[0], FixRanks{"its strategies are for 4 ranks", "no ModelCheckpoint is among its callbacks"});
  EXPECT_EQ(job.last_of<HeartbeatAnswer>(peers[2])->stop_reason, "");
  EXPECT_THAT(
      job.scheduler.take_news(),
      ElementsAre("the job goes on, for nothing of it would be saved: no ModelCheckpoint is among its callbacks"));
  EXPECT_EQ(job.scheduler.status().reason, "");
  // A loss for good is none of what was asked for: the rank is named.
  job.say(peers[1], Leave{.node_id = "b", .at_ns = 2, .failed = true, .reason = "the disk is full", .for_good = true});
  EXPECT_THAT(job.scheduler.failure(), HasSubstr("node b failed: the disk is full"));
}

TEST(ElasticJob, WhatCannotGoOnWithOtherRanksWaitsForThemOrEndsAndSaysWhy) {
  for (const int64_t restarts : {0, 1}) {
    Job job(with_restarts(restarts));
    const auto peers = four(job);
    const PeerId newcomer = job.launch({"e"});
    job.say(peers[0], FixRanks{"its strategies are for 4 ranks"});
    EXPECT_THAT(job.refusal_of(newcomer),
                HasSubstr("the job's number of ranks stays 4: its strategies are for 4 ranks"));
    job.say(peers[1], killed("b", 2));
    if (restarts == 0) {
      EXPECT_EQ(job.scheduler.failure(),
                "node b failed: killed by SIGKILL; the job cannot go on with another number of ranks: its strategies "
                "are for 4 ranks");
      continue;
    }
    for (const char* id : {"a", "c", "d"}) job.begin(id, 3);
    job.pass(10000);
    job.beat({peers[0]});
    EXPECT_EQ(job.scheduler.phase(), JobPhase::kWaiting) << "as long as it takes to join";
    job.join("b", 2);
    EXPECT_EQ(job.scheduler.generation(), 2U);
  }
}

TEST(ElasticJob, WhatHasLostARankBeforeItSaysThatItNeedsItEnds) {
  Job job(kElastic);
  const auto peers = four(job);
  job.say(peers[3], killed("d", 2));
  const PeerId a = job.begin("a", 3);
  job.begin("b", 3);
  job.begin("c", 3);
  job.say(a, FixRanks{"it trains in semi_auto_parallel"});
  EXPECT_EQ(job.scheduler.failure(),
            "there are 3 ranks, the job has begun with 4, and its training cannot go on with another number: it trains "
            "in semi_auto_parallel");
}

TEST(ElasticJob, ItIsFinishedWhenThoseHaveLeftThatAreThere) {
  Job job(kElastic);
  const auto peers = four(job);
  job.say(peers[3], killed("d", 2));
  std::vector<PeerId> left;
  for (const char* id : {"a", "b", "c"}) left.push_back(job.begin(id, 3));
  const PeerId newcomer = job.launch({"e"});
  job.say(left[0], Leave{.node_id = "a", .at_ns = 4});
  job.say(left[1], Leave{.node_id = "b", .at_ns = 4});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  job.say(left[2], Leave{.node_id = "c", .at_ns = 4});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFinished);
  EXPECT_NE(job.last_of<JobEnded>(newcomer), nullptr);
}

// Others that have found out that a newcomer does not fit may begin anew before it has said that it leaves.
TEST(ElasticJob, ANewcomerThatDoesNotFitIsDroppedAndTheJobHasLostNobody) {
  for (const bool leaves_first : {false, true}) {
    Job job(with_restarts(0));
    four(job);
    const PeerId launcher = job.launch({"x"});
    for (const char* id : {"a", "b", "c", "d"}) job.begin(id, 3);
    ASSERT_EQ(job.scheduler.generation(), 2U);
    const PeerId newcomer = job.begin("x", 3);
    const Leave leaves = {.node_id = "x", .at_ns = 5, .failed = true, .reason = "it does not fit", .for_good = true};
    if (leaves_first) job.say(newcomer, leaves);
    job.begin("a", 5);
    if (!leaves_first) job.say(newcomer, leaves);
    for (const char* id : {"b", "c", "d"}) job.begin(id, 5);
    EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning) << job.scheduler.failure();
    EXPECT_EQ(job.scheduler.status().num_workers, 4U);
    EXPECT_EQ(job.scheduler.state().num_losses, 0U);
    ASSERT_NE(job.last_of<NodeDropped>(launcher), nullptr);
    EXPECT_EQ(job.last_of<NodeDropped>(launcher)->reason, "it does not fit");
    EXPECT_EQ(job.last_of<NodeDropped>(newcomer)->reason, "it does not fit");
  }
}

TEST(ElasticJob, ANewcomerWhoseProcessFailsBeforeItJoinsUsesUpNoRestarts) {
  Job job(with_restarts(9));
  four(job);
  const PeerId launcher = job.launch({"x"});
  std::vector<PeerId> anew;
  for (const char* id : {"a", "b", "c", "d"}) anew.push_back(job.begin(id, 3));
  ASSERT_EQ(size_of(job, anew[0]), 5U);
  job.say(launcher, Leave{.node_id = "x", .at_ns = 4, .failed = true, .reason = "exit code 2"});
  EXPECT_NE(job.last_of<NodeDropped>(launcher), nullptr) << "it is not started again";
  for (const char* id : {"a", "b", "c", "d"}) anew.push_back(job.begin(id, 5));
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  EXPECT_EQ(size_of(job, anew.back()), 4U);
  EXPECT_EQ(job.scheduler.state().num_losses, 0U);
}

// Ranks that were told of newcomers begin anew to take them in, whichever scheduler is there then.
TEST(ElasticJob, ASchedulerThatIsStartedAgainKnowsWhyRanksBeginAnew) {
  Job before(kElastic);
  four(before);
  before.scheduler.take_is_dirty();
  before.launch({"x"});
  EXPECT_TRUE(before.scheduler.take_is_dirty()) << "saved before the ranks hear of it";
  FrameError error;
  const auto saved = parse_scheduler_state(print_scheduler_state(before.scheduler.state()), error);
  ASSERT_TRUE(saved) << error.what;
  for (const bool is_back : {false, true}) {
    Job job(kElastic, *saved);
    if (is_back) job.launch({"x"});
    std::vector<PeerId> anew;
    for (const char* id : {"a", "b", "c", "d"}) anew.push_back(job.begin(id, 3));
    EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning) << job.scheduler.failure();
    EXPECT_EQ(job.scheduler.generation(), 2U);
    EXPECT_EQ(size_of(job, anew[0]), is_back ? 5U : 4U);
    EXPECT_EQ(job.scheduler.state().num_losses, 0U);
    EXPECT_FALSE(job.scheduler.state().has_told_of_newcomers) << "of the next generation nobody was told";
  }
}

TEST(ElasticJob, APlannedChangeNamesNobodyAndTellsWhoLeaves) {
  Job job(kElastic);
  const auto peers = four(job);
  job.launch({"x"});
  job.scheduler.take_news();
  job.begin("a", 3);
  EXPECT_THAT(job.scheduler.take_news(), ElementsAre("generation 1 has ended: 1 more rank is taken in"));
  const auto* ended = job.last_of<GenerationEnded>(peers[1]);
  ASSERT_NE(ended, nullptr);
  EXPECT_EQ(ended->node_id, "");
  EXPECT_FALSE(ended->is_lost);

  Job resized(kElastic);
  const auto of_resized = four(resized);
  resized.say(resized.connect(), ResizeJob{3});
  ASSERT_NE(resized.last_of<NodeDropped>(of_resized[3]), nullptr) << "so that it does not take itself for failed";
  EXPECT_EQ(resized.last_of<NodeDropped>(of_resized[3])->reason, "the job is resized from 4 to 3 ranks");
}

// A hang ends a generation by itself: whose silence it was is known when its process has been ended.
TEST(ElasticJob, ARankThatHangsIsBehindUntilItsProcessIsEndedAndIsOneLoss) {
  for (const int64_t restarts : {0, 1}) {
    Job job(with_restarts(restarts));
    const PeerId launcher = job.launch({"b"});
    const auto peers = four(job);
    const PeerId a = job.begin("a", 3);  // it has waited for b in vain
    job.begin("c", 3);
    job.begin("d", 3);
    const auto nodes = job.scheduler.status().nodes;
    EXPECT_EQ(nodes[0].state, NodeState::kPresent);
    EXPECT_EQ(nodes[1].state, NodeState::kBehind);
    job.say(peers[1], Leave{.node_id = "b", .at_ns = 4, .failed = true, .reason = "it hangs"});
    EXPECT_EQ(job.scheduler.state().num_losses, 1U);
    job.say(launcher, killed("b", 5));
    if (restarts > 0) job.begin("b", 6);
    EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning) << job.scheduler.failure();
    EXPECT_EQ(size_of(job, a), restarts > 0 ? 4U : 3U);
    EXPECT_EQ(job.scheduler.state().num_losses, 1U);
  }
}

constexpr SchedulerOptions kWithSpares = {
    .num_workers = 4, .min_ranks = 4, .max_ranks = 4, .rank_timeout_ms = 2000, .spares = 2};

TEST(Spares, WaitWithoutARankAndTakeThatOfWhoIsLostAtOnce) {
  Job job(kWithSpares);
  const PeerId launcher = job.launch({"b"});
  const auto peers = four(job);
  ASSERT_EQ(job.scheduler.generation(), 1U);
  const PeerId spare = job.begin("x", 1);
  EXPECT_EQ(job.rank_of(spare), -1);
  EXPECT_TRUE(job.last_of<Welcome>(spare)->is_newcomer);
  job.beat(peers);
  EXPECT_EQ(job.last_of<HeartbeatAnswer>(peers[0])->num_newcomers, 0U) << "nobody begins anew for a spare";
  job.say(launcher, killed("b", 2));
  ASSERT_NE(job.last_of<NodeDropped>(launcher), nullptr) << "it is not started again";
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
  const std::vector<PeerId> anew = {job.begin("a", 3), job.begin("c", 3), job.begin("d", 3)};
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_THAT((std::vector<int>{job.rank_of(anew[0]), job.rank_of(spare), job.rank_of(anew[1]), job.rank_of(anew[2])}),
              ElementsAre(0, 1, 2, 3))
      << "the others keep their ranks";
  EXPECT_EQ(size_of(job, spare), 4U);
  EXPECT_EQ(job.scheduler.state().num_losses, 0U);
}

TEST(Spares, ComeOneByOne) {
  Job job(kWithSpares);
  four(job);
  const PeerId both = job.launch({"x", "y"});
  EXPECT_EQ(job.refusal_of(both),
            "it brings 2 workers, and the job has room for 0: start each spare by a launcher of its own, `tessera run "
            "--join ... -n 1`");
  Job other(kWithSpares);
  for (const char* id : {"a", "b", "c"}) other.begin(id, 1);
  EXPECT_THAT(other.refusal_of(other.launch({"x", "y"})), HasSubstr("the job has room for 1"));
  EXPECT_EQ(other.refusal_of(other.launch({"x"})), "");
  EXPECT_EQ(other.scheduler.generation(), 1U);
}

TEST(Spares, OfAnotherProgramThanTheRanksAreRefusedAndTheJobGoesOn) {
  const auto come = [](Job& job, const std::string& id, uint64_t program) {
    const PeerId peer = job.connect();
    job.say(
        peer,
        Register{.role = PeerRole::kLauncher, .incarnation = 1, .host = "left", .node_ids = {id}, .program = program},
        0);
    return peer;
  };
  Job job(kWithSpares);
  for (const char* id : {"a", "b", "c"}) come(job, id, 7);
  come(job, "d", 8);  // ranks may have arguments of their own
  const auto peers = four(job);
  ASSERT_EQ(job.scheduler.generation(), 1U);
  EXPECT_THAT(job.refusal_of(come(job, "x", 9)), HasSubstr("must be started as the job's ranks were"));
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.refusal_of(come(job, "x", 8)), "");
  EXPECT_EQ(job.refusal_of(come(job, "y", 7)), "");
  // Where some ranks were started by hand, nobody knows.
  Job by_hand(kWithSpares);
  for (const char* id : {"a", "b", "c"}) come(by_hand, id, 7);
  four(by_hand);
  EXPECT_EQ(by_hand.refusal_of(come(by_hand, "x", 9)), "");
}

// Its state says nothing of them.
TEST(Spares, ComeBackToASchedulerThatIsStartedAgainBeforeItJudgesALoss) {
  Job before(kWithSpares);
  before.launch({"b"});
  four(before);
  before.begin("x", 1);
  for (const bool comes : {true, false}) {
    Job job(kWithSpares, before.scheduler.state());
    const PeerId launcher = job.launch({"b"});
    job.say(launcher, killed("b", 2));
    EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
    if (comes) job.begin("x", 1);
    job.pass(100);
    EXPECT_EQ(job.last_of<NodeDropped>(launcher) != nullptr, comes) << "the spare takes its place";
    EXPECT_EQ(job.scheduler.state().num_losses, 0U);
    if (comes) continue;
    job.pass(5000);
    EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
    EXPECT_THAT(job.scheduler.failure(), HasSubstr("node b failed: killed by SIGKILL"));
  }
}

TEST(Spares, AJobThatHasLostMoreThanTheyAreFails) {
  Job job(kWithSpares);
  const PeerId launcher = job.launch({"b"});
  const auto peers = four(job);
  const PeerId spare = job.begin("x", 1);
  job.say(launcher, killed("b", 2));
  ASSERT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
  job.scheduler.disconnect(peers[2]);
  for (int second = 0; second < 8; ++second) {
    job.beat({spare, peers[0], peers[3]});
    job.pass(1000);
  }
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  EXPECT_THAT(job.scheduler.failure(), HasSubstr("node c failed: its connection has ended"));
}

TEST(Spares, OfEachOneRankIsReplaced) {
  for (const int spares : {1, 2}) {
    Job job(kWithSpares);
    const PeerId launcher = job.launch({"b", "c"});
    four(job);
    std::vector<PeerId> waiting;
    for (int spare = 0; spare < spares; ++spare) waiting.push_back(job.begin(spare == 0 ? "x" : "y", 1));
    job.say(launcher, killed("b", 2));
    job.say(launcher, killed("c", 2));
    if (spares == 1) {
      EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed) << "no restarts, and no spare for the second";
      continue;
    }
    job.begin("a", 3);
    job.begin("d", 3);
    EXPECT_EQ(job.scheduler.generation(), 2U);
    EXPECT_THAT((std::vector<int>{job.rank_of(waiting[0]), job.rank_of(waiting[1])}), ElementsAre(1, 2));
  }
}

TEST(Spares, AreNoRanksOfTheFirstGeneration) {
  Job job(kWithSpares);
  const PeerId early = job.launch({"x", "y"});
  const auto peers = four(job);  // the last two wait
  EXPECT_EQ(job.scheduler.generation(), 1U) << "four are there";
  EXPECT_EQ(job.scheduler.state().num_ranks, 4U);
  const PeerId last = job.join("z");
  EXPECT_EQ(job.refusal_of(last), "the job has up to 6 workers, and all places are taken");
  EXPECT_EQ(job.refusal_of(early), "");
  EXPECT_NE(job.rank_of(peers[0]), -1);
}

TEST(Spares, AreThereWhereTheNumberOfRanksMustStay) {
  Job job(kWithSpares);
  const auto peers = four(job);
  const PeerId spare = job.begin("x", 1);
  job.say(peers[0], FixRanks{.reason = "it trains by a strategy"});
  EXPECT_EQ(job.refusal_of(spare), "");
  job.say(peers[3], killed("d", 2));
  for (const char* id : {"a", "b", "c"}) job.begin(id, 3);
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_EQ(job.rank_of(spare), 3);
}

TEST(Spares, ThatAreGoneLeaveNobodyToGoOnWith) {
  Job job(kWithSpares);
  const PeerId launcher = job.launch({"b"});
  four(job);
  job.scheduler.disconnect(job.launch({"x"}));
  job.say(launcher, killed("b", 2));
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  EXPECT_THAT(job.scheduler.failure(), HasSubstr("killed by SIGKILL"));
}

TEST(Spares, ThatAreGoneTakeNoRank) {
  SchedulerOptions options = kWithSpares;
  options.max_restarts = 3;
  Job job(options);
  const PeerId launcher = job.launch({"b"});
  four(job);
  const PeerId spare = job.begin("x", 1);
  job.scheduler.disconnect(spare);
  job.say(launcher, killed("b", 2));
  EXPECT_EQ(job.last_of<NodeDropped>(launcher), nullptr) << "it is started again";
  EXPECT_EQ(job.scheduler.state().num_losses, 1U);
}

}  // namespace
}  // namespace tessera::cluster::rendezvous
