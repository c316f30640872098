#include "tessera/base/limits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera {
namespace {

std::atomic<bool> has_threads = false;
std::atomic<bool> threads_are_parents = false;

// -1: none.
int64_t limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return -1;
  return static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max()));
}

int64_t num_threads() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("Threads:")) return std::strtoll(line.c_str() + 8, nullptr, 10);
  }
  return 0;
}

}  // namespace

AddressSpace address_space() {
  AddressSpace space{.used = 0, .limit = limit_of(RLIMIT_AS)};
  std::ifstream pages("/proc/self/statm");
  int64_t count = 0;
  if (pages >> count) space.used = count * sysconf(_SC_PAGESIZE);
  return space;
}

int64_t memory_of_machine() {
  int64_t bytes = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  for (const char* path : {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    std::ifstream group(path);
    int64_t limit = 0;  // the word "max" where there is none
    if (group >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

int64_t swap_space_of_machine() {
  struct sysinfo found {};
  return sysinfo(&found) == 0 ? static_cast<int64_t>(found.totalswap) * found.mem_unit : 0;
}

bool can_machine_hold(int64_t size_bytes) { return size_bytes - swap_space_of_machine() <= memory_of_machine(); }

int64_t file_size_limit() { return limit_of(RLIMIT_FSIZE); }

void make_file_size_limit_an_error() {
  static std::once_flag done;
  std::call_once(done, [] {
    struct sigaction action {};
    if (sigaction(SIGXFSZ, nullptr, &action) == 0 && action.sa_handler == SIG_DFL) signal(SIGXFSZ, SIG_IGN);
  });
}

std::string why_no_proc() {
  std::array<char, 32> shown{};
  const ssize_t length = readlink("/proc/self", shown.data(), shown.size());
  if (length < 0) {
    return "/proc does not show this process: mount it (`mount -t proc proc /proc`; after `unshare --pid`, "
           "`unshare --pid --fork --mount-proc`)";
  }
  const std::string number(shown.data(), static_cast<size_t>(length));
  if (number == std::to_string(getpid())) return "";
  return fmt::format(
      "/proc is that of another PID namespace: this process is {}, and {} there; mount this one's (`unshare --pid "
      "--fork --mount-proc`, or `mount -t proc proc /proc` within it)",
      getpid(), number);
}

std::string limits_text() {
  std::vector<std::string> limits;
  if (const int64_t processes = limit_of(RLIMIT_NPROC); processes >= 0) {
    limits.push_back(fmt::format("{} processes and threads of the user (ulimit -u)", processes));
  }
  if (const AddressSpace space = address_space(); space.is_limited()) {
    limits.push_back(fmt::format("{} of address space (ulimit -v), of which {} are used", format_bytes(space.limit),
                                 format_bytes(space.used)));
  }
  if (const int64_t bytes = limit_of(RLIMIT_DATA); bytes >= 0) {
    limits.push_back(fmt::format("{} of memory that is this process's alone (ulimit -d)", format_bytes(bytes)));
  }
  if (const int64_t bytes = file_size_limit(); bytes >= 0) {
    limits.push_back(fmt::format("{} of a file (ulimit -f)", format_bytes(bytes)));
  }
  return fmt::format("{} threads run{}{}", num_threads(), limits.empty() ? "" : "; limits: ", fmt::join(limits, ", "));
}

void require_threads_of_this_process() {
  if (threads_are_parents.load(std::memory_order_relaxed)) {
    throw Error(
        "this process was made by fork() after its parent had computed in threads, which are not here; start processes "
        "with multiprocessing.get_context(\"spawn\"), or before the first training or computation");
  }
  if (has_threads.load(std::memory_order_relaxed) || has_threads.exchange(true)) return;
  pthread_atfork(nullptr, nullptr, [] { threads_are_parents = true; });
}

}  // namespace tessera
