#include "tessera/cluster/test_job.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "tessera/base/processes/memory_file.h"
#include "tessera/testing/collective_script.h"
#include "tessera/testing/run_ranks.h"

namespace tessera {
namespace {

constexpr int64_t kGraceMs = 30'000;

// A file in memory that an output goes to.
class Capture {
 public:
  Capture() : fd_(make_memory_file("capture")) {}
  ~Capture() { close(fd_); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  int fd() const { return fd_; }
  std::string text() const {
    std::string text(static_cast<size_t>(lseek(fd_, 0, SEEK_END)), '\0');
    [[maybe_unused]] const ssize_t count = pread(fd_, text.data(), text.size(), 0);
    return text;
  }

 private:
  int fd_;
};

template <typename F>
double seconds_of(F&& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

std::string rank_program() { return std::string(TESSERA_BINARY_DIR) + "/bin/rank_program"; }

Outcome run_job(const std::vector<std::string>& arguments, cluster::LaunchOptions options) {
  const Capture out;
  const Capture err;
  if (options.command.empty()) options.command = {rank_program()};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  // Whoever hears that another rank has failed has time to say so before it is told to end.
  if (options.grace_ms == cluster::LaunchOptions().grace_ms) options.grace_ms = kGraceMs;
  options.out_fd = out.fd();
  options.err_fd = err.fd();
  Outcome outcome;
  outcome.seconds = seconds_of([&] { outcome.code = cluster::launch(options); });
  outcome.out = out.text();
  outcome.err = err.text();
  return outcome;
}

Outcome run_command(const std::string& command) {
  Outcome outcome;
  outcome.seconds = seconds_of([&] {
    FILE* pipe = popen((command + " 2>&1").c_str(), "r");
    char buffer[4096];
    size_t count;
    while ((count = fread(buffer, 1, sizeof(buffer), pipe)) > 0) outcome.out.append(buffer, count);
    const int status = pclose(pipe);
    outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  });
  return outcome;
}

std::string checksum_of_threads(int size, int ranks_per_host) {
  uint64_t hash = 0;
  run_ranks(size,
            [&](cluster::Context& context) {
              const uint64_t own = run_collective_script(context);
              if (context.rank() == 0) hash = own;
            },
            {.ranks_per_host = ranks_per_host});
  return fmt::format("checksum {:016x}", hash);
}

}  // namespace tessera
