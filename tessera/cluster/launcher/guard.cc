#include "tessera/cluster/launcher/guard.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace tessera::cluster {
namespace {

static_assert(kPassedSignals[0] == SIGHUP && kPassedSignals[1] == SIGINT && kPassedSignals[2] == SIGTERM &&
              kEndAllSignal == SIGUSR1);

struct DirectoryEntry {  // linux_dirent64
  uint64_t inode;
  int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[1];
};

// The number that `text` begins with, or -1.
pid_t number_at(const char* text) {
  if (*text < '0' || *text > '9') return -1;
  pid_t number = 0;
  for (; *text >= '0' && *text <= '9'; ++text) number = number * 10 + (*text - '0');
  return number;
}

// Reads a small file; returns its length, -1 where it cannot be opened.
ssize_t read_file(const char* path, char* buffer, size_t size) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  size_t length = 0;
  ssize_t count;
  while (length < size - 1 && (count = read(fd, buffer + length, size - 1 - length)) > 0) {
    length += static_cast<size_t>(count);
  }
  close(fd);
  buffer[length] = '\0';
  return static_cast<ssize_t>(length);
}

// Of a /proc/PID/stat: "PID (NAME) STATE PARENT ...", where NAME may hold anything.
pid_t parent_in(const char* stat, ssize_t length) {
  ssize_t at = length - 1;
  while (at > 0 && stat[at] != ')') --at;
  return at + 4 < length ? number_at(stat + at + 4) : -1;
}

// Kernels without lists of children: looks at every process there is.
void kill_children_by_search() {
  const int folder = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  const pid_t self = getpid();
  alignas(DirectoryEntry) char entries[8192];
  long count;
  while ((count = syscall(SYS_getdents64, folder, entries, sizeof(entries))) > 0) {
    for (long at = 0; at < count;) {
      const auto* entry = reinterpret_cast<const DirectoryEntry*>(entries + at);
      at += entry->length;
      const pid_t pid = number_at(entry->name);
      if (pid <= 1) continue;
      char path[64] = "/proc/";
      size_t end = 6;
      for (const char* c = entry->name; *c != '\0' && end < 40; ++c) path[end++] = *c;
      for (const char* c = "/stat"; *c != '\0'; ++c) path[end++] = *c;
      char stat[512];
      const ssize_t length = read_file(path, stat, sizeof(stat));
      if (length > 0 && parent_in(stat, length) == self) kill(pid, SIGKILL);
    }
  }
  close(folder);
}

void kill_children() {
  // A process that is killed leaves its own children to us, so that the next call sees them.
  static char children[1 << 16];
  if (read_file("/proc/thread-self/children", children, sizeof(children)) < 0) return kill_children_by_search();
  for (const char* at = children; *at != '\0';) {
    const pid_t pid = number_at(at);
    if (pid > 1) kill(pid, SIGKILL);
    while (*at != '\0' && *at != ' ') ++at;
    while (*at == ' ') ++at;
  }
}

// A child that has ended; 0 where none has, -1 where there are no children.
pid_t reap(int& status) {
  pid_t pid;
  while ((pid = waitpid(-1, &status, WNOHANG)) < 0 && errno == EINTR) {
  }
  return pid;
}

void close_all_but(const GuardedLog& log) {
  if (log.pipe < 0) {
    close_range(0, ~0U, 0);
    return;
  }
  // Those of a launcher are no standard descriptors.
  const auto first = static_cast<unsigned>(log.pipe < log.log ? log.pipe : log.log);
  const auto second = static_cast<unsigned>(log.pipe < log.log ? log.log : log.pipe);
  close_range(0, first - 1, 0);
  if (second > first + 1) close_range(first + 1, second - 1, 0);
  close_range(second + 1, ~0U, 0);
}

class Guard {
 public:
  Guard(GuardReport& report, const GuardedLog& log, pid_t launcher, pid_t rank)
      : report_(report), log_(log), launcher_(launcher), rank_(rank) {}

  [[noreturn]] void watch(const sigset_t& signals) {
    while (true) {
      siginfo_t info{};
      const int number = sigwaitinfo(&signals, &info);
      if (number == SIGCHLD) {
        note_ended();
        if (has_rank_ended_) end();
      } else if (number == kEndAllSignal || getppid() != launcher_) {
        end();
      } else if (number > 0) {
        kill(-rank_, number);
      }
    }
  }

 private:
  // Returns whether there are children that have not ended.
  bool note_ended() {
    int status = 0;
    pid_t pid;
    while ((pid = reap(status)) > 0) {
      if (pid != rank_) continue;
      has_rank_ended_ = true;
      report_.status = status;
    }
    return pid == 0;
  }

  [[noreturn]] void end() {
    sigset_t child_signal;
    sigemptyset(&child_signal);
    sigaddset(&child_signal, SIGCHLD);
    // The kernel's list of children may lack one while others end: look again soon, whether or not one ends.
    constexpr timespec kPause = {.tv_sec = 0, .tv_nsec = 10'000'000};
    while (note_ended()) {
      if (!has_rank_ended_) kill(-rank_, SIGKILL);
      kill_children();
      sigtimedwait(&child_signal, nullptr, &kPause);
    }
    if (getppid() != launcher_) save_rest();
    report_.has_ended = true;
    _exit(0);
  }

  // Nobody writes any more, so this ends.
  void save_rest() const {
    char buffer[4096];
    ssize_t count;
    while (log_.pipe >= 0 && (count = read(log_.pipe, buffer, sizeof(buffer))) > 0) {
      if (write(log_.log, buffer, static_cast<size_t>(count)) != count) return;
    }
  }

  GuardReport& report_;
  GuardedLog log_;
  pid_t launcher_;
  pid_t rank_;
  bool has_rank_ended_ = false;
};

}  // namespace

void guard_rank(pid_t launcher, GuardReport& report, const GuardedLog& log, void (*exec_rank)(void*), void* argument) {
  setpgid(0, 0);
  // Not the launcher's name: who kills all processes of that name must not take the guards with it.
  prctl(PR_SET_NAME, "rank-guard");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGCHLD);
  sigaddset(&signals, kEndAllSignal);
  for (const int number : kPassedSignals) sigaddset(&signals, number);
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
  signal(SIGCHLD, SIG_DFL);  // ignored, it would take away what the rank ended with
  prctl(PR_SET_PDEATHSIG, kEndAllSignal);
  if (getppid() != launcher) _exit(0);  // it died before that could be noticed
  const pid_t guard = getpid();
  const pid_t rank = fork();
  if (rank == 0) {
    setpgid(0, 0);
    report.rank_pid = getpid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != guard) _exit(127);
    exec_rank(argument);
    _exit(127);
  }
  if (rank < 0) {
    report.start_error = errno;
    report.status = 127 << 8;
    report.has_ended = true;
    _exit(0);
  }
  // Whichever of the two comes first: one of them may be stopped before it does.
  setpgid(rank, rank);
  report.rank_pid = rank;
  // The rank's outputs end with it, not with us.
  close_all_but(log);
  Guard(report, log, launcher, rank).watch(signals);
}

}  // namespace tessera::cluster
