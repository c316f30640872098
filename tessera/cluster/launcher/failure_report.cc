#include "tessera/cluster/launcher/failure_report.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <string_view>

#include "tessera/base/limits.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/ranks/exit_codes.h"
#include "tessera/cluster/ranks/rank_words.h"

namespace tessera::cluster {
namespace {

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("signal SIG{}", name);
}

// A stack of less may be too small for what a program does before its first line.
constexpr rlim_t kSmallStackBytes = rlim_t{64} << 10;

// Why a signal has ended a process that could not say it, as far as limits tell.
std::string reason_by_limits(int number) {
  rlimit limit{};
  const bool is_small = getrlimit(RLIMIT_STACK, &limit) == 0 && limit.rlim_cur < kSmallStackBytes;
  if (number != SIGSEGV || !is_small) return "";
  return fmt::format(", likely for want of stack, of which `ulimit -s` leaves it {} KiB: raise that",
                     limit.rlim_cur >> 10);
}

// The report of an error that a rank has written, without its name, so that those of several can be equal.
std::string own_words(const RankChild& child, int rank) {
  const std::string& text = child.err.held();
  const std::string name = fmt::format("rank {}: ", rank);
  return text.starts_with(name) ? text.substr(name.size()) : text;
}

// The rank that had ended before a call of this one's, as its error says (comm/transport.cc); -1 where it says no such
// thing.
int ended_before(std::string_view error) {
  const size_t end = error.find(", which has ended without making this call");
  if (end == std::string_view::npos) return -1;
  constexpr std::string_view kBefore = " waits for rank ";
  const size_t begin = error.rfind(kBefore, end);
  if (begin == std::string_view::npos) return -1;
  const std::string_view number = error.substr(begin + kBefore.size(), end - begin - kBefore.size());
  const bool is_one = !number.empty() && number.size() < 8 && number.find_first_not_of("0123456789") == number.npos;
  return is_one ? static_cast<int>(parse_int(number, "a rank")) : -1;
}

// What the process has written last: the report of its error, or, where its ranks are threads, its last lines.
std::string last_words(const RankChild& child) {
  std::string text = child.err.held();
  for (const std::string& line : child.last_lines) text += line + "\n";
  return text;
}

RankErrors print_errors(const FailedJob& job, LauncherOutput& err) {
  RankErrors errors(job.num_ranks);
  if (job.ranks.empty()) return errors;
  const auto place = static_cast<size_t>(job.failed_place);
  const std::string cause = own_words(job.children[place], job.failed_rank);
  const std::string because = fmt::format(" because rank {} failed", job.failed_rank);
  const std::string message = cause.starts_with("error: ") ? cause.substr(7) : "";
  const auto add = [&](size_t i) {
    std::string text = own_words(job.children[i], job.ranks[i]);
    if (text.empty()) return;
    if (i != place && !message.empty() && text.ends_with(because + ": " + message)) {
      text = text.substr(0, text.size() - message.size() - 2) + "\n";
    }
    errors.add(job.ranks[i], text);
  };
  add(place);
  for (size_t i = 0; i < job.ranks.size(); ++i) {
    if (i != place) add(i);
  }
  for (const RankErrors::Entry& entry : errors.entries()) {
    const std::string prefix = fmt::format("[{}] ", number_ranks(entry.ranks));
    std::string text = entry.text.starts_with("error: ") ? name_ranks(entry.ranks, job.num_ranks) + ": " : "";
    text += entry.text;
    if (text.ends_with('\n')) text.pop_back();
    for (const std::string_view line : split(text, '\n')) err.write(prefix + std::string(line) + "\n");
  }
  return errors;
}

}  // namespace

std::string how_ended(int start_error, int status, bool is_out_of_memory) {
  if (start_error != 0) return fmt::format("it cannot be started: {}; {}", strerror(start_error), limits_text());
  if (!WIFSIGNALED(status)) return fmt::format("exit code {}", WEXITSTATUS(status));
  return fmt::format("killed by {}{}{}", signal_name(WTERMSIG(status)), reason_by_limits(WTERMSIG(status)),
                     is_out_of_memory ? ", likely by the system for want of memory (`dmesg` says more)" : "");
}

int64_t num_out_of_memory() {
  std::ifstream counters("/proc/vmstat");
  std::string name;
  int64_t count = 0;
  while (counters >> name >> count) {
    if (name == "oom_kill") return count;
  }
  return 0;
}

bool is_usage_error(int status) { return WIFEXITED(status) && WEXITSTATUS(status) == kExitUsage; }

int report_failure(const FailedJob& job, LauncherOutput& err) {
  const RankChild& child = job.children[static_cast<size_t>(job.failed_place)];
  const std::string words = last_words(child);
  const RankErrors errors = print_errors(job, err);
  const RankErrors::Entry* printed = errors.of_rank(job.failed_rank);
  const std::vector<int> ranks = printed != nullptr ? printed->ranks : std::vector<int>{job.failed_rank};
  const std::string who = name_ranks(ranks, job.num_ranks);
  const int ended = ended_before(words);
  const bool has_ended = WIFEXITED(child.status) && WEXITSTATUS(child.status) == kExitSuccess;
  std::string text = has_ended    ? fmt::format("tessera run: {} ended before the job had: {}", who, job.how)
                     : ended >= 0 ? fmt::format(
                                        "tessera run: rank {} ended before a call for which {} waited: {} "
                                        "failed: {}",
                                        ended, who, who, job.how)
                                  : fmt::format("tessera run: {} failed: {}", who, job.how);
  const bool says_loss = !job.last_reason.empty() && words.find(job.last_reason) != std::string::npos;
  if (!job.last_reason.empty()) {
    text = fmt::format("tessera run: the job has failed: {}", job.last_reason);
    if (!says_loss) text += fmt::format("; {} failed then: {}", who, job.how);
  }
  if (printed != nullptr || says_loss) {
    text += "\n";
  } else if (!child.last_lines.empty()) {
    text += "; its last lines";
    if (!child.log_path.empty()) text += fmt::format(" in {}", child.log_path);
    text += ":\n";
    for (const std::string& line : child.last_lines) text += fmt::format("    {}\n", line);
  } else {
    text += "; it wrote nothing\n";
  }
  err.write(text);
  return is_usage_error(child.status) ? kExitUsage : kExitFailure;
}

}  // namespace tessera::cluster
