#include "tessera/cluster/report/job_report.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/files/text_file.h"
#include "tessera/base/printable.h"

namespace tessera::cluster {
namespace {

// Clocks of hosts that are further apart are a fault that `tessera cluster check` names.
constexpr int64_t kClocksApartMs = 60000;
// More files than this are no folder of reports.
constexpr size_t kMaxFiles = 4 * static_cast<size_t>(kMaxReportedRanks);

bool is_report(const std::string& name, std::string_view begin) {
  return name.starts_with(begin) && name.ends_with(".json");
}

// Calls `parse` with the file's text; what is wrong with it is a line of the list.
template <typename Parse>
void read_one(FileSystem& files, const std::string& directory, const std::string& name, int64_t max_bytes,
              std::vector<std::string>& left_out, const Parse& parse) {
  try {
    parse(read_text_file(files, join_path(directory, name),
                         {.name = "report", .max_bytes = max_bytes, .remedy = "no report is that large"}));
  } catch (const Error& error) {
    left_out.push_back(printable(name) + ": " + printable(error.what()));
  }
}

// The generation in which the job has ended, as launchers say for whom it did not end well, and that had not ended
// before `time_ms`, as those of an earlier job have; 0 where none does.
uint64_t generation_of_end(const std::vector<LauncherReport>& launchers, int64_t time_ms) {
  uint64_t last = 0;
  for (const LauncherReport& launcher : launchers) {
    const bool has_ended_well = launcher.first_failed < 0 && launcher.signal.empty();
    if (has_ended_well || launcher.time_ms < time_ms) continue;
    for (const RankEnding& ending : launcher.endings) {
      if (!ending.went_on && !ending.is_last) last = std::max(last, ending.generation);
    }
  }
  return last;
}

// Those of the last generation, which has followed on that of `newest`, the newest report of the others; null: there is
// none.
void keep_last_ranks(JobReport& report, const RankReport* newest, std::vector<RankReport> last_ranks) {
  const auto latest = std::ranges::max_element(last_ranks, {}, &RankReport::time_ms);
  const uint64_t last = latest == last_ranks.end() ? 0 : latest->generation;
  for (RankReport& one : last_ranks) {
    const bool has_followed =
        newest == nullptr || (one.generation > newest->generation && one.time_ms >= newest->time_ms - kClocksApartMs);
    if (has_followed && one.generation == last) {
      report.last_ranks[one.rank] = std::move(one);
    } else {
      report.left_out.push_back(last_report_name(one.rank) + ": it is of another job's end");
    }
  }
}

}  // namespace

int JobReport::size() const {
  int size = ranks.empty() ? 0 : ranks.begin()->second.size;
  for (const LauncherReport& launcher : launchers) {
    for (const RankEnding& ending : launcher.endings) size = std::max(size, ending.rank + 1);
  }
  if (size == 0 && !last_ranks.empty()) size = last_ranks.begin()->second.size;
  return size;
}

bool JobReport::went_on() const {
  const auto ends_it = [this](const RankEnding& ending) { return ending.went_on && ending.generation == generation; };
  return generation > 0 && std::ranges::any_of(launchers, [&](const LauncherReport& launcher) {
           return std::ranges::any_of(launcher.endings, ends_it);
         });
}

bool JobReport::has_last_generation() const {
  return !last_ranks.empty() || std::ranges::any_of(launchers, [](const LauncherReport& launcher) {
    return std::ranges::any_of(launcher.endings, &RankEnding::is_last);
  });
}

const RankEnding* JobReport::ending_of(int rank) const {
  const auto found = endings_.find(rank);
  return found == endings_.end() ? nullptr : &launchers[found->second.first].endings[found->second.second];
}

const LauncherReport* JobReport::launcher_of(int rank) const {
  const auto found = endings_.find(rank);
  return found == endings_.end() ? nullptr : &launchers[found->second.first];
}

void JobReport::index_endings() {
  endings_.clear();
  const bool is_past = went_on();
  for (size_t l = 0; l < launchers.size(); ++l) {
    for (size_t e = 0; e < launchers[l].endings.size(); ++e) {
      const RankEnding& ending = launchers[l].endings[e];
      const bool is_meant = is_past ? ending.went_on && ending.generation == generation : !ending.went_on;
      if (!is_meant || ending.is_last) continue;
      const RankEnding* known = ending_of(ending.rank);
      if (known == nullptr || ending.time_ms >= known->time_ms) endings_[ending.rank] = {l, e};
    }
  }
}

void keep_newest_job(JobReport& report, std::vector<RankReport> ranks, std::vector<RankReport> last_ranks) {
  report.index_endings();
  // Both are of one host's clock.
  std::erase_if(ranks, [&](const RankReport& one) {
    const LauncherReport* launcher = report.launcher_of(one.rank);
    const bool is_older = launcher != nullptr && launcher->host == one.host && one.time_ms < launcher->began_ms;
    if (is_older) report.left_out.push_back(rank_report_name(one.rank) + ": it is older than its launcher");
    return is_older;
  });
  // What the job has got over is none of its end.
  std::erase_if(ranks, [&](const RankReport& one) {
    const uint64_t last = generation_of_end(report.launchers, one.time_ms);
    const bool is_survived = one.generation > 0 && one.generation < last;
    if (is_survived) {
      report.left_out.push_back(fmt::format("{}: it is of generation {}, the job has ended in generation {}",
                                            rank_report_name(one.rank), one.generation, last));
    }
    return is_survived;
  });
  const auto newest = std::ranges::max_element(ranks, {}, &RankReport::time_ms);
  keep_last_ranks(report, newest == ranks.end() ? nullptr : &*newest, std::move(last_ranks));
  if (newest == ranks.end()) return;
  const RankReport like = *newest;
  report.generation = like.generation;
  int64_t oldest_ms = like.time_ms;
  for (RankReport& one : ranks) {
    const std::string name = rank_report_name(one.rank);
    if (one.generation != like.generation) {
      report.left_out.push_back(
          fmt::format("{}: it is of generation {}, others are of {}", name, one.generation, like.generation));
    } else if (one.job != like.job) {
      report.left_out.push_back(name + ": it is of another job");
    } else if (one.size != like.size) {
      report.left_out.push_back(
          fmt::format("{}: it is of a job of {}, others are of one of {}", name, plural(one.size, "rank"), like.size));
    } else {
      oldest_ms = std::min(oldest_ms, one.time_ms);
      report.ranks[one.rank] = std::move(one);
    }
  }
  std::erase_if(report.launchers, [&](const LauncherReport& launcher) {
    const bool is_earlier = launcher.time_ms < oldest_ms - kClocksApartMs;
    if (is_earlier) {
      report.left_out.push_back(launcher_report_name(launcher.host, launcher.pid) + ": it is of an earlier job");
    }
    return is_earlier;
  });
  report.index_endings();
}

JobReport read_job_report(FileSystem& files, const std::string& directory, const LauncherReport* own) {
  JobReport report;
  std::vector<RankReport> ranks;
  std::vector<RankReport> last_ranks;
  std::vector<std::string> names;
  if (own == nullptr || files.is_directory(directory)) names = files.list(directory);
  std::erase_if(names, [](const auto& name) { return !is_report(name, "rank.") && !is_report(name, "launcher."); });
  if (names.size() > kMaxFiles) {
    report.left_out.push_back(fmt::format("{} files that are named as reports: more than a job has", names.size()));
    names.resize(kMaxFiles);
  }
  for (const std::string& name : names) {
    if (is_report(name, "launcher.")) {
      read_one(files, directory, name, kMaxLauncherReportBytes, report.left_out,
               [&](const std::string& text) { report.launchers.push_back(parse_launcher_report(text)); });
      continue;
    }
    read_one(files, directory, name, kMaxReportBytes, report.left_out, [&](const std::string& text) {
      RankReport one = parse_rank_report(text);
      const bool is_last = name == last_report_name(one.rank);
      if (!is_last && name != rank_report_name(one.rank)) {
        throw InvalidArgument("it is the report of rank {}", one.rank);
      }
      (is_last ? last_ranks : ranks).push_back(std::move(one));
    });
  }
  const auto is_own = [own](const LauncherReport& one) { return one.host == own->host && one.pid == own->pid; };
  if (own != nullptr && std::ranges::none_of(report.launchers, is_own)) report.launchers.push_back(*own);
  keep_newest_job(report, std::move(ranks), std::move(last_ranks));
  if (report.ranks.empty() && report.last_ranks.empty() && report.launchers.empty()) {
    std::string why =
        "a job writes them there with `tessera run --report_dir` or TESSERA_REPORT_DIR, once there is "
        "something to tell";
    if (!report.left_out.empty()) why = report.left_out.front();
    throw InvalidArgument("{}: there are no reports: {}", printable(directory), why);
  }
  return report;
}

}  // namespace tessera::cluster
