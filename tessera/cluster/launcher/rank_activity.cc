#include "tessera/cluster/launcher/rank_activity.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

namespace tessera::cluster {
namespace {

// "" where there is none: of a process that ends meanwhile a read fails, which the stream's own iterators throw.
std::string text_of(const std::string& path) {
  const std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

struct Activity {
  bool is_at_work = false;  // now
  uint64_t work = 0;        // another number whenever the process has done anything
};

// Of a /proc/PID/stat, "PID (NAME) STATE PARENT ...", where NAME may hold anything; nullopt where it has ended.
std::optional<Activity> activity_in(const std::string& stat) {
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  char state = 0;
  fields >> state;
  if (state == 'Z' || state == 'X') return std::nullopt;
  // Behind the state come numbers: from the seventh on page faults and then times, its own and of children that ended.
  constexpr int kFirst = 7;
  constexpr int kLast = 14;
  Activity activity{.is_at_work = state == 'R' || state == 'D'};
  std::string skipped;
  for (int i = 1; i < kFirst; ++i) fields >> skipped;
  uint64_t number = 0;
  for (int i = kFirst; i <= kLast && fields >> number; ++i) activity.work += number;
  return activity;
}

// Adds how long its threads have run, for those times count in hundredths of a second, and lists its children.
void look_at_threads(pid_t pid, Activity& activity, std::vector<pid_t>& children) {
  std::error_code error;
  std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", pid), error);
  for (; !error && thread != std::filesystem::directory_iterator(); thread.increment(error)) {
    std::istringstream schedule(text_of((thread->path() / "schedstat").string()));
    uint64_t run_ns = 0;
    if (schedule >> run_ns) activity.work += run_ns;
    std::istringstream started(text_of((thread->path() / "children").string()));
    for (pid_t child = 0; started >> child;) children.push_back(child);
  }
}

// Of a process and all that it has started; nullopt where it has ended.
std::optional<Activity> activity_of_tree(pid_t root) {
  std::optional<Activity> sum;
  std::vector<pid_t> left{root};
  while (!left.empty()) {
    const pid_t pid = left.back();
    left.pop_back();
    auto own = activity_in(text_of(fmt::format("/proc/{}/stat", pid)));
    if (!own) continue;
    look_at_threads(pid, *own, left);
    if (!sum) sum.emplace();
    sum->is_at_work = sum->is_at_work || own->is_at_work;
    sum->work += own->work;
  }
  return sum;
}

}  // namespace

std::vector<uint32_t> RankActivity::find_idle(int64_t at_least_ms) {
  std::vector<uint32_t> idle;
  const int64_t now_ns = clock_.monotonic_ns();
  // Without lists of children, which a kernel may lack, one that works behind a rank's process would not be seen.
  if (access("/proc/thread-self/children", R_OK) != 0) return idle;
  for (size_t place = 0; place < seen_.size(); ++place) {
    GuardReport& report = reports_[place];
    const pid_t pid = report.rank_pid;
    if (pid <= 0 || report.has_ended) continue;
    const auto activity = activity_of_tree(pid);
    if (!activity) continue;
    Seen& before = seen_[place];
    if (activity->is_at_work || before.pid != pid || before.work != activity->work) {
      before = {pid, activity->work, now_ns};
    } else if (now_ns - before.since_ns >= at_least_ms * 1'000'000) {
      idle.push_back(static_cast<uint32_t>(place));
    }
  }
  return idle;
}

}  // namespace tessera::cluster
