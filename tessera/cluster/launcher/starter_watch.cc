#include "tessera/cluster/launcher/starter_watch.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string_view>
#include <thread>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/base/thread.h"
#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/ranks/exit_codes.h"

namespace tessera::cluster {
namespace {

// As Open MPI, PRRTE and Slurm call what forks ranks. Whole names: a script may begin with one of them.
constexpr std::array<std::string_view, 10> kStarterNames = {"mpirun",  "mpirun.openmpi", "mpiexec", "mpiexec.openmpi",
                                                            "orterun", "orted",          "prterun", "prte",
                                                            "prted",   "slurmstepd"};
// No process has so many ancestors, unless they change while they are read.
constexpr int kMostAncestors = 100;

bool is_readable(const pollfd& wait) { return wait.revents != 0; }

}  // namespace

std::optional<Starter> find_starter(pid_t parent, const std::function<std::optional<ProcessEntry>(pid_t)>& find) {
  Starter starter;
  for (pid_t pid = parent; pid > 1 && starter.between.size() < kMostAncestors;) {
    const auto entry = find(pid);
    if (!entry) return std::nullopt;
    if (std::ranges::find(kStarterNames, entry->name) != kStarterNames.end()) {
      starter.pid = pid;
      starter.name = entry->name;
      return starter;
    }
    starter.between.push_back(pid);
    pid = entry->parent;
  }
  return std::nullopt;
}

struct StarterWatch::Impl {
  // The descriptors of processes are opened first and checked then: a number may have been given to another process.
  explicit Impl(std::function<void(const std::string&)> on_end)
      : ended(std::move(on_end)), wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    const auto starter = find_starter(getppid());
    if (!starter || !open(starter->pid)) return;
    name = starter->name;
    for (const pid_t pid : starter->between) {
      if (!open(pid)) return;
    }
    if (find_starter(getppid()) != starter) return;
    // The thread takes none of the signals of the process. A write that nobody reads any more is no end by SIGPIPE.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      thread = start_thread("noticing the end of " + name, [this] { run(); });
    } catch (const IoError& error) {
      log_warning("this rank does not notice when {} is killed: {}", name, error.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~Impl() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake.fd(), &one, sizeof(one));
    if (thread.joinable()) thread.join();
  }

  // A descriptor that is readable when the process has ended.
  bool open(pid_t pid) {
    processes.emplace_back(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    return static_cast<bool>(processes.back());
  }

  void run() const {
    std::vector<pollfd> waits = {{wake.fd(), POLLIN, 0}};
    for (const Socket& process : processes) waits.push_back({process.fd(), POLLIN, 0});
    while (poll(waits.data(), waits.size(), -1) < 0) {
      if (errno != EINTR) return;
    }
    const bool is_over = is_readable(waits[0]) || std::any_of(waits.begin() + 2, waits.end(), is_readable);
    if (!is_over) ended(name);
  }

  std::function<void(const std::string&)> ended;
  Socket wake;
  std::string name;
  std::vector<Socket> processes;  // the starter, then those between
  std::thread thread;
};

StarterWatch::StarterWatch(std::function<void(const std::string&)> ended)
    : impl_(std::make_unique<Impl>(std::move(ended))) {}
StarterWatch::~StarterWatch() = default;

std::shared_ptr<void> end_with_starter(int rank) {
  return std::make_shared<StarterWatch>([rank](const std::string& name) {
    set_log_rank(rank);
    log_error("{} has ended: rank {}, which it has started, ends with it and saves nothing more", name, rank);
    _exit(kExitFailure);
  });
}

}  // namespace tessera::cluster
