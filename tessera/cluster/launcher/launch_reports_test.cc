// What a launcher removes from a folder of reports that it shares with others, and what it leaves.
#include "tessera/cluster/launcher/launch_reports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tessera/base/clock.h"
#include "tessera/base/files/file_system.h"
#include "tessera/cluster/report/test_reports.h"

namespace tessera::cluster {
namespace {

using testing::HasSubstr;
using testing::UnorderedElementsAre;

class Reports : public testing::Test {
 protected:
  Reports() : folder_(testing::TempDir() + "tessera_reports_" + std::to_string(getpid())) {
    files_.create_directories(folder_);
  }
  ~Reports() override { files_.remove_directory_tree(folder_); }

  // Of a launcher that has written it so long before now.
  void write_launchers(const std::string& host, int64_t pid, int64_t ms_ago) {
    LauncherReport report = launcher(0, {});
    report.host = host;
    report.pid = pid;
    report.time_ms = Clock::system().wall_ms() - ms_ago;
    write(launcher_report_name(host, pid), print_report(report));
  }
  void write(const std::string& name, const std::string& text) { files_.write_atomically(folder_ + "/" + name, text); }

  FileSystem& files_ = FileSystem::local();
  std::string folder_;
};

constexpr int64_t kHourMs = 3'600'000;

TEST_F(Reports, OfAnEarlierJobAreRemovedAndThoseOfTheRunningOneStay) {
  write_launchers("node1", 11, kHourMs);
  write_launchers("node1", 12, -kHourMs);  // has written since this one began
  write_launchers("node1.rack", 13, kHourMs);
  write_launchers("node2", 14, kHourMs);
  write("launcher.node1.15.json", "damaged");
  write("rank.1.json", print_report(report_of(1, ReportEvent::kFailed)));
  write("rank.2.json", print_report(report_of(2, ReportEvent::kFailed)));
  write("rank.1.last.json", print_report(report_of(1, ReportEvent::kLeft)));
  write("notes.json", "of the user");
  LaunchReports reports(folder_, "node1");
  reports.forget_earlier({0, 1});
  EXPECT_THAT(files_.list(folder_), UnorderedElementsAre("launcher.node1.12.json", "launcher.node1.rack.13.json",
                                                         "launcher.node2.14.json", "rank.2.json", "notes.json"));
}

TEST_F(Reports, NothingIsRemovedBeforeTheLauncherKnowsItsPlace) {
  write_launchers("node1", 11, kHourMs);
  write("rank.0.json", print_report(report_of(0, ReportEvent::kFailed)));
  const LaunchReports reports(folder_, "node1");
  EXPECT_EQ(files_.list(folder_).size(), 2U);
}

TEST_F(Reports, WhoIsGuiltyIsSaidAlsoWhereNothingCanBeWritten) {
  LaunchReports reports(folder_ + "/none", "node1");
  reports.add(ending(1, "", 3));
  EXPECT_THAT(reports.words(), HasSubstr("tessera run: why: rank 1 (node1, pid 4701) ended with exit code 3"));
}

}  // namespace
}  // namespace tessera::cluster
