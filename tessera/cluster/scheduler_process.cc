#include "tessera/cluster/scheduler_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/printable.h"
#include "tessera/base/thread.h"
#include "tessera/base/usage_error.h"
#include "tessera/cluster/dashboard/dashboard_server.h"
#include "tessera/cluster/dashboard/status_board.h"
#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/launch.h"
#include "tessera/cluster/network.h"
#include "tessera/cluster/rendezvous/ask_status.h"
#include "tessera/cluster/rendezvous/server.h"
#include "tessera/cluster/run.h"
#include "tessera/cluster/scheduler_link.h"
#include "tessera/cluster/status_text.h"
#include "tessera/cluster/tls/make_certificates.h"

namespace tessera::cluster {
namespace {

// SIGINT, SIGTERM and SIGHUP of the process, readable, while it lives; threads that start meanwhile do not get them.
class EndOfScheduler {
 public:
  EndOfScheduler() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, number);
    pthread_sigmask(SIG_BLOCK, &set, &before_);
    signals_ = Socket(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    done_ = Socket(eventfd(0, EFD_CLOEXEC));
  }
  ~EndOfScheduler() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  EndOfScheduler(const EndOfScheduler&) = delete;
  EndOfScheduler& operator=(const EndOfScheduler&) = delete;

  void note_done() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(done_.fd(), &one, sizeof(one));
  }
  // The signal that has come; 0 when note_done() was called before.
  int wait() {
    while (true) {
      pollfd waits[] = {{signals_.fd(), POLLIN, 0}, {done_.fd(), POLLIN, 0}};
      poll(waits, 2, -1);
      signalfd_siginfo info{};
      if (read(signals_.fd(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) {
        return static_cast<int>(info.ssi_signo);
      }
      if (waits[1].revents != 0) return 0;
    }
  }

 private:
  sigset_t before_{};
  Socket signals_;
  Socket done_;
};

// A line that peers may have had a part in is no other line than one of the scheduler's.
void say_line(int fd, const std::string& line) {
  std::string text = "tessera scheduler: ";
  for (const char c : printable(line)) text += c == '\n' ? std::string("\n  ") : std::string(1, c);
  text += '\n';
  [[maybe_unused]] const ssize_t written = write(fd, text.data(), text.size());
}

rendezvous::ServerOptions server_options(const SchedulerOfJob& job, const SchedulerPlace& place) {
  // So often peers show that they live; several times before one is lost.
  constexpr int64_t kHeartbeatMs = 3000;
  constexpr int64_t kBeats = 4;
  return {.address = {job.host, static_cast<uint16_t>(job.port)},
          .tls = tls_options_of(place, TlsSide::kServer),
          .scheduler = {.num_workers = job.num_workers,
                        .max_restarts = job.max_restarts,
                        .join_timeout_ms = job.join_timeout_ms,
                        .heartbeat_ms = std::min(kHeartbeatMs, std::max<int64_t>(job.node_timeout_ms / kBeats, 1)),
                        .node_timeout_ms = job.node_timeout_ms,
                        .min_ranks = job.min_ranks == 0 && job.spares > 0 ? job.num_workers : job.min_ranks,
                        .max_ranks = job.max_ranks > 0 ? job.max_ranks : job.num_workers,
                        .rank_timeout_ms = job.rank_timeout_ms,
                        .spares = job.spares},
          .state_path = job.state_path};
}

// Throws InvalidArgument where the numbers of an elastic job do not fit one another.
void check_elastic(const SchedulerOfJob& job) {
  const int most = std::max(job.max_ranks, job.num_workers);
  if (job.spares > static_cast<int>(rendezvous::kMaxNodes) - most) {
    throw UsageError("--spares {}: a job has at most {} ranks and spares together", job.spares, rendezvous::kMaxNodes);
  }
  if (job.min_ranks == 0 && job.max_ranks == 0) return;
  if (job.min_ranks < 1) throw UsageError("--max_ranks {} needs --min_ranks", job.max_ranks);
  if (job.min_ranks > job.num_workers) {
    throw UsageError("--min_ranks {}: the job begins with {} ranks", job.min_ranks, job.num_workers);
  }
  if (job.max_ranks != 0 && job.max_ranks < job.num_workers) {
    throw UsageError("--max_ranks {}: the job begins with {} ranks", job.max_ranks, job.num_workers);
  }
  if (job.max_ranks > static_cast<int>(rendezvous::kMaxNodes)) {
    throw UsageError("--max_ranks {}: a job has at most {} ranks", job.max_ranks, rendezvous::kMaxNodes);
  }
}

// Throws UsageError where a state cannot be kept: it is replaced as a whole, by a file beside it; and where one is
// there that another user may have written.
void check_state_path(const std::string& path) {
  if (path.empty()) return;
  FileSystem& files = FileSystem::local();
  if (files.is_directory(path)) throw UsageError("--state {}: it is a folder, expected a file in one", path);
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, std::max<size_t>(slash, 1));
  if (!files.is_directory(folder)) {
    throw UsageError("--state {}: there is no folder {}: make it, or name a file in another one", path, folder);
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    throw UsageError("--state {}: nothing can be written into the folder {}: {}", path, folder, std::strerror(errno));
  }
  // Who could write it would say which ranks the job has; a job's secret must be this user's alone, too.
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return;
  if (status.st_uid != geteuid()) {
    throw UsageError("--state {}: it belongs to another user; name a file of this one's, or one that is not there yet",
                     path);
  }
  if ((status.st_mode & 077) != 0) {
    throw UsageError("--state {}: others may read or write it; chmod 600 where nobody else has written it", path);
  }
}

}  // namespace

struct SchedulerInside::Serving {
  explicit Serving(const rendezvous::ServerOptions& options)
      : server(options, FileSystem::local(), Clock::system()),
        thread(start_thread("the scheduler", [this] { server.run(); })) {}
  ~Serving() {
    server.stop();
    thread.join();
  }
  rendezvous::RendezvousServer server;
  std::thread thread;
};

SchedulerInside::SchedulerInside(const SchedulerOfJob& job, const SchedulerPlace& place)
    : serving_(std::make_unique<Serving>(server_options(job, place))), address_(serving_->server.address().text()) {}
SchedulerInside::~SchedulerInside() = default;

int run_scheduler_from_environment(const SchedulerOfJob& job) {
  if (job.port < 0 || job.port > 65535) throw UsageError("a port is from 0 to 65535, got {}", job.port);
  if (job.num_workers < 1 || static_cast<size_t>(job.num_workers) > rendezvous::kMaxNodes) {
    throw UsageError("a job has from 1 to {} workers, got {}", rendezvous::kMaxNodes, job.num_workers);
  }
  check_elastic(job);
  check_state_path(job.state_path);
  const SchedulerPlace place = scheduler_place_from_environment();
  EndOfScheduler end;
  auto options = server_options(job, place);
  const auto board = job.dashboard.place.empty()
                         ? nullptr
                         : std::make_unique<JobBoard>(fmt::format("a job of {}", plural(job.num_workers, "worker")));
  options.scheduler.wants_figures = board != nullptr;
  options.on_news = [fd = job.err_fd, seen = board.get()](const std::string& line) {
    say_line(fd, line);
    if (seen != nullptr) seen->add_line(-1, line);
  };
  std::optional<DashboardServer> dashboard;
  if (board != nullptr) {
    options.on_status = [seen = board.get()](const rendezvous::JobStatus& status, uint64_t /*generation*/,
                                             const std::function<std::string(const std::string&)>& figures_of) {
      show_status(*seen, status, figures_of);
    };
    DashboardPlace where = from_user([&] { return parse_dashboard_place(job.dashboard.place); });
    where.any_host = host_ip("");
    dashboard.emplace(where, job.dashboard.page, *board);
    say_line(job.err_fd, "dashboard: " + dashboard->url());
    if (const std::string warning = dashboard->warning(); !warning.empty()) say_line(job.err_fd, warning);
  }
  rendezvous::RendezvousServer server(options, FileSystem::local(), Clock::system());
  say_line(job.err_fd, fmt::format("listening at {} for {} worker{}", server.address().text(), job.num_workers,
                                   job.num_workers == 1 ? "" : "s"));
  rendezvous::JobPhase phase = rendezvous::JobPhase::kWaiting;
  std::thread loop = start_thread("the scheduler", [&] {
    phase = server.run();
    end.note_done();
  });
  const int signal_number = end.wait();
  if (signal_number != 0) server.stop();
  loop.join();
  constexpr int64_t kLastLookMs = 1500;
  if (signal_number != 0) {
    const char* name = sigabbrev_np(signal_number);
    if (dashboard) {
      board->set_job(BoardJobState::kEndedBySignal,
                     fmt::format("SIG{} has ended the scheduler", name == nullptr ? "?" : name));
      dashboard->say_end(kLastLookMs);
    }
    say_line(job.err_fd, fmt::format("ended by SIG{}", name == nullptr ? "?" : name));
    return 128 + signal_number;
  }
  const bool failed = phase == rendezvous::JobPhase::kFailed;
  if (dashboard) {
    board->set_job(failed ? BoardJobState::kFailed : BoardJobState::kCompleted, failed ? server.failure() : "");
    dashboard->say_end(kLastLookMs);
  }
  say_line(job.err_fd, failed ? "the job has failed: " + server.failure() : "all workers have ended");
  return failed ? kExitFailure : kExitSuccess;
}

std::string scheduler_status_from_environment(const std::string& address, bool json, int64_t timeout_ms) {
  const auto answered =
      rendezvous::ask_status(rendezvous::parse_host_port(address, "the scheduler's address"),
                             tls_options_of(scheduler_place_from_environment(), TlsSide::kClient), timeout_ms);
  return json ? status_json(answered.status, answered.generation) : status_text(answered.status, answered.generation);
}

std::string resize_job_from_environment(const std::string& address, int num_ranks, int64_t timeout_ms) {
  const auto scheduler = rendezvous::parse_host_port(address, "the scheduler's address");
  const TlsOptions tls = tls_options_of(scheduler_place_from_environment(), TlsSide::kClient);
  const auto before = rendezvous::ask_status(scheduler, tls, timeout_ms);
  const auto after = rendezvous::ask_resize(scheduler, tls, num_ranks, timeout_ms);
  return resize_text(before.status, after.status, num_ranks, address) + status_text(after.status, after.generation);
}

std::string make_certificates_from_environment(const std::string& directory, const std::vector<std::string>& node_ids,
                                               int days, const std::string& revoke) {
  const auto password = tls_password_from_environment();
  if (!password || password->empty()) {
    throw UsageError(
        "the files get a password: write it into a file that only you may read and name that by "
        "TESSERA_TLS_PASSWORD_FILE, or set TESSERA_TLS_PASSWORD");
  }
  const int64_t now_s = std::time(nullptr);
  if (!revoke.empty()) {
    const bool is_news = revoke_certificate(directory, revoke, *password, now_s);
    return is_news ? "" : fmt::format("{} is revoked already\n", revoke);
  }
  make_certificates({.directory = directory, .password = *password, .node_ids = node_ids, .days = days}, now_s);
  return "";
}

}  // namespace tessera::cluster
