#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/file_system.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/environment.h"
#include "tessera/cluster/hub_socket.h"
#include "tessera/cluster/launch.h"
#include "tessera/cluster/rank_context.h"
#include "tessera/comm/secret.h"

namespace tessera::cluster {
namespace {

constexpr size_t kLastLines = 12;
// Longer lines are passed on in pieces.
constexpr size_t kMaxLine = 1 << 16;

int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // nobody reads our output any more
    text.remove_prefix(static_cast<size_t>(count));
  }
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("signal SIG{}", name);
}

std::pair<Socket, Socket> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw IoError("cannot make a pipe: {}", std::strerror(errno));
  return {Socket(ends[0]), Socket(ends[1])};
}

// A new job's secret, in memory that the ranks inherit and nobody can change.
Socket make_secret() {
  Socket memory(memfd_create("tessera-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) throw IoError("cannot make memory for the job's secret: {}", std::strerror(errno));
  const comm::Secret secret = comm::Secret::random();
  write_all(memory.fd(), secret.bytes());
  fchmod(memory.fd(), 0600);
  fcntl(memory.fd(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
  return memory;
}

void set_nonblocking(const Socket& socket) { fcntl(socket.fd(), F_SETFL, fcntl(socket.fd(), F_GETFL) | O_NONBLOCK); }

// What a rank writes to one of its outputs, passed on by whole lines.
class Stream {
 public:
  Stream() = default;
  Stream(Socket source, int target, std::string prefix, std::deque<std::string>* last_lines)
      : source_(std::move(source)), target_(target), prefix_(std::move(prefix)), last_lines_(last_lines) {
    set_nonblocking(source_);
  }
  int fd() const { return source_.fd(); }

  // Passes on what is there.
  void drain() {
    char buffer[1 << 14];
    while (source_) {
      const ssize_t count = read(source_.fd(), buffer, sizeof(buffer));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) return;
      if (count <= 0) return finish();
      rest_.append(buffer, static_cast<size_t>(count));
      // A progress bar ends its lines by a return.
      size_t end;
      while ((end = rest_.find_first_of("\n\r")) != std::string::npos || rest_.size() > kMaxLine) {
        pass_line(end == std::string::npos ? kMaxLine : end + 1);
      }
    }
  }
  void finish() {
    if (!rest_.empty()) {
      rest_.push_back('\n');
      pass_line(rest_.size());
    }
    source_ = Socket();
  }

 private:
  void pass_line(size_t length) {
    const std::string line = rest_.substr(0, length);
    rest_.erase(0, length);
    write_all(target_, prefix_ + line);
    last_lines_->push_back(std::string(trim(line)));
    if (last_lines_->size() > kLastLines) last_lines_->pop_front();
  }

  Socket source_;
  int target_ = -1;
  std::string prefix_;
  std::deque<std::string>* last_lines_ = nullptr;
  std::string rest_;
};

struct Child {
  pid_t pid = -1;
  Socket pid_fd;  // readable when the process has ended
  bool is_running = false;
  int status = 0;
  Stream out;
  Stream err;
  std::string log_path;
  std::deque<std::string> last_lines;
};

// Blocks the signals that end a job and makes them readable, as long as it lives.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&set_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set_, number);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
    socket_ = Socket(signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~EndSignals() {
    while (take() != 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;
  int fd() const { return socket_.fd(); }
  const sigset_t& mask_before() const { return before_; }
  // The next one that arrived, or 0.
  int take() {
    signalfd_siginfo info{};
    return read(socket_.fd(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))
               ? static_cast<int>(info.ssi_signo)
               : 0;
  }

 private:
  sigset_t set_{};
  sigset_t before_{};
  Socket socket_;
};

class Launcher {
 public:
  explicit Launcher(const LaunchOptions& options)
      : options_(options), is_threads_(options.num_thread_ranks > 0), program_(find_program(options.command.at(0))) {}

  int run() {
    // A job that is cut down while it starts must not leave those behind that have started.
    try {
      auto [status_read, status_write] = make_pipe();
      status_ = std::move(status_read);
      set_nonblocking(status_);
      children_.resize(static_cast<size_t>(num_children()));
      const std::string job_id = comm::hex(comm::random_bytes(16));
      if (!is_threads_) secret_ = make_secret();
      for (int rank = 0; rank < num_children(); ++rank) start(rank, job_id, status_write);
    } catch (...) {
      kill_all(SIGKILL);
      for (Child& child : children_) wait_for(child);
      throw;
    }
    while (num_running_ > 0) step();
    for (Child& child : children_) {
      child.out.drain();
      child.err.drain();
      child.out.finish();
      child.err.finish();
    }
    read_status();
    if (end_signal_ != 0) return 128 + end_signal_;
    if (first_failed_ < 0) return 0;
    report();
    return 1;
  }

 private:
  int num_children() const { return is_threads_ ? 1 : options_.num_processes; }
  int num_ranks() const { return is_threads_ ? options_.num_thread_ranks : options_.num_processes; }

  std::vector<std::string> environment_of(int rank, const std::string& job_id, int status_fd) const {
    const int cores = num_cores();
    const int threads =
        options_.num_compute_threads > 0 ? options_.num_compute_threads : std::max(1, cores / num_ranks());
    std::map<std::string, std::string> settings = {
        {"TESSERA_JOB_ID", job_id},
        {"TESSERA_NUM_THREADS", std::to_string(threads)},
        {"TESSERA_STATUS_FD", std::to_string(status_fd)},
    };
    if (is_threads_) {
      settings["TESSERA_THREAD_RANKS"] = std::to_string(options_.num_thread_ranks);
    } else {
      settings["TESSERA_RANK"] = std::to_string(rank);
      settings["TESSERA_SIZE"] = std::to_string(options_.num_processes);
      settings["TESSERA_SECRET_FD"] = std::to_string(secret_.fd());
      settings["TESSERA_SECRET_FILE"] = fmt::format("/proc/{}/fd/{}", getpid(), secret_.fd());
      settings["TESSERA_STORE"] = fmt::format("unix:tessera-{}-{}", geteuid(), job_id);
    }
    if (!options_.transport.empty()) settings["TESSERA_TRANSPORT"] = options_.transport;
    if (!options_.interface.empty()) settings["TESSERA_INTERFACE"] = options_.interface;
    if (options_.timeout_ms > 0) settings["TESSERA_TIMEOUT_MS"] = std::to_string(options_.timeout_ms);
    std::map<std::string, std::string> defaults = {{"OMP_NUM_THREADS", std::to_string(threads)}};
    // An idle OpenMP thread spins for its next work, on a core that another rank needs.
    if (threads * num_ranks() > cores) defaults["OMP_WAIT_POLICY"] = "passive";
    return child_environment(settings, defaults);
  }

  void start(int rank, const std::string& job_id, const Socket& status_write) {
    Child& child = children_[static_cast<size_t>(rank)];
    Socket out_read, out_write, err_read, err_write;
    if (options_.log_directory.empty()) {
      std::tie(out_read, out_write) = make_pipe();
      std::tie(err_read, err_write) = make_pipe();
    } else {
      FileSystem::local().create_directories(options_.log_directory);
      child.log_path = join_path(options_.log_directory, fmt::format("rank.{}", rank));
      out_write = Socket(open(child.log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
      if (!out_write) throw IoError("cannot create \"{}\": {}", child.log_path, std::strerror(errno));
      err_write = Socket(fcntl(out_write.fd(), F_DUPFD_CLOEXEC, 3));
    }
    // Everything that allocates happens before the fork: afterwards the child may only make system calls.
    const std::vector<std::string> environment = environment_of(rank, job_id, status_write.fd());
    std::vector<char*> environment_pointers, argument_pointers;
    for (const std::string& entry : environment) environment_pointers.push_back(const_cast<char*>(entry.c_str()));
    environment_pointers.push_back(nullptr);
    for (const std::string& argument : options_.command) {
      argument_pointers.push_back(const_cast<char*>(argument.c_str()));
    }
    argument_pointers.push_back(nullptr);

    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) throw IoError("cannot start rank {}: {}", rank, std::strerror(errno));
    if (pid == 0) {
      setpgid(0, 0);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(127);  // the launcher died before it could be noticed
      const int nothing = open("/dev/null", O_RDONLY);
      dup2(nothing, 0);
      dup2(out_write.fd(), 1);
      dup2(err_write.fd(), 2);
      fcntl(status_write.fd(), F_SETFD, 0);
      if (secret_) fcntl(secret_.fd(), F_SETFD, 0);
      pthread_sigmask(SIG_SETMASK, &signals_.mask_before(), nullptr);
      execve(program_.c_str(), argument_pointers.data(), environment_pointers.data());
      static constexpr char kMessage[] = "cannot be executed\n";
      [[maybe_unused]] const ssize_t written = write(2, kMessage, sizeof(kMessage) - 1);
      _exit(127);
    }
    setpgid(pid, pid);  // whichever of the two comes first
    child.pid = pid;
    child.is_running = true;
    ++num_running_;
    child.pid_fd = Socket(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
    if (!child.pid_fd) throw IoError("cannot watch rank {}: {}", rank, std::strerror(errno));
    if (out_read) {
      const std::string prefix = is_threads_ ? "" : fmt::format("[{}] ", rank);
      child.out = Stream(std::move(out_read), options_.out_fd, prefix, &child.last_lines);
      child.err = Stream(std::move(err_read), options_.err_fd, prefix, &child.last_lines);
    }
  }

  void step() {
    std::vector<pollfd> waits = {{signals_.fd(), POLLIN, 0}, {status_.fd(), POLLIN, 0}};
    for (const Child& child : children_) {
      waits.push_back({child.is_running ? child.pid_fd.fd() : -1, POLLIN, 0});
      waits.push_back({child.out.fd(), POLLIN, 0});
      waits.push_back({child.err.fd(), POLLIN, 0});
    }
    const int64_t limit = next_kill_ms_ == 0 ? -1 : std::max<int64_t>(0, next_kill_ms_ - now_ms());
    poll(waits.data(), waits.size(), static_cast<int>(limit));
    for (size_t i = 0; i < children_.size(); ++i) {
      Child& child = children_[i];
      if (waits[3 * i + 3].revents != 0) child.out.drain();
      if (waits[3 * i + 4].revents != 0) child.err.drain();
      if (waits[3 * i + 2].revents != 0) {
        wait_for(child);
        if (child.status != 0) note_failure(static_cast<int>(i));
      }
    }
    if (waits[1].revents != 0) read_status();
    if (const int number = signals_.take(); number != 0) {
      // The second one is meant.
      if (end_signal_ != 0) kill_all(SIGKILL);
      end_signal_ = number;
      begin_end(0);
    }
    if (next_kill_ms_ != 0 && now_ms() >= next_kill_ms_) {
      kill_all(was_told_ ? SIGKILL : SIGTERM);
      was_told_ = true;
      next_kill_ms_ = now_ms() + std::max<int64_t>(options_.grace_ms, 100);
    }
  }

  void wait_for(Child& child) {
    if (!child.is_running) return;
    // Until it is waited for, its number belongs to it and to what it has left running.
    siginfo_t info{};
    while (waitid(P_PID, static_cast<id_t>(child.pid), &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
    kill(-child.pid, SIGKILL);
    while (waitpid(child.pid, &child.status, 0) < 0 && errno == EINTR) {
    }
    child.is_running = false;
    --num_running_;
  }

  void note_failure(int rank) {
    if (end_signal_ != 0) return;
    if (first_failed_ < 0) first_failed_ = rank;
    // The others hear of it from their peers and end by themselves, with their own messages.
    begin_end(options_.grace_ms);
  }

  void begin_end(int64_t delay_ms) {
    if (next_kill_ms_ == 0 || delay_ms == 0) next_kill_ms_ = now_ms() + delay_ms;
  }

  // Every rank has its own process group, which holds what it has started, too.
  void kill_all(int number) {
    for (const Child& child : children_) {
      if (child.is_running) kill(-child.pid, number);
    }
  }

  // Failing ranks report lines `RANK ORIGIN`.
  void read_status() {
    char buffer[512];
    ssize_t count;
    while ((count = read(status_.fd(), buffer, sizeof(buffer))) > 0) {
      status_text_.append(buffer, static_cast<size_t>(count));
    }
  }

  // The rank whose failure made the others fail: they may all end at the same time.
  int origin() const {
    for (const std::string_view line : split(status_text_, '\n')) {
      const size_t space = line.find(' ');
      if (space == std::string_view::npos) continue;
      const int64_t rank = parse_int(line.substr(space + 1), "status");
      if (rank >= 0 && rank < num_ranks()) return static_cast<int>(rank);
    }
    return first_failed_;
  }

  void report() {
    const int rank = origin();
    Child& child = children_[static_cast<size_t>(is_threads_ ? 0 : rank)];
    std::string how;
    if (WIFSIGNALED(child.status)) {
      how = fmt::format("killed by {}", signal_name(WTERMSIG(child.status)));
    } else {
      how = fmt::format("exit code {}", WEXITSTATUS(child.status));
    }
    std::string text = fmt::format("tessera run: rank {} failed: {}", rank, how);
    if (!child.log_path.empty()) read_last_lines(child);
    if (!child.last_lines.empty()) {
      text += "; its last lines";
      if (!child.log_path.empty()) text += fmt::format(" in {}", child.log_path);
      text += ":\n";
      for (const std::string& line : child.last_lines) text += fmt::format("    {}\n", line);
    } else {
      text += "; it wrote nothing\n";
    }
    write_all(options_.err_fd, text);
  }

  static void read_last_lines(Child& child) {
    const auto file = FileSystem::local().open(child.log_path);
    const auto bytes = file->bytes();
    const size_t length = std::min<size_t>(bytes.size(), 8192);
    const std::string_view tail(reinterpret_cast<const char*>(bytes.data()) + bytes.size() - length, length);
    for (const std::string_view line : split(tail, '\n')) {
      if (trim(line).empty()) continue;
      child.last_lines.emplace_back(trim(line));
      if (child.last_lines.size() > kLastLines) child.last_lines.pop_front();
    }
  }

  const LaunchOptions& options_;
  bool is_threads_;
  std::string program_;
  EndSignals signals_;
  Socket secret_;
  Socket status_;
  std::string status_text_;
  std::vector<Child> children_;
  int num_running_ = 0;
  int first_failed_ = -1;
  int end_signal_ = 0;
  int64_t next_kill_ms_ = 0;
  bool was_told_ = false;
};

}  // namespace

int launch(const LaunchOptions& options) {
  if (options.command.empty()) throw InvalidArgument("tessera run: no program is given");
  if (options.num_thread_ranks < 0) {
    throw InvalidArgument("tessera run: --threads must be at least 1, got {}", options.num_thread_ranks);
  }
  if (options.num_thread_ranks > 0 && options.num_processes > 1) {
    throw InvalidArgument("tessera run: -n {} and --threads {}: ranks are either processes or threads",
                          options.num_processes, options.num_thread_ranks);
  }
  if (options.num_processes < 1) {
    throw InvalidArgument("tessera run: a job needs at least 1 rank, got -n {}", options.num_processes);
  }
  if (!options.transport.empty()) parse_transport_kind(options.transport);
  return Launcher(options).run();
}

}  // namespace tessera::cluster
