#include "tessera/timeline/timeline_recorder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/thread.h"
#include "tessera/timeline/timeline_json.h"

namespace tessera::timeline {
namespace {

using testing::HasSubstr;

class Recorder : public testing::Test {
 protected:
  void begin(TimelineOptions options = {}) {
    options.file = "d/job.json";
    recorder.begin(options, files, clock);
  }
  // A step of the training, of 3 ms, with an operator of 1 ms in it.
  void run_step(int64_t step) {
    const StepSpan span(&recorder, step);
    clock.sleep_ms(1);
    if (recorder.is_on()) {
      const int64_t began_ns = recorder.now_ns();
      clock.sleep_ms(1);
      recorder.add(SpanKind::kOperator, began_ns, recorder.now_ns());
    } else {
      clock.sleep_ms(1);
    }
    clock.sleep_ms(1);
  }
  RankTimeline written() {
    return parse_timeline(files.read_text("d/job.json.rank.2"), "d/job.json.rank.2").ranks.at(0);
  }
  std::vector<int64_t> written_steps() {
    std::vector<int64_t> steps;
    const RankTimeline part = written();
    for (const TimedSpan& span : part.lanes.at(0).spans) {
      if (part.names[span.name].kind == SpanKind::kStep) steps.push_back(span.step);
    }
    return steps;
  }

  // Takes no new file while it is full; one that is there can be written anew.
  struct Disk : MemoryFileSystem {
    std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode) override {
      if (is_full && !exists(path)) throw IoError("{}: cannot create: No space left on device", path);
      return MemoryFileSystem::create(path, mode);
    }
    bool is_full = false;
  };
  Disk files;
  FakeClock clock;
  TimelineRecorder recorder{{.rank = 2, .size = 4, .pid = 7, .host = "here", .clock = "boot", .job = "a job"}};
};

TEST_F(Recorder, WritesNothingWhereNobodyAsks) {
  run_step(1);
  recorder.begin({}, files, clock);  // no file is named
  run_step(2);
  recorder.write();
  recorder.end();
  EXPECT_FALSE(recorder.is_on());
  EXPECT_THAT(files.list("d"), testing::IsEmpty());
}

TEST_F(Recorder, WritesStepsAndWhatIsInThem) {
  begin();
  run_step(1);
  run_step(2);
  recorder.end();
  const RankTimeline part = written();
  EXPECT_TRUE(part.is_written);
  EXPECT_EQ(part.rank.rank, 2);
  EXPECT_EQ(part.rank.size, 4);
  EXPECT_EQ(part.rank.host, "here");
  EXPECT_EQ(part.rank.clock, "boot");
  EXPECT_EQ(part.rank.job, "a job");
  ASSERT_EQ(part.lanes.at(0).spans.size(), 4U);
  for (const TimedSpan& span : part.lanes[0].spans) {
    const bool is_step = part.names[span.name].kind == SpanKind::kStep;
    EXPECT_EQ(span.duration_ns(), is_step ? 3'000'000 : 1'000'000);
  }
  EXPECT_EQ(written_steps(), (std::vector<int64_t>{1, 2}));
}

TEST_F(Recorder, LeavesAPartBeforeItHasSpans) {
  begin();
  const RankTimeline part = written();
  EXPECT_FALSE(part.is_written);
  EXPECT_THAT(part.lanes.at(0).spans, testing::IsEmpty());
}

TEST_F(Recorder, LeavesTheReasonWhereItsSpansCannotBeWritten) {
  begin();
  run_step(1);
  files.is_full = true;
  recorder.end();
  const RankTimeline part = written();
  EXPECT_FALSE(part.is_written);
  EXPECT_THAT(part.failure, HasSubstr("No space left on device"));
}

TEST_F(Recorder, KeepsTheSpansOfAnEarlierRequestWhereLaterOnesCannotBeWritten) {
  begin({.steps = {.on_request = 1}});
  files.write_atomically("d/job.json.request", "+");
  run_step(1);
  files.write_atomically("d/job.json.request", "++");
  files.is_full = true;
  run_step(2);
  EXPECT_TRUE(written().is_written);
  EXPECT_EQ(written_steps(), (std::vector<int64_t>{1}));
}

TEST_F(Recorder, RecordsTheStepsOfItsWindowAndWritesThemWithTheLast) {
  begin({.steps = {.first = 3, .last = 4}});
  EXPECT_FALSE(recorder.is_on());
  for (const int64_t step : {1, 2, 3}) run_step(step);
  EXPECT_FALSE(written().is_written);
  run_step(4);
  EXPECT_EQ(written_steps(), (std::vector<int64_t>{3, 4}));
  run_step(5);
  recorder.end();
  EXPECT_EQ(written_steps(), (std::vector<int64_t>{3, 4}));
}

TEST_F(Recorder, RecordsWhenAskedAndAgainWhenAskedAgain) {
  begin({.steps = {.on_request = 2}});
  run_step(1);
  EXPECT_FALSE(recorder.is_on());
  files.write_atomically("d/job.json.request", "+");
  for (const int64_t step : {2, 3, 4, 5}) run_step(step);
  EXPECT_EQ(written_steps(), (std::vector<int64_t>{2, 3}));
  files.write_atomically("d/job.json.request", "++");
  for (const int64_t step : {6, 7, 8}) run_step(step);
  EXPECT_EQ(written_steps(), (std::vector<int64_t>{6, 7}));
}

TEST_F(Recorder, SaysHowMuchIsMissingWhereABufferIsFull) {
  begin({.num_spans = 5});
  for (int64_t step = 1; step <= 4; ++step) run_step(step);  // two spans each
  recorder.end();
  const RankTimeline part = written();
  EXPECT_EQ(part.lanes.at(0).num_dropped, 3);
  EXPECT_EQ(part.lanes[0].spans.size(), 5U);
  // The newest stay; what began before the last span that was dropped had ended is not whole.
  EXPECT_EQ(written_steps(), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_GT(part.lanes[0].whole_from_ns, 0);
  EXPECT_EQ(JobTimeline{.ranks = {part}}.num_dropped(), 3);
}

TEST_F(Recorder, NamesOfAnyBytesAreValidJson) {
  begin();
  const std::string text = std::string("matmul \"a\\b\"\n\x1b[31m\0 ", 20) + "\xff\xfe" + "</script>";
  const uint32_t name = recorder.add_name({.kind = SpanKind::kOperator, .text = text, .kernel = "\xc3", .line = "\""});
  const TimedSpan span{.begin_ns = recorder.now_ns(), .end_ns = recorder.now_ns() + 5, .name = name};
  recorder.add_to_main({&span, 1});
  recorder.end();
  const auto json = nlohmann::json::parse(files.read_text("d/job.json.rank.2"));
  EXPECT_TRUE(json.at("traceEvents").is_array());
  const RankTimeline part = written();
  ASSERT_EQ(part.lanes.at(0).spans.size(), 1U);
  EXPECT_EQ(part.lanes[0].spans[0].duration_ns(), 5);
  EXPECT_THAT(part.names.at(name).text, HasSubstr("matmul \"a\\b\"\n\x1b[31m"));
  EXPECT_THAT(part.names.at(name).text, HasSubstr("</script>"));
  EXPECT_EQ(part.names.at(name).line, "\"");
}

TEST_F(Recorder, RefusesAFileThatCannotBeWritten) {
  files.create_directories("folder");
  EXPECT_THROW(recorder.begin({.file = "folder"}, files, clock), IoError);
  EXPECT_FALSE(recorder.is_begun());
  EXPECT_THROW(check_writable(FileSystem::local(), "/dev/null"), IoError);
  EXPECT_THROW(check_writable(FileSystem::local(), "/proc/no_such_folder/job.json"), IoError);
}

TEST_F(Recorder, RefusesASecondRecordingBesideTheFirst) {
  begin();
  try {
    recorder.begin({.file = "other.json"}, files, clock);
    FAIL() << "two recordings";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("recorded already, for d/job.json"));
  }
}

TEST_F(Recorder, RefusesOptionsThatCannotBe) {
  EXPECT_THROW(begin({.num_spans = 0}), InvalidArgument);
  EXPECT_THROW(begin({.steps = {.first = 0}}), InvalidArgument);
  EXPECT_THROW(begin({.steps = {.first = 5, .last = 4}}), InvalidArgument);
}

TEST_F(Recorder, ThreadsAddToLanesOfTheirOwn) {
  begin({.num_spans = 1 << 12});
  {
    ThreadGroup threads;
    for (int i = 0; i < 4; ++i) {
      threads.start("a test", [this, i] {
        TimedWork work(&recorder, fmt::format("worker {}", i), {.kind = SpanKind::kWorker, .text = "rows"});
        for (int n = 0; n < 100; ++n) work.run([] {});
      });
    }
    for (int64_t step = 1; step <= 20; ++step) run_step(step);
  }
  recorder.end();
  const RankTimeline part = written();
  ASSERT_EQ(part.lanes.size(), 5U);
  for (size_t lane = 1; lane < part.lanes.size(); ++lane) EXPECT_EQ(part.lanes[lane].spans.size(), 100U);
}

TEST_F(Recorder, WorkThatThrowsIsRecordedAndItsErrorPassesOn) {
  begin();
  TimedWork work(&recorder, "saves", {.kind = SpanKind::kSave, .text = "save"});
  EXPECT_THROW(work.run([] { throw IoError("the disk is full"); }), IoError);
  EXPECT_EQ(recorder.lane("saves").contents().spans.size(), 1U);
}

TEST(TracedStepsText, IsParsedAndRefused) {
  EXPECT_EQ(parse_traced_steps("", "x"), TracedSteps());
  EXPECT_EQ(parse_traced_steps("10:20", "x"), (TracedSteps{.first = 10, .last = 20}));
  EXPECT_EQ(parse_traced_steps("10:", "x"), (TracedSteps{.first = 10}));
  EXPECT_EQ(parse_traced_steps(":20", "x"), (TracedSteps{.last = 20}));
  EXPECT_EQ(parse_traced_steps("15", "x"), (TracedSteps{.first = 15, .last = 15}));
  EXPECT_EQ(parse_traced_steps("request", "x"), (TracedSteps{.on_request = 20}));
  EXPECT_EQ(parse_traced_steps("request:50", "x"), (TracedSteps{.on_request = 50}));
  for (const char* text : {"10:20", "15:15", "10:", "1:20", "", "request:7"}) {
    EXPECT_EQ(to_string(parse_traced_steps(text, "x")), text);
  }
  for (const char* text : {":", "0:3", "5:4", "a:b", "1:2:3", "-1", "request:0", "request:", "1e3"}) {
    try {
      parse_traced_steps(text, "--trace_steps");
      ADD_FAILURE() << text << " was taken";
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("--trace_steps: the steps must be FIRST:LAST")) << text;
    }
  }
}

}  // namespace
}  // namespace tessera::timeline
