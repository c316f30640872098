// Reports as files: what is written is read again, and whatever else lies there is left out with a reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/cluster/report/test_reports.h"
#include "tessera/cluster/report/why.h"

namespace tessera::cluster {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::ThrowsMessage;

constexpr const char* kFolder = "/reports";

RankReport whole_report() {
  RankReport report = report_of(2, ReportEvent::kFailed, 2, "loss is nan; first non-finite result: %3 of log \"fc\"");
  report.generation = 3;
  report.signal = "SIGSEGV";
  report.doing = "matmul \"fc\"";
  report.line = "model.py:41";
  report.doing_ms = 31'000;
  report.script = "train.py:80";
  report.thread = "it computes";
  report.waits = {wait_for(1), wait_for(-1, "barrier #2 of group \"pair\"", "")};
  report.waits[1].is_mismatch = true;
  report.non_finite = {.piece = {.what = "log \"fc\"", .line = "model.py:43"}, .number = 12};
  report.warnings = {"rank 1 is slow"};
  report.log = {"[W] one", "[E] two"};
  return report;
}

TEST(RankReportFile, SaysAgainWhatWasWritten) {
  const RankReport written = whole_report();
  const RankReport report = parse_rank_report(print_report(written));
  EXPECT_EQ(print_report(report), print_report(written));
  EXPECT_EQ(report.waits, written.waits);
  EXPECT_EQ(report.non_finite->piece.line, "model.py:43");
  EXPECT_EQ(report.log, written.log);
  const LauncherReport launched = launcher(2, {ending(2, "SIGKILL", 0), ending(1, "", 1, /*is_told=*/true)});
  const LauncherReport read = parse_launcher_report(print_report(launched));
  EXPECT_EQ(print_report(read), print_report(launched));
  EXPECT_TRUE(read.endings[1].is_told);
}

TEST(RankReportFile, OfALauncherSaysWhichEndingsAreOfALastGenerationAndMayLackThat) {
  LauncherReport launched = launcher(1, {ending(1, "SIGKILL", 0), ending(0, "", 1)});
  launched.endings[1].is_last = true;
  const std::string text = print_report(launched);
  EXPECT_TRUE(parse_launcher_report(text).endings[1].is_last);
  auto earlier = nlohmann::json::parse(text);
  for (auto& one : earlier["endings"]) one.erase("is_last");
  EXPECT_FALSE(parse_launcher_report(earlier.dump()).endings[1].is_last);
}

TEST(RankReportFile, IsSmallWhateverItTellsOf) {
  RankReport report = whole_report();
  report.error = std::string(100'000, '\x01');
  report.log = report.warnings = std::vector<std::string>(1000, std::string(10'000, '\x02'));
  report.waits.assign(100, wait_for(1));
  for (ReportedWait& wait : report.waits) wait.ranks.assign(16'384, 12'345);
  const std::string text = print_report(report);
  EXPECT_LT(static_cast<int64_t>(text.size()), kMaxReportBytes);
  const RankReport read = parse_rank_report(text);
  EXPECT_THAT(read.log, SizeIs(32));
  EXPECT_THAT(read.error, HasSubstr("\\x01\\x01"));
}

TEST(RankReportFile, IsRefusedWhereverItIsCut) {
  for (const std::string& text : {print_report(whole_report()), print_report(launcher(1, {ending(1, "", 3)}))}) {
    // Without the line break behind it, it is whole.
    for (size_t length = 0; length + 1 < text.size(); ++length) {
      EXPECT_THROW(parse_rank_report(text.substr(0, length)), InvalidArgument) << length;
      EXPECT_THROW(parse_launcher_report(text.substr(0, length)), InvalidArgument) << length;
    }
  }
}

TEST(RankReportFile, IsRefusedForAFieldOfAnotherTypeOrNone) {
  const auto whole = nlohmann::json::parse(print_report(whole_report()));
  const std::vector<nlohmann::json> wrong = {nullptr, true, -7, 1.5, 1e300, UINT64_MAX, "text", {1, 2}, {{"a", 1}}};
  for (const auto& [name, value] : whole.items()) {
    auto without = whole;
    without.erase(name);
    EXPECT_THAT([&] { parse_rank_report(without.dump()); }, ThrowsMessage<InvalidArgument>(HasSubstr(name)));
    int num_refused = 0;
    for (const auto& other : wrong) {
      auto damaged = whole;
      damaged[name] = other;
      try {
        parse_rank_report(damaged.dump());
      } catch (const InvalidArgument&) {
        ++num_refused;
      }
    }
    // What has the field's own type may pass.
    EXPECT_GE(num_refused, 5) << name;
  }
}

TEST(RankReportFile, IsRefusedForNumbersAndNamesThatNoReportHas) {
  const auto refusal = [](const char* name, const nlohmann::json& value) {
    auto damaged = nlohmann::json::parse(print_report(whole_report()));
    damaged[name] = value;
    try {
      parse_rank_report(damaged.dump());
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_EQ(refusal("rank", 4), "rank 4 of 4");
  EXPECT_EQ(refusal("rank", 16384), "\"rank\" must be from 0 to 16383, it is 16384");
  EXPECT_EQ(refusal("size", 1 << 30), "\"size\" must be from 1 to 16384, it is 1073741824");
  EXPECT_EQ(refusal("cause", -2), "\"cause\" must be from -1 to 16383, it is -2");
  EXPECT_EQ(refusal("event", "sings"), "\"event\" is none that a report has");
  EXPECT_EQ(refusal("version", 2), "it has version 2, this Tessera reads 1");
  EXPECT_EQ(refusal("format", "tessera launcher report"), "it is no tessera rank report");
  EXPECT_EQ(refusal("log", std::vector<std::string>(33, "x")), "\"log\" has 33 items, at most 32 are read");
  EXPECT_EQ(refusal("waits", {{{"call", "x"}}}), "\"line\" is missing");
}

TEST(RankReportFile, IsRefusedForNestingWithoutEnd) {
  for (const char* open : {"[", "{\"a\":"}) {
    std::string text;
    for (int i = 0; i < 100'000; ++i) text += open;
    const auto is_refused = ThrowsMessage<InvalidArgument>(HasSubstr("nested deeper than 8 levels"));
    EXPECT_THAT([&] { parse_rank_report(text); }, is_refused);
    EXPECT_THAT([&] { parse_launcher_report(text); }, is_refused);
  }
}

TEST(JobReport, LeavesOutWhatIsNoReportWithTheReason) {
  MemoryFileSystem files;
  files.create_directories(kFolder);
  const auto write = [&](const std::string& name, const std::string& text) {
    files.write_atomically(std::string(kFolder) + "/" + name, text);
  };
  write("rank.0.json", print_report(report_of(0, ReportEvent::kFailed, 0, "its disk is full")));
  write("rank.1.json", "");
  write("rank.2.json", "\x1b[31mred\x1b[0m");
  write("rank.3.json", std::string(static_cast<size_t>(kMaxReportBytes) + 1, ' '));
  write("rank.x.json", "{}");
  write("rank.\x1b[2J.json", "{}");
  write("launcher.node1.1.json", "[1, 2");
  write("rank.0", "a log, and no report");
  write("rank.5.json", print_report(report_of(3, ReportEvent::kFailed)));
  const JobReport job = read_job_report(files, kFolder);
  EXPECT_THAT(job.ranks, SizeIs(1));
  EXPECT_THAT(job.left_out, SizeIs(7));
  EXPECT_THAT(job.left_out, Contains("rank.1.json: it is empty"));
  EXPECT_THAT(job.left_out, Contains("rank.2.json: not JSON: line 1, column 1: \"\\x1b\" cannot stand there"));
  EXPECT_THAT(job.left_out, Contains("rank.5.json: it is the report of rank 3"));
  EXPECT_THAT(job.left_out, Contains(HasSubstr("at most 256.0 KiB are read")));
  EXPECT_THAT(why_text(job), Not(HasSubstr("\x1b")));
}

TEST(JobReport, HasTheReportsOfALastGenerationBesideThoseOfTheLossBeforeIt) {
  MemoryFileSystem files;
  files.create_directories(kFolder);
  const auto write = [&](const std::string& name, RankReport report, uint64_t generation, int64_t later_ms) {
    report.generation = generation;
    report.time_ms += later_ms;
    files.write_atomically(std::string(kFolder) + "/" + name, print_report(report));
  };
  write("rank.0.json", stopped(0, 1), 2, 0);
  write("rank.2.json", stopped(2, 1), 2, 0);
  write("rank.0.last.json", report_of(0, ReportEvent::kLeft), 3, 500);
  write("rank.1.last.json", report_of(1, ReportEvent::kLeft), 3, 500);
  write("rank.2.last.json", report_of(2, ReportEvent::kLeft), 9, -600'000);
  const JobReport job = read_job_report(files, kFolder);
  EXPECT_THAT(job.ranks, SizeIs(2));
  EXPECT_EQ(job.generation, 2U);
  EXPECT_THAT(job.last_ranks, SizeIs(2));
  EXPECT_THAT(job.left_out, ElementsAre("rank.2.last.json: it is of another job's end"));
}

TEST(JobReport, SaysWhereReportsComeFromWhenThereAreNone) {
  MemoryFileSystem files;
  files.create_directories(kFolder);
  EXPECT_THAT([&] { read_job_report(files, kFolder); },
              ThrowsMessage<InvalidArgument>(HasSubstr("tessera run --report_dir")));
  files.write_atomically(std::string(kFolder) + "/rank.1.json", "{}");
  EXPECT_THAT([&] { read_job_report(files, kFolder); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank.1.json: \"format\" is missing")));
}

TEST(JobReport, TakesTheNewestJobOfAFolder) {
  RankReport other = report_of(1, ReportEvent::kFailed, 1, "of another job");
  other.job = "an earlier job";
  other.time_ms -= 5000;
  RankReport earlier = report_of(2, ReportEvent::kFailed, 2, "of an earlier generation");
  earlier.generation = 1;
  RankReport larger = report_of(3, ReportEvent::kFailed, 3, "of a larger job");
  larger.size = 8;
  LauncherReport long_ago = launcher(1, {ending(1, "SIGKILL", 0)});
  long_ago.time_ms -= 600'000;
  RankReport newest = report_of(0, ReportEvent::kFailed, 0, "the disk is full");
  newest.generation = 2;
  newest.time_ms += 1000;
  larger.generation = other.generation = 2;
  const JobReport job = job_of({newest, other, earlier, larger}, {long_ago});
  EXPECT_THAT(job.ranks, SizeIs(1));
  EXPECT_THAT(job.launchers, SizeIs(0));
  EXPECT_THAT(job.left_out,
              ElementsAre("rank.1.json: it is of another job", "rank.2.json: it is of generation 1, others are of 2",
                          "rank.3.json: it is of a job of 8 ranks, others are of one of 4",
                          "launcher.node1.4690.json: it is of an earlier job"));
}

TEST(JobReport, LeavesOutAReportThatIsOlderThanItsLauncher) {
  RankReport old = report_of(1, ReportEvent::kFailed, 1, "of the job before");
  old.time_ms = 1'600'000'000'000;
  const JobReport job = job_of({old}, {launcher(1, {ending(1, "", 3)})});
  EXPECT_THAT(job.ranks, SizeIs(0));
  EXPECT_THAT(job.left_out, ElementsAre("rank.1.json: it is older than its launcher"));
  EXPECT_THAT(find_verdict(job).text, HasSubstr("rank 1 (node1, pid 4701) ended with exit code 3"));
}

TEST(JobReport, CountsALaunchersOwnReportThatCouldNotBeWritten) {
  MemoryFileSystem files;
  const LauncherReport own = launcher(1, {ending(1, "", 3)});
  EXPECT_THAT(find_verdict(read_job_report(files, kFolder, &own)).text, HasSubstr("ended with exit code 3"));
  files.create_directories(kFolder);
  files.write_atomically(std::string(kFolder) + "/rank.0.json", print_report(stopped(0, 1)));
  EXPECT_THAT(find_verdict(read_job_report(files, kFolder, &own)).text,
              HasSubstr("ended with exit code 3 in step 17; rank 0 waited for it"));
  // Its file, where there is one, is not counted twice.
  files.write_atomically(std::string(kFolder) + "/" + launcher_report_name(own.host, own.pid), print_report(own));
  EXPECT_THAT(read_job_report(files, kFolder, &own).launchers, SizeIs(1));
}

TEST(JobReport, NamesNoFileOutsideOfItsFolder) {
  EXPECT_EQ(launcher_report_name("../../etc/passwd\n", 7), "launcher..._.._etc_passwd_.7.json");
}

}  // namespace
}  // namespace tessera::cluster
