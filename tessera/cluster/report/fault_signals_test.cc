// Processes that end by a signal, with a watch in them.
#include <gtest/gtest.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "tessera/cluster/launch.h"
#include "tessera/cluster/report/fault_signals.h"
#include "tessera/cluster/report/rank_report.h"
#include "tessera/cluster/report/rank_watch.h"
#include "tessera/cluster/report/test_pieces.h"
#include "tessera/cluster/termination.h"

namespace tessera::cluster {
namespace {

struct Ended {
  int status = 0;
  std::optional<RankReport> report;
};

std::string folder_of(pid_t parent) { return testing::TempDir() + "tessera_watch_" + std::to_string(parent); }

// A process that is in the third piece of step 3 when it does this.
Ended process_that(const std::function<void()>& act, const std::function<std::string()>& script_place = {},
                   int64_t timeout_ms = 30'000) {
  const std::string folder = folder_of(getpid());
  std::filesystem::remove_all(folder);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    const auto job = std::make_shared<comm::JobState>(1);
    job->set_thread(0, gettid());
    WatchOptions options;
    options.directory = folder;
    options.host = "node1";
    options.script_place = script_place;
    options.timeout_ms = timeout_ms;
    const RankWatch watch(job, {0}, options);
    const ThreePieces pieces;
    comm::RankProgress& progress = job->notes_of(0)->progress();
    progress.set_step(3);
    const comm::RankProgress::Run run(&progress, pieces);
    progress.enter_piece(2);
    act();
    _exit(0);
  }
  Ended ended;
  waitpid(child, &ended.status, 0);
  const std::string path = folder + "/rank.0.json";
  if (std::filesystem::exists(path)) ended.report = parse_rank_report(FileSystem::local().read_text(path));
  std::filesystem::remove_all(folder);
  return ended;
}

bool was_ended_by(const Ended& ended, int number) {
  return WIFSIGNALED(ended.status) && WTERMSIG(ended.status) == number;
}

TEST(FaultSignals, AFaultIsReportedWithItsOperatorAndEndsTheProcessAsItWould) {
  for (const int number : {SIGSEGV, SIGABRT, SIGFPE, SIGILL}) {
    const Ended ended = process_that([number] { raise(number); });
    EXPECT_TRUE(was_ended_by(ended, number)) << number;
    ASSERT_TRUE(ended.report) << number;
    EXPECT_EQ(ended.report->event, ReportEvent::kCrashed);
    EXPECT_EQ(ended.report->signal, std::string("SIG") + sigabbrev_np(number));
    EXPECT_EQ(ended.report->step, 3);
    EXPECT_EQ(ended.report->doing, "piece 2");
    EXPECT_EQ(ended.report->cause, 0);
  }
}

TEST(FaultSignals, ABadAddressIsReported) {
  const Ended ended = process_that([] {
    volatile int* nowhere = nullptr;
    *nowhere = 1;
  });
  EXPECT_TRUE(was_ended_by(ended, SIGSEGV));
  ASSERT_TRUE(ended.report);
  EXPECT_EQ(ended.report->event, ReportEvent::kCrashed);
}

TEST(FaultSignals, SigtermIsReportedAndEndsTheProcess) {
  const Ended ended = process_that([] { raise(SIGTERM); });
  EXPECT_TRUE(was_ended_by(ended, SIGTERM));
  ASSERT_TRUE(ended.report);
  EXPECT_EQ(ended.report->event, ReportEvent::kToldToEnd);
  EXPECT_EQ(ended.report->doing, "piece 2");
}

TEST(FaultSignals, WhatWasKnownOfARankThatHangsIsKeptWhenItIsToldToEnd) {
  // The script answers once: in the signal's handler it cannot.
  const auto answers = std::make_shared<std::atomic<int>>(0);
  const auto place = [answers] { return answers->fetch_add(1) == 0 ? std::string("train.py:80 in step_end") : ""; };
  const Ended ended = process_that(
      [] {
        const std::string path = folder_of(getppid()) + "/rank.0.json";
        while (!std::filesystem::exists(path)) std::this_thread::yield();
        raise(SIGTERM);
      },
      place, /*timeout_ms=*/3000);
  EXPECT_TRUE(was_ended_by(ended, SIGTERM));
  ASSERT_TRUE(ended.report);
  EXPECT_EQ(ended.report->event, ReportEvent::kToldToEnd);
  EXPECT_EQ(ended.report->script, "train.py:80 in step_end");
  EXPECT_EQ(ended.report->signal, "SIGTERM");
}

TEST(FaultSignals, ATrainingThatSavesIsAskedToEndAsBefore) {
  const Ended ended = process_that([] {
    const TerminationWatch termination;
    raise(SIGTERM);
    if (!termination.has_come()) return;
    raise(SIGTERM);  // the second one does what the first would have done
  });
  EXPECT_TRUE(was_ended_by(ended, SIGTERM));
  ASSERT_TRUE(ended.report);
  EXPECT_EQ(ended.report->event, ReportEvent::kToldToEnd);
}

// Keeps each file until the signal's thread has looked so often, and then a letter goes into the pipe.
class SlowDisk : public MemoryFileSystem {
 public:
  SlowDisk(int num_looks, int written_fd) : num_looks_(num_looks), written_fd_(written_fd) {}
  void rename(const std::string& from, const std::string& to) override {
    while (FaultSignals::num_looks() < num_looks_) std::this_thread::yield();
    MemoryFileSystem::rename(from, to);
    [[maybe_unused]] const ssize_t written = write(written_fd_, "w", 1);
  }

 private:
  int num_looks_;
  int written_fd_;
};

TEST(FaultSignals, HoldTheProcessUntilASlowDiskHasTheReportsOfAllItsRanks) {
  constexpr int kLooksOfEach = 130;
  static_assert(kLooksOfEach < FaultSignals::kMostLooks && 2 * kLooksOfEach > FaultSignals::kMostLooks);
  int written[2];
  ASSERT_EQ(pipe(written), 0);
  const pid_t child = fork();
  if (child == 0) {
    SlowDisk disk(kLooksOfEach, written[1]);
    const auto job = std::make_shared<comm::JobState>(2);
    for (const int rank : {0, 1}) job->set_thread(rank, gettid());
    WatchOptions options;
    options.directory = "reports";
    options.files = &disk;
    const RankWatch watch(job, {0, 1}, options);
    raise(SIGTERM);
    _exit(0);
  }
  close(written[1]);
  int status = 0;
  waitpid(child, &status, 0);
  char letters[4] = {};
  EXPECT_EQ(read(written[0], letters, sizeof(letters)), 2);
  close(written[0]);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
}

TEST(FaultSignals, LetAProcessEndBeforeItsLauncherKillsIt) {
  EXPECT_LT(FaultSignals::kMostLooks * FaultSignals::kLookMs, LaunchOptions().grace_ms);
}

TEST(FaultSignals, AChildOfTheProcessEndsAtOnceAndWritesNothing) {
  const Ended ended = process_that([] {
    const pid_t child = fork();
    if (child == 0) raise(SIGTERM);
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) _exit(7);
  });
  EXPECT_EQ(WEXITSTATUS(ended.status), 7);
  EXPECT_FALSE(ended.report);
}

TEST(FaultSignals, WhatTheProgramHandlesItselfStaysItsOwn) {
  const Ended ended = process_that([] {
    signal(SIGTERM, [](int) { _exit(9); });
    raise(SIGTERM);
  });
  EXPECT_EQ(WEXITSTATUS(ended.status), 9);
  EXPECT_FALSE(ended.report);
}

}  // namespace
}  // namespace tessera::cluster
