#include "tessera/cluster/launcher/launch_reports.h"

#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <utility>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/base/files/text_file.h"
#include "tessera/base/logging.h"
#include "tessera/cluster/report/why.h"

namespace tessera::cluster {
namespace {

void remove_quietly(const std::string& path) {
  try {
    if (FileSystem::local().exists(path)) FileSystem::local().remove(path);
  } catch (const IoError& error) {
    log_warning("{}: an older report is in the way: {}", path, error.what());
  }
}

// When a launcher's report was written; the beginning of all time where the file is none.
int64_t written_ms(const std::string& path) {
  try {
    return parse_launcher_report(
               read_text_file(
                   FileSystem::local(), path,
                   {.name = "report", .max_bytes = kMaxLauncherReportBytes, .remedy = "no report is that large"}))
        .time_ms;
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

LaunchReports::LaunchReports(const std::string& directory, const std::string& host) {
  report_.host = host;
  report_.pid = getpid();
  report_.began_ms = Clock::system().wall_ms();
  if (directory.empty()) return;
  directory_ = std::filesystem::absolute(directory).string();
}

void LaunchReports::forget_earlier(const std::vector<int>& ranks) {
  if (directory_.empty() || !FileSystem::local().is_directory(directory_)) return;
  for (const int rank : ranks) {
    remove_quietly(join_path(directory_, rank_report_name(rank)));
    remove_quietly(join_path(directory_, last_report_name(rank)));
  }
  std::string own = launcher_report_name(report_.host, 0);
  own.resize(own.size() - std::string_view("0.json").size());
  try {
    for (const std::string& name : FileSystem::local().list(directory_)) {
      // A host whose name begins like this one's has a dot where its process's number is here.
      const bool is_of_host = name.starts_with(own) && name.ends_with(".json") &&
                              name.find('.', own.size()) == name.size() - std::string_view(".json").size();
      if (!is_of_host) continue;
      // Of this job is what another launcher of this host has written since this one began.
      const std::string path = join_path(directory_, name);
      if (written_ms(path) < report_.began_ms) remove_quietly(path);
    }
  } catch (const IoError& error) {
    log_warning("{}", error.what());
  }
}

void LaunchReports::add(RankEnding ending) {
  // Of the processes of a rank the latest ones are kept.
  constexpr size_t kMostEndings = 2 * static_cast<size_t>(kMaxReportedRanks);
  if (report_.endings.size() == kMostEndings) report_.endings.erase(report_.endings.begin());
  report_.endings.push_back(std::move(ending));
}

void LaunchReports::write(int first_failed, const std::string& signal) {
  if (directory_.empty()) return;
  report_.first_failed = first_failed;
  report_.signal = signal;
  report_.time_ms = Clock::system().wall_ms();
  const std::string path = join_path(directory_, launcher_report_name(report_.host, report_.pid));
  try {
    FileSystem::local().create_directories(directory_);
    FileSystem::local().write_atomically(path, print_report(report_), 0600);
  } catch (const IoError& error) {
    log_warning("the launcher's report cannot be written: {}", error.what());
  }
}

std::string LaunchReports::words() const {
  if (directory_.empty()) return "";
  try {
    const Verdict verdict = find_verdict(read_job_report(FileSystem::local(), directory_, &report_));
    return fmt::format("tessera run: why: {}\ntessera run: tessera cluster why {} has more\n", verdict.text,
                       directory_);
  } catch (const Error& error) {
    return fmt::format("tessera run: the reports say nothing: {}\n", error.what());
  }
}

RankEnding ending_of(int rank, int64_t pid, int status, const std::string& words) {
  RankEnding ending;
  ending.rank = rank;
  ending.pid = pid;
  ending.words = words;
  if (WIFSIGNALED(status)) {
    const char* name = sigabbrev_np(WTERMSIG(status));
    ending.signal = name == nullptr ? fmt::format("signal {}", WTERMSIG(status)) : fmt::format("SIG{}", name);
  } else {
    ending.exit_code = WEXITSTATUS(status);
  }
  return ending;
}

}  // namespace tessera::cluster
