// Who is guilty, by reports that were written by hand: the sentence, and the whole text where that matters.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/cluster/report/test_reports.h"
#include "tessera/cluster/report/why.h"

namespace tessera::cluster {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr const char* kOwnError =
    "all_reduce \"fc\" #34 of group \"world\": rank 0 heard nothing from rank 1 for 30000 ms";

// Rank 0 gave up waiting for rank 1, and the others stopped because of that.
std::vector<RankReport> silence_of(int silent) {
  RankReport first = report_of(0, ReportEvent::kFailed, 0, kOwnError);
  first.waits = {wait_for(silent)};
  first.waits[0].waited_ms = 30'000;
  return {first, stopped(2, 0), stopped(3, 0)};
}

std::string text_of(const JobReport& job) { return find_verdict(job).text; }

TEST(Why, ARankThatWasKilledIsNamedWithWhatTheOthersWaitedFor) {
  RankEnding killed = ending(2, "SIGKILL", 0);
  killed.last_lines = {"loss 16 2.25", "\x1b]0;owned\x07 loss 17"};
  const JobReport job = job_of({stopped(0, 2), stopped(1, 2), stopped(3, 2)},
                               {launcher(2, {ending(0, "", 1), ending(1, "", 1), killed, ending(3, "", 1)})});
  const Verdict verdict = find_verdict(job);
  EXPECT_EQ(verdict.kind, "killed");
  EXPECT_THAT(verdict.ranks, ElementsAre(2));
  EXPECT_EQ(
      why_text(job),
      "rank 2 (node1, pid 4702) was killed by SIGKILL in step 17; ranks 0, 1, 3 waited for it in all_reduce \"fc\", "
      "made by model.py:41\n"
      "\n"
      " rank  host        pid    step  state                     what it did\n"
      "    0  node1      4700      17  exit code 1               waited 12 ms for rank 2 in all_reduce \"fc\" #34 of "
      "group \"world\", made by model.py:41\n"
      "    1  node1      4701      17  exit code 1               waited 12 ms for rank 2 in all_reduce \"fc\" #34 of "
      "group \"world\", made by model.py:41\n"
      "    2  node1      4702       -  killed by signal SIGKILL\n"
      "    3  node1      4703      17  exit code 1               waited 12 ms for rank 2 in all_reduce \"fc\" #34 of "
      "group \"world\", made by model.py:41\n"
      "\n"
      "the last lines of rank 2:\n"
      "    loss 16 2.25\n"
      "    \\x1b]0;owned\\x07 loss 17\n");
}

TEST(Why, WithoutALauncherARankThatWroteNothingIsNamedByTheOthers) {
  const JobReport job = job_of({stopped(0, 2), stopped(1, 2), stopped(3, 2)});
  EXPECT_EQ(
      text_of(job),
      "rank 2 ended without a word in step 17: its process was killed, or its host is gone; ranks 0, 1, 3 waited for "
      "it in all_reduce \"fc\", made by model.py:41");
  EXPECT_THAT(why_text(job), HasSubstr("rank 2 wrote no report, and no launcher tells of it\n"));
}

TEST(Why, AnExceptionIsSaidWithStepAndOperator) {
  RankReport failed = report_of(1, ReportEvent::kFailed, 1, "embedding \"words\" is given the index 40000\nmore lines");
  failed.doing = "embedding \"words\"";
  failed.line = "model.py:12";
  const JobReport job =
      job_of({stopped(0, 1), failed, stopped(2, 1), stopped(3, 1)}, {launcher(1, {ending(1, "", 1)})});
  EXPECT_EQ(
      text_of(job),
      "rank 1 (node1, pid 4701) failed in step 17, in embedding \"words\", made by model.py:12: embedding \"words\" is "
      "given the index 40000; ranks 0, 2, 3 waited for it in all_reduce \"fc\", made by model.py:41");
}

TEST(Why, OfTwoRanksThatFailTheFirstOneIsTheOrigin) {
  RankReport first = report_of(3, ReportEvent::kFailed, 3, "the first error");
  // It failed by itself, and the job had heard of rank 3 before.
  RankReport second = report_of(1, ReportEvent::kStopped, 3, "the second error");
  second.time_ms -= 1000;  // by a clock that is behind
  const JobReport job = job_of({stopped(0, 3), second, stopped(2, 3), first});
  EXPECT_THAT(text_of(job), StartsWith("rank 3 (node1, pid 4703) failed in step 17: the first error; "));
  // Where each has heard of itself alone, the earlier one counts.
  second.event = ReportEvent::kFailed;
  second.cause = 1;
  EXPECT_THAT(text_of(job_of({second, first})),
              StartsWith("rank 1 (node1, pid 4701) failed in step 17: the second error"));
}

TEST(Why, RanksThatFailAlikeAreNamedTogether) {
  std::vector<RankReport> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.push_back(report_of(rank, ReportEvent::kFailed, rank, "the data is empty"));
  EXPECT_EQ(text_of(job_of(ranks)), "all 4 ranks failed in step 17: the data is empty");
}

TEST(Why, ACrashNamesSignalAndOperator) {
  RankReport crashed = report_of(1, ReportEvent::kCrashed, 1);
  crashed.signal = "SIGSEGV";
  crashed.doing = "matmul \"fc\"";
  crashed.line = "model.py:41";
  const JobReport job = job_of({stopped(0, 1), crashed}, {launcher(1, {ending(1, "SIGSEGV", 0)})});
  EXPECT_THAT(text_of(job),
              StartsWith("rank 1 (node1, pid 4701) crashed by SIGSEGV in step 17, in matmul \"fc\", made by "
                         "model.py:41; rank 0 waited for it in all_reduce \"fc\""));
  EXPECT_EQ(find_verdict(job).kind, "crashed");
}

TEST(Why, WhoIsWaitedForInVainIsGuiltyAndNotWhoGaveUp) {
  std::vector<RankReport> ranks = silence_of(1);
  RankReport hung = report_of(1, ReportEvent::kStopped, 0);
  hung.doing = "matmul \"fc\"";
  hung.line = "model.py:41";
  hung.doing_ms = 31'250;
  hung.thread = "it computes";
  ranks.push_back(hung);
  const JobReport job = job_of(ranks, {launcher(0, {ending(0, "", 1), ending(1, "SIGTERM", 0, /*is_told=*/true)})});
  EXPECT_EQ(
      text_of(job),
      "rank 1 (node1, pid 4701) stood still for 31 s in step 17, in matmul \"fc\", made by model.py:41 (it computes); "
      "ranks 0, 2, 3 waited for it in all_reduce \"fc\", made by model.py:41");
  EXPECT_EQ(find_verdict(job).kind, "stands still");
}

TEST(Why, AProcessThatWasStoppedIsSaidToBe) {
  RankEnding stopped_one = ending(1, "SIGKILL", 0, /*is_told=*/true);
  stopped_one.doing = "it has been stopped";
  const JobReport job = job_of(silence_of(1), {launcher(0, {ending(0, "", 1), stopped_one})});
  EXPECT_THAT(text_of(job),
              StartsWith("rank 1 (node1, pid 4701) was stopped (SIGSTOP) in step 17; ranks 0, 2, 3 waited"));
}

TEST(Why, ASilentHostIsSaidToBe) {
  EXPECT_THAT(
      text_of(job_of(silence_of(1))),
      StartsWith("rank 1 said nothing in step 17: its process was stopped, or its host is gone; ranks 0, 2, 3 waited"));
}

TEST(Why, AChainOfWaitsIsFollowedToItsEnd) {
  std::vector<RankReport> ranks = silence_of(1);
  RankReport between = report_of(1, ReportEvent::kStopped, 0);
  between.waits = {wait_for(3, "send \"activations\" #4 of group \"pair\"", "")};
  between.waits[0].ranks = {1, 3};
  ranks.push_back(between);
  RankReport hung = report_of(3, ReportEvent::kStopped, 0);
  hung.doing = "the callbacks";
  hung.script = "train.py:80 in step_end";
  hung.doing_ms = 40'000;
  ranks[2] = hung;
  EXPECT_THAT(
      text_of(job_of(ranks)),
      StartsWith(
          "rank 3 (node1, pid 4703) stood still for 40 s in step 17, in the callbacks, at train.py:80 in step_end; "));
}

TEST(Why, RanksThatWaitForEachOtherAreBothNamed) {
  std::vector<RankReport> ranks = silence_of(1);
  RankReport other = report_of(1, ReportEvent::kStopped, 0);
  other.waits = {wait_for(0, "barrier \"epoch\" #3 of group \"pair\"", "train.py:80")};
  ranks.push_back(other);
  const Verdict verdict = find_verdict(job_of(ranks));
  EXPECT_THAT(verdict.ranks, ElementsAre(0, 1));
  EXPECT_EQ(
      verdict.text,
      "ranks 0, 1 waited for each other in step 17: rank 0 in all_reduce \"fc\" #34 of group \"world\", made by "
      "model.py:41, rank 1 in barrier \"epoch\" #3 of group \"pair\", made by train.py:80; ranks 2, 3 waited for them "
      "in all_reduce \"fc\", made by model.py:41");
}

TEST(Why, ARankThatComesWhenTheOthersHaveGivenUpIsLate) {
  std::vector<RankReport> ranks = silence_of(1);
  RankReport late = stopped(1, 0);
  late.waits[0].waited_ms = 0;
  ranks.push_back(late);
  EXPECT_EQ(
      text_of(job_of(ranks)),
      "rank 1 (node1, pid 4701) came too late in step 17; ranks 0, 2, 3 waited for it in all_reduce \"fc\", made by "
      "model.py:41");
}

// Rank 1 has ended with exit code 0, and then said so because another one has failed, waiting for it.
std::vector<RankReport> ended_before(int64_t step) {
  std::vector<RankReport> ranks = silence_of(1);
  ranks[0].error =
      std::string("IoError: ") + kGradients + ": rank 0 waits for rank 1, which has ended without making this call";
  RankReport ended =
      report_of(1, ReportEvent::kEnded, 0, "stopped in the end of the job because rank 0 failed: it says so");
  ended.step = step;
  ranks.push_back(ended);
  return ranks;
}

TEST(Why, ARankThatEndsInTheMidstOfATrainingIsSaidToHaveEndedAndWhereItsScriptWasLeft) {
  std::vector<RankReport> ranks = ended_before(16);
  ranks.back().script = "train.py:80 in step_begin";
  // The launcher sees the exit code of a job that has failed meanwhile.
  const JobReport job = job_of(ranks, {launcher(0, {ending(0, "", 1), ending(1, "", 1)})});
  const Verdict verdict = find_verdict(job);
  EXPECT_EQ(verdict.kind, "ended");
  EXPECT_THAT(verdict.ranks, ElementsAre(1));
  EXPECT_EQ(verdict.text,
            "rank 1 (node1, pid 4701) ended with exit code 0 in step 16, at train.py:80 in step_begin; ranks 0, 2, 3 "
            "waited for it in all_reduce \"fc\", made by model.py:41");
  EXPECT_THAT(why_text(job), testing::ContainsRegex("1  node1 +4701 +16  ended +its script was left at train.py:80"));
}

TEST(Why, ARankThatEndsWithoutAWordIsSaidToHaveEndedByItsLaunchersWord) {
  // As by os._exit(0).
  const std::vector<RankReport> ranks = {stopped(0, 1), stopped(2, 1), stopped(3, 1)};
  EXPECT_EQ(text_of(job_of(ranks, {launcher(1, {ending(0, "", 1), ending(1, "", 0)})})),
            "rank 1 (node1, pid 4701) ended with exit code 0 in step 17, without a word to the others; ranks 0, 2, 3 "
            "waited for it in all_reduce \"fc\", made by model.py:41");
}

TEST(Why, RanksThatCallDifferentNumbersOfStepsDidNotMakeTheSameCalls) {
  const Verdict verdict = find_verdict(job_of(ended_before(0)));
  EXPECT_EQ(verdict.kind, "different calls");
  EXPECT_THAT(verdict.ranks, ElementsAre(1));
  EXPECT_EQ(
      verdict.text,
      "the ranks did not make the same calls: rank 1 (node1, pid 4701) had ended with exit code 0 when others were "
      "in step 17; ranks 0, 2, 3 waited for it in all_reduce \"fc\", made by model.py:41; every rank must make the "
      "same calls, of train, eval, predict or save, in the same order");
}

TEST(Why, TheOneRankThatTrainsIsNamedAndNotTheMany) {
  RankReport trains = report_of(0, ReportEvent::kFailed, 0,
                                "all_gather \"data\" #2 of group \"world\": rank 0 waits for rank 1, which has ended "
                                "without making this call");
  trains.step = 0;
  trains.waits = {wait_for(1, "all_gather \"data\" #2 of group \"world\"", "")};
  std::vector<RankReport> ranks = {trains};
  for (int rank = 1; rank < 4; ++rank) {
    ranks.push_back(report_of(rank, ReportEvent::kEnded, 0, "stopped in the end of the job because rank 0 failed"));
    ranks.back().step = 0;
  }
  const Verdict verdict = find_verdict(job_of(ranks));
  EXPECT_EQ(verdict.kind, "different calls");
  EXPECT_THAT(verdict.ranks, ElementsAre(0));
  EXPECT_THAT(verdict.text, StartsWith("the ranks did not make the same calls: ranks 1-3 had ended with exit code 0; "
                                       "rank 0 waited for them in all_gather \"data\"; every rank must"));
}

TEST(Why, ARankThatEndsBeforeItJoinsIsNamedByThoseWhoWaitedForIt) {
  RankEnding waits = ending(0, "", 1);
  waits.last_lines = {
      "IoError: stopped in the start of the job because rank 1 failed: rank 1 did not join the job within "
      "4000 ms"};
  RankEnding early = ending(1, "", 0);
  early.time_ms = waits.time_ms - 4000;
  EXPECT_EQ(text_of(job_of({}, {launcher(0, {waits, early})})),
            "rank 1 (node1, pid 4701) ended with exit code 0, without a word to the others");
}

TEST(Why, ARankThatCannotBeginIsSaidWithItsLastLine) {
  RankEnding failed = ending(1, "", 1);
  failed.last_lines = {"Traceback (most recent call last):", "ModuleNotFoundError: No module named 'pandas'"};
  EXPECT_EQ(text_of(job_of({}, {launcher(1, {failed})})),
            "rank 1 (node1, pid 4701) ended with exit code 1; its last line: ModuleNotFoundError: No module named "
            "'pandas'");
}

TEST(Why, LastLinesKeepTheirIndentation) {
  RankEnding failed = ending(1, "", 1);
  failed.last_lines = {"  File \"net.py\", line 3", "    return down(up(x))", "                ^^^^^", "  no more"};
  const std::string text = why_text(job_of({}, {launcher(1, {failed})}));
  EXPECT_THAT(text, HasSubstr("\nthe last lines of rank 1:\n"
                              "      File \"net.py\", line 3\n"
                              "        return down(up(x))\n"
                              "                    ^^^^^\n"));
  EXPECT_THAT(text, HasSubstr("; its last line: no more\n"));
}

TEST(Why, AKillForWantOfMemoryIsSaidToBeLikelyOne) {
  RankEnding killed = ending(1, "SIGKILL", 0);
  killed.words = "killed by signal SIGKILL, likely by the system for want of memory (`dmesg` says more)";
  EXPECT_THAT(text_of(job_of({stopped(0, 1)}, {launcher(1, {killed})})),
              StartsWith("rank 1 (node1, pid 4701) was killed by SIGKILL in step 17, likely by the system for want of "
                         "memory (`dmesg` says more); rank 0 waited"));
}

TEST(Why, AFullDiskIsNamedWithItsFolderAndWhatToDo) {
  const char* const kFull = "IoError: /data/run/a.ckpt.tmp: cannot write: No space left on device";
  RankReport cannot = report_of(2, ReportEvent::kStopped, 0, kFull);
  RankReport others =
      report_of(0, ReportEvent::kFailed, 0,
                "IoError: rank 2: cannot save: /data/run/a.ckpt.tmp: cannot write: No space left on device");
  const std::string said =
      "rank 2 (node1, pid 4702) failed in step 17: IoError: /data/run/a.ckpt.tmp: cannot write: No space left on "
      "device; "
      "the disk of /data/run is full: remove there what is not needed, as old checkpoints and logs, or write elsewhere";
  EXPECT_EQ(text_of(job_of({others, cannot})), said);
  EXPECT_EQ(find_verdict(job_of({others, cannot})).kind, "full disk");
  // Where its report is of an earlier generation, or could not be written, the others' words and its last line are
  // left.
  EXPECT_THAT(
      text_of(job_of({others}, {launcher(2, {ending(2, "", 1)})})),
      StartsWith("rank 2 (node1, pid 4702) failed in step 17: cannot save: /data/run/a.ckpt.tmp: cannot write: No "
                 "space left on device; the disk of /data/run is full"));
  RankEnding full = ending(2, "", 1);
  full.last_lines = {"Traceback", std::string("tessera._tessera.") + kFull};
  EXPECT_THAT(text_of(job_of({}, {launcher(2, {full})})),
              AllOf(HasSubstr("ended with exit code 1; its last line: tessera._tessera.IoError: /data/run/a.ckpt.tmp"),
                    HasSubstr("; the disk of /data/run is full: remove there")));
  full.last_lines = {"OSError: [Errno 28] No space left on device: '/logs/metrics.csv'"};
  EXPECT_THAT(text_of(job_of({}, {launcher(2, {full})})), HasSubstr("; the disk of /logs is full: remove there"));
  full.last_lines = {"Disk quota exceeded"};
  EXPECT_THAT(text_of(job_of({}, {launcher(2, {full})})),
              HasSubstr("; the disk has no room left for this user: remove"));
}

TEST(Why, AnErrorThatAllRanksRaiseIsAllRanksAlsoWhereOneWasFirst) {
  std::vector<RankReport> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    const ReportEvent event = rank == 2 ? ReportEvent::kFailed : ReportEvent::kStopped;
    ranks.push_back(report_of(rank, event, 2, "rank 1 has 3 batches an epoch, rank 0 has 20"));
  }
  EXPECT_EQ(text_of(job_of(ranks)), "all 4 ranks failed in step 17: rank 1 has 3 batches an epoch, rank 0 has 20");
}

TEST(Why, ALossThatTheJobHasSurvivedIsNotBlamedForItsEnd) {
  RankEnding lost = ending(2, "SIGKILL", 0);
  lost.went_on = true;
  lost.generation = 1;
  RankEnding next = ending(2, "SIGTERM", 0, /*is_told=*/true);
  RankEnding last = ending(0, "", 3);
  last.time_ms += 60'000;
  next.generation = last.generation = 2;
  std::vector<RankReport> ranks = {stopped(0, 2), stopped(1, 2)};
  for (RankReport& report : ranks) report.generation = 1;
  LauncherReport ended = launcher(0, {lost, next, last});
  const JobReport job = job_of(ranks, {ended});
  EXPECT_EQ(text_of(job), "rank 0 (node1, pid 4700) ended with exit code 3");
  EXPECT_THAT(job.left_out, testing::Contains("rank.0.json: it is of generation 1, the job has ended in generation 2"));
  // Interrupted later, it has no guilty rank.
  ended.first_failed = -1;
  ended.signal = "SIGINT";
  EXPECT_THAT(text_of(job_of(ranks, {ended})), StartsWith("SIGINT ended the job: no rank has failed; rank 2 "));
  // A launcher's report of an earlier job has nothing to do with it.
  ended.time_ms = ranks[0].time_ms - 1;
  EXPECT_THAT(job_of(ranks, {ended}).ranks, testing::SizeIs(2));
}

TEST(Why, ALiveJobSaysWhoIsWaitedForAlsoBeforeThatOneHasSpoken) {
  RankReport waits = report_of(0, ReportEvent::kWaits);
  waits.waits = {wait_for(1)};
  const std::string said =
      " is waited for in step 17, and has not said yet what it does: a rank that hangs says so within some seconds, "
      "one "
      "that is stopped or whose host is gone never; rank 0 waits for it in all_reduce \"fc\", made by model.py:41; no "
      "rank "
      "has failed";
  EXPECT_EQ(text_of(job_of({waits})), "rank 1" + said);
  EXPECT_EQ(find_verdict(job_of({waits})).kind, "waits");
  // What it has said of an earlier wait, which it has got over, is old.
  RankReport before = report_of(1, ReportEvent::kGoesOn);
  before.step = 3;
  before.doing = "the callbacks";
  before.doing_ms = 5000;
  EXPECT_EQ(text_of(job_of({waits, before})), "rank 1 (node1, pid 4701)" + said);
}

TEST(Why, RanksThatAreThreadsEndWithTheirProcessAndNotByThemselves) {
  std::vector<RankReport> ranks = silence_of(1);
  RankReport hung = report_of(1, ReportEvent::kStopped, 0);
  hung.doing = "the callbacks";
  hung.doing_ms = 4000;
  ranks.push_back(hung);
  std::vector<RankEnding> endings;
  for (int rank = 0; rank < 4; ++rank) {
    endings.push_back(ending(rank, "", 1));
    endings.back().pid = 4700;
  }
  EXPECT_THAT(text_of(job_of(ranks, {launcher(0, endings)})),
              HasSubstr("stood still for 4 s in step 17, in the callbacks"));
  for (RankEnding& one : endings) one.signal = "SIGKILL";
  EXPECT_EQ(text_of(job_of({}, {launcher(0, endings)})), "all 4 ranks were killed by SIGKILL");
}

RankReport mismatch(int rank, int other) {
  RankReport report = report_of(rank, ReportEvent::kFailed, rank,
                                "group \"world\": rank " + std::to_string(other) + " makes another call than rank " +
                                    std::to_string(rank) + ": broadcast against all_reduce");
  report.waits = {wait_for(other)};
  report.waits[0].is_mismatch = true;
  return report;
}

TEST(Why, WhoMakesAnotherCallThanTheOthersIsNamed) {
  const Verdict verdict = find_verdict(job_of({mismatch(0, 3), mismatch(1, 3), mismatch(2, 3), mismatch(3, 0)}));
  EXPECT_THAT(verdict.ranks, ElementsAre(3));
  EXPECT_EQ(
      verdict.text,
      "rank 3 (node1, pid 4703) made another call than the others in step 17: group \"world\": rank 3 makes another "
      "call than rank 0: broadcast against all_reduce");
}

TEST(Why, OfTwoRanksWithDifferentCallsBothAreNamed) {
  const Verdict verdict = find_verdict(job_of({mismatch(0, 1), mismatch(1, 0)}));
  EXPECT_EQ(verdict.kind, "different calls");
  EXPECT_THAT(verdict.ranks, ElementsAre(0, 1));
}

TEST(Why, RanksThatMakeDifferentCallsSayWhereTheirScriptsWere) {
  std::vector<RankReport> ranks = {mismatch(0, 1), mismatch(1, 0), mismatch(2, 1)};
  for (RankReport& one : ranks) one.script = one.rank == 1 ? "train.py:8 in <module>" : "train.py:9 in <module>";
  ranks[1].error = "IoError: " + ranks[1].error;
  EXPECT_THAT(text_of(job_of(ranks)), EndsWith("rank 1 makes another call than rank 0: broadcast against all_reduce; "
                                               "ranks 0, 2 were at train.py:9 in <module>, rank 1 at train.py:8 in "
                                               "<module>"));
  ranks.resize(2);
  EXPECT_EQ(text_of(job_of(ranks)),
            "ranks 0, 1 made different calls in step 17: group \"world\": rank 0 makes another call than rank 1: "
            "broadcast against all_reduce; rank 0 was at train.py:9 in <module>, rank 1 at train.py:8 in <module>");
}

// Rank `odd` of three makes a call that the others do not; it, or `first`, sees that it waits for one that waits for
// it.
std::vector<RankReport> crossed(int odd, int first, int size = 3) {
  const std::string own_call = "all_gather \"comparing\" #33 of group \"world\"";
  const std::string others_call = "all_reduce \"loss\" #11 of group \"lane 0 of 0-1-2\"";
  const auto call_of = [&](int rank) { return rank == odd ? own_call : others_call; };
  const int other = first == odd ? (odd + 1) % size : odd;
  const std::string error = fmt::format(
      "IoError: {}: rank {} waits for rank {}, which waits for rank {} in {}: neither goes on; every rank must make "
      "the same calls, of train, eval, predict or save, in the same order",
      call_of(first), first, other, first, call_of(other));
  std::vector<RankReport> ranks;
  for (int rank = 0; rank < size; ++rank) {
    RankReport own = report_of(rank, rank == first ? ReportEvent::kFailed : ReportEvent::kStopped, first, error);
    own.size = size;
    own.step = rank == odd ? 5 : 6;
    own.script = rank == odd ? "train.py:16 in step_end" : "train.py:18 in <module>";
    if (rank != first)
      own.error = fmt::format("IoError: stopped in {} because rank {} failed: {}", call_of(rank), first, error);
    // What each was at when it looked, which need not be said by all of them.
    if (rank == first) own.waits = {wait_for(other, call_of(rank), "")};
    ranks.push_back(own);
  }
  return ranks;
}

TEST(Why, TheRankThatMakesACallOfItsOwnIsNamedAndNotWhoItWaitedFor) {
  const std::string text =
      " made another call than the others in step 5: rank {0} waited in all_gather \"comparing\", ranks {1} waited in "
      "all_reduce \"loss\", and neither went on; every rank must make the same calls, of train, eval, predict or save, "
      "in the same order; ";
  for (const int first : {0, 1, 2}) {
    const Verdict verdict = find_verdict(job_of(crossed(0, first)));
    EXPECT_EQ(verdict.kind, "different calls");
    EXPECT_THAT(verdict.ranks, ElementsAre(0)) << first;
    EXPECT_EQ(verdict.text, "rank 0 (node1, pid 4700)" + fmt::format(fmt::runtime(text), 0, "1, 2") +
                                "rank 0 was at train.py:16 in step_end, ranks 1, 2 at train.py:18 in <module>");
    const Verdict of_rank_1 = find_verdict(job_of(crossed(1, first)));
    EXPECT_THAT(of_rank_1.ranks, ElementsAre(1)) << first;
    EXPECT_THAT(of_rank_1.text, StartsWith("rank 1 (node1, pid 4701)" + fmt::format(fmt::runtime(text), 1, "0, 2")));
  }
}

TEST(Why, TheRankThatMakesACallOfItsOwnIsNamedWhereItsReportIsMissing) {
  std::vector<RankReport> ranks = crossed(0, 0);
  ranks.erase(ranks.begin());
  EXPECT_THAT(find_verdict(job_of(ranks)).ranks, ElementsAre(0));
}

TEST(Why, OfTwoRanksThatWaitInDifferentCallsBothAreNamed) {
  for (const int first : {0, 1}) {
    const Verdict verdict = find_verdict(job_of(crossed(0, first, 2)));
    EXPECT_EQ(verdict.kind, "different calls");
    EXPECT_THAT(verdict.ranks, ElementsAre(0, 1));
    EXPECT_THAT(verdict.text, HasSubstr(" made different calls in step 5: rank "));
  }
}

TEST(Why, TheRankThatMetTheFirstValueThatIsNotFiniteIsNamed) {
  std::vector<RankReport> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    RankReport& report = ranks.emplace_back(report_of(rank, ReportEvent::kFailed, rank, "loss is nan"));
    report.non_finite = {.piece = {.what = "all_reduce \"loss\"", .line = ""}, .number = 40};
  }
  ranks[2].non_finite = {.piece = {.what = "log \"fc\"", .line = "model.py:43"}, .number = 12};
  EXPECT_EQ(text_of(job_of(ranks)),
            "the loss of step 17 is not finite: the first result that is not is of log \"fc\", made by model.py:43, on "
            "rank 2 "
            "(node1, pid 4702)");
  for (RankReport& report : ranks) report.non_finite->number = 12;
  EXPECT_THAT(text_of(job_of(ranks)), EndsWith("on all 4 ranks"));
}

TEST(Why, ASaveThatOneRankCannotDoIsItsOwn) {
  RankReport cannot = report_of(2, ReportEvent::kFailed, 2, "/data/a.ckpt: cannot write: No space left on device");
  RankReport others =
      report_of(0, ReportEvent::kFailed, 0, "rank 2 cannot save: /data/a.ckpt: cannot write: No space left on device");
  others.time_ms -= 3;  // it was quicker to say so
  EXPECT_THAT(
      text_of(job_of({others, cannot})),
      StartsWith("rank 2 (node1, pid 4702) failed in step 17: /data/a.ckpt: cannot write: No space left on device"));
}

TEST(Why, WhatTheLauncherHasEndedIsNoOrigin) {
  const JobReport job =
      job_of({stopped(0, 2)}, {launcher(2, {ending(0, "SIGTERM", 0, /*is_told=*/true), ending(2, "", 3)})});
  EXPECT_THAT(text_of(job), StartsWith("rank 2 (node1, pid 4702) ended with exit code 3 in step 17"));
}

TEST(Why, AJobThatASignalEndedSaysWhoWasWaitedFor) {
  LauncherReport interrupted = launcher(-1, {ending(0, "SIGINT", 0, true), ending(1, "SIGINT", 0, true)});
  interrupted.signal = "SIGINT";
  RankReport waits = report_of(0, ReportEvent::kWaits);
  waits.waits = {wait_for(1)};
  RankReport hung = report_of(1, ReportEvent::kStandsStill);
  hung.doing = "the next batch";
  hung.doing_ms = 70'000;
  EXPECT_THAT(
      text_of(job_of({waits, hung}, {interrupted})),
      StartsWith("SIGINT ended the job: rank 1 (node1, pid 4701) stood still for 70 s in step 17, in the next batch; "
                 "rank 0 waited for it"));
  EXPECT_EQ(text_of(job_of({report_of(0, ReportEvent::kGoesOn)}, {interrupted})),
            "SIGINT ended the job: no rank has failed");
}

TEST(Why, AJobThatRunsSaysWhoIsWaitedForNow) {
  RankReport waits = report_of(0, ReportEvent::kWaits);
  waits.waits = {wait_for(1)};
  RankReport hung = report_of(1, ReportEvent::kStandsStill);
  hung.doing = "matmul \"fc\"";
  hung.doing_ms = 12'000;
  EXPECT_EQ(
      text_of(job_of({waits, hung})),
      "rank 1 (node1, pid 4701) stands still for 12 s in step 17, in matmul \"fc\"; rank 0 waits for it in all_reduce "
      "\"fc\", made by model.py:41; no rank has failed");
}

TEST(Why, AWaitThatIsOverIsNoReason) {
  RankReport goes_on = report_of(2, ReportEvent::kGoesOn);
  goes_on.waits = {wait_for(1)};
  goes_on.step = 3;
  const JobReport job = job_of({stopped(0, 2), stopped(1, 2), goes_on}, {launcher(2, {ending(2, "SIGKILL", 0)})});
  EXPECT_THAT(text_of(job), AllOf(StartsWith("rank 2 (node1, pid 4702) was killed by SIGKILL in step 17;"),
                                  Not(HasSubstr("step 3"))));
}

TEST(Why, WhoIsOnlySlowIsNoFailure) {
  RankReport warned = report_of(0, ReportEvent::kGoesOn);
  warned.warnings = {
      "rank 2 is slow: rank 0 has waited for it 41 % of the last 5 s, most in all_reduce \"fc\"; the job goes on"};
  const Verdict verdict = find_verdict(job_of({warned}));
  EXPECT_EQ(verdict.kind, "slow");
  EXPECT_THAT(verdict.ranks, IsEmpty());
  EXPECT_THAT(verdict.text, StartsWith("no rank has failed; rank 0 has warned: rank 2 is slow"));
}

TEST(Why, AJobThatWentOnAfterALossSaysSo) {
  RankEnding lost = ending(2, "SIGKILL", 0);
  lost.went_on = true;
  EXPECT_EQ(text_of(job_of({report_of(0, ReportEvent::kGoesOn)}, {launcher(-1, {lost})})),
            "no rank has failed; rank 2 (node1, pid 4702) was lost (killed by signal SIGKILL), and the job went on");
}

TEST(Why, TheReportsOfALossAreReadWithTheProcessThatWasLost) {
  RankEnding lost = ending(2, "SIGKILL", 0);
  lost.went_on = true;
  lost.generation = 1;
  RankEnding next = ending(2, "", 0);  // ended well, later
  next.time_ms += 60'000;
  std::vector<RankReport> ranks = {stopped(0, 2), stopped(1, 2)};
  for (RankReport& report : ranks) report.generation = 1;
  const Verdict verdict = find_verdict(job_of(ranks, {launcher(-1, {lost, next})}));
  EXPECT_THAT(verdict.text,
              AllOf(StartsWith("rank 2 (node1, pid 4702) was killed by SIGKILL in step 17; ranks 0, 1 waited"),
                    EndsWith("; the job went on")));
  // It failed before its ranks had met for the next generation.
  next = ending(2, "", 1);
  next.time_ms += 60'000;
  next.generation = 1;
  EXPECT_THAT(text_of(job_of(ranks, {launcher(2, {lost, next})})),
              EndsWith("; the job went on, and failed then: rank 2 (node1, pid 4702): exit code 1"));
}

constexpr const char* kSaved =
    "node left/1 (rank 1 at left) is lost: killed by signal SIGKILL; the ranks that are left have saved what was kept, "
    "after epoch 1, step 16, as saved/net-1_16.ckpt; start the job again with resume=\"auto\" to go on from there";

// Generation 2 of four ranks has lost rank 1; the others, which are ranks 0 to 2 in generation 3, have saved and left.
std::vector<RankReport> of_loss() {
  std::vector<RankReport> ranks = {stopped(0, 1), stopped(2, 1), stopped(3, 1)};
  for (RankReport& report : ranks) report.generation = 2;
  return ranks;
}
std::vector<RankReport> of_last(ReportEvent event, const std::string& error) {
  std::vector<RankReport> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    RankReport& report = ranks.emplace_back(report_of(rank, event, -1, error));
    report.size = 3;
    report.generation = 3;
    report.step = 0;
    report.time_ms += 500;
  }
  return ranks;
}
LauncherReport launcher_of_loss(const std::vector<RankEnding>& of_last) {
  RankEnding lost = ending(1, "SIGKILL", 0);
  lost.generation = 2;
  LauncherReport made = launcher(1, {lost});
  for (RankEnding one : of_last) {
    one.is_last = true;
    one.generation = 3;
    one.time_ms += 1000;
    made.endings.push_back(one);
  }
  return made;
}

TEST(Why, WhereALossHasEndedTheJobTheLostRankIsNamedAndThatTheOthersHaveSavedAndNotTheOthers) {
  const JobReport job = job_of(of_loss(), {launcher_of_loss({ending(0, "", 1), ending(1, "", 1), ending(2, "", 1)})},
                               of_last(ReportEvent::kLeft, kSaved));
  const Verdict verdict = find_verdict(job);
  EXPECT_EQ(verdict.kind, "killed");
  EXPECT_THAT(verdict.ranks, ElementsAre(1));
  EXPECT_EQ(verdict.text,
            "rank 1 (node1, pid 4701) was killed by SIGKILL in step 17; ranks 0, 2, 3 waited for it in all_reduce "
            "\"fc\", made by model.py:41; the job has ended: " +
                std::string(kSaved));
  const std::string text = why_text(job);
  EXPECT_THAT(text, testing::ContainsRegex("0  node1 +4700 +17  stopped"));
  EXPECT_THAT(text, testing::ContainsRegex("1  node1 +4701 +-  killed by signal SIGKILL"));
  EXPECT_THAT(text, testing::ContainsRegex("3  node1 +4703 +17  stopped"));
  EXPECT_THAT(text, Not(HasSubstr("exit code 1")));
  const auto json = nlohmann::json::parse(why_json(job));
  EXPECT_EQ(json.at("verdict").at("text"), verdict.text);
  EXPECT_EQ(json.at("verdict").at("ranks"), (std::vector<int>{1}));
  EXPECT_EQ(json.at("ranks").size(), 3U);
  EXPECT_EQ(json.at("last_ranks").size(), 3U);
  EXPECT_EQ(json.at("last_ranks")[0].at("event"), "left");
}

TEST(Why, WhereALossHasEndedTheJobASignalThatCameWhileTheOthersSavedHidesNothing) {
  LauncherReport told = launcher_of_loss({ending(0, "", 1)});
  told.signal = "SIGTERM";
  EXPECT_THAT(text_of(job_of(of_loss(), {told}, of_last(ReportEvent::kLeft, kSaved))),
              AllOf(StartsWith("rank 1 (node1, pid 4701) was killed by SIGKILL"), EndsWith(kSaved)));
}

TEST(Why, WhereALossHasEndedTheJobItIsNamedWhicheverLauncherOrReportsThereAre) {
  const std::vector<RankReport> last = of_last(ReportEvent::kLeft, std::string("JobStopped: ") + kSaved);
  EXPECT_THAT(text_of(job_of(of_loss(), {}, last)),
              AllOf(StartsWith("rank 1 ended without a word in step 17: its process was killed, or its host is gone; "),
                    EndsWith(std::string("; the job has ended: ") + kSaved)));
  LauncherReport of_others = launcher_of_loss({ending(0, "", 1), ending(1, "", 1)});
  of_others.endings.erase(of_others.endings.begin());
  EXPECT_THAT(text_of(job_of(of_loss(), {of_others}, last)), StartsWith("rank 1 ended without a word in step 17"));
  const Verdict verdict = find_verdict(job_of({}, {}, last));
  EXPECT_THAT(verdict.ranks, IsEmpty());
  EXPECT_EQ(verdict.text, std::string("the job has ended: ") + kSaved);
}

TEST(Why, RanksThatALossHasLeftAndThatDidNotSaveAreSaidBehindTheLoss) {
  const std::string unsaid =
      "; the job has ended: the ranks that were left have not said that what they had kept is saved";
  EXPECT_THAT(text_of(job_of(of_loss(), {launcher_of_loss({ending(0, "SIGKILL", 0)})})),
              AllOf(StartsWith("rank 1 (node1, pid 4701) was killed by SIGKILL in step 17; "),
                    EndsWith(unsaid + ": rank 0 of them (node1, pid 4700): killed by signal SIGKILL")));
  std::vector<RankReport> last = of_last(ReportEvent::kStopped, "stopped in all_gather because rank 2 failed");
  last[2].event = ReportEvent::kFailed;
  last[2].error = "the script has failed";
  EXPECT_THAT(text_of(job_of(of_loss(), {launcher_of_loss({ending(0, "", 1)})}, last)),
              EndsWith(unsaid + ": rank 2 of them (node1, pid 4702) failed: the script has failed"));
}

TEST(Why, ALossWhileRanksMeetThatEndsTheJobIsToldBehindTheOneThatWasSurvived) {
  LauncherReport launched = launcher_of_loss({ending(0, "", 1)});
  RankEnding first = ending(1, "SIGKILL", 0);
  first.generation = 2;
  first.went_on = true;
  launched.endings[0] = ending(1, "", 2);  // the process that was started in its place
  launched.endings[0].generation = 2;
  launched.endings.insert(launched.endings.begin(), first);
  EXPECT_THAT(text_of(job_of(of_loss(), {launched}, of_last(ReportEvent::kLeft, kSaved))),
              AllOf(StartsWith("rank 1 (node1, pid 4701) was killed by SIGKILL in step 17; "),
                    EndsWith(std::string("; the job went on; the job has ended: ") + kSaved)));
}

TEST(Why, NothingOfAReportIsPrintedRaw) {
  const std::string evil = "\x1b[2J\x07\xff\xc3(\u202e\n\tlist";
  RankReport report = report_of(0, ReportEvent::kFailed, 0, evil);
  report.host = report.doing = report.line = report.thread = evil;
  report.waits = {wait_for(1, evil, evil)};
  report.warnings = report.log = {evil};
  RankEnding hostile = ending(0, evil, 0);
  hostile.words = hostile.doing = evil;
  hostile.last_lines = {evil};
  const JobReport job = job_of({report}, {launcher(0, {hostile})});
  for (const std::string& text : {why_text(job), why_json(job), find_verdict(job).text}) {
    for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << text;
    EXPECT_THAT(text, Not(HasSubstr("\u202e")));
  }
  EXPECT_THAT(find_verdict(job).text, Not(HasSubstr("\n")));
  EXPECT_EQ(nlohmann::json::parse(why_json(job)).at("ranks").size(), 1U);
}

TEST(Why, AnyReportsAreJudged) {
  // Whatever they say of each other, no rank of theirs need be there.
  for (int event = 0; event < 8; ++event) {
    for (const int cause : {-1, 0, 1, 16'383}) {
      for (const int waits_for : {-1, 0, 1, 16'383}) {
        RankReport report = report_of(0, static_cast<ReportEvent>(event), cause, kOwnError);
        report.size = kMaxReportedRanks;
        report.waits = {wait_for(waits_for)};
        report.doing_ms = INT64_MAX;
        for (const bool is_mismatch : {false, true}) {
          report.waits[0].is_mismatch = is_mismatch;
          const std::string text = why_text(job_of({report}));
          EXPECT_FALSE(text.empty());
          EXPECT_LT(text.size(), 4000U);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cluster
