// Claims about membership, on a clock that stands still until it is moved.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/cluster/rendezvous/membership/job_scheduler.h"
#include "tessera/cluster/rendezvous/membership/test_scheduler.h"

namespace tessera::cluster::rendezvous {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(JobScheduler, WhoComesAfterTheFailureHearsWhoseItWas) {
  Job job({.num_workers = 2});
  job.join("a");
  const PeerId b = job.join("b");
  job.say(b, Leave{.node_id = "b", .failed = true, .reason = "killed by SIGKILL"});
  ASSERT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  const PeerId late = job.join("a", 2);
  const auto* heard = job.last_of<JobEnded>(late);
  ASSERT_NE(heard, nullptr);
  EXPECT_TRUE(heard->failed);
  EXPECT_EQ(heard->node_id, "b");
  EXPECT_EQ(heard->rank, 1);
  EXPECT_EQ(heard->reason, "killed by SIGKILL");
  EXPECT_EQ(job.refusal_of(late), "");
}

TEST(JobScheduler, RanksFollowHostAndNodeIdNotTheOrderOfComing) {
  Job job({.num_workers = 5});
  const PeerId w10 = job.join("worker_10", 1, "left");
  const PeerId r0 = job.join("worker_0", 1, "right");
  const PeerId w2 = job.join("worker_2", 1, "left");
  const PeerId w1 = job.join("worker_1", 1, "left");
  EXPECT_EQ(job.rank_of(w10), -1);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
  const PeerId r1 = job.join("worker_11", 1, "right");
  EXPECT_THAT((std::vector<int>{job.rank_of(w1), job.rank_of(w2), job.rank_of(w10), job.rank_of(r0), job.rank_of(r1)}),
              ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.heard[w1].back().generation, 1U);
  EXPECT_FALSE(job.last_of<Assigned>(w1)->is_one_host);
}

TEST(JobScheduler, ServersHaveTheFirstRanksOnWhicheverHost) {
  Job job({.num_workers = 5});
  const auto come = [&](const std::string& host, std::vector<std::string> ids, uint32_t servers) {
    const PeerId peer = job.connect();
    const auto role = ids.size() > 1 ? PeerRole::kLauncher : PeerRole::kWorker;
    job.say(peer, Register{.role = role, .incarnation = 1, .host = host, .node_ids = ids, .num_servers = servers}, 0);
    return peer;
  };
  const PeerId launcher = come("a", {"a/0", "a/1", "a/2"}, 1);
  const PeerId worker = come("b", {"b"}, 0);
  const PeerId server = come("z", {"z"}, 1);
  const auto* ranks = job.last_of<Assigned>(launcher);
  ASSERT_NE(ranks, nullptr);
  EXPECT_EQ(ranks->num_servers, 2U);
  EXPECT_EQ(ranks->nodes[0].rank, 0U);
  EXPECT_EQ(job.rank_of(server), 1);
  EXPECT_EQ(ranks->nodes[1].rank, 2U);
  EXPECT_EQ(ranks->nodes[2].rank, 3U);
  EXPECT_EQ(job.rank_of(worker), 4);
  std::vector<std::string> servers;
  for (const NodeStatus& node : job.scheduler.status().nodes) {
    if (node.is_server) servers.push_back(node.node_id);
  }
  EXPECT_THAT(servers, ElementsAre("a/0", "z"));
  // Another scheduler, which has what this one has written, says the same.
  Job again({.num_workers = 5}, job.scheduler.state());
  const PeerId back = again.join("z", 1, "z", 0, 1);
  EXPECT_EQ(again.rank_of(back), 1);
  EXPECT_EQ(again.last_of<Assigned>(back)->num_servers, 2U);
}

TEST(JobScheduler, MoreServersThanNodesAreRefused) {
  Job job({.num_workers = 2});
  const PeerId peer = job.connect();
  job.say(peer, Register{.incarnation = 1, .host = "a", .node_ids = {"a"}, .num_servers = 2}, 0);
  EXPECT_EQ(job.refusal_of(peer), "it has more servers than nodes");
}

TEST(JobScheduler, OneHostIsOneNameAtOneAddress) {
  Job same({.num_workers = 2});
  const PeerId a = same.join("a");
  same.join("b");
  EXPECT_TRUE(same.last_of<Assigned>(a)->is_one_host);
  Job other({.num_workers = 2});
  const PeerId c = other.join("a");
  const PeerId d = other.connect({.address = "10.0.0.2"});
  other.say(d, Register{.incarnation = 1, .host = "left", .node_ids = {"b"}});
  EXPECT_FALSE(other.last_of<Assigned>(c)->is_one_host);
}

TEST(JobScheduler, ALauncherRegistersSeveralNodesWhichThenComeThemselves) {
  Job job({.num_workers = 3});
  const PeerId launcher = job.connect();
  job.say(launcher,
          Register{.role = PeerRole::kLauncher, .incarnation = 7, .host = "left", .node_ids = {"l/0", "l/1"}});
  const PeerId other = job.join("a", 3, "apart");
  const auto* assigned = job.last_of<Assigned>(launcher);
  ASSERT_NE(assigned, nullptr);
  EXPECT_EQ(assigned->nodes[0].rank, 1U);
  EXPECT_EQ(assigned->nodes[1].rank, 2U);
  EXPECT_EQ(job.rank_of(other), 0);
  const PeerId worker = job.join("l/1", 7);
  EXPECT_EQ(job.rank_of(worker), 2);
  EXPECT_EQ(job.last_of<Welcome>(worker)->token, job.last_of<Welcome>(launcher)->token);
  EXPECT_TRUE(job.ended.empty());
  const JobStatus status = job.scheduler.status();
  EXPECT_FALSE(status.nodes[1].is_started);
  EXPECT_TRUE(status.nodes[2].is_started);
}

TEST(JobScheduler, WorkersThatDoNotComeAreNamedWhenTheTimeIsOver) {
  Job job({.num_workers = 3, .join_timeout_ms = 2000});
  const PeerId a = job.join("a");
  const PeerId b = job.join("b", 1, "right");
  job.pass(1900);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
  job.pass(200);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  EXPECT_EQ(job.scheduler.failure(), "2 of 3 workers have come: a on left, b on right within 2000 ms");
  EXPECT_TRUE(job.last_of<JobEnded>(a)->failed);
  EXPECT_THAT(job.ended, ElementsAre(a, b));
}

TEST(JobScheduler, F14_OneTooManyIsRefusedAndHarmsNobody) {
  Job job({.num_workers = 2});
  const PeerId a = job.join("a");
  job.join("b");
  const PeerId c = job.join("c");
  EXPECT_EQ(job.refusal_of(c), "the job has 2 workers, and all places are taken");
  EXPECT_THAT(job.ended, ElementsAre(c));
  EXPECT_EQ(job.rank_of(a), 0);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
}

TEST(JobScheduler, AnotherNumberOfWorkersIsRefused) {
  Job job({.num_workers = 2});
  const PeerId a = job.connect();
  job.say(a, Register{.num_workers = 3, .host = "h", .node_ids = {"a"}});
  EXPECT_EQ(job.refusal_of(a), "the job has 2 workers, this peer says 3");
}

TEST(JobScheduler, ASilentNodeIsLostAfterItsTimeAndNotBefore) {
  Job job({.num_workers = 2, .node_timeout_ms = 1000});
  const PeerId a = job.join("a");
  const PeerId b = job.join("b");
  for (int i = 0; i < 20; ++i) {
    job.pass(100);
    job.beat({a});
    EXPECT_TRUE(i > 8 || job.scheduler.phase() == JobPhase::kRunning) << i;
  }
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  EXPECT_THAT(job.scheduler.failure(), HasSubstr("node b failed: it has said nothing for 1000 ms"));
  const auto* told = job.last_of<JobEnded>(a);
  EXPECT_EQ(told->rank, 1);
  EXPECT_NE(job.last_of<JobEnded>(b), nullptr);
}

TEST(JobScheduler, F07_ANodeThatIsHeardAgainInTimeIsNotLost) {
  Job job({.num_workers = 1, .node_timeout_ms = 1000});
  const PeerId a = job.join("a");
  for (int i = 0; i < 10; ++i) {
    job.pass(500);
    job.beat({a});
  }
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  EXPECT_NE(job.last_of<HeartbeatAnswer>(a), nullptr);
}

TEST(JobScheduler, ASchedulerThatWasStoppedItselfLosesNobody) {
  Job job({.num_workers = 1, .node_timeout_ms = 1000});
  job.join("a");
  job.pass(100);
  job.clock.sleep_ms(60000);
  job.scheduler.tick();
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  job.pass(1100);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
}

TEST(JobScheduler, AConnectionThatEndsMayComeBackWithTheSameRank) {
  Job job({.num_workers = 2, .reconnect_ms = 1000});
  const PeerId a = job.join("a");
  const PeerId b = job.join("b");
  job.scheduler.disconnect(b);
  job.pass(900);
  EXPECT_EQ(job.scheduler.status().nodes[1].state, NodeState::kSilent);
  const PeerId again = job.join("b", 1, "left", job.last_of<Welcome>(b)->token, 1);
  EXPECT_EQ(job.rank_of(again), 1);
  job.pass(1500);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  job.scheduler.disconnect(a);
  job.pass(1100);
  EXPECT_THAT(job.scheduler.failure(), HasSubstr("node a failed: its connection has ended and it has not come back"));
}

TEST(JobScheduler, F10_TheNewerIncarnationWinsAndTheOlderOneStaysOut) {
  Job job({.num_workers = 2});
  const PeerId old = job.join("a", 1);
  const PeerId newer = job.join("a", 2);
  EXPECT_THAT(job.ended, ElementsAre(old));
  EXPECT_EQ(job.last_of<Fenced>(old)->reason, "a newer process is node a now");
  const PeerId back = job.join("a", 1, "left", job.last_of<Welcome>(old)->token);
  EXPECT_NE(job.last_of<Fenced>(back), nullptr);
  job.join("b");
  EXPECT_EQ(job.rank_of(newer), 0);
  EXPECT_THAT(job.ended, ElementsAre(old, back));
}

TEST(JobScheduler, WithoutRecoveryARunningNodeIsNotDisplaced) {
  Job job({.num_workers = 1});
  job.join("a", 1);
  const PeerId newer = job.join("a", 2);
  EXPECT_EQ(job.refusal_of(newer), "node a takes part in the job already");
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
}

TEST(JobScheduler, F11_WithRecoveryARestartedNodeIsTakenAtOnceWithItsRankInANewGeneration) {
  Job job({.num_workers = 2, .max_restarts = 9});
  const PeerId a = job.join("a", 1);
  const PeerId b = job.join("b", 1);
  const PeerId newer = job.join("b", 2);  // before anybody has noticed that the first one is gone
  EXPECT_NE(job.last_of<Fenced>(b), nullptr);
  EXPECT_EQ(job.last_of<GenerationEnded>(a)->node_id, "b");
  EXPECT_EQ(job.rank_of(newer), -1);
  const PeerId anew = job.begin("a", 7);
  EXPECT_EQ(job.rank_of(newer), 1);
  EXPECT_EQ(job.rank_of(anew), 0);
  EXPECT_EQ(job.heard[anew].back().generation, 2U);
}

// A launcher that is killed and started again at once has its place, whatever of the one before is still on its way.
TEST(JobScheduler, F11_WhatComesLateOfAnOlderLauncherDoesNotDisplaceTheNewerOne) {
  Job first({.num_workers = 1, .max_restarts = 9});
  const auto come = [](Job& job, PeerRole role, uint64_t incarnation, uint64_t clock_id = 5) {
    const PeerId peer = job.connect();
    job.say(peer,
            Register{.role = role, .incarnation = incarnation, .clock_id = clock_id, .host = "left", .node_ids = {"a"}},
            0);
    return peer;
  };
  const PeerId old = come(first, PeerRole::kLauncher, 1000);
  const PeerId newer = come(first, PeerRole::kLauncher, 1001);
  EXPECT_NE(first.last_of<Fenced>(old), nullptr);
  // Another scheduler, which has what this one has written, knows it, too.
  Job again({.num_workers = 1, .max_restarts = 9}, first.scheduler.state());
  const PeerId back = come(again, PeerRole::kLauncher, 1001);
  for (auto [job, launcher] : {std::pair(&first, newer), std::pair(&again, back)}) {
    for (const PeerRole role : {PeerRole::kWorker, PeerRole::kLauncher}) {
      const PeerId late = come(*job, role, 1000);
      EXPECT_EQ(job->last_of<Fenced>(late)->reason, "a newer process is node a now");
    }
    EXPECT_EQ(job->last_of<Fenced>(launcher), nullptr);
    EXPECT_NE(job->last_of<Welcome>(come(*job, PeerRole::kWorker, 1001)), nullptr) << "its own rank";
    const PeerId newest = come(*job, PeerRole::kLauncher, 1002);
    EXPECT_NE(job->last_of<Fenced>(launcher), nullptr);
    EXPECT_NE(job->last_of<Welcome>(newest), nullptr);
    const PeerId elsewhere = come(*job, PeerRole::kLauncher, 7, 6);
    EXPECT_NE(job->last_of<Fenced>(newest), nullptr) << "of two hosts' clocks neither counts: who comes later is newer";
    EXPECT_NE(job->last_of<Welcome>(elsewhere), nullptr);
  }
}

TEST(JobScheduler, TellsItsOperatorWhoIsLostWhyAndWhenTheJobGoesOn) {
  Job job({.num_workers = 3, .max_restarts = 9, .reconnect_ms = 500});
  job.join("a", 1);
  const PeerId b = job.join("b", 1);
  EXPECT_THAT(job.scheduler.take_news(), IsEmpty());
  const PeerId c = job.join("c", 1, "right");
  EXPECT_THAT(job.scheduler.take_news(), ElementsAre("generation 1 begins: 3 ranks at 2 hosts"));
  job.say(b, Leave{.node_id = "b", .failed = true, .reason = "killed by SIGKILL"});
  EXPECT_THAT(job.scheduler.take_news(),
              ElementsAre("node b (rank 1 at left) is lost: killed by SIGKILL; generation 1 has "
                          "ended (1 of 9 losses that the job survives)"));
  job.scheduler.disconnect(c);
  job.pass(600);
  EXPECT_THAT(job.scheduler.take_news(), ElementsAre(HasSubstr("node c (rank 2 at right) is lost, too: ")));
  job.begin("a", 7);
  job.join("b", 2);
  job.join("c", 2, "right");
  EXPECT_THAT(job.scheduler.take_news(), ElementsAre("generation 2 begins: 3 ranks at 2 hosts"));
}

TEST(JobScheduler, ANewNodeTakesTheRankOfALostOneOnly) {
  Job job({.num_workers = 2, .max_restarts = 9, .reconnect_ms = 500});
  const PeerId a = job.join("a", 1);
  const PeerId b = job.join("b", 1);
  job.scheduler.disconnect(b);
  const PeerId early = job.join("c", 1, "left", 0, 1);
  EXPECT_THAT(job.refusal_of(early), HasSubstr("all places are taken"));
  job.pass(600);
  EXPECT_NE(job.last_of<GenerationEnded>(a), nullptr);
  const PeerId anew = job.begin("a", 7);
  const PeerId c = job.join("c");
  EXPECT_EQ(job.rank_of(c), 1);
  EXPECT_EQ(job.rank_of(anew), 0);
}

TEST(JobScheduler, AProcessThatBeginsAnewEndsTheGenerationAndIsOfTheNextOne) {
  Job job({.num_workers = 2, .max_restarts = 1});
  const PeerId a = job.begin("a", 1);
  const PeerId b = job.begin("b", 1);
  EXPECT_EQ(job.scheduler.generation(), 1U);
  const PeerId anew = job.begin("a", 2);  // it has heard from b's process that it ends
  EXPECT_NE(job.last_of<Fenced>(a), nullptr);
  EXPECT_EQ(job.last_of<GenerationEnded>(b)->reason, "its process has begun anew");
  const PeerId next = job.begin("b", 3);
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_EQ(job.rank_of(anew), 0);
  EXPECT_EQ(job.rank_of(next), 1);
  EXPECT_EQ(job.scheduler.state().num_losses, 1U) << "a generation that has ended is a loss, whoever ends it";
}

TEST(JobScheduler, F22_ProcessesThatBeginAnewAgainAndAgainEndTheJob) {
  Job job({.num_workers = 2, .max_restarts = 2});
  PeerId b = 0;
  for (uint64_t start = 1; start <= 4; ++start) {
    ASSERT_FALSE(job.scheduler.is_over()) << start;
    job.begin("a", start);
    b = job.begin("b", start);
  }
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  ASSERT_NE(job.last_of<JobEnded>(b), nullptr);
  EXPECT_EQ(job.last_of<JobEnded>(b)->reason.substr(0, 66),
            "generation 3 has ended, though no node of it was lost, as one of 3");
}

TEST(JobScheduler, AConnectionThatComesAgainDoesNotEndTheGeneration) {
  Job job({.num_workers = 2, .max_restarts = 1});
  const PeerId a = job.begin("a", 1);
  job.begin("b", 1);
  job.scheduler.disconnect(a);
  const PeerId again = job.begin("a", 1, 1);
  EXPECT_EQ(job.scheduler.generation(), 1U);
  EXPECT_EQ(job.rank_of(again), 0);
}

TEST(JobScheduler, AnOlderProcessOfANodeIsFenced) {
  Job job({.num_workers = 2, .max_restarts = 1});
  job.begin("a", 5);
  const PeerId stopped_meanwhile = job.begin("a", 4);
  EXPECT_EQ(job.last_of<Fenced>(stopped_meanwhile)->reason, "a newer process is node a now");
}

TEST(JobScheduler, WhoWasNotConnectedWhenItsGenerationEndedHearsOfIt) {
  Job job({.num_workers = 2, .max_restarts = 1});
  const PeerId a = job.begin("a", 1);
  job.begin("b", 1);
  job.scheduler.disconnect(a);
  job.begin("b", 2);
  const PeerId again = job.begin("a", 1, 1);
  EXPECT_NE(job.last_of<GenerationEnded>(again), nullptr);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kWaiting) << "it has not begun anew yet";
  job.begin("a", 2);
  EXPECT_EQ(job.scheduler.generation(), 2U);
}

TEST(JobScheduler, F13_OneLossMoreThanItMayHaveEndsTheJob) {
  Job job({.num_workers = 2, .max_restarts = 2});
  for (uint64_t loss = 1; loss <= 3; ++loss) {
    const PeerId a = job.begin("a", loss);
    const PeerId b = job.begin("b", loss);
    ASSERT_EQ(job.scheduler.phase(), JobPhase::kRunning);
    job.say(b, Leave{.node_id = "b", .at_ns = loss, .failed = true, .reason = "killed by SIGSEGV"});
    EXPECT_EQ(job.last_of<JobEnded>(a) != nullptr, loss == 3);
  }
  EXPECT_EQ(job.scheduler.failure(), "node b failed: killed by SIGSEGV");
}

TEST(JobScheduler, OneProcessIsOneLossWhoeverSaysThatItEnds) {
  Job job({.num_workers = 2, .max_restarts = 2});
  const PeerId launcher = job.launch({"a", "b"});
  job.begin("a", 1);
  const PeerId b = job.begin("b", 1);
  ASSERT_EQ(job.scheduler.generation(), 1U);
  job.say(b, Leave{.node_id = "b", .at_ns = 2, .failed = true, .reason = "the loss is not finite"});
  EXPECT_TRUE(job.last_of<GenerationEnded>(launcher)->ends_by_itself) << "it has more to say";
  job.say(launcher, Leave{.node_id = "b", .at_ns = 3, .failed = true, .reason = "exit code 1"});
  EXPECT_EQ(job.scheduler.state().num_losses, 1U);
  job.say(launcher, Leave{.node_id = "b", .at_ns = 4, .failed = true, .reason = "exit code 1"});
  EXPECT_EQ(job.scheduler.state().num_losses, 2U) << "the next process has ended before it registered";
  job.begin("a", 5);
  job.begin("b", 5);
  ASSERT_EQ(job.scheduler.generation(), 2U);
  job.say(launcher, Leave{.node_id = "b", .at_ns = 6, .failed = true, .reason = "killed by SIGKILL"});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
}

TEST(JobScheduler, ASilentProcessThatItsLauncherKillsIsOneLoss) {
  Job job({.num_workers = 2, .max_restarts = 9, .node_timeout_ms = 1000});
  const PeerId launcher = job.launch({"a", "b"});
  const PeerId a = job.begin("a", 1);
  job.begin("b", 1);
  for (int i = 0; i < 11; ++i) {
    job.beat({launcher, a});
    job.pass(100);
  }
  ASSERT_NE(job.last_of<GenerationEnded>(launcher), nullptr);
  EXPECT_FALSE(job.last_of<GenerationEnded>(launcher)->ends_by_itself);
  job.say(launcher, Leave{.node_id = "b", .at_ns = 3, .failed = true, .reason = "killed by SIGKILL"});
  EXPECT_EQ(job.scheduler.state().num_losses, 1U);
}

TEST(JobScheduler, WhoBeginsAnewHasTheTimeOfAnyNodeWhileItsLauncherWatchesIt) {
  Job job({.num_workers = 2, .max_restarts = 9, .node_timeout_ms = 3000, .reconnect_ms = 500});
  const PeerId launcher = job.launch({"a", "b"});
  const PeerId a = job.begin("a", 1);
  job.begin("b", 1);
  job.say(launcher, Leave{.node_id = "b", .at_ns = 2, .failed = true, .reason = "killed by SIGKILL"});
  job.scheduler.disconnect(a);  // its program starts again, which may import much
  job.begin("b", 3);
  for (int i = 0; i < 25; ++i) {
    job.beat({launcher});
    job.pass(100);
  }
  EXPECT_EQ(job.scheduler.status().nodes[0].state, NodeState::kSilent) << "not lost";
  const PeerId again = job.begin("a", 4);
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_EQ(job.rank_of(again), 0);
  EXPECT_EQ(job.scheduler.state().num_losses, 1U);
}

TEST(JobScheduler, WhoHasBeenSilentGainsNoTimeByOthersThatBeginAnew) {
  Job job({.num_workers = 2, .max_restarts = 9, .node_timeout_ms = 1000});
  const PeerId launcher = job.launch({"a", "b"});
  const PeerId a = job.begin("a", 1);
  job.begin("b", 1);
  for (int i = 0; i < 9; ++i) {
    job.pass(100);
    job.beat({launcher, a});
  }
  const PeerId anew = job.begin("a", 2);  // it has waited for b for as long as it may
  ASSERT_NE(job.last_of<GenerationEnded>(launcher), nullptr);
  EXPECT_EQ(job.last_of<GenerationEnded>(launcher)->reason, "its process has begun anew");
  job.pass(100);
  job.beat({launcher, anew});
  EXPECT_EQ(job.last_of<GenerationEnded>(launcher)->node_id, "b");
  EXPECT_EQ(job.last_of<GenerationEnded>(launcher)->reason, "it has said nothing for 1000 ms");
}

// A launcher that sees its processes: those at `idle` places do nothing.
void watch(Job& job, PeerId launcher, const std::vector<uint32_t>& idle, int64_t ms,
           const std::vector<PeerId>& others) {
  for (; ms > 0; ms -= 100) {
    job.pass(100);
    job.beat(others);
    job.say(launcher, Heartbeat{.idle = idle});
  }
}

TEST(JobScheduler, AProcessThatHangsBeforeItJoinsIsOneLossOnceAnotherWaitsForIt) {
  Job job({.num_workers = 2, .max_restarts = 2, .node_timeout_ms = 1000});
  const PeerId launcher = job.launch({"a", "b"});
  watch(job, launcher, {0, 1}, 5000, {});
  EXPECT_EQ(job.scheduler.state().num_losses, 0U) << "nobody is held up: they may wait for something";
  const PeerId a = job.begin("a", 1);
  watch(job, launcher, {1}, 1000, {a});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  watch(job, launcher, {1}, 100, {a});
  ASSERT_NE(job.last_of<GenerationEnded>(launcher), nullptr);
  EXPECT_TRUE(job.last_of<GenerationEnded>(launcher)->is_lost) << "the launcher kills it";
  EXPECT_EQ(job.last_of<GenerationEnded>(launcher)->node_id, "b");
  EXPECT_EQ(job.last_of<GenerationEnded>(launcher)->reason,
            "its process has not joined, and has done nothing for 1000 ms");
  EXPECT_EQ(job.scheduler.state().num_losses, 1U);
  job.say(launcher, Leave{.node_id = "b", .at_ns = 2, .failed = true, .reason = "killed by SIGKILL"});
  EXPECT_EQ(job.scheduler.state().num_losses, 1U);

  // What is started in its place hangs, too, while the other one waits for the next generation.
  const PeerId again = job.begin("a", 3);
  watch(job, launcher, {1}, 1100, {again});
  EXPECT_TRUE(job.last_of<GenerationEnded>(launcher)->is_lost);
  EXPECT_EQ(job.scheduler.state().num_losses, 2U);
  job.say(launcher, Leave{.node_id = "b", .at_ns = 4, .failed = true, .reason = "killed by SIGKILL"});
  job.begin("b", 5);
  EXPECT_EQ(job.scheduler.generation(), 2U);
  EXPECT_EQ(job.scheduler.state().num_losses, 2U);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
}

TEST(JobScheduler, AProcessThatHangsEachTimeEndsTheJob) {
  Job job({.num_workers = 2, .max_restarts = 1, .node_timeout_ms = 1000});
  const PeerId launcher = job.launch({"a", "b"});
  const PeerId a = job.begin("a", 1);
  watch(job, launcher, {1}, 1100, {a});
  const PeerId again = job.begin("a", 3);
  watch(job, launcher, {1}, 1100, {again});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  EXPECT_THAT(job.scheduler.failure(), HasSubstr("node b failed: its process has not joined"));
}

TEST(JobScheduler, ALossForGoodEndsAJobThatNeedsAllItsRanksWhateverRestartsAreLeft) {
  for (const bool has_said_so_itself : {false, true}) {
    Job job({.num_workers = 2, .max_restarts = 9});
    const PeerId launcher = job.launch({"a", "b"});
    job.begin("a", 1);
    const PeerId b = job.begin("b", 1);
    if (has_said_so_itself) job.say(b, Leave{.node_id = "b", .at_ns = 2, .failed = true, .reason = "no such file"});
    job.say(launcher, Leave{.node_id = "b", .at_ns = 3, .failed = true, .reason = "exit code 2", .for_good = true});
    EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed);
    EXPECT_THAT(job.scheduler.failure(), HasSubstr("node b failed: exit code 2"));
    EXPECT_EQ(job.last_of<JobEnded>(launcher)->rank, 1);
  }
}

TEST(JobScheduler, AStartThatIsAtWorkTakesAsLongAsItLikes) {
  Job job({.num_workers = 2, .max_restarts = 9, .node_timeout_ms = 1000});
  const PeerId launcher = job.launch({"a", "b"});
  const PeerId a = job.begin("a", 1);
  for (int i = 0; i < 20; ++i) {
    watch(job, launcher, {1}, 900, {a});
    watch(job, launcher, {}, 100, {a});  // at last it does something
  }
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  const PeerId b = job.begin("b", 1);
  // And so does one that begins anew.
  job.say(launcher, Leave{.node_id = "a", .at_ns = 2, .failed = true, .reason = "killed by SIGKILL"});
  job.scheduler.disconnect(b);
  const PeerId restarted = job.begin("a", 3);
  watch(job, launcher, {}, 5000, {restarted});
  EXPECT_EQ(job.scheduler.state().num_losses, 1U);
  job.begin("b", 4);
  EXPECT_EQ(job.scheduler.generation(), 2U);
}

TEST(JobScheduler, ALauncherSpeaksForTheProcessesOfItsOwnNodes) {
  Job job({.num_workers = 1, .max_restarts = 9});
  const PeerId launcher = job.launch({"a"});
  job.say(launcher, Heartbeat{.idle = {1}});
  EXPECT_EQ(job.refusal_of(launcher), "it speaks for a node that is not its own");
}

TEST(JobScheduler, ALauncherThatComesAgainSpeaksForNoProcessThatHasBegun) {
  Job job({.num_workers = 1, .max_restarts = 9});
  PeerId launcher = job.launch({"a"});
  ASSERT_EQ(job.scheduler.generation(), 1U) << "it will start the process";
  job.begin("a", 1);
  job.say(launcher, Leave{.node_id = "a", .at_ns = 2, .failed = true, .reason = "killed by SIGKILL"});
  ASSERT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
  job.scheduler.disconnect(launcher);
  launcher = job.launch({"a"});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kWaiting) << "the process is not there yet";
  job.say(launcher, Leave{.node_id = "a", .at_ns = 2, .failed = true, .reason = "killed by SIGKILL"});  // said again
  const PeerId restarted = job.begin("a", 3);
  EXPECT_EQ(job.scheduler.generation(), 2U);
  job.say(launcher, Leave{.node_id = "a", .at_ns = 2, .failed = true, .reason = "killed by SIGKILL"});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning) << "of the new process it says nothing";
  EXPECT_EQ(job.scheduler.state().num_losses, 1U);
  EXPECT_EQ(job.rank_of(restarted), 0);
}

TEST(JobScheduler, F17_WhatIsLostWhenOneHasFinishedHadNothingLeftToDo) {
  Job job({.num_workers = 2, .max_restarts = 9});
  const PeerId a = job.begin("a", 1);
  const PeerId b = job.begin("b", 1);
  job.say(a, Leave{.node_id = "a", .at_ns = 2});
  job.say(b, Leave{.node_id = "b", .at_ns = 2, .failed = true, .reason = "killed by SIGKILL"});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFinished);
}

TEST(JobScheduler, WhoSaysThatItHasFinishedAfterTheGenerationHasEndedEndsTheJob) {
  Job job({.num_workers = 2, .max_restarts = 9});
  const PeerId a = job.begin("a", 1);
  const PeerId b = job.begin("b", 1);
  job.say(b, Leave{.node_id = "b", .at_ns = 2, .failed = true, .reason = "killed by SIGKILL"});
  job.say(a, Leave{.node_id = "a", .at_ns = 2});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFinished);
}

TEST(JobScheduler, F03_AfterItsDeathTheSameNodesHaveTheSameRanks) {
  SchedulerState saved;
  std::vector<uint64_t> tokens;
  {
    Job job({.num_workers = 3});
    const std::vector<PeerId> peers = {job.join("c", 1), job.join("a", 2), job.join("b", 3)};
    for (const PeerId peer : peers) tokens.push_back(job.last_of<Welcome>(peer)->token);
    EXPECT_TRUE(job.scheduler.take_is_dirty());
    saved = job.scheduler.state();
  }
  FrameError error;
  saved = *parse_scheduler_state(print_scheduler_state(saved), error);
  Job job({.num_workers = 3}, saved);
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  const PeerId stranger = job.join("d", 9);
  EXPECT_THAT(job.refusal_of(stranger), HasSubstr("all places are taken"));
  const PeerId c = job.join("c", 1, "left", tokens[0], 1);
  const PeerId a = job.join("a", 2, "left", tokens[1], 1);
  EXPECT_EQ(job.rank_of(a), 0);
  EXPECT_EQ(job.rank_of(c), 2);
  EXPECT_EQ(job.heard[a].back().generation, 1U);
}

TEST(JobScheduler, F04_AfterItsDeathDuringRegistrationNoRankIsLostOrDoubled) {
  for (int before = 0; before <= 3; ++before) {
    SchedulerState saved;
    {
      Job job({.num_workers = 4});
      for (int i = 0; i < before; ++i) job.join(fmt::format("n{}", i), 1 + static_cast<uint64_t>(i));
      saved = job.scheduler.state();
    }
    Job job({.num_workers = 4}, saved);
    std::vector<int> ranks;
    std::vector<PeerId> peers;
    for (int i = 0; i < 4; ++i) peers.push_back(job.join(fmt::format("n{}", i), 1 + static_cast<uint64_t>(i)));
    for (const PeerId peer : peers) ranks.push_back(job.rank_of(peer));
    EXPECT_THAT(ranks, ElementsAre(0, 1, 2, 3));
  }
}

// What the scheduler of this job has on disk.
SchedulerState state_on_disk(const Job& job) {
  FrameError error;
  return *parse_scheduler_state(print_scheduler_state(job.scheduler.state()), error);
}

TEST(JobScheduler, StartedAgainAfterTheEndItKnowsThatEnd) {
  Job finished({.num_workers = 2});
  const PeerId a = finished.join("a");
  const PeerId b = finished.join("b");
  finished.say(a, Leave{.node_id = "a"});
  finished.say(b, Leave{.node_id = "b"});
  Job after({.num_workers = 2}, state_on_disk(finished));
  EXPECT_EQ(after.scheduler.phase(), JobPhase::kFinished);
  const PeerId late = after.join("a", 1, "left", 0, 1);
  ASSERT_NE(after.last_of<JobEnded>(late), nullptr) << "who lost the scheduler at the end hears of it";
  EXPECT_FALSE(after.last_of<JobEnded>(late)->failed);
  EXPECT_EQ(after.refusal_of(after.join("c")), "the job is over");

  Job failed({.num_workers = 2});
  failed.join("a");
  failed.say(failed.join("b"), Leave{.node_id = "b", .failed = true, .reason = "the shape is wrong"});
  Job again({.num_workers = 2}, state_on_disk(failed));
  EXPECT_EQ(again.scheduler.phase(), JobPhase::kFailed);
  EXPECT_EQ(again.scheduler.failure(), "node b failed: the shape is wrong");
  const PeerId other = again.join("a", 1, "left", 0, 1);
  ASSERT_NE(again.last_of<JobEnded>(other), nullptr);
  EXPECT_EQ(again.last_of<JobEnded>(other)->rank, 1);
}

TEST(JobScheduler, StartedAgainAfterSomeHaveFinishedItWaitsForTheOthersOnly) {
  Job job({.num_workers = 3, .max_restarts = 9});
  const PeerId a = job.join("a");
  job.join("b");
  job.join("c");
  job.say(a, Leave{.node_id = "a"});
  Job next({.num_workers = 3, .max_restarts = 9}, state_on_disk(job));
  EXPECT_EQ(next.scheduler.phase(), JobPhase::kRunning);
  const PeerId b = next.join("b", 1, "left", 0, 1);
  next.say(b, Leave{.node_id = "b"});
  next.pass(29000);
  EXPECT_EQ(next.scheduler.phase(), JobPhase::kRunning) << "c may come back";
  next.pass(2000);
  EXPECT_EQ(next.scheduler.phase(), JobPhase::kFinished) << "c had nothing left to do";
}

// That a process ends with exit code 0, as its launcher says, does not mean that the others have finished.
TEST(JobScheduler, StartedAgainItTakesNobodyToHaveFinishedWhoHasNotSaidSo) {
  Job job({.num_workers = 2});
  const PeerId launcher = job.launch({"a", "b"});
  job.begin("a", 1);
  job.begin("b", 1);
  job.say(launcher, Leave{.node_id = "b", .at_ns = 2});
  ASSERT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  Job next({.num_workers = 2}, state_on_disk(job));
  next.pass(31000);
  EXPECT_EQ(next.scheduler.phase(), JobPhase::kFailed);
}

TEST(JobScheduler, StartedAgainAfterNobodyCameItWaitsAnew) {
  Job job({.num_workers = 2, .join_timeout_ms = 1000});
  job.join("a");
  job.pass(2000);
  ASSERT_EQ(job.scheduler.phase(), JobPhase::kFailed);
  const Job next({.num_workers = 2}, state_on_disk(job));
  EXPECT_EQ(next.scheduler.phase(), JobPhase::kWaiting);
}

TEST(JobScheduler, AfterItsDeathBetweenTwoGenerationsWhatIsSaidAgainOfAnEarlierProcessIsNoLoss) {
  Job job({.num_workers = 2, .max_restarts = 9});
  const Leave killed{.node_id = "b", .at_ns = 2, .failed = true, .reason = "killed by SIGKILL"};
  const PeerId launcher = job.launch({"a", "b"});
  job.begin("a", 1);
  job.begin("b", 1);
  job.say(launcher, killed);
  job.begin("b", 3);
  ASSERT_EQ(job.scheduler.phase(), JobPhase::kWaiting) << "a has not begun anew";
  Job next({.num_workers = 2, .max_restarts = 9}, state_on_disk(job));
  const PeerId again = next.launch({"a", "b"});
  next.say(again, killed);
  EXPECT_EQ(next.scheduler.state().num_losses, 1U);
  EXPECT_EQ(next.last_of<GenerationEnded>(again), nullptr) << "the process that has come since is not to be killed";
}

// A loss that is counted while the others come back is counted once, whichever scheduler hears of it.
TEST(JobScheduler, AfterItsDeathBetweenTwoGenerationsItKnowsWhoWasLostMeanwhile) {
  const SchedulerOptions options{.num_workers = 3, .max_restarts = 2};
  Job job(options);
  const Leave killed{.node_id = "c", .at_ns = 4, .failed = true, .reason = "killed by SIGKILL"};
  const PeerId launcher = job.launch({"a", "b", "c"});
  for (const char* id : {"a", "b", "c"}) job.begin(id, 1);
  job.say(launcher, Leave{.node_id = "b", .at_ns = 2, .failed = true, .reason = "killed by SIGKILL"});
  job.begin("b", 3);
  ASSERT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
  job.scheduler.take_is_dirty();
  job.say(launcher, killed);
  EXPECT_TRUE(job.scheduler.take_is_dirty()) << "it is saved before anybody hears of it";
  Job next(options, state_on_disk(job));
  EXPECT_EQ(next.scheduler.state().num_losses, 2U);
  EXPECT_EQ(next.scheduler.status().nodes[2].state, NodeState::kLost);
  const PeerId again = next.launch({"a", "b", "c"});
  next.say(again, killed);
  EXPECT_EQ(next.scheduler.state().num_losses, 2U) << "it is known";
  EXPECT_EQ(next.scheduler.phase(), JobPhase::kWaiting);
  next.begin("c", 5);
  EXPECT_NE(next.scheduler.status().nodes[2].state, NodeState::kLost) << "it is back";
  next.say(again, Leave{.node_id = "b", .at_ns = 6, .failed = true, .reason = "killed by SIGKILL"});
  EXPECT_EQ(next.scheduler.phase(), JobPhase::kFailed) << "one more than the job survives";
}

TEST(JobScheduler, AfterItsDeathTheEndOfAProcessThatHungIsNoSecondLoss) {
  const SchedulerOptions options{.num_workers = 2, .max_restarts = 9, .node_timeout_ms = 1000};
  Job job(options);
  const PeerId launcher = job.launch({"a", "b"});
  job.begin("a", 1);
  job.scheduler.disconnect(job.begin("b", 1));
  job.say(launcher, Leave{.node_id = "b", .at_ns = 2, .failed = true, .reason = "killed by SIGKILL"});
  const PeerId anew = job.begin("a", 3);
  watch(job, launcher, {1}, 1100, {anew});  // what has been started in its place
  ASSERT_EQ(job.scheduler.state().num_losses, 2U);
  Job next(options, state_on_disk(job));
  next.say(next.launch({"a", "b"}), Leave{.node_id = "b", .at_ns = 4, .failed = true, .reason = "killed by SIGKILL"});
  EXPECT_EQ(next.scheduler.state().num_losses, 2U);
}

// It had ended with exit code 0 before another one was lost, with which it begins anew.
TEST(JobScheduler, AfterItsDeathTheEndOfAProcessThatHadNotFailedIsNoLoss) {
  const SchedulerOptions options{.num_workers = 2, .max_restarts = 9};
  Job job(options);
  const Leave ended{.node_id = "b", .at_ns = 2};
  const PeerId launcher = job.launch({"a", "b"});
  job.begin("a", 1);
  job.begin("b", 1);
  job.say(launcher, ended);
  job.say(launcher, Leave{.node_id = "a", .at_ns = 3, .failed = true, .reason = "killed by SIGKILL"});
  ASSERT_EQ(job.scheduler.state().num_losses, 1U);
  Job next(options, state_on_disk(job));
  const PeerId again = next.launch({"a", "b"});
  next.say(again, ended);
  EXPECT_EQ(next.scheduler.state().num_losses, 1U);
  EXPECT_NE(next.last_of<GenerationEnded>(again), nullptr) << "its launcher starts it again";
}

// Ranks that do not reach each other begin anew by themselves, which is counted when the next generation begins.
TEST(JobScheduler, AfterItsDeathAGenerationThatHasEndedByItselfIsCounted) {
  const SchedulerOptions options{.num_workers = 2, .max_restarts = 9};
  Job job(options);
  job.begin("a", 1);
  job.begin("b", 1);
  job.begin("a", 2);
  ASSERT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
  Job next(options, state_on_disk(job));
  next.begin("a", 2);
  next.begin("b", 3);
  EXPECT_EQ(next.scheduler.phase(), JobPhase::kRunning);
  EXPECT_EQ(next.scheduler.state().num_losses, 1U);
}

TEST(JobScheduler, AfterItsDeathBetweenTwoGenerationsANodeThatMovedToAnotherHostIsNotFenced) {
  Job job({.num_workers = 2, .max_restarts = 9});
  job.join("a");
  const PeerId b = job.join("b");
  job.say(b, Leave{.node_id = "b", .failed = true, .reason = "killed by SIGKILL"});
  Register moved{.incarnation = 5, .clock_id = 7, .host = "right", .node_ids = {"b"}};
  const PeerId there = job.connect();
  job.say(there, moved, 0);
  ASSERT_NE(job.last_of<Welcome>(there), nullptr);
  moved.token = job.last_of<Welcome>(there)->token;
  Job next({.num_workers = 2, .max_restarts = 9}, state_on_disk(job));
  const PeerId back = next.connect();
  next.say(back, moved, 0);
  EXPECT_EQ(next.last_of<Fenced>(back), nullptr);
  EXPECT_NE(next.last_of<Welcome>(back), nullptr);
}

TEST(JobScheduler, AStateOfAnotherJobIsRefused) {
  FakeClock clock;
  EXPECT_THROW(JobScheduler({.num_workers = 2}, clock, {.num_workers = 3}), InvalidArgument);
}

TEST(JobScheduler, F64_WhatIsOfAnotherGenerationIsNotTaken) {
  Job job({.num_workers = 1, .max_restarts = 9});
  const PeerId a = job.join("a", 1);
  const PeerId newer = job.join("a", 2);
  EXPECT_EQ(job.scheduler.generation(), 2U);
  job.say(newer, SetValue{"late", "x"}, 1);
  job.say(newer, GetValue{"late"}, 2);
  EXPECT_EQ(job.last_of<ValueAnswer>(newer), nullptr);
  job.say(newer, SetValue{"future", "x"}, 3);
  EXPECT_THAT(job.refusal_of(newer), HasSubstr("a generation that has not begun"));
  EXPECT_NE(job.last_of<Fenced>(a), nullptr);
}

TEST(JobScheduler, ValuesAreAnsweredWhenTheyAreThere) {
  Job job({.num_workers = 2});
  const PeerId a = job.join("a");
  const PeerId b = job.join("b");
  job.say(b, GetValue{"where"});
  EXPECT_EQ(job.last_of<ValueAnswer>(b), nullptr);
  job.say(a, SetValue{"where", "here"});
  EXPECT_EQ(job.last_of<ValueAnswer>(b)->value, "here");
  job.say(a, GetValue{"where"});
  EXPECT_EQ(job.last_of<ValueAnswer>(a)->value, "here");
  job.say(a, SetValue{"where", "there"});  // its own it may set anew
  job.say(b, SetValue{"where", "nowhere"});
  EXPECT_EQ(job.refusal_of(b), "it sets a value that another one has set");
}

TEST(JobScheduler, AValueThatItsNodeTakesBackMakesRoom) {
  Job job({.num_workers = 2}, {}, {.stored_bytes_of_peer = 1000});
  const PeerId a = job.join("a");
  const PeerId b = job.join("b");
  for (int i = 0; i < 20; ++i) {
    const std::string name = std::to_string(i);
    job.say(a, SetValue{name, std::string(900, 'v')});
    job.say(b, ForgetValue{name});  // it is not this one's
    job.say(b, GetValue{name});
    EXPECT_EQ(job.last_of<ValueAnswer>(b)->name, name);
    job.say(a, ForgetValue{name});
  }
  EXPECT_EQ(job.refusal_of(a), "");
  job.heard.clear();
  job.say(b, GetValue{"19"});
  EXPECT_EQ(job.last_of<ValueAnswer>(b), nullptr);
}

TEST(JobScheduler, F71_QuotasHoldForEachPeerAndForAll) {
  Job job({.num_workers = 3}, {},
          {.stored_bytes_of_peer = 1000, .stored_bytes = 1500, .wanted_names_of_peer = 3, .entry_bytes = 64});
  const PeerId a = job.join("a");
  const PeerId b = job.join("b");
  const PeerId c = job.join("c");
  job.say(a, SetValue{"1", std::string(900, 'v')});
  job.say(b, SetValue{"2", std::string(480, 'v')});
  EXPECT_EQ(job.refusal_of(b), "the job's values have more than 1500 bytes");
  job.say(a, SetValue{"1", std::string(100, 'v')});  // shorter: room again
  job.say(a, SetValue{"3", std::string(900, 'v')});
  EXPECT_EQ(job.refusal_of(a), "its values have more than 1000 bytes");
  for (const char* name : {"x", "y", "z", "x"}) job.say(c, GetValue{name});
  EXPECT_EQ(job.refusal_of(c), "");
  job.say(c, GetValue{"w"});
  EXPECT_EQ(job.refusal_of(c), "it waits for more than 3 values");
}

TEST(JobScheduler, AMillionSmallValuesMeetTheQuotaByTheirNames) {
  Job job({.num_workers = 1});
  const PeerId a = job.join("a");
  int count = 0;
  while (job.refusal_of(a).empty() && count < 1'000'000) job.say(a, SetValue{fmt::format("{:07}", count++), ""});
  EXPECT_LT(count, (8 << 20) / 64);
  EXPECT_THAT(job.refusal_of(a), HasSubstr("its values have more than"));
}

TEST(JobScheduler, TheNewestStateOfAJobCounts) {
  Job job({.num_workers = 2});
  const PeerId a = job.join("a");
  const PeerId b = job.join("b");
  job.scheduler.take_is_dirty();
  job.say(b, GetBlob{"decisions"});
  EXPECT_FALSE(job.last_of<BlobAnswer>(b)->is_there);
  job.say(a, SetBlob{"decisions", "1"});
  EXPECT_TRUE(job.scheduler.take_is_dirty());
  job.say(b, SetBlob{"decisions", "1"});
  EXPECT_FALSE(job.scheduler.take_is_dirty());
  job.say(b, SetBlob{"decisions", "2"});
  EXPECT_TRUE(job.scheduler.take_is_dirty());
  job.say(a, GetBlob{"decisions"});
  EXPECT_EQ(job.last_of<BlobAnswer>(a)->bytes, "2");
  job.say(b, SetBlob{"weights", "w"});
  EXPECT_EQ(job.refusal_of(b), "the job has no state of that name");
  job.say(a, SetBlob{"decisions", std::string(kMaxBlobBytes + 1, '1')});
  EXPECT_EQ(job.refusal_of(a), "the job's state \"decisions\" has at most 8388608 bytes");
}

TEST(JobScheduler, F70_WhatIsSaidOutOfTurnIsRefused) {
  Job job({.num_workers = 1});
  for (const Message& message :
       std::vector<Message>{Heartbeat{}, SetValue{}, GetValue{}, SetBlob{}, GetBlob{}, Leave{}, TellFigures{}}) {
    const PeerId peer = job.connect();
    job.say(peer, message);
    EXPECT_EQ(job.refusal_of(peer), "it has not registered");
  }
  const PeerId peer = job.connect();
  job.say(peer, Register{.host = "h", .node_ids = {}});
  EXPECT_EQ(job.refusal_of(peer), "a worker has one node, a launcher one or more");
  const PeerId twice = job.connect();
  job.say(twice, Register{.role = PeerRole::kLauncher, .host = "h", .node_ids = {"x", "x"}});
  EXPECT_EQ(job.refusal_of(twice), "it registers a node twice");
  const PeerId crowd = job.connect();
  job.say(crowd, Register{.role = PeerRole::kLauncher, .host = "h", .node_ids = {"x", "y"}});
  EXPECT_EQ(job.refusal_of(crowd), "the job has 1 worker, and 1 is free, of 2 that are asked for");
  const PeerId a = job.join("a");
  job.say(a, Welcome{});
  EXPECT_EQ(job.refusal_of(a), "it says what only a scheduler says");
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
}

TEST(JobScheduler, F60_ACertificateNamesRoleAndNode) {
  Job job({.num_workers = 2});
  const auto come = [&](const PeerIdentity& identity, const std::string& node, PeerRole role = PeerRole::kWorker) {
    const PeerId peer = job.connect(identity);
    job.say(peer, Register{.role = role, .host = "h", .node_ids = {node}});
    return job.refusal_of(peer);
  };
  EXPECT_EQ(come({true, CertificateRole::kWorker, "worker_1"}, "worker_2"),
            "its certificate does not name node worker_2");
  EXPECT_EQ(come({true, CertificateRole::kObserver, "*"}, "a"),
            "its certificate is of role observer, which is no worker");
  EXPECT_EQ(come({true, CertificateRole::kScheduler, "*"}, "a"),
            "its certificate is of role scheduler, which is no worker");
  EXPECT_EQ(come({true, CertificateRole::kWorker, "worker_*"}, "worker_2"), "");
  EXPECT_EQ(come({true, CertificateRole::kWorker, "worker_1"}, "worker_1"), "");
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  const PeerId observer = job.connect({true, CertificateRole::kObserver, "*"});
  job.say(observer, AskStatus{});
  EXPECT_EQ(job.last_of<JobStatus>(observer)->nodes.size(), 2U);
}

TEST(JobScheduler, NobodySpeaksForAnothersNode) {
  Job job({.num_workers = 2});
  const PeerId a = job.join("a");
  const PeerId b = job.join("b");
  job.say(a, Leave{.node_id = "b", .failed = true, .reason = "forged"});
  EXPECT_EQ(job.refusal_of(a), "it speaks for a node that is not its own");
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  EXPECT_EQ(job.last_of<JobEnded>(b), nullptr);
}

TEST(JobScheduler, WhenAllHaveLeftTheJobIsFinished) {
  Job job({.num_workers = 2});
  const PeerId a = job.join("a");
  const PeerId b = job.join("b");
  job.say(a, Leave{.node_id = "a"});
  job.scheduler.disconnect(a);
  for (int i = 0; i < 40; ++i) {  // who has left is not missed
    job.pass(1000);
    job.beat({b});
  }
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
  job.say(b, Leave{.node_id = "b"});
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFinished);
  EXPECT_FALSE(job.last_of<JobEnded>(b)->failed);
}

TEST(JobScheduler, AFailedRankEndsTheJobWithItsWordsAndItsRank) {
  Job job({.num_workers = 2});
  const PeerId a = job.join("a");
  const PeerId b = job.join("b");
  job.say(b, Leave{.node_id = "b", .failed = true, .reason = "the shape is wrong"});
  EXPECT_EQ(job.scheduler.failure(), "node b failed: the shape is wrong");
  EXPECT_EQ(job.last_of<JobEnded>(a)->rank, 1);
  EXPECT_EQ(job.last_of<JobEnded>(a)->reason, "the shape is wrong");
  EXPECT_EQ(job.scheduler.state().is_running, false);
}

TEST(JobScheduler, WhoLeavesBeforeTheStartMakesRoom) {
  Job job({.num_workers = 2});
  const PeerId a = job.join("a");
  job.say(a, Leave{.node_id = "a"});
  job.join("b");
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kWaiting);
  job.join("c");
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kRunning);
}

// A save on a full disk fails on all ranks, and each says so before it has heard of the others.
TEST(JobScheduler, RanksThatFailTogetherAreOneLoss) {
  Job job({.num_workers = 3, .max_restarts = 1});
  const PeerId launcher = job.launch({"a", "b", "c"});
  std::vector<PeerId> peers;
  for (const char* id : {"a", "b", "c"}) peers.push_back(job.begin(id, 1));
  ASSERT_EQ(job.scheduler.generation(), 1U);
  const auto fails = [](const char* id, uint64_t at_ns) {
    return Leave{.node_id = id, .at_ns = at_ns, .failed = true, .reason = "a.ckpt: No space left on device"};
  };
  job.say(peers[1], fails("b", 2));
  job.say(peers[0], fails("a", 3));
  job.say(peers[2], fails("c", 3));
  for (const char* id : {"a", "b", "c"}) {
    job.say(launcher, Leave{.node_id = id, .at_ns = 4, .failed = true, .reason = "exit code 1"});
  }
  EXPECT_EQ(job.scheduler.state().num_losses, 1U);
  int num_said = 0;
  for (const ToPeer& told : job.heard[launcher]) {
    const auto* ended = std::get_if<GenerationEnded>(&told.message);
    if (ended != nullptr && ended->ends_by_itself && ended->reason == "a.ckpt: No space left on device") ++num_said;
  }
  EXPECT_EQ(num_said, 3) << "its launcher hears of each, and why";
  const PeerId again = job.begin("a", 5);
  for (const char* id : {"b", "c"}) job.begin(id, 5);
  ASSERT_EQ(job.scheduler.generation(), 2U);
  job.say(again, fails("a", 6));
  EXPECT_EQ(job.scheduler.phase(), JobPhase::kFailed) << "the same again is another event";
}

TEST(JobScheduler, KeepsTheNewestFiguresOfANodesOwnProcess) {
  Job job({.num_workers = 2, .wants_figures = true});
  const PeerId a = job.join("a");
  const PeerId launcher = job.launch({"b"});
  ASSERT_NE(job.last_of<Welcome>(a), nullptr);
  EXPECT_TRUE(job.last_of<Welcome>(a)->wants_figures);
  job.say(a, TellFigures{R"({"step":1})"});
  job.say(a, TellFigures{R"({"step":2})"});
  job.say(launcher, TellFigures{R"({"step":3})"});
  EXPECT_EQ(job.scheduler.figures_of("a"), R"({"step":2})");
  EXPECT_EQ(job.scheduler.figures_of("b"), "") << "a launcher does not speak of trainings";
  EXPECT_EQ(job.scheduler.figures_of("c"), "");
}

TEST(JobScheduler, AsksForNoFiguresWhereNobodyLooks) {
  Job job({.num_workers = 1});
  EXPECT_FALSE(job.last_of<Welcome>(job.join("a"))->wants_figures);
}

}  // namespace
}  // namespace tessera::cluster::rendezvous
