// What a watch writes of the ranks that it looks at, with a clock and files that the test moves.
#include "tessera/cluster/report/rank_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/cluster/report/rank_report.h"
#include "tessera/cluster/report/test_pieces.h"
#include "tessera/comm/transport.h"
#include "tessera/comm/watched_wait.h"

namespace tessera::cluster {
namespace {

using comm::RankProgress;
using Pieces = ThreePieces;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Watch : public testing::Test {
 protected:
  explicit Watch(int size = 3, std::vector<int> ranks = {1}) : job_(std::make_shared<comm::JobState>(size)) {
    for (const int rank : ranks) job_->set_thread(rank, gettid());
    WatchOptions options;
    options.directory = "/reports";
    options.host = "node1";
    options.job = "a job";
    options.timeout_ms = 30'000;
    options.has_thread = false;
    options.files = &files_;
    options.clock = &clock_;
    options.on_look = [this](const RankGlance& glance) { glance_ = glance; };
    watch_.emplace(job_, ranks, options);
    group_.name = "world";
    group_.ranks.resize(static_cast<size_t>(size));
    std::iota(group_.ranks.begin(), group_.ranks.end(), 0);
    group_.rank = 1;
    call_.kind = comm::CallKind::kAllReduce;
    call_.sequence = 12;
    call_.set_who("fc");
  }

  RankProgress& progress(int rank = 1) { return job_->notes_of(rank)->progress(); }
  void look_after(int64_t ms) {
    clock_.sleep_ms(ms);
    watch_->look();
  }
  std::optional<RankReport> report(int rank = 1) {
    const std::string path = "/reports/" + rank_report_name(rank);
    if (!files_.exists(path)) return std::nullopt;
    return parse_rank_report(files_.read_text(path));
  }

  MemoryFileSystem files_;
  FakeClock clock_;
  std::shared_ptr<comm::JobState> job_;
  std::optional<RankGlance> glance_;
  std::optional<RankWatch> watch_;
  comm::GroupInfo group_;
  comm::CallHeader call_;
};

TEST_F(Watch, WritesNothingWhileARankComesFurther) {
  const Pieces pieces;
  for (int step = 1; step <= 5; ++step) {
    progress().set_step(step);
    const RankProgress::Run run(&progress(), pieces);
    for (size_t piece = 0; piece < 3; ++piece) {
      progress().enter_piece(piece);
      look_after(9000);
      EXPECT_EQ(glance_->progress.words(),
                fmt::format("step {}, piece {}, made by model.py:{}", step, piece, piece + 1));
    }
  }
  EXPECT_FALSE(report());
}

TEST_F(Watch, ARankThatHangsInAKernelIsReportedWithOperatorAndLineAndNotEnded) {
  const Pieces pieces;
  progress().set_step(17);
  {
    const RankProgress::Run run(&progress(), pieces);
    progress().enter_piece(1);
    look_after(1000);
    look_after(9000);
    EXPECT_FALSE(report());
    look_after(1000);
    ASSERT_TRUE(report());
    EXPECT_EQ(report()->event, ReportEvent::kStandsStill);
    EXPECT_EQ(report()->step, 17);
    EXPECT_EQ(report()->doing, "piece 1");
    EXPECT_EQ(report()->line, "model.py:2");
    EXPECT_EQ(report()->doing_ms, 10'000);
    EXPECT_THAT(report()->warnings,
                ElementsAre(HasSubstr("rank 1 has come no further for 10 s: step 17, piece 1, made by model.py:2")));
    EXPECT_FALSE(job_->failed());
    progress().enter_piece(2);
    look_after(1000);
    EXPECT_EQ(report()->event, ReportEvent::kGoesOn);
  }
}

TEST_F(Watch, OfALastGenerationLeavesTheReportsOfTheLossAndWhoSaysTheLossHasLeft) {
  watch_->note_failure(1, 0, "stopped in all_reduce because rank 0 failed");
  const std::string of_loss = files_.read_text("/reports/rank.1.json");
  WatchOptions options;
  options.directory = "/reports";
  options.generation = 3;
  options.last_reason = "node left/0 (rank 0 at left) is lost: killed";
  options.has_thread = false;
  options.files = &files_;
  options.clock = &clock_;
  const auto last_report = [&](const std::string& error) {
    RankWatch watch(job_, {1}, options);
    watch.note_failure(1, 1, error);
    return parse_rank_report(files_.read_text("/reports/rank.1.last.json"));
  };
  const std::string words = "JobStopped: " + options.last_reason + "; the ranks that are left have saved what was kept";
  const RankReport left = last_report(words);
  EXPECT_EQ(left.event, ReportEvent::kLeft);
  EXPECT_EQ(left.cause, -1);
  EXPECT_EQ(left.error, words);
  const RankReport failed = last_report("its disk is full");
  EXPECT_EQ(failed.event, ReportEvent::kFailed);
  EXPECT_EQ(failed.cause, 1);
  EXPECT_EQ(files_.read_text("/reports/rank.1.json"), of_loss);
}

TEST_F(Watch, AFunctionOfTheUserThatHangsIsReported) {
  progress().set_step(4);
  const RankProgress::Phase phase(&progress(), "the callbacks");
  look_after(1000);
  look_after(10'000);
  ASSERT_TRUE(report());
  EXPECT_EQ(report()->doing, "the callbacks");
}

TEST_F(Watch, WhereTheScriptHangsIsAskedAndNotWaitedFor) {
  const auto report_with = [&](std::function<std::string()> place) {
    WatchOptions options;
    options.directory = "/scripts";
    options.has_thread = false;
    options.files = &files_;
    options.clock = &clock_;
    options.script_place = std::move(place);
    RankWatch watch(job_, {1}, options);
    watch.look();
    clock_.sleep_ms(20'000);
    watch.look();
    return parse_rank_report(files_.read_text("/scripts/rank.1.json"));
  };
  progress().set_step(4);
  const RankProgress::Phase phase(&progress(), "the callbacks");
  // It is waited for half a second, for which a busy machine may keep the thread that answers waiting, too.
  std::string answer;
  for (int i = 0; i < 20 && answer.empty(); ++i) answer = report_with([] { return "train.py:80"; }).script;
  EXPECT_EQ(answer, "train.py:80");
  EXPECT_EQ(report_with([]() -> std::string { throw IoError("no interpreter"); }).script, "");
  // The threads that ask end when they can.
  const auto may_answer = std::make_shared<std::atomic<bool>>(false);
  const auto has_answered = std::make_shared<std::atomic<bool>>(false);
  const auto never = [=] {
    while (!may_answer->load()) std::this_thread::yield();
    *has_answered = true;
    return std::string("too late");
  };
  EXPECT_EQ(report_with(never).script, "");
  *may_answer = true;
  while (!has_answered->load()) std::this_thread::yield();
}

TEST_F(Watch, ASaveMayTakeLong) {
  progress().set_step(4);
  const RankProgress::Phase callbacks(&progress(), "the callbacks");
  const RankProgress::Phase save(&progress(), RankProgress::kSave);
  look_after(1000);
  look_after(100'000);
  EXPECT_FALSE(report());
}

TEST_F(Watch, BetweenStepsNobodyStandsStill) {
  progress().set_step(4);
  look_after(1000);
  look_after(100'000);
  EXPECT_FALSE(report());
}

TEST_F(Watch, ALongWaitIsReportedAndItsEndToo) {
  const Pieces pieces;
  const RankProgress::Run run(&progress(), pieces);
  {
    comm::WatchedWait wait(call_, group_, 2, 30'000, *job_);
    wait.look(600);
    look_after(1000);
    EXPECT_FALSE(report());
    wait.look(5000);
    look_after(1000);
    ASSERT_TRUE(report());
    EXPECT_EQ(report()->event, ReportEvent::kWaits);
    ASSERT_EQ(report()->waits.size(), 1U);
    EXPECT_EQ(report()->waits[0].call, "all_reduce \"fc\" #12 of group \"world\"");
    EXPECT_EQ(report()->waits[0].line, "model.py:41");
    EXPECT_EQ(report()->waits[0].waits_for, 2);
    EXPECT_THAT(report()->waits[0].ranks, ElementsAre(0, 1, 2));
    EXPECT_EQ(report()->waits[0].waited_ms, 5000);
    EXPECT_EQ(glance_->waits.size(), 1U);
  }
  look_after(1000);
  EXPECT_EQ(report()->event, ReportEvent::kGoesOn);
  EXPECT_THAT(report()->waits, IsEmpty());
}

TEST_F(Watch, ARankThatHangsIsReportedWhenAnotherHasFailed) {
  const Pieces pieces;
  progress().set_step(17);
  const RankProgress::Run run(&progress(), pieces);
  progress().enter_piece(2);
  look_after(1000);
  job_->fail(0, "it waited too long");
  look_after(500);
  ASSERT_TRUE(report());
  EXPECT_EQ(report()->event, ReportEvent::kStopped);
  EXPECT_EQ(report()->cause, 0);
  EXPECT_EQ(report()->doing, "piece 2");
  EXPECT_EQ(report()->error, "");
}

TEST_F(Watch, AFailureIsWrittenWithTheCallThatItEnded) {
  const Pieces pieces;
  progress().set_step(17);
  std::string message;
  try {
    const RankProgress::Run run(&progress(), pieces);
    progress().enter_piece(1);
    comm::WatchedWait wait(call_, group_, 2, 30'000, *job_);
    wait.look(40);
    job_->fail(2, "its process has ended without a word");
    comm::throw_peer_failure(call_, group_, *job_);
  } catch (const comm::PeerFailure& error) {
    message = error.what();
  }
  watch_->note_failure(1, 2, message);
  ASSERT_TRUE(report());
  EXPECT_EQ(report()->event, ReportEvent::kStopped);
  EXPECT_EQ(report()->cause, 2);
  EXPECT_EQ(report()->error, message);
  EXPECT_EQ(report()->doing, "piece 1");
  ASSERT_EQ(report()->waits.size(), 1U);
  EXPECT_EQ(report()->waits[0].line, "model.py:41");
  EXPECT_EQ(report()->waits[0].waits_for, 2);
  EXPECT_EQ(report()->waits[0].waited_ms, 40);
  // What comes later changes nothing.
  look_after(1000);
  watch_->note_failure(1, 1, "another error");
  EXPECT_EQ(report()->error, message);
}

TEST_F(Watch, AnEarlierErrorThatTheProgramHasGotOverIsNoneOfThisOne) {
  try {
    comm::WatchedWait wait(call_, group_, 2, 30'000, *job_);
    throw IoError("got over");
  } catch (const IoError&) {
  }
  watch_->note_failure(1, 1, "the data is empty");
  EXPECT_THAT(report()->waits, IsEmpty());
  EXPECT_EQ(report()->event, ReportEvent::kFailed);
}

TEST_F(Watch, AnotherCallThanThePeersIsWritten) {
  comm::CallHeader theirs = call_;
  theirs.kind = comm::CallKind::kBroadcast;
  std::string message;
  try {
    comm::check_same_call(call_, theirs, group_, 2, *job_);
  } catch (const IoError& error) {
    message = error.what();
  }
  watch_->note_failure(1, 1, message);
  ASSERT_EQ(report()->waits.size(), 1U);
  EXPECT_TRUE(report()->waits[0].is_mismatch);
  EXPECT_EQ(report()->waits[0].waits_for, 2);
}

TEST_F(Watch, TheFirstResultThatIsNotFiniteIsWrittenWithTheErrorThatNamesIt) {
  progress().set_non_finite({.piece = {.what = "log \"fc\"", .line = "model.py:43"}, .number = 12});
  watch_->note_failure(1, 1, "loss is nan; first non-finite result: %3 of log \"fc\", f32[4], made by model.py:43");
  ASSERT_TRUE(report()->non_finite);
  EXPECT_EQ(report()->non_finite->number, 12);
}

TEST_F(Watch, WhichRankFailedFirstTheJobSays) {
  job_->fail(0, "the first error");
  watch_->note_failure(1, 1, "the second error");
  EXPECT_EQ(report()->event, ReportEvent::kStopped);
  EXPECT_EQ(report()->cause, 0);
  EXPECT_EQ(report()->error, "the second error");
}

TEST_F(Watch, ASlowRankIsWarnedOfOnceByTheFirstThatWaitsForIt) {
  group_.ranks = {1, 2};
  group_.rank = 0;
  const auto window = [&](int64_t waited_ms) {
    for (int call = 0; call < 5; ++call) {
      comm::WatchedWait wait(call_, group_, 1, 30'000, *job_);
      wait.set_waited(waited_ms / 5);
    }
    look_after(5000);
  };
  for (int i = 0; i < 2; ++i) window(2500);
  EXPECT_FALSE(report());
  EXPECT_EQ(glance_->slow->rank, 2);
  EXPECT_EQ(glance_->slow->percent, 50);
  for (int i = 0; i < 5; ++i) window(2500);
  ASSERT_TRUE(report());
  EXPECT_EQ(report()->event, ReportEvent::kGoesOn);
  EXPECT_THAT(report()->warnings, ElementsAre("rank 2 is slow: rank 1 has waited for it 50 % of the last 5 s, most in "
                                              "all_reduce \"fc\" of group \"world\"; the job goes on"));
  EXPECT_FALSE(job_->failed());
}

TEST_F(Watch, WhoWaitsALittleOrForAllAlikeWarnsOfNobody) {
  for (int window = 0; window < 6; ++window) {
    for (const int peer : {0, 2}) {
      comm::WatchedWait wait(call_, group_, peer, 30'000, *job_);
      wait.set_waited(2400);
    }
    look_after(5000);
  }
  EXPECT_FALSE(report());
}

TEST_F(Watch, WhatCannotBeWrittenStopsNothing) {
  class Full : public MemoryFileSystem {
   public:
    std::unique_ptr<WritableFile> create(const std::string& path, unsigned) override {
      throw IoError("{}: No space left on device", path);
    }
  } full;
  WatchOptions options;
  options.directory = "/reports";
  options.has_thread = false;
  options.files = &full;
  RankWatch watch(job_, {1}, options);
  EXPECT_NO_THROW(watch.note_failure(1, 1, "the first error"));
}

TEST_F(Watch, WhoIsAskedWhileItHangsSaysSoBeforeItWouldByItself) {
  const Pieces pieces;
  progress().set_step(17);
  const RankProgress::Run run(&progress(), pieces);
  progress().enter_piece(1);
  look_after(1000);
  look_after(4000);
  EXPECT_FALSE(report());
  watch_->note_asked();
  look_after(500);
  ASSERT_TRUE(report());
  EXPECT_EQ(report()->event, ReportEvent::kStandsStill);
  EXPECT_EQ(report()->doing, "piece 1");
  EXPECT_EQ(report()->doing_ms, 4500);
  EXPECT_THAT(report()->warnings, IsEmpty());
  // It is warned of when it would have been.
  look_after(6000);
  EXPECT_THAT(report()->warnings, ElementsAre(HasSubstr("rank 1 has come no further for 10 s")));
  EXPECT_EQ(report()->doing_ms, 10'500);
  progress().enter_piece(2);
  look_after(1000);
  EXPECT_EQ(report()->event, ReportEvent::kGoesOn);
}

TEST_F(Watch, WhoIsAskedOutsideOfAStepSaysWhereItIs) {
  look_after(1000);
  look_after(20'000);
  EXPECT_FALSE(report());
  watch_->note_asked();
  look_after(1000);
  ASSERT_TRUE(report());
  EXPECT_EQ(report()->event, ReportEvent::kStandsStill);
}

TEST_F(Watch, WhoIsAskedAndComesFurtherOrWaitsItselfWritesNothing) {
  const Pieces pieces;
  const RankProgress::Run run(&progress(), pieces);
  look_after(1000);
  progress().enter_piece(1);
  watch_->note_asked();
  look_after(900);
  progress().enter_piece(2);
  look_after(900);
  EXPECT_FALSE(report());
  comm::WatchedWait wait(call_, group_, 2, 30'000, *job_);
  wait.look(600);
  watch_->note_asked();
  look_after(3000);
  EXPECT_FALSE(report());
}

TEST_F(Watch, ARankThatHadEndedIsNotStoppedByALaterFailure) {
  progress().set_step(3);
  watch_->note_end(1);
  look_after(60'000);
  EXPECT_FALSE(report());
  job_->fail(0, "rank 0 waits for rank 1, which has ended without making this call");
  look_after(500);
  ASSERT_TRUE(report());
  EXPECT_EQ(report()->event, ReportEvent::kEnded);
  EXPECT_EQ(report()->step, 3);
  watch_->note_failure(1, 0, "stopped in the end of the job because rank 0 failed");
  EXPECT_EQ(report()->event, ReportEvent::kEnded);
  EXPECT_EQ(report()->cause, 0);
}

TEST_F(Watch, ARankThatHadEndedIsReportedAlsoWhereNobodyLooksAgain) {
  watch_->note_end(1);
  job_->fail(0, "rank 0 waits for rank 1, which has ended without making this call");
  watch_->close();
  ASSERT_TRUE(report());
  EXPECT_EQ(report()->event, ReportEvent::kEnded);
}

TEST_F(Watch, WhereAScriptWasLeftIsSaidOfItsEndAndOfItsError) {
  const auto report_after = [&](const std::function<void(RankWatch&)>& end) {
    WatchOptions options;
    options.directory = "/scripts";
    options.has_thread = false;
    options.files = &files_;
    options.clock = &clock_;
    options.script_left_at = [] { return "train.py:80 in step_begin"; };
    RankWatch watch(job_, {1}, options);
    end(watch);
    return parse_rank_report(files_.read_text("/scripts/rank.1.json"));
  };
  EXPECT_EQ(report_after([](RankWatch& watch) { watch.note_failure(1, 1, "MemoryError"); }).script,
            "train.py:80 in step_begin");
  const RankReport ended = report_after([](RankWatch& watch) {
    watch.note_end(1);
    watch.note_failure(1, 0, "stopped in the end of the job because rank 0 failed");
  });
  EXPECT_EQ(ended.event, ReportEvent::kEnded);
  EXPECT_EQ(ended.script, "train.py:80 in step_begin");
}

// Ranks that begin anew as planned leave others behind for a moment, who find them gone.
TEST_F(Watch, APlannedEndIsNoFailure) {
  bool is_planned = false;
  WatchOptions options;
  options.directory = "/planned";
  options.has_thread = false;
  options.files = &files_;
  options.clock = &clock_;
  options.has_ended_as_planned = [&] { return is_planned; };
  RankWatch watch(job_, {1}, options);
  job_->fail(0, "its process has ended without a word");
  watch.look();
  clock_.sleep_ms(400);
  watch.look();
  EXPECT_FALSE(files_.exists("/planned/rank.1.json"));
  is_planned = true;
  clock_.sleep_ms(60'000);
  watch.look();
  watch.note_failure(1, 0, "stopped in barrier #3 because rank 0 failed: its process has ended without a word");
  EXPECT_FALSE(files_.exists("/planned/rank.1.json"));
}

TEST_F(Watch, AFailureOfAJobThatMayEndAsPlannedIsSaidALittleLater) {
  WatchOptions options;
  options.directory = "/elastic";
  options.has_thread = false;
  options.files = &files_;
  options.clock = &clock_;
  options.has_ended_as_planned = [] { return false; };
  RankWatch watch(job_, {1}, options);
  job_->fail(0, "its process has ended without a word");
  watch.look();
  EXPECT_FALSE(files_.exists("/elastic/rank.1.json"));
  clock_.sleep_ms(500);
  watch.look();
  EXPECT_EQ(parse_rank_report(files_.read_text("/elastic/rank.1.json")).event, ReportEvent::kStopped);
}

// As run_as_rank() and a script that SIGTERM has ended say it.
TEST_F(Watch, WhoIsToldToEndWhileTheJobGoesOnHasNotFailed) {
  for (const char* words : {"it was told to end, by SIGTERM", "it has ended with exit code 143"}) {
    WatchOptions options;
    options.directory = "/told";
    options.has_thread = false;
    options.files = &files_;
    options.clock = &clock_;
    RankWatch watch(job_, {1}, options);
    watch.note_failure(1, 1, words);
    const RankReport report = parse_rank_report(files_.read_text("/told/rank.1.json"));
    EXPECT_EQ(report.event, ReportEvent::kToldToEnd) << words;
    EXPECT_EQ(report.cause, -1);
    EXPECT_EQ(report.signal, "SIGTERM");
  }
}

TEST_F(Watch, AnOldReportIsRemovedBeforeAnythingHappens) {
  files_.write_atomically("/reports/rank.1.json", "of the job before");
  WatchOptions options;
  options.directory = "/reports";
  options.has_thread = false;
  options.files = &files_;
  const RankWatch watch(job_, {1}, options);
  EXPECT_FALSE(files_.exists("/reports/rank.1.json"));
}

}  // namespace
}  // namespace tessera::cluster
