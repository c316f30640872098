#include "tessera/cluster/launcher/starter_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>

namespace tessera::cluster {
namespace {

using testing::Eq;
using testing::Optional;

using Processes = std::map<pid_t, ProcessEntry>;

std::optional<Starter> found(const Processes& processes, pid_t parent) {
  return find_starter(parent, [&](pid_t pid) -> std::optional<ProcessEntry> {
    const auto it = processes.find(pid);
    return it == processes.end() ? std::nullopt : std::optional(it->second);
  });
}

TEST(FindStarter, IsTheNearestDaemonAboveScripts) {
  const Processes processes = {{10, {.name = "slurmstepd", .state = 'S', .parent = 1}},
                               {20, {.name = "orted", .state = 'S', .parent = 10}},
                               {30, {.name = "bash", .state = 'S', .parent = 20}},
                               {40, {.name = "mpirun_rank.sh", .state = 'S', .parent = 30}}};
  EXPECT_THAT(found(processes, 40), Optional(Eq(Starter{.pid = 20, .name = "orted", .between = {40, 30}})));
  EXPECT_THAT(found(processes, 20), Optional(Eq(Starter{.pid = 20, .name = "orted", .between = {}})));
  EXPECT_THAT(found(processes, 10), Optional(Eq(Starter{.pid = 10, .name = "slurmstepd", .between = {}})));
}

TEST(FindStarter, IsNoneWhereNoneIsAboveOrItIsNotSeen) {
  const Processes processes = {{30, {.name = "bash", .state = 'S', .parent = 1}},
                               {40, {.name = "bash", .state = 'S', .parent = 39}},
                               {50, {.name = "bash", .state = 'S', .parent = 51}},
                               {51, {.name = "bash", .state = 'S', .parent = 50}}};
  EXPECT_EQ(found(processes, 30), std::nullopt);
  EXPECT_EQ(found(processes, 40), std::nullopt);
  EXPECT_EQ(found(processes, 1), std::nullopt);
  EXPECT_EQ(found(processes, 0), std::nullopt);
  EXPECT_EQ(found(processes, 50), std::nullopt);
}

TEST(ProcessEntry, ANameMayHoldAnything) {
  const auto entry = parse_process_entry("12 (a ) S 3 (b) Z 7 8 9");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->name, "a ) S 3 (b");
  EXPECT_EQ(entry->parent, 7);
  EXPECT_TRUE(entry->has_ended());
  EXPECT_TRUE(parse_process_entry("12 (a) t 1")->is_stopped());
  EXPECT_FALSE(parse_process_entry(""));
  EXPECT_FALSE(parse_process_entry("12 (a)"));
}

enum class Killed { kNothing, kStarter, kScript };

constexpr unsigned kLimitS = 30;  // a test that fails leaves no process behind

// Of a rank below a process "mpirun", with or without a script between them, one of which is killed: it writes a dot
// when it watches, and the first letter of its starter's name when that has ended.
std::string letters_of_rank(bool has_script, Killed killed) {
  int letters[2];
  int pids[2];
  EXPECT_EQ(pipe(letters), 0);
  EXPECT_EQ(pipe(pids), 0);
  const pid_t starter = fork();
  if (starter == 0) {
    prctl(PR_SET_NAME, "mpirun");
    alarm(kLimitS);
    const pid_t script = has_script ? fork() : 0;
    if (script > 0) {
      waitpid(script, nullptr, 0);
      [[maybe_unused]] const ssize_t told = write(pids[1], &script, sizeof(script));
      while (true) pause();
    }
    if (has_script) prctl(PR_SET_NAME, "bash");
    alarm(kLimitS);
    const pid_t own = getpid();
    const pid_t rank = fork();
    if (rank > 0) {
      [[maybe_unused]] ssize_t told = write(pids[1], &own, sizeof(own));
      if (killed == Killed::kNothing) {
        waitpid(rank, nullptr, 0);
        told = write(pids[1], &own, sizeof(own));
      }
      while (true) pause();
    }
    alarm(kLimitS);
    const StarterWatch watch([&](const std::string& name) {
      [[maybe_unused]] const ssize_t written = write(letters[1], name.data(), 1);
      _exit(0);
    });
    [[maybe_unused]] const ssize_t written = write(letters[1], ".", 1);
    if (killed == Killed::kStarter) {
      while (true) pause();
    }
    while (killed == Killed::kScript && getppid() == own) usleep(1000);
    _exit(0);
  }
  pid_t script = 0;
  EXPECT_EQ(read(pids[0], &script, sizeof(script)), static_cast<ssize_t>(sizeof(script)));
  char letter = 0;
  EXPECT_EQ(read(letters[0], &letter, 1), 1);
  if (killed == Killed::kScript) kill(script, SIGKILL);
  // The starter, which is killed below, must not end before the script, or the rank that ends by itself.
  if (killed != Killed::kStarter) {
    EXPECT_EQ(read(pids[0], &script, sizeof(script)), static_cast<ssize_t>(sizeof(script)));
  }
  if (killed == Killed::kStarter) kill(starter, SIGKILL);
  for (const int fd : {letters[1], pids[0], pids[1]}) close(fd);
  // Those that wait hold the pipe, too: they are killed where that was not the test's part.
  std::string seen(1, letter);
  if (killed == Killed::kStarter && read(letters[0], &letter, 1) == 1) seen += letter;
  if (killed != Killed::kScript) kill(script, SIGKILL);
  kill(starter, SIGKILL);
  waitpid(starter, nullptr, 0);
  while (read(letters[0], &letter, 1) == 1) seen += letter;
  close(letters[0]);
  return seen;
}

TEST(StarterWatch, HearsOfTheEndOfItsStarter) {
  EXPECT_EQ(letters_of_rank(/*has_script=*/false, Killed::kStarter), ".m");
  EXPECT_EQ(letters_of_rank(/*has_script=*/true, Killed::kStarter), ".m");
}

TEST(StarterWatch, IsOverWhenAScriptBetweenLetsTheRankGo) {
  EXPECT_EQ(letters_of_rank(/*has_script=*/true, Killed::kScript), ".");
}

TEST(StarterWatch, EndsWithoutAWordWhereNothingHasEnded) {
  EXPECT_EQ(letters_of_rank(/*has_script=*/false, Killed::kNothing), ".");
}

}  // namespace
}  // namespace tessera::cluster
