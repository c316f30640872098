// Ranks as real processes: what they compute is what threads compute, and what happens to them when one fails.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <list>
#include <optional>
#include <regex>
#include <thread>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/base/usage_error.h"
#include "tessera/cluster/hub/hub.h"
#include "tessera/cluster/hub/hub_frame.h"
#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/launch.h"
#include "tessera/cluster/launcher/launcher_output.h"
#include "tessera/cluster/launcher/rank_activity.h"
#include "tessera/cluster/network.h"
#include "tessera/cluster/scheduler_process.h"
#include "tessera/cluster/test_job.h"

namespace tessera {
namespace {

using cluster::FrameKind;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

bool is_running(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');
  return name_end != std::string::npos && text[name_end + 2] != 'Z';
}

// The number after the name and state of a process: its parent's.
pid_t parent_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return static_cast<pid_t>(std::stol(text.substr(text.rfind(')') + 4)));
}

// A launcher in a process of its own, whose ranks wait for ever. Each says `num_pids` processes that it consists of.
class WaitingJob {
 public:
  explicit WaitingJob(int size, std::vector<std::string> command = {rank_program(), "wait"}, int num_pids = 1,
                      int64_t grace_ms = 3000) {
    const auto num_processes = static_cast<size_t>(size * num_pids);
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      close(ends[0]);
      int code = 99;
      try {
        code = cluster::launch(
            {.command = command, .num_processes = size, .grace_ms = grace_ms, .out_fd = ends[1], .err_fd = ends[1]});
      } catch (...) {
      }
      _exit(code);
    }
    close(ends[1]);
    reader_ = ends[0];
    // All ranks have said their processes when all lines are there.
    const std::regex pattern("pid ([0-9]+)\n");
    while (ranks_.size() < num_processes && read_some()) {
      ranks_.clear();
      for (std::sregex_iterator it(text_.begin(), text_.end(), pattern), end; it != end; ++it) {
        ranks_.push_back(static_cast<pid_t>(parse_int((*it)[1].str(), "pid")));
      }
    }
    EXPECT_EQ(ranks_.size(), num_processes) << text_;
  }
  ~WaitingJob() { close(reader_); }

  const std::vector<pid_t>& processes() const { return ranks_; }
  void send(int number) const { kill(pid_, number); }
  // What was written so far, at least until `line` is there or all have ended.
  const std::string& text_with(const std::string& line) {
    while (text_.find(line) == std::string::npos && read_some()) {
    }
    return text_;
  }
  int wait() const {
    int status = 0;
    waitpid(pid_, &status, 0);
    return status;
  }
  int end_by(int number) const {
    send(number);
    return wait();
  }
  // The kernel ends them after the launcher; false when one still runs after a minute.
  bool all_ranks_end() const {
    for (int i = 0; i < 6000; ++i) {
      if (std::none_of(ranks_.begin(), ranks_.end(), is_running)) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

 private:
  bool read_some() {
    char buffer[256];
    const ssize_t count = read(reader_, buffer, sizeof(buffer));
    if (count > 0) text_.append(buffer, static_cast<size_t>(count));
    return count > 0;
  }

  pid_t pid_ = -1;
  int reader_ = -1;
  std::string text_;
  std::vector<pid_t> ranks_;
};

TEST(SharedMemory, GivesTheBitsOfThreads) {
  for (const int size : {2, 3, 4}) {
    const Outcome outcome = run_job({"script"}, {.num_processes = size});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::string expected = checksum_of_threads(size);
    for (int rank = 0; rank < size; ++rank) {
      EXPECT_THAT(outcome.out, HasSubstr(fmt::format("[{}] {} rank {} of {} local {} of {} over shared memory\n", rank,
                                                     expected, rank, size, rank, size)));
    }
  }
}

// While it lives, this process and the ranks that it starts can write files of so many bytes (ulimit -f).
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(SharedMemory, GivesTheBitsOfThreadsWhereAFileMayBeSmall) {
  const FileSizeLimit limit(256 << 10);
  const Outcome outcome = run_job({"script"}, {.num_processes = 3});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(checksum_of_threads(3) + " rank 2 of 3 local 2 of 3 over shared memory\n"));
}

TEST(SharedMemory, IsReservedAnewAsOftenAsOneLikes) {
  const Outcome outcome = run_job({"reserve"}, {.num_processes = 2});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
}

TEST(SharedMemory, NamesTheLimitThatIsTooSmallForAnyOfIt) {
  const FileSizeLimit limit(16 << 10);
  const Outcome outcome = run_job({"script"}, {.num_processes = 2});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, testing::ContainsRegex(
                               "rank 0: error: cannot make [0-9]+ bytes of shared memory: it counts as a file, and a "
                               "file of this process may have 16384 bytes \\(ulimit -f\\): raise that limit"));
  EXPECT_EQ(run_job({"code"}, {.num_processes = 2, .transport = "gloo"}).code, 0);
}

TEST(Launch, NamesTheLimitWhereNoFileMayHaveAByte) {
  const FileSizeLimit limit(0);
  EXPECT_THAT([] { cluster::launch({.command = {"true"}}); },
              ThrowsMessage<IoError>(HasSubstr("cannot make memory for the job's secret: File too large")));
}

TEST(Threads, AreRanksOfOneProcessUnderTheLauncher) {
  const Outcome outcome = run_job({"script"}, {.num_thread_ranks = 3});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(checksum_of_threads(3) + " rank 2 of 3 local 2 of 3 over threads\n"));
}

TEST(Launch, OneRankNeedsNobody) {
  const Outcome outcome = run_job({"script"}, {.num_processes = 1});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("rank 0 of 1 local 0 of 1 over single\n"));
}

TEST(Launch, AFailingRankIsNamedWithItsLastLines) {
  const Outcome outcome = run_job({"throw", "2"}, {.num_processes = 4});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.seconds, 20);
  EXPECT_EQ(outcome.err,
            "[2] rank 2: error: the shape is wrong\n"
            "[0,1,3] ranks 0, 1, 3: error: stopped in barrier \"after the error\" #2 of group \"world\" because rank 2 "
            "failed\n"
            "tessera run: rank 2 failed: exit code 1\n");
}

TEST(Launch, ARankThatHearsFirstOfAFailureNamesWhoseItIs) {
  const Outcome outcome = run_job({"hear", "2"}, {.num_processes = 3});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(
      outcome.err,
      "[2] rank 2: error: the disk is full\n"
      "[0] rank 0: error: its disk is full\n"
      "[1] rank 1: error: stopped in barrier \"after the error\" #2 of group \"world\" because rank 2 failed: its "
      "disk is full\n"
      "tessera run: rank 2 failed: exit code 1\n");
}

TEST(Launch, AnErrorOfAllRanksIsSaidOnce) {
  Outcome outcome =
      run_job({"-c", "echo working; echo 'error: no such file' >&2; exit 2"}, {.command = {"sh"}, .num_processes = 4});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.err,
            "[0-3] all 4 ranks: error: no such file\n"
            "tessera run: all 4 ranks failed: exit code 2\n");
  EXPECT_THAT(outcome.out, HasSubstr("[3] working\n"));
  const std::string traceback = "echo 'Traceback (most recent call last):' >&2; echo 'KeyError: 1' >&2; exit 1";
  outcome = run_job({"-c", traceback}, {.command = {"sh"}, .num_processes = 3});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err,
            "[0-2] Traceback (most recent call last):\n"
            "[0-2] KeyError: 1\n"
            "tessera run: all 3 ranks failed: exit code 1\n");
}

TEST(Launch, AnErrorThatAProgramSurvivesIsNotLost) {
  const Outcome outcome =
      run_job({"-c", "echo 'error: never mind' >&2; echo 'and on' >&2"}, {.command = {"sh"}, .num_processes = 2});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("[0] error: never mind\n[0] and on\n"),
                                 HasSubstr("[1] error: never mind\n[1] and on\n")));
}

TEST(Launch, AnErrorIsSaidOnceHoweverLateItsRankEnds) {
  const std::string script = "echo 'error: no such file' >&2; echo '  in the folder' >&2; sleep 1.1; exit 2";
  const Outcome outcome = run_job({"-c", script}, {.command = {"sh"}, .num_processes = 2});
  EXPECT_EQ(outcome.err,
            "[0,1] all 2 ranks: error: no such file\n"
            "[0,1]   in the folder\n"
            "tessera run: all 2 ranks failed: exit code 2\n");
}

TEST(Launch, AFailingThreadIsNamedToo) {
  const Outcome outcome = run_job({"throw", "1"}, {.num_thread_ranks = 3});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1: error: the shape is wrong\nranks 0, 2: error: stopped in barrier"));
  EXPECT_THAT(outcome.err, HasSubstr("tessera run: rank 1 failed: exit code 1"));
}

TEST(Launch, AThreadThatHangsIsNamedAndEnded) {
  const Outcome outcome = run_job({"late", "1"}, {.num_thread_ranks = 3, .timeout_ms = 2500});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.seconds, 60);
  EXPECT_THAT(outcome.err, HasSubstr("heard nothing from rank 1 for"));
  EXPECT_THAT(outcome.err, testing::ContainsRegex("rank 1: error: has not ended 2500 ms after rank [02] failed: it "
                                                  "waits.*; the process is ended\n"));
  EXPECT_THAT(outcome.err, testing::ContainsRegex("tessera run: rank [02] failed: exit code 1"));
}

TEST(Launch, AKilledRankEndsTheJobAtOnce) {
  const Outcome outcome = run_job({"die", "1"}, {.num_processes = 3});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.seconds, 20);
  EXPECT_THAT(outcome.err, HasSubstr("because rank 1 failed: its process has ended without a word"));
  EXPECT_THAT(outcome.err, HasSubstr("tessera run: rank 1 failed: killed by signal SIGKILL; it wrote nothing\n"));
}

TEST(Launch, KillingRankZeroEndsTheJobToo) {
  const Outcome outcome = run_job({"die", "0"}, {.num_processes = 3});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.seconds, 20);
  EXPECT_THAT(outcome.err, HasSubstr("tessera run: rank 0 failed: killed by signal SIGKILL"));
}

TEST(Launch, AnExitCodeIsAFailure) {
  const Outcome outcome = run_job({"code", "1"}, {.num_processes = 2});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("tessera run: rank 1 failed: exit code 7; it wrote nothing\n"));
}

TEST(Launch, AnExitCodeOfOneRankEndsTheCallsOfTheOthers) {
  for (const bool are_threads : {false, true}) {
    const int processes = are_threads ? 1 : 3;
    const int threads = are_threads ? 3 : 0;
    const Outcome outcome = run_job({"return", "1"}, {.num_processes = processes, .num_thread_ranks = threads});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_LT(outcome.seconds, 20);
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("ranks 0, 2: error: stopped in barrier \"without one\" #1 of group "
                                             "\"world\" because rank 1 failed: it has ended with exit code 3\n"),
                                   HasSubstr("tessera run: rank 1 failed: exit code 3"), Not(HasSubstr("rank 1: "))));
  }
}

TEST(Launch, ACodeThatSaysTheCommandLineIsWrongStaysThatOfTheJob) {
  EXPECT_EQ(run_job({"usage"}, {.num_processes = 3}).code, 2);
  EXPECT_EQ(run_job({"usage"}, {.num_thread_ranks = 3}).code, 2);
}

TEST(Launch, ARankThatLeavesEarlyIsNamed) {
  const Outcome outcome = run_job({"leave", "1"}, {.num_processes = 2});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("rank 0: error: barrier \"without one\" #1 of group \"world\": rank 0 waits for rank "
                        "1, which has ended without making this call\n"));
  EXPECT_THAT(outcome.err, HasSubstr("tessera run: rank 1 ended before a call for which rank 0 waited: rank 0 failed: "
                                     "exit code 1\n"));
  const Outcome threads = run_job({"leave", "1"}, {.num_thread_ranks = 2});
  EXPECT_EQ(threads.code, 1);
  EXPECT_THAT(threads.err, HasSubstr("tessera run: rank 1 ended before a call for which rank 0 waited: rank 0 failed: "
                                     "exit code 1"));
}

TEST(Launch, ARankThatEndsByItselfWithoutAWordIsSaidToHaveEnded) {
  const Outcome outcome = run_job({"end without a word", "1"}, {.num_processes = 2});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("tessera run: rank 1 ended before the job had: exit code 0; it wrote nothing\n"));
}

// The deadline of jobs one of whose ranks comes too late. Within it all processes start and meet, also where the
// machine keeps one of them waiting.
constexpr int64_t kLateMs = 6000;

TEST(Launch, ALateRankIsNamedAtTheDeadline) {
  const Outcome outcome = run_job({"late", "1"}, {.num_processes = 2, .timeout_ms = kLateMs, .grace_ms = 200});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.seconds, 60);
  EXPECT_THAT(
      outcome.err,
      testing::ContainsRegex("rank 0: error: barrier \"too late\" #2 of group \"world\": rank 0 heard nothing from "
                             "rank 1 for [0-9]+ ms; its last call in this group was #1; where that rank only works for "
                             "longer, raise the deadline: tessera run --timeout, or TESSERA_TIMEOUT_MS\n"));
  EXPECT_THAT(outcome.err, HasSubstr("tessera run: rank 0 failed: exit code 1"));
}

TEST(Launch, WhoCreatesAGroupLateIsSpokenOfAndNamedAtTheDeadline) {
  for (const int late : {0, 1}) {
    const Outcome outcome =
        run_job({"late group", std::to_string(late)}, {.num_processes = 2, .timeout_ms = kLateMs, .grace_ms = 200});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_LT(outcome.seconds, 60);
    EXPECT_THAT(outcome.err,
                testing::ContainsRegex(fmt::format("barrier \"create_group\" #0 of group \"pair\": rank {} has waited "
                                                   "[0-9]+ ms for rank {}: it waits",
                                                   1 - late, late)));
    EXPECT_THAT(outcome.err, testing::ContainsRegex(
                                 fmt::format("error: barrier \"create_group\" #0 of group \"pair\": rank {} heard "
                                             "nothing from rank {} for [0-9]+ ms",
                                             1 - late, late)));
  }
}

TEST(Launch, ARankThatMakesACallWhereTheOtherMakesAGroupIsNamedLongBeforeTheDeadline) {
  for (const int chosen : {0, 1}) {
    const Outcome outcome = run_job({"calls instead of a group", std::to_string(chosen)},
                                    {.num_processes = 2, .timeout_ms = 600'000, .grace_ms = 200});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_LT(outcome.seconds, 60);
    // Whichever of them looks first.
    EXPECT_THAT(outcome.err, AllOf(HasSubstr("neither goes on; every rank must make the same calls"),
                                   HasSubstr("barrier \"create_group\" #0 of group \"pair\"")));
  }
}

TEST(Launch, WhoEndsWithoutCreatingAGroupIsNamed) {
  for (const int left : {0, 1}) {
    const Outcome outcome = run_job({"left out of a group", std::to_string(left)}, {.num_processes = 2});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_LT(outcome.seconds, 20);
    EXPECT_THAT(outcome.err,
                HasSubstr(fmt::format("barrier \"create_group\" #0 of group \"pair\": rank {} waits for rank "
                                      "{}, which has ended without making this call",
                                      1 - left, left)));
  }
}

// Long before the deadline, whose sixth it is here.
TEST(Launch, ARankThatComputesIsSaidToDoSo) {
  const Outcome outcome = run_job({"busy", "0"}, {.num_processes = 2, .timeout_ms = kLateMs, .grace_ms = 200});
  EXPECT_THAT(outcome.err, testing::ContainsRegex("rank 1 has waited [0-9]+ ms for rank 0: it computes\n"));
}

TEST(Launch, RanksThatWaitElsewhereAreSaidToDoSo) {
  const Outcome outcome = run_job({"late amid others"}, {.num_processes = 3, .timeout_ms = kLateMs, .grace_ms = 200});
  EXPECT_THAT(outcome.err,
              testing::ContainsRegex("barrier \"of all\" #1 of group \"world\": rank 0 has waited [0-9]+ ms "
                                     "for rank 1: it waits in barrier \"of two\" #1 of group \"two\"; rank 2: "
                                     "it waits"));
  EXPECT_THAT(outcome.err, testing::ContainsRegex("barrier \"of two\" #1 of group \"two\": rank 1 has waited [0-9]+ ms "
                                                  "for rank 2: it waits"));
}

TEST(Launch, WhoSendsALetterLateIsSpokenOf) {
  const Outcome outcome = run_job({"late letter"}, {.num_processes = 3, .timeout_ms = kLateMs, .grace_ms = 200});
  EXPECT_THAT(outcome.err,
              testing::ContainsRegex("letter #1 of group \"world\": rank 0 has waited [0-9]+ ms for rank 1: "
                                     "it waits"));
}

TEST(Launch, ADifferentCallIsNamed) {
  const Outcome outcome = run_job({"mismatch", "1"}, {.num_processes = 2});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("makes another call than rank"), HasSubstr("broadcast \"weights\" #1"),
                                 HasSubstr("all_reduce \"loss\" #1")));
}

TEST(Launch, FilesOutputsByRank) {
  const std::string directory = testing::TempDir() + "tessera_logs_" + std::to_string(getpid());
  const Outcome outcome = run_job({"throw", "1"}, {.num_processes = 2, .log_directory = directory});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(FileSystem::local().read_text(directory + "/rank.1"), "rank 1: error: the shape is wrong\n");
  EXPECT_THAT(FileSystem::local().read_text(directory + "/rank.0"), HasSubstr("because rank 1 failed"));
  EXPECT_THAT(outcome.err, HasSubstr("tessera run: rank 1 failed: exit code 1; its last lines in " + directory +
                                     "/rank.1:\n    rank 1: error: the shape is wrong\n"));
  FileSystem::local().remove_directory_tree(directory);
}

TEST(Launch, AnOutputsFileIsNoPipeAndNoLink) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tessera-log-{}", ::getpid());
  std::filesystem::create_directories(folder);
  const auto refusal = [&] {
    try {
      cluster::launch({.command = {"true"}, .num_processes = 1, .log_directory = folder.string()});
    } catch (const IoError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const auto log = folder / "rank.0";
  ASSERT_EQ(mkfifo(log.c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("there is a link, pipe or device of that name"));
  std::filesystem::remove(log);
  std::ofstream(folder / "other") << "mine";
  std::filesystem::create_symlink(folder / "other", log);
  EXPECT_THAT(refusal(), HasSubstr("there is a link, pipe or device of that name"));
  EXPECT_EQ(std::filesystem::file_size(folder / "other"), 4u);
  std::filesystem::remove_all(folder);
}

TEST(Launch, InterruptLeavesNoProcess) {
  WaitingJob job(3);
  const int status = job.end_by(SIGINT);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGINT);
  EXPECT_TRUE(job.all_ranks_end());
}

TEST(Launch, KillingTheLauncherLeavesNoProcess) {
  WaitingJob job(3);
  job.end_by(SIGKILL);
  EXPECT_TRUE(job.all_ranks_end());
}

// A shell as a rank: a process in a session of its own, one whose parent has ended, and a program that it waits for.
std::vector<std::string> shell_with_children() {
  return {"sh", "-c",
          fmt::format("setsid sh -c 'echo pid $$; exec sleep 1000' & (sleep 1000 & echo pid $!); {} wait; true",
                      rank_program())};
}

TEST(Launch, KillingTheLauncherLeavesNothingThatTheRanksHaveStarted) {
  WaitingJob job(2, shell_with_children(), 3);
  job.end_by(SIGKILL);
  EXPECT_TRUE(job.all_ranks_end());
}

TEST(Launch, NothingOutlivesARankThatEnds) {
  const Outcome outcome = run_job({"-c", "setsid sleep 1000 & echo pid $!"}, {.command = {"sh"}, .num_processes = 1});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(is_running(static_cast<pid_t>(std::stol(outcome.out.substr(outcome.out.find("pid ") + 4)))));
}

TEST(Launch, KillingAGuardEndsItsRankAndTheJob) {
  WaitingJob job(2, {"sh", "-c", "sleep 1000 & echo pid $!; echo pid $$; wait"}, 2, /*grace_ms=*/1);
  // Of one rank, whichever was first, a process and its parent are said in turn.
  const pid_t shell = parent_of(job.processes()[0]);
  kill(parent_of(shell), SIGKILL);
  EXPECT_THAT(job.text_with("its last lines"), HasSubstr("failed: killed by signal SIGKILL"));
  EXPECT_EQ(WEXITSTATUS(job.wait()), 1);
  EXPECT_TRUE(job.all_ranks_end());
}

TEST(Launch, SaysWhichSignalEndsTheJobAndTheSecondKills) {
  WaitingJob job(2, {"sh", "-c", "trap '' TERM; echo pid $$; while :; do sleep 1000; done"}, 1,
                 /*grace_ms=*/100'000);
  job.send(SIGTERM);
  EXPECT_THAT(job.text_with("ending"), HasSubstr("tessera run: SIGTERM: ending 2 ranks\n"));
  job.send(SIGTERM);
  EXPECT_THAT(job.text_with("killing"), HasSubstr("tessera run: SIGTERM again: killing 2 ranks\n"));
  const int status = job.wait();
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  EXPECT_TRUE(job.all_ranks_end());
}

TEST(Launch, TheSecondSignalSaysOfNoRankThatItWasSlow) {
  WaitingJob job(3, {"sh", "-c", "trap '' TERM; echo pid $$; while :; do sleep 1000; done"}, 1,
                 /*grace_ms=*/100'000);
  job.send(SIGINT);
  job.text_with("ending");
  job.send(SIGINT);
  EXPECT_THAT(job.text_with("(the end)"),
              AllOf(HasSubstr("tessera run: SIGINT again: killing 3 ranks\n"), Not(HasSubstr("has not ended"))));
  EXPECT_EQ(WEXITSTATUS(job.wait()), 128 + SIGINT);
}

TEST(Launch, ASignalBetweenTwoStartsEndsTheJobBeforeTheRestHasStarted) {
  // It waits for the launcher to look, as one does that comes while a large job starts.
  sigset_t set, before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, &before);
  raise(SIGTERM);
  const Outcome outcome = run_job({"1000"}, {.command = {"sleep"}, .num_processes = 200, .grace_ms = 1});
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(outcome.code, 128 + SIGTERM);
  EXPECT_THAT(outcome.err, HasSubstr("tessera run: SIGTERM: ending 1 rank\n"));
  EXPECT_LT(outcome.seconds, 60);
}

// A launcher in a process of its own, whose ranks write without an end to a pipe that this process may leave unread, or
// to a file.
class WritingJob {
 public:
  explicit WritingJob(
      std::vector<std::string> command = {"yes"}, void (*prepare)() = [] {}, const char* file = nullptr) {
    EXPECT_EQ(pipe(out_), 0);
    EXPECT_EQ(pipe(err_), 0);
    if (file != nullptr) {
      close(out_[1]);
      out_[1] = open(file, O_WRONLY);
    }
    pid_ = fork();
    if (pid_ == 0) {
      close(out_[0]);
      close(err_[0]);
      prepare();
      int code = 99;
      try {
        code =
            cluster::launch({.command = std::move(command), .num_processes = 1, .out_fd = out_[1], .err_fd = err_[1]});
      } catch (...) {
      }
      _exit(code);
    }
    close(out_[1]);
    close(err_[1]);
  }
  ~WritingJob() {
    if (!has_ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    stop_reading();
    close(err_[0]);
  }
  WritingJob(const WritingJob&) = delete;
  WritingJob& operator=(const WritingJob&) = delete;

  // False when it has not happened after a minute.
  bool fills_the_pipe() const {
    const int capacity = fcntl(out_[0], F_GETPIPE_SZ);
    return within_a_minute([&] {
      int unread = 0;
      return ioctl(out_[0], FIONREAD, &unread) == 0 && unread + PIPE_BUF > capacity;
    });
  }
  bool ends() {
    return within_a_minute([&] { return has_ended_ = waitpid(pid_, &status_, WNOHANG) == pid_; });
  }
  void send(int number) const { kill(pid_, number); }
  // Until a rank writes to standard error.
  void wait_for_a_word() const {
    pollfd word{err_[0], POLLIN, 0};
    EXPECT_EQ(poll(&word, 1, 60'000), 1);
  }
  int out() const { return out_[0]; }
  void stop_reading() {
    if (out_[0] >= 0) close(out_[0]);
    out_[0] = -1;
  }
  // Once it has ended.
  int code() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1; }
  std::string err() const { return all_of(err_[0]); }

  static std::string all_of(int fd) {
    std::string text;
    char buffer[4096];
    ssize_t count;
    while ((count = read(fd, buffer, sizeof(buffer))) > 0) text.append(buffer, static_cast<size_t>(count));
    return text;
  }

 private:
  static bool within_a_minute(const std::function<bool()>& happens) {
    for (int i = 0; i < 6000; ++i) {
      if (happens()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  pid_t pid_ = -1;
  int out_[2] = {-1, -1};
  int err_[2] = {-1, -1};
  int status_ = 0;
  bool has_ended_ = false;
};

TEST(Launch, ASignalEndsAJobWhoseOutputNobodyReads) {
  for (const int number : {SIGTERM, SIGINT}) {
    WritingJob job;
    ASSERT_TRUE(job.fills_the_pipe());
    job.send(number);
    ASSERT_TRUE(job.ends()) << number;
    EXPECT_EQ(job.code(), 128 + number);
    EXPECT_THAT(job.err(), HasSubstr("ending 1 rank\n"));
  }
}

TEST(Launch, AJobWhoseOutputNobodyReadsAnyMoreEnds) {
  for (const auto prepare : {+[] {}, +[] { signal(SIGPIPE, SIG_IGN); }}) {
    WritingJob job({"yes"}, prepare);
    ASSERT_TRUE(job.fills_the_pipe());
    job.stop_reading();
    ASSERT_TRUE(job.ends());
    EXPECT_EQ(job.code(), 128 + SIGPIPE);
    EXPECT_EQ(job.err(), "tessera run: nobody reads standard output any more: ending 1 rank\n");
  }
}

TEST(Launch, ASignalEndsAJobThatWritesFasterThanTheLauncherReads) {
  WritingJob job(
      {"sh", "-c", "yes & yes & yes & echo started >&2; exec yes"}, [] {}, "/dev/null");
  job.wait_for_a_word();
  job.send(SIGTERM);
  ASSERT_TRUE(job.ends());
  EXPECT_EQ(job.code(), 128 + SIGTERM);
}

TEST(Launch, WhatNobodyReadIsNoSuccess) {
  WritingJob job({"sh", "-c", "yes | head -n 14000"});  // the rank ends, more than a pipe holds is left
  ASSERT_TRUE(job.fills_the_pipe());
  job.stop_reading();
  ASSERT_TRUE(job.ends());
  EXPECT_EQ(job.code(), 128 + SIGPIPE);
}

TEST(Launch, AReaderThatComesLateGetsAll) {
  WritingJob job({"sh", "-c", "yes 'a line' | head -n 100000; echo the end"});
  ASSERT_TRUE(job.fills_the_pipe());
  std::string expected;
  for (int i = 0; i < 100'000; ++i) expected += "[0] a line\n";
  EXPECT_TRUE(WritingJob::all_of(job.out()) == expected + "[0] the end\n");
  ASSERT_TRUE(job.ends());
  EXPECT_EQ(job.code(), 0) << job.err();
}

TEST(Launch, ADiskThatIsFullEndsTheJob) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  EXPECT_EQ(cluster::launch({.command = {"yes"}, .num_processes = 1, .out_fd = full, .err_fd = ends[1]}), 1);
  close(ends[1]);
  EXPECT_EQ(WritingJob::all_of(ends[0]),
            "tessera run: cannot write standard output: No space left on device: ending 1 rank\n");
  close(ends[0]);
  close(full);
}

TEST(LauncherOutput, SaysWhenItKeepsSoMuchThatTheRanksMustWait) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  cluster::LauncherOutput output(ends[1]);
  std::string written;
  for (int i = 0; !output.is_full(); ++i) {
    const std::string line = fmt::format("line {}\n", i);
    written += line;
    output.write(line);
    ASSERT_LT(i, 1 << 16);
  }
  EXPECT_EQ(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0) << "others who write there are told to wait";
  std::string got;
  char buffer[4096];
  while (got.size() < written.size()) {
    got.append(buffer, static_cast<size_t>(read(ends[0], buffer, sizeof(buffer))));
    output.flush();
  }
  EXPECT_TRUE(got == written);
  EXPECT_FALSE(output.has_pending() || output.is_full());
  EXPECT_EQ(output.error(), 0);
  close(ends[0]);
  close(ends[1]);
}

TEST(Program, SaysWhichSignalEndsIt) {
  for (const auto& [number, words] :
       {std::pair{SIGTERM, "ended by SIGTERM\n"}, {SIGINT, "ended by SIGINT\n"}, {SIGHUP, "ended by SIGHUP\n"}}) {
    const auto before = signal(number, SIG_DFL);  // a shell's background job and its children ignore SIGINT
    FILE* pipe = popen(("exec " + rank_program() + " wait 2>&1").c_str(), "r");
    signal(number, before);
    char line[64] = {};
    ASSERT_NE(fgets(line, sizeof(line), pipe), nullptr);
    kill(static_cast<pid_t>(std::stol(line + 4)), number);  // "pid 123"
    EXPECT_NE(fgets(line, sizeof(line), pipe), nullptr);
    EXPECT_STREQ(line, words);
    const int status = pclose(pipe);
    EXPECT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_EQ(WTERMSIG(status), number);
  }
}

// A command that has a stack of so many KiB, and next to no environment, which lies there, too: these variables, and
// what sanitizers are told.
std::string on_stack(const std::string& limit, const std::string& variables, const std::string& command) {
  std::string kept = variables;
  for (const char* name : {"ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "OMP_THREAD_LIMIT"}) {
    if (getenv(name) != nullptr) kept += fmt::format(" {}=\"${}\"", name, name);
  }
  return fmt::format("env -i {} /bin/sh -c '{}; exec {}'", kept, limit, command);
}

TEST(Program, HasRoomOnTheStacksOfItsThreadsWhateverTheLimit) {
  for (const char* limit : {"ulimit -s 64", "ulimit -S -s 64"}) {
    const Outcome outcome = run_command(on_stack(limit, "", rank_program() + " stack"));
    EXPECT_EQ(outcome.code, 0) << limit << ": " << outcome.out;
    EXPECT_EQ(outcome.out, "has room\n");
  }
  const Outcome outcome = run_command(on_stack("ulimit -s 64", "TESSERA_THREAD_RANKS=2", rank_program() + " stack"));
  EXPECT_EQ(outcome.out, "has room\nhas room\n");
}

TEST(Launch, RefusesWhatItCannotStart) {
  EXPECT_THAT([] { cluster::launch({.command = {"true"}, .num_processes = 0}); },
              ThrowsMessage<InvalidArgument>("tessera run: a job needs at least 1 rank, got -n 0"));
  EXPECT_THAT([] { cluster::launch({.command = {"true"}, .timeout_ms = 3'000'000'000}); },
              ThrowsMessage<InvalidArgument>("tessera run: a timeout must be from 1 to 2147483647 ms, got 3000000000"));
  EXPECT_THAT([] { cluster::launch({.command = {"no-such-program-here"}}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("program \"no-such-program-here\" is not in PATH")));
  const std::string script = testing::TempDir() + fmt::format("tessera_script_{}.py", getpid());
  FileSystem::local().write_atomically(script, "print()");
  EXPECT_THAT([&] { cluster::launch({.command = {script}}); },
              ThrowsMessage<InvalidArgument>(
                  fmt::format("\"{}\" is a script of Python; start it as: python {}", script, script)));
  FileSystem::local().remove(script);
  EXPECT_THAT([] { cluster::launch({.command = {"/no/such/program"}}); },
              ThrowsMessage<InvalidArgument>("program \"/no/such/program\" does not exist"));
  EXPECT_THAT([] { cluster::launch({.command = {"/etc/passwd"}}); },
              ThrowsMessage<InvalidArgument>("program \"/etc/passwd\" is not executable; chmod +x makes it one"));
  EXPECT_THAT(
      [] { cluster::launch({.command = {"true"}, .transport = "tcp"}); },
      ThrowsMessage<InvalidArgument>("unknown transport \"tcp\"; the known ones are threads, shm, tls, gloo, mpi"));
}

// The value of an environment variable while this lives; nullptr: unset.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = getenv(name)) old_ = old;
    value ? setenv(name, value, 1) : unsetenv(name);
  }
  ~ScopedVariable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(Environment, RefusesANodeIdThatWouldBreakLogsOrTheWire) {
  const ScopedVariable config("TESSERA_TLS_CONFIG", "/nonexistent");  // no key of this user's is asked for
  const ScopedVariable secret("TESSERA_SECRET_FILE", nullptr);
  const auto place = [](const std::string& id) {
    const ScopedVariable node("TESSERA_NODE_ID", id.c_str());
    return cluster::scheduler_place_from_environment().node_id;
  };
  EXPECT_EQ(place(std::string(100, 'n')), std::string(100, 'n'));
  EXPECT_EQ(place("left-1/0"), "left-1/0");
  EXPECT_EQ(place(""), "") << "one is drawn";
  const auto expect_refused = [&](const std::string& id, const std::string& shown) {
    EXPECT_THAT(
        [&] { place(id); },
        ThrowsMessage<UsageError>(HasSubstr("TESSERA_NODE_ID must be 1 to 100 visible characters of ASCII, without "
                                            "spaces, got " +
                                            shown)));
  };
  expect_refused("a b", "3: \"a\\x20b\"");
  expect_refused(std::string(101, 'n'), "101: \"nnn");
  expect_refused("a\nb", "3: \"a\\x0ab\"");
  expect_refused("\x1b[2J", "4: \"\\x1b[2J\"");
  expect_refused("a\x7f", "2: \"a\\x7f\"");
  expect_refused("\xc3\xa4", "2: \"\\xc3\\xa4\"");
}

TEST(Environment, HasTheVariablesByWhichACommandComputesSomethingElse) {
  const ScopedVariable rounding("TESSERA_CUDA_TF32", "1");
  const ScopedVariable size("RANK_SIZE", "4");
  const ScopedVariable password("TESSERA_TLS_PASSWORD", "p");
  const auto alone = cluster::result_variables_from_environment();
  EXPECT_EQ(alone.at("TESSERA_CUDA_TF32"), "1");
  EXPECT_EQ(alone.at("RANK_SIZE"), "4");
  EXPECT_FALSE(alone.contains("TESSERA_TLS_PASSWORD"));
  const ScopedVariable launcher("TESSERA_STATUS_FILE", "/proc/1/fd/1");
  const auto launched = cluster::result_variables_from_environment();
  EXPECT_EQ(launched.at("TESSERA_CUDA_TF32"), "1");
  EXPECT_FALSE(launched.contains("RANK_SIZE"));
}

TEST(Launch, ProcessesDoNotOversubscribeTheCores) {
  const ScopedVariable threads("OMP_NUM_THREADS", nullptr);
  const ScopedVariable policy("OMP_WAIT_POLICY", nullptr);
  const Outcome outcome = run_job({"-c", "echo $TESSERA_RANK/$TESSERA_SIZE $OMP_NUM_THREADS $OMP_WAIT_POLICY"},
                                  {.command = {"sh"}, .num_processes = 64});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[63] 63/64 1 passive\n"));
}

TEST(Launch, KeepsTheUsersOwnThreadSettings) {
  const ScopedVariable threads("OMP_NUM_THREADS", "3");
  const ScopedVariable policy("OMP_WAIT_POLICY", "ACTIVE");
  const Outcome outcome =
      run_job({"-c", "echo $OMP_NUM_THREADS $OMP_WAIT_POLICY"}, {.command = {"sh"}, .num_processes = 2});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("[1] 3 ACTIVE\n"));
}

TEST(Launch, GivesARankNoDescriptorOfDevNullButStandardInput) {
  // This process may have got some from who has started it.
  WritingJob job({"sh", "-c", "readlink /proc/$$/fd/* | grep -c /dev/null"},
                 [] { close_range(3, ~0U, CLOSE_RANGE_CLOEXEC); });
  EXPECT_EQ(WritingJob::all_of(job.out()), "[0] 1\n");
  EXPECT_TRUE(job.ends());
}

TEST(Launch, NeedsNoStandardDescriptorsOfItsOwn) {
  WritingJob job({"sh", "-c", "test -e /proc/self/fd/0 && echo out && echo err >&2; readlink /proc/$$/fd/0"}, [] {
    for (const int fd : {0, 1, 2}) close(fd);
  });
  EXPECT_EQ(WritingJob::all_of(job.out()), "[0] out\n[0] /dev/null\n");
  ASSERT_TRUE(job.ends());
  EXPECT_EQ(job.err(), "[0] err\n");
  EXPECT_EQ(job.code(), 0);
}

// The hub, without processes.

cluster::HubOptions hub_options(const std::string& address) {
  return {.address = address,
          .job_id = "number one",
          .size = 2,
          .timeout_ms = 20'000,
          .secret = comm::Secret("a secret of this test", "test")};
}

TEST(Hub, ATakenPortIsNamed) {
  const cluster::HubServer first(hub_options("tcp:127.0.0.1:0"));
  EXPECT_THAT([&] { cluster::HubServer second(hub_options(first.address())); },
              ThrowsMessage<IoError>(
                  AllOf(HasSubstr("cannot listen at " + first.address()), HasSubstr("Address already in use"))));
}

TEST(Hub, ATakenPortEndsTheProgram) {
  const cluster::HubServer taken(hub_options(fmt::format("unix:tessera-taken-{}", getpid())));
  const Outcome outcome =
      run_command(fmt::format("TESSERA_RANK=0 TESSERA_SIZE=2 TESSERA_STORE={} {}", taken.address(), rank_program()));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.out, HasSubstr("rank 0: error: rank 0 cannot listen at " + taken.address()));
}

TEST(Hub, APeerOfAnotherJobIsRefused) {
  const cluster::HubServer server(hub_options("tcp:127.0.0.1:0"));
  cluster::HubOptions other = hub_options(server.address());
  other.job_id = "number two";
  EXPECT_THAT([&] { cluster::HubClient(other, 1, "host", std::make_shared<comm::JobState>(2)); },
              ThrowsMessage<IoError>(AllOf(HasSubstr("is another one"), Not(HasSubstr("number one")))));
}

TEST(Hub, TcpNeedsASecret) {
  cluster::HubOptions options = hub_options("tcp:127.0.0.1:0");
  options.secret = comm::Secret();
  EXPECT_THAT([&] { cluster::HubServer server(options); },
              ThrowsMessage<InvalidArgument>(HasSubstr("without a secret")));
  options = hub_options("tcp:0.0.0.0:0");
  EXPECT_THAT([&] { cluster::HubServer server(options); },
              ThrowsMessage<InvalidArgument>(HasSubstr("one interface's address")));
}

TEST(Hub, LocalRanksMeetWithoutASecret) {
  cluster::HubOptions options = hub_options(fmt::format("unix:tessera-test-{}", getpid()));
  options.secret = comm::Secret();
  const cluster::HubServer server(options);
  std::thread other([&] { cluster::HubClient(options, 1, "host b", std::make_shared<comm::JobState>(2)); });
  const cluster::HubClient client(options, 0, "host a", std::make_shared<comm::JobState>(2));
  EXPECT_THAT(client.hosts(), testing::ElementsAre("host a", "host b"));
  other.join();
}

TEST(Hub, AnotherSecretIsRefused) {
  const cluster::HubServer server(hub_options("tcp:127.0.0.1:0"));
  cluster::HubOptions other = hub_options(server.address());
  other.secret = comm::Secret("another secret of it", "test");
  other.timeout_ms = 2000;
  EXPECT_THAT([&] { cluster::HubClient(other, 1, "host", std::make_shared<comm::JobState>(2)); },
              ThrowsMessage<IoError>(HasSubstr("does not know this rank's secret")));
}

// Stands in a hub's place, with the job's secret, and says one thing to the first rank that comes.
class OtherHub {
 public:
  OtherHub(const std::string& address, FrameKind kind, std::string body)
      : address_(address), listener_(cluster::listen_at(address_, 20'000)) {
    thread_ = std::thread([this, kind, body = std::move(body)] { say(kind, body); });
  }
  ~OtherHub() { thread_.join(); }
  OtherHub(const OtherHub&) = delete;
  OtherHub& operator=(const OtherHub&) = delete;
  const std::string& address() const { return address_; }

 private:
  void say(FrameKind kind, const std::string& body) {
    await(listener_);
    const cluster::Socket rank = cluster::accept_from(listener_);
    cluster::TlsSession session(cluster::make_hub_context(hub_options("").secret, cluster::TlsSide::kServer));
    cluster::FrameWriter writer;
    writer.push(kind, body);
    std::string said;
    char buffer[4096];
    while (session.state() != cluster::TlsSession::State::kOpen || writer.waiting_bytes() > 0) {
      await(rank);
      const ssize_t count = recv(rank.fd(), buffer, sizeof(buffer), 0);
      if (count <= 0) return;
      session.receive({buffer, static_cast<size_t>(count)}, said);
      writer.flush(session, rank);
    }
  }
  static void await(const cluster::Socket& socket) {
    pollfd wait{socket.fd(), POLLIN, 0};
    poll(&wait, 1, 20'000);
  }

  std::string address_;
  cluster::Socket listener_;
  std::thread thread_;
};

TEST(Hub, OneOfAnotherVersionIsNamed) {
  const OtherHub hub("tcp:127.0.0.1:0", FrameKind::kWelcome, "tessera hub 99");
  EXPECT_THAT([&] { cluster::HubClient(hub_options(hub.address()), 1, "host", std::make_shared<comm::JobState>(2)); },
              ThrowsMessage<IoError>(AllOf(HasSubstr("speaks \"tessera hub 99\", this rank \"tessera hub "),
                                           HasSubstr("install one version of Tessera on all hosts"))));
}

// A hub of two ranks that one of them joins, and that then reads nothing until it goes on.
class StoppedHub {
 public:
  StoppedHub() : listener_(cluster::listen_at(address_, 20'000)) {
    thread_ = std::thread([this] { serve(); });
  }
  ~StoppedHub() { thread_.join(); }
  StoppedHub(const StoppedHub&) = delete;
  StoppedHub& operator=(const StoppedHub&) = delete;
  const std::string& address() const { return address_; }
  // What it has been told by then, or is told afterwards.
  cluster::Frame go_on() {
    goes_on_.set_value();
    return told_.get_future().get();
  }

 private:
  void serve() {
    cluster::Frame frame;
    if (read(frame)) {
      writer_.push(FrameKind::kAllJoined, cluster::join_fields({"a", "b"}));
      writer_.flush(session_, rank_);
      goes_on_.get_future().wait();
      if (!read(frame)) frame = {};
    }
    told_.set_value(frame);
  }
  bool read(cluster::Frame& frame) {
    std::string said;
    char buffer[1 << 14];
    while (!reader_.next(frame)) {
      pollfd wait{rank_ ? rank_.fd() : listener_.fd(), POLLIN, 0};
      if (poll(&wait, 1, 20'000) <= 0) return false;
      if (!rank_) {
        rank_ = cluster::accept_from(listener_);
        writer_.push(FrameKind::kWelcome, std::string(cluster::kHubProtocol));
        continue;
      }
      const ssize_t count = recv(rank_.fd(), buffer, sizeof(buffer), 0);
      if (count <= 0) return false;
      said.clear();
      session_.receive({buffer, static_cast<size_t>(count)}, said);
      writer_.flush(session_, rank_);
      reader_.add(said);
    }
    return true;
  }

  std::string address_ = fmt::format("unix:tessera-stopped-hub-{}", getpid());
  cluster::Socket listener_;
  cluster::Socket rank_;
  cluster::TlsSession session_{cluster::make_hub_context(hub_options("").secret, cluster::TlsSide::kServer)};
  cluster::FrameWriter writer_;
  cluster::FrameReader reader_;
  std::promise<void> goes_on_;
  std::promise<cluster::Frame> told_;
  std::thread thread_;
};

TEST(Hub, GetsWhatItHasNotTakenInTimeWhenItGoesOn) {
  StoppedHub hub;
  cluster::HubClient client(hub_options(hub.address()), 1, "b", std::make_shared<comm::JobState>(2));
  const std::string large(1 << 20, 'x');  // more than a socket takes
  client.set("large", large);             // and says nothing afterwards
  const cluster::Frame told = hub.go_on();
  EXPECT_EQ(told.kind, FrameKind::kSet);
  EXPECT_EQ(told.body, cluster::join_fields({"large", large}));
}

TEST(Hub, ManyThreadsOfARankSpeakAtOnce) {
  cluster::HubOptions options = hub_options("tcp:127.0.0.1:0");
  const cluster::HubServer server(options);
  options.address = server.address();
  constexpr int kThreads = 4;
  constexpr int kValues = 20;
  const auto value_of = [](int rank, int thread, int i) {
    return std::string(static_cast<size_t>(1 + 9'000 * i), static_cast<char>('a' + rank * kThreads + thread));
  };
  const auto name_of = [](int rank, int thread, int i) { return fmt::format("{} {} {}", rank, thread, i); };
  const auto be = [&](int rank) {
    cluster::HubClient client(options, rank, "host", std::make_shared<comm::JobState>(2));
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kValues; ++i) {
          client.set(name_of(rank, thread, i), value_of(rank, thread, i));
          EXPECT_EQ(client.get(name_of(1 - rank, thread, i), 20'000), value_of(1 - rank, thread, i));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    client.finish();
  };
  std::thread other(be, 1);
  be(0);
  other.join();
}

TEST(Hub, TellsAllRanksWhatOneSets) {
  cluster::HubOptions options = hub_options("tcp:127.0.0.1:0");
  const cluster::HubServer server(options);
  options.address = server.address();
  const std::string large(1 << 20, 'x');
  std::thread other([&] {
    cluster::HubClient client(options, 1, "b", std::make_shared<comm::JobState>(2));
    client.set("large", large);
    client.finish();
  });
  cluster::HubClient client(options, 0, "a", std::make_shared<comm::JobState>(2));
  EXPECT_EQ(client.get("large", 20'000), large);
  client.finish();
  other.join();
}

TEST(Hub, ARankKeepsNoMoreThanItHasNotTakenBack) {
  cluster::HubOptions options = hub_options("tcp:127.0.0.1:0");
  const cluster::HubServer server(options);
  options.address = server.address();
  const std::string large(1 << 20, 'x');
  constexpr int kCount = 20;  // more than it may keep
  std::thread other([&] {
    cluster::HubClient client(options, 1, "b", std::make_shared<comm::JobState>(2));
    for (int i = 0; i < kCount; ++i) {
      client.set(fmt::format("{}", i), large);
      client.get(fmt::format("read {}", i), 20'000);
      client.forget(fmt::format("{}", i));
      client.set("the newest", large);
    }
    client.finish();
  });
  cluster::HubClient client(options, 0, "a", std::make_shared<comm::JobState>(2));
  for (int i = 0; i < kCount; ++i) {
    EXPECT_EQ(client.get(fmt::format("{}", i), 20'000).size(), large.size());
    client.set(fmt::format("read {}", i), "");
  }
  client.forget("0");  // another one's: this rank only asks for it no more
  client.finish();
  other.join();
}

TEST(Hub, AValueIsItsRanksAlone) {
  cluster::HubOptions options = hub_options("tcp:127.0.0.1:0");
  const cluster::HubServer server(options);
  options.address = server.address();
  const auto job = std::make_shared<comm::JobState>(2);
  std::thread other([&] {
    cluster::HubClient client(options, 1, "b", job);
    client.set("where", "here");
    EXPECT_THROW(client.finish(), comm::PeerFailure);
  });
  cluster::HubClient client(options, 0, "a", std::make_shared<comm::JobState>(2));
  EXPECT_EQ(client.get("where", 20'000), "here");
  client.set("where", "there");
  EXPECT_THROW(client.finish(), comm::PeerFailure);
  other.join();
  EXPECT_EQ(job->failed_rank(), 0);
  EXPECT_THAT(job->message(), HasSubstr("it sets a value that another one has set"));
}

// While it lives, no thread can be started: none has room for such a stack, not even where the system promises memory
// that it does not have.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t huge;
    pthread_getattr_default_np(&huge);
    pthread_attr_getstacksize(&huge, &before_);
    pthread_attr_setstacksize(&huge, size_t{1} << 60);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_attr_t usual;
    pthread_attr_init(&usual);
    pthread_attr_setstacksize(&usual, before_);
    pthread_setattr_default_np(&usual);
    pthread_attr_destroy(&usual);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  size_t before_ = 0;
};

TEST(Hub, AClientWithoutAThreadLeavesNothingAtItsJob) {
  const cluster::HubServer server(hub_options("tcp:127.0.0.1:0"));
  const auto job = std::make_shared<comm::JobState>(2);
  {
    const NoThreads none;
    EXPECT_THAT([&] { cluster::HubClient(hub_options(server.address()), 1, "host", job); },
                ThrowsMessage<IoError>(HasSubstr("cannot start a thread for the connection to the hub")));
  }
  job->wake();  // whom it still called would not be there any more
}

TEST(Hub, NamesTheRanksThatDidNotJoin) {
  cluster::HubOptions options = hub_options("tcp:127.0.0.1:0");
  options.size = 4;
  options.timeout_ms = 2000;
  const cluster::HubServer server(options);
  options.address = server.address();
  EXPECT_THAT([&] { cluster::HubClient(options, 2, "host", std::make_shared<comm::JobState>(4)); },
              ThrowsMessage<comm::PeerFailure>(HasSubstr("ranks 0, 1, 3 did not join the job within 2000 ms")));
}

TEST(Hub, AMissingRankZeroIsNamed) {
  cluster::HubOptions options = hub_options(fmt::format("unix:tessera-test-{}", getpid()));
  options.timeout_ms = 50;
  EXPECT_THAT([&] { cluster::HubClient(options, 1, "host", std::make_shared<comm::JobState>(2)); },
              ThrowsMessage<IoError>(HasSubstr("rank 0 does not answer at unix:tessera-test-")));
}

// Listens, takes no connection, and has no room for one more that waits.
class FullListener {
 public:
  FullListener() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(where);
    auto* const address = reinterpret_cast<sockaddr*>(&where);
    EXPECT_EQ(bind(listener_.fd(), address, length), 0);
    EXPECT_EQ(listen(listener_.fd(), 0), 0);
    getsockname(listener_.fd(), address, &length);
    port_ = ntohs(where.sin_port);
    pollfd connected{-1, POLLOUT, 0};
    do {
      waiting_.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      connect(waiting_.back().fd(), address, length);
      connected.fd = waiting_.back().fd();
    } while (poll(&connected, 1, 200) == 1);
  }
  std::string address() const { return fmt::format("tcp:127.0.0.1:{}", port_); }

 private:
  cluster::Socket listener_;
  uint16_t port_ = 0;
  std::list<cluster::Socket> waiting_;
};

TEST(Hub, ARankZeroThatTakesNoConnectionIsNamedAtTheDeadline) {
  const FullListener listener;
  cluster::HubOptions options = hub_options(listener.address());
  options.timeout_ms = 300;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT([&] { cluster::HubClient(options, 1, "host", std::make_shared<comm::JobState>(2)); },
              ThrowsMessage<IoError>(AllOf(HasSubstr("rank 0 does not answer at " + listener.address()),
                                           HasSubstr("Connection timed out"))));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Hub, RanksMeetAtAHostsName) {
  cluster::HubOptions options = hub_options("tcp:localhost:0");
  const cluster::HubServer server(options);
  EXPECT_THAT(server.address(), testing::StartsWith("tcp:localhost:"));
  options.address = server.address();
  std::thread other([&] { cluster::HubClient(options, 1, "host b", std::make_shared<comm::JobState>(2)); });
  const cluster::HubClient client(options, 0, "host a", std::make_shared<comm::JobState>(2));
  EXPECT_THAT(client.hosts(), testing::ElementsAre("host a", "host b"));
  other.join();
}

TEST(Hub, AHostThatNobodyKnowsIsNamed) {
  const cluster::HubOptions options = hub_options("tcp:no-such-host.invalid:5000");
  EXPECT_THAT([&] { cluster::HubClient(options, 1, "host", std::make_shared<comm::JobState>(2)); },
              ThrowsMessage<IoError>(HasSubstr("host \"no-such-host.invalid\"")));
}

TEST(Hub, TellsANameOfThisHostsLoopbackFromItsAddress) {
  EXPECT_TRUE(cluster::is_name_of_loopback("tcp:localhost:5000", 10'000));
  for (const char* address : {"tcp:127.0.0.1:5000", "tcp:[::1]:5000", "tcp:192.0.2.1:5000", "unix:localhost"}) {
    EXPECT_FALSE(cluster::is_name_of_loopback(address, 10'000)) << address;
  }
}

TEST(Network, SaysByWhichAddressAnotherHostIsReached) {
  for (const char* ip : {"127.0.0.1", "::1", "no address", ""}) EXPECT_EQ(cluster::own_ip_towards(ip), "") << ip;
  const std::string own = cluster::own_ip_towards("192.0.2.1");
  if (own.empty()) GTEST_SKIP() << "this host has no way to others";
  EXPECT_EQ(cluster::own_ip_towards(own), own);
}

TEST(Environment, RefusesWhatMakesNoSense) {
  const auto job_with = [](const std::vector<std::pair<const char*, const char*>>& variables) {
    std::list<ScopedVariable> scoped;
    for (const auto& [name, value] : variables) scoped.emplace_back(name, value);
    return cluster::job_from_environment();
  };
  EXPECT_THAT(
      [&] {
        job_with({{"TESSERA_SIZE", "0"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("TESSERA_SIZE must be from 1 to")));
  EXPECT_THAT(
      [&] {
        job_with({{"TESSERA_SIZE", "2"}, {"TESSERA_RANK", "2"}, {"TESSERA_STORE", "unix:x"}});
      },
      ThrowsMessage<InvalidArgument>("TESSERA_RANK must be from 0 to 1, got 2"));
  EXPECT_THAT([&] { job_with({{"TESSERA_SIZE", "2"}}); }, ThrowsMessage<InvalidArgument>(HasSubstr("TESSERA_STORE")));
  EXPECT_THAT(
      [&] {
        job_with({{"TESSERA_RANK", "1"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("TESSERA_RANK is 1, but TESSERA_SIZE is not set")));
  for (const char* rank : {"-1", "abc"}) {
    EXPECT_THAT([&] { job_with({{"TESSERA_RANK", rank}}); }, ThrowsMessage<InvalidArgument>(HasSubstr("TESSERA_RANK")));
  }
  EXPECT_THAT(
      [&] {
        job_with({{"TESSERA_TIMEOUT_MS", "soon"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("TESSERA_TIMEOUT_MS")));
  EXPECT_THAT(
      [&] {
        job_with({{"TESSERA_THREAD_RANKS", "2"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("either threads of one process or processes")));
  EXPECT_THAT(
      [&] {
        job_with({{"TESSERA_THREAD_RANKS", "2"}, {"TESSERA_TRANSPORT", "shm"}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("threads of one process use threads")));
  const cluster::JobOptions mpi = job_with({{"OMPI_COMM_WORLD_SIZE", "4"},
                                            {"OMPI_COMM_WORLD_RANK", "3"},
                                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                                            {"PMIX_NAMESPACE", "12"}});
  EXPECT_EQ(mpi.rank, 3);
  EXPECT_EQ(mpi.size, 4);
  EXPECT_THAT(mpi.store, testing::StartsWith("unix:tessera-"));
  EXPECT_TRUE(mpi.is_local);
  EXPECT_FALSE(mpi.secret);
}

TEST(Environment, ShowsNothingOfMpirunsSecret) {
  const std::string drawn = "0123456789abcdef-fedcba9876543210";
  const ScopedVariable secret("OMPI_MCA_orte_precondition_transports", drawn.c_str());
  const ScopedVariable size("OMPI_COMM_WORLD_SIZE", "2");
  const ScopedVariable local_size("OMPI_COMM_WORLD_LOCAL_SIZE", "2");
  const cluster::JobOptions job = cluster::job_from_environment();
  EXPECT_TRUE(job.secret);
  for (const std::string& shown : {job.store, job.job_id, std::string(job.secret.bytes())}) {
    EXPECT_THAT(shown, AllOf(Not(HasSubstr("89abcdef")), Not(HasSubstr("fedcba98"))));
  }
}

TEST(Environment, ReadsTheSecretFromADescriptorOrAFileThatOthersCannotRead) {
  const std::string path = testing::TempDir() + "tessera_secret_" + std::to_string(getpid());
  FileSystem::local().write_atomically(path, "sixteen bytes it has", 0600);
  const ScopedVariable file("TESSERA_SECRET_FILE", path.c_str());
  EXPECT_EQ(cluster::job_from_environment().secret.bytes(), "sixteen bytes it has");
  const int fd = open(path.c_str(), O_RDONLY);
  {
    const ScopedVariable descriptor("TESSERA_SECRET_FD", std::to_string(fd).c_str());
    {
      const ScopedVariable none("TESSERA_SECRET_FILE", nullptr);
      EXPECT_EQ(cluster::job_from_environment().secret.bytes(), "sixteen bytes it has");
      close(fd);
      EXPECT_THAT([] { cluster::job_from_environment(); }, ThrowsMessage<IoError>(HasSubstr("cannot read")));
    }
    EXPECT_EQ(cluster::job_from_environment().secret.bytes(), "sixteen bytes it has");
  }
  FileSystem::local().write_atomically(path, "too short", 0600);
  EXPECT_THAT([] { cluster::job_from_environment(); },
              ThrowsMessage<InvalidArgument>(HasSubstr("from 16 to 4096 bytes, this one has 9")));
  FileSystem::local().write_atomically(path, "sixteen bytes it has", 0644);
  EXPECT_THAT([] { cluster::job_from_environment(); }, ThrowsMessage<InvalidArgument>(HasSubstr("chmod 600")));
  FileSystem::local().remove(path);
}

// What makes certificates joins no job: it needs no secret, nor a home where that of a user lies.
TEST(Environment, CertificatesAreMadeWithoutAHomeByTheirPassword) {
  const std::string folder = testing::TempDir() + "tessera_certificates_" + std::to_string(getpid());
  const ScopedVariable home("HOME", nullptr);
  const ScopedVariable cache("XDG_CACHE_HOME", nullptr);
  const ScopedVariable file("TESSERA_TLS_PASSWORD_FILE", nullptr);
  const auto make = [&](const std::string& revoke) {
    cluster::make_certificates_from_environment(folder, {}, /*days=*/1, revoke);
  };
  {
    const ScopedVariable none("TESSERA_TLS_PASSWORD", nullptr);
    EXPECT_THAT([&] { make(""); }, ThrowsMessage<InvalidArgument>(HasSubstr("the files get a password")));
  }
  for (const char* revoke : {"", "client"}) {
    const ScopedVariable password("TESSERA_TLS_PASSWORD", "pass");
    make(revoke);
    EXPECT_EQ(getenv("TESSERA_TLS_PASSWORD"), nullptr);
  }
  EXPECT_TRUE(FileSystem::local().exists(folder + "/client.p12"));
  EXPECT_THAT([] { cluster::scheduler_place_from_environment(); },
              ThrowsMessage<InvalidArgument>("neither HOME nor XDG_CACHE_HOME is set: name the job's secret by "
                                             "TESSERA_SECRET_FILE"));
  FileSystem::local().remove_directory_tree(folder);
}

TEST(Launch, HandsTheSecretDownBesideTheEnvironment) {
  const Outcome outcome = run_job(
      {"-c", "wc -c < $TESSERA_SECRET_FILE; cmp /proc/self/fd/$TESSERA_SECRET_FD $TESSERA_SECRET_FILE && echo same"},
      {.command = {"bash"}, .num_processes = 1});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, AllOf(HasSubstr("[0] 32\n"), HasSubstr("[0] same\n")));
}

TEST(Launch, RanksWhoseDescriptorsAProgramBetweenHasClosedJoinAllTheSame) {
  const Outcome outcome = run_job({"-c", "eval \"exec $TESSERA_SECRET_FD>&-\"; exec " + rank_program() + " script"},
                                  {.command = {"bash"}, .num_processes = 2});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(checksum_of_threads(2)));
}

// A shell that opens a file of its own under the number in the variable, and becomes the rank once that file is empty.
std::vector<std::string> rank_behind_own_file(const std::string& variable, const std::string& path,
                                              const std::string& redirection, const std::string& arguments) {
  return {"bash", "-c",
          fmt::format("eval \"exec ${}{}\"; while test -s {}; do sleep 0.01; done; exec {} {}", variable, redirection,
                      path, rank_program(), arguments)};
}

TEST(Launch, AFailingRankWritesNothingIntoAFileThatAProgramBetweenHasOpened) {
  const std::string path = testing::TempDir() + "tessera_own_" + std::to_string(getpid());
  for (const std::string& redirection : {">" + path, "> >(cat >" + path + ")"}) {
    FileSystem::local().write_atomically(path, "before");
    const Outcome outcome = run_job(
        {}, {.command = rank_behind_own_file("TESSERA_STATUS_FD", path, redirection, "throw 1"), .num_processes = 2});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_THAT(outcome.err, HasSubstr("tessera run: rank 1 failed: exit code 1\n"));
    EXPECT_EQ(FileSystem::local().read_text(path), "") << redirection;
  }
  FileSystem::local().remove(path);
}

TEST(Launch, AFileOfAProgramBetweenIsNotTakenForTheSecret) {
  const std::string path = testing::TempDir() + "tessera_own_" + std::to_string(getpid());
  FileSystem::local().write_atomically(path, "a text of more than sixteen bytes", 0600);
  const Outcome outcome =
      run_job({"-c", fmt::format("if [ $TESSERA_RANK = 1 ]; then eval \"exec $TESSERA_SECRET_FD<{}\"; "
                                 "fi; exec {} script",
                                 path, rank_program())},
              {.command = {"bash"}, .num_processes = 2});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr(checksum_of_threads(2)));
  FileSystem::local().remove(path);
}

// A process that waits for bytes and does as they say: w: works until the next one; c: lets a child of its own work; k:
// kills that. It answers each when it has begun.
[[noreturn]] void obey(int in, int out) {
  const pid_t self = getpid();
  pid_t child = -1;
  char said = 0;
  while (read(in, &said, 1) == 1) {
    if (said == 'c' && (child = fork()) == 0) {
      while (getppid() == self) {
      }
      _exit(0);
    }
    if (said == 'k') {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    if (write(out, &said, 1) != 1) break;
    pollfd next{in, POLLIN, 0};
    while (said == 'w' && poll(&next, 1, 0) == 0) {
    }
  }
  _exit(0);
}

TEST(RankActivity, TellsAProcessThatDoesNothingFromOneThatWorksItselfOrByAChild) {
  if (access("/proc/thread-self/children", R_OK) != 0) GTEST_SKIP() << "this kernel does not list children";
  int to[2], from[2];
  ASSERT_EQ(pipe(to), 0);
  ASSERT_EQ(pipe(from), 0);
  const pid_t pid = fork();
  if (pid == 0) obey(to[0], from[1]);
  const auto tell = [&](char what) {
    char answer = 0;
    EXPECT_EQ(write(to[1], &what, 1), 1);
    EXPECT_EQ(read(from[0], &answer, 1), 1);
  };
  cluster::GuardReports reports(2);
  FakeClock clock;
  cluster::RankActivity activity(reports, 2, clock);
  EXPECT_TRUE(activity.find_idle().empty()) << "no process has started";
  reports[1].rank_pid = pid;
  EXPECT_TRUE(activity.find_idle().empty()) << "it is seen for the first time";
  const auto becomes_idle = [&] {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (activity.find_idle() != std::vector<uint32_t>{1}) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::yield();
    }
    return true;
  };
  EXPECT_TRUE(becomes_idle()) << "it waits for a byte";
  EXPECT_TRUE(activity.find_idle(1000).empty());
  clock.sleep_ms(1000);
  EXPECT_EQ(activity.find_idle(1000), std::vector<uint32_t>{1});
  tell('w');
  for (int look = 0; look < 20; ++look) EXPECT_TRUE(activity.find_idle().empty()) << look;
  kill(pid, SIGSTOP);
  ASSERT_EQ(waitpid(pid, nullptr, WUNTRACED), pid);
  EXPECT_TRUE(becomes_idle()) << "it is stopped";
  kill(pid, SIGCONT);
  tell('c');
  for (int look = 0; look < 20; ++look) EXPECT_TRUE(activity.find_idle().empty()) << look;
  tell('k');
  EXPECT_TRUE(becomes_idle());
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  EXPECT_TRUE(activity.find_idle().empty()) << "it has ended";
  for (const int fd : {to[0], to[1], from[0], from[1]}) close(fd);
}

}  // namespace
}  // namespace tessera
