#include "tessera/cluster/launcher/rank_process.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/base/limits.h"
#include "tessera/base/processes/memory_file.h"
#include "tessera/cluster/ranks/environment.h"

namespace tessera::cluster {

std::pair<Socket, Socket> make_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw IoError("cannot make a pipe: {}", std::strerror(errno));
  return {Socket(ends[0]), Socket(ends[1])};
}

Socket make_secret(std::string_view bytes) {
  Socket memory(make_secret_file("tessera-secret", bytes, kSecretSeals));
  if (!memory) throw IoError("cannot make memory for the job's secret: {}; {}", std::strerror(errno), limits_text());
  return memory;
}

Socket make_kept_memory() {
  Socket memory(make_memory_file("tessera-kept"));
  if (!memory) throw IoError("cannot make memory for the ranks' values: {}; {}", std::strerror(errno), limits_text());
  return memory;
}

Socket create_log(const std::string& path, bool goes_on) {
  make_file_size_limit_an_error();
  Socket file(open(
      path.c_str(),
      O_WRONLY | O_CREAT | (goes_on ? 0 : O_TRUNC) | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0644));
  struct stat status {};
  if (file && fstat(file.fd(), &status) == 0 && S_ISREG(status.st_mode)) return file;
  const bool is_no_file = file || errno == ELOOP || errno == ENXIO;
  throw IoError("cannot write a rank's output to \"{}\": {}; give another --log_dir, or remove it", path,
                is_no_file ? "there is a link, pipe or device of that name" : std::strerror(errno));
}

DescriptorLimit::DescriptorLimit(int num_ranks, int per_rank, int further) {
  constexpr rlim_t kOthers = 64;
  getrlimit(RLIMIT_NOFILE, &before_);
  const rlim_t needed =
      static_cast<rlim_t>(num_ranks) * static_cast<rlim_t>(per_rank) + kOthers + static_cast<rlim_t>(further);
  if (needed <= before_.rlim_cur) return;
  if (needed > before_.rlim_max) {
    throw IoError(
        "tessera run: {} ranks need {} file descriptors of the launcher, {} are allowed (ulimit -Hn): start fewer "
        "ranks",
        num_ranks, needed, before_.rlim_max);
  }
  rlimit raised = before_;
  raised.rlim_cur = needed;
  setrlimit(RLIMIT_NOFILE, &raised);
}

GuardReports::GuardReports(size_t count) : bytes_(count * sizeof(GuardReport)) {
  void* memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw IoError("cannot get memory for {} ranks: {}", count, std::strerror(errno));
  reports_ = static_cast<GuardReport*>(memory);
  std::uninitialized_default_construct_n(reports_, count);
}

GuardReports::~GuardReports() { munmap(reports_, bytes_); }

EndSignals::EndSignals() {
  sigemptyset(&set_);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR2}) sigaddset(&set_, number);
  pthread_sigmask(SIG_BLOCK, &set_, &before_);
  socket_ = Socket(signalfd(-1, &set_, SFD_CLOEXEC | SFD_NONBLOCK));
}

EndSignals::~EndSignals() {
  while (take() != 0) {
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int EndSignals::take() {
  signalfd_siginfo info{};
  return read(socket_.fd(), &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))
             ? static_cast<int>(info.ssi_signo)
             : 0;
}

void exec_rank(void* argument) {
  const auto& start = *static_cast<const RankStart*>(argument);
  start.descriptors->restore();
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(nothing, 0);
  dup2(start.out_fd, 1);
  dup2(start.err_fd, 2);
  fcntl(start.status_fd, F_SETFD, 0);
  if (start.figures_fd >= 0) fcntl(start.figures_fd, F_SETFD, 0);
  if (start.secret_fd >= 0) fcntl(start.secret_fd, F_SETFD, 0);
  pthread_sigmask(SIG_SETMASK, start.signal_mask, nullptr);
  execve(start.program, start.arguments, start.environment);
  static constexpr char kMessage[] = "cannot be executed\n";
  [[maybe_unused]] const ssize_t written = write(2, kMessage, sizeof(kMessage) - 1);
}

void open_standard_descriptors() {
  int fd;
  while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= 2) {
  }
  if (fd > 2) close(fd);
}

}  // namespace tessera::cluster
