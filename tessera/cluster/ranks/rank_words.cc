#include "tessera/cluster/ranks/rank_words.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "tessera/comm/job_state.h"

namespace tessera::cluster {
namespace {

// Those that a thread can wait in for long.
const char* name_of_call(long number) {
  switch (number) {
    case SYS_read: return "read";
    case SYS_write: return "write";
    case SYS_pread64: return "pread";
    case SYS_pwrite64: return "pwrite";
    case SYS_readv: return "readv";
    case SYS_writev: return "writev";
    case SYS_openat: return "openat";
    case SYS_fsync: return "fsync";
    case SYS_fdatasync: return "fdatasync";
    case SYS_flock: return "flock";
    case SYS_fcntl: return "fcntl";
    case SYS_ppoll: return "ppoll";
    case SYS_pselect6: return "pselect";
    case SYS_epoll_pwait: return "epoll_wait";
    case SYS_nanosleep: return "nanosleep";
    case SYS_clock_nanosleep: return "clock_nanosleep";
    case SYS_futex: return "futex (a lock, or another thread)";
    case SYS_wait4: return "wait4 (for another process)";
    case SYS_waitid: return "waitid (for another process)";
    case SYS_connect: return "connect";
    case SYS_accept: return "accept";
    case SYS_accept4: return "accept4";
    case SYS_recvfrom: return "recvfrom";
    case SYS_recvmsg: return "recvmsg";
    case SYS_sendto: return "sendto";
    case SYS_sendmsg: return "sendmsg";
    case SYS_sched_yield: return "sched_yield";
#ifdef SYS_poll
    case SYS_poll: return "poll";
    case SYS_select: return "select";
    case SYS_epoll_wait: return "epoll_wait";
    case SYS_pause: return "pause (for a signal)";
#endif
    default: return nullptr;
  }
}

std::string first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

}  // namespace

std::string number_ranks(const std::vector<int>& ranks, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += separator;
    text += std::to_string(ranks[i]);
    // Two are no range.
    if (last == i + 1) text += std::string(separator) + std::to_string(ranks[last]);
    if (last > i + 1) text += fmt::format("-{}", ranks[last]);
    i = last + 1;
  }
  return text;
}

std::string name_ranks(const std::vector<int>& ranks, int size) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  if (static_cast<int>(ranks.size()) == size) return fmt::format("all {} ranks", size);
  return "ranks " + number_ranks(ranks, ", ");
}

std::string words_of_exit(int code) { return fmt::format("it has ended with exit code {}", code); }

bool says_told_to_end(std::string_view message) {
  return message == kToldToEndWords || message == words_of_exit(128 + SIGTERM);
}

bool is_of_other_rank(const std::exception& error) {
  return dynamic_cast<const comm::PeerFailure*>(&error) != nullptr ||
         dynamic_cast<const comm::PeerSilence*>(&error) != nullptr;
}

int origin_of(const std::exception_ptr& error, int rank) {
  try {
    std::rethrow_exception(error);
  } catch (const comm::PeerFailure& failure) {
    return failure.rank();
  } catch (...) {
    return rank;
  }
}

void RankErrors::add(int rank, std::string_view text) {
  auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.text == text; });
  if (found == entries_.end()) found = entries_.insert(found, {std::string(text), {}});
  found->ranks.insert(std::lower_bound(found->ranks.begin(), found->ranks.end(), rank), rank);
}

const RankErrors::Entry* RankErrors::of_rank(int rank) const {
  for (const Entry& entry : entries_) {
    if (std::binary_search(entry.ranks.begin(), entry.ranks.end(), rank)) return &entry;
  }
  return nullptr;
}

std::string describe_thread(pid_t process, pid_t thread) {
  const std::string folder = fmt::format("/proc/{}/task/{}/", process, thread);
  const std::string stat = first_line_of(folder + "stat");
  const size_t name_end = stat.rfind(')');
  const char state = name_end != std::string::npos && name_end + 2 < stat.size() ? stat[name_end + 2] : '?';
  if (state == 'T' || state == 't') return "it has been stopped";
  if (state == 'Z' || state == 'X') return "it has ended";
  if (state == 'R') return "it computes";
  // "NUMBER ARGUMENTS ...", "running", or "-1 ..." outside of a call.
  const std::string call = first_line_of(folder + "syscall");
  if (call.starts_with("running")) return "it computes";
  if (!call.empty() && call[0] >= '0' && call[0] <= '9') {
    const long number = std::strtol(call.c_str(), nullptr, 10);
    const char* name = name_of_call(number);
    return name != nullptr ? fmt::format("it waits in the system call {}", name)
                           : fmt::format("it waits in system call {}", number);
  }
  return state == 'D' ? "it waits for a device" : state == 'S' ? "it waits" : "";
}

}  // namespace tessera::cluster
