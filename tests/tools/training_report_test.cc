// Claims about `tessera report`: what it reads of logs, whatever they hold, and what it makes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "tessera/engine.h"
#include "tessera/tessera.h"
#include "tessera/timeline/test_timelines.h"
#include "tessera/tools/page/page.h"
#include "tessera/tools/report/chart.h"
#include "tessera/tools/report/compare_runs.h"
#include "tessera/tools/report/curve.h"
#include "tessera/tools/report/log_reader.h"
#include "tessera/tools/report/report_page.h"
#include "tessera/tools/report/report_text.h"
#include "tessera/tools/report/run_facts.h"
#include "tessera/tools/report/run_report.h"
#include "tessera/tools/timeline/operator_classes.h"

namespace tessera::tools {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;
using testing::ThrowsMessage;

std::string step_line(int64_t step, const std::string& loss) {
  return fmt::format(
      R"({{"kind":"step","time":"2026-03-04T05:06:07.000Z","seconds":{0}.5,"epoch":1,"step":{0},"loss":{1},"learning_rate":0.5,"rows_per_second":{0}.0,"resident_bytes":2048,"arena_bytes":1024}})"
      "\n",
      step, loss);
}

std::string run_line(const std::string& members) { return R"({"kind":"run","step":0,)" + members + "}\n"; }

// What a run's record says of its training step.
const std::string kStepMembers =
    R"("plan":{"mesh":"[data=2]","operators":5,"split_operators":4,"parameter_bytes":4096,"rank_parameter_bytes":2048,)"
    R"("state_bytes":8,"rank_state_bytes":8,"predicted_seconds":0.002,"searched_seconds":0.004,"bound_seconds":0.003,)"
    R"("values":[{"name":"fc.weight","kind":"param","type":"f32[32,32]","split":"[data,_]","bytes":4096,)"
    R"("rank_bytes":2048},{"name":"rate","kind":"state","type":"f32[]","split":"","bytes":8,"rank_bytes":8}]},)"
    R"("memory":{"arena_bytes":8192,"parameter_bytes":2048,"state_bytes":8,"planned_bytes":6136,"operations":40,)"
    R"("peak_bytes":4096,"peak_operation":7,"peak_name":"matmul \"fc\"","at_peak":[{"name":"%3","type":"f32[32,32]",)"
    R"("bytes":4096,"made_by":"matmul \"fc\"","last_read_by":""}],"alive_bytes":[[0,512],[7,4096],[39,64]]})";

const std::string kEndLine = R"({"kind":"end","epoch":1,"step":3,"ended":"completed"})"
                             "\n";

class Reports : public testing::Test {
 protected:
  void SetUp() override { files_.create_directories("logs"); }
  void write(const std::string& path, const std::string& text) { files_.write_atomically(path, text); }
  // The run of a log in a folder of its own.
  RunReport read(const std::string& text, const std::string& name = "log.jsonl") {
    write("logs/" + name, text);
    return read_run(files_, {.path = "logs/" + name});
  }
  RunComparison compare(const std::string& left, const std::string& right) {
    write("logs/left.jsonl", left);
    write("logs/right.jsonl", right);
    return compare_runs(files_, {.path = "logs/left.jsonl"}, {.path = "logs/right.jsonl"});
  }
  std::vector<int64_t> steps(const std::string& text) {
    write("logs/steps.jsonl", text);
    LogReader reader(files_, "logs/steps.jsonl");
    std::vector<int64_t> found;
    while (const auto record = reader.next()) found.push_back(record->step);
    return found;
  }

  MemoryFileSystem files_;
};

TEST_F(Reports, ReadTheNumbersOfJsonAlsoThoseThatAreNotFinite) {
  write("logs/log.jsonl",
        R"({"kind":"evaluation","epoch":2,"step":7,"loss":"-Infinity","metrics":{"f1":"NaN","mae":0.25}})"
        "\n");
  LogReader reader(files_, "logs/log.jsonl");
  const auto record = reader.next();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->kind, "evaluation");
  EXPECT_EQ(record->epoch, 2);
  EXPECT_EQ(record->step, 7);
  EXPECT_EQ(record->loss, -std::numeric_limits<double>::infinity());
  EXPECT_FALSE(record->learning_rate);
  ASSERT_EQ(record->metrics.size(), 2);
  EXPECT_TRUE(std::isnan(record->metrics[0].second));
  EXPECT_EQ(record->metrics[1].second, 0.25);
  EXPECT_FALSE(reader.next());
}

TEST_F(Reports, ReadATableAsTheyReadJson) {
  const auto report = read(
      "kind,time,seconds,epoch,step,loss,learning_rate,rows_per_second,resident_bytes,arena_bytes,\"evaluated_f1, "
      "macro\"\n"
      "step,2026-03-04T05:06:07.000Z,1.5,1,2,nan,0.5,8.0,2048,1024,\n"
      "epoch,2026-03-04T05:06:07.000Z,1.5,1,2,0.75,0.5,8.0,2048,1024,\n"
      "evaluation,2026-03-04T05:06:07.000Z,1.5,1,2,,,,2048,1024,0.25\n",
      "log.csv");
  EXPECT_EQ(report.num_records, 3);
  EXPECT_EQ(report.damage.num_damaged, 0);
  EXPECT_EQ(report.loss.num_non_finite(), 1);
  ASSERT_EQ(report.epochs.size(), 1);
  EXPECT_EQ(report.epochs[0].loss, 0.75);
  EXPECT_EQ(report.epochs[0].metrics.at("f1, macro"), 0.25);
  EXPECT_EQ(report.resident_bytes.last(), (CurvePoint{2, 2048}));
}

TEST_F(Reports, ReadLinesThatLieAcrossWhatIsReadAtOnce) {
  std::string text;
  constexpr int64_t kSteps = 20000;  // some megabytes
  for (int64_t step = 1; step <= kSteps; ++step) text += step_line(step, "0.5");
  ASSERT_GT(text.size(), 3U << 20);
  const auto found = steps(text);
  ASSERT_EQ(found.size(), kSteps);
  for (int64_t i = 0; i < kSteps; ++i) ASSERT_EQ(found[static_cast<size_t>(i)], i + 1);
}

TEST_F(Reports, PassOverLinesThatAreNoRecords) {
  const std::string long_line(3 << 20, 'x');
  const auto report = read(step_line(1, "0.5") + "to do\n[1,2]\n" + long_line + "\n" + std::string("\0\xff\n", 3) +
                           "{\"kind\":\"step\",\"step\":-1}\n{\"kind\":\"message\",\"text\":\"a\"}\n" +
                           step_line(2, "0.25") + "{\"kind\":\"st");
  EXPECT_EQ(report.num_records, 2);
  EXPECT_EQ(report.last_step, 2);
  EXPECT_EQ(report.damage.num_lines, 9);
  EXPECT_EQ(report.damage.num_damaged, 5);
  EXPECT_EQ(report.damage.num_other, 1);
  EXPECT_TRUE(report.damage.has_cut_line);
  EXPECT_THAT(report.damage.first,
              ElementsAre("line 2: no JSON object", "line 3: no JSON object", "line 4: longer than 1.0 MiB",
                          "line 5: no JSON object", "line 6: no kind, or no step"));
  EXPECT_THAT(report_text(report), HasSubstr("5 of 9 lines are left out, because they are no records: line 2"));
}

TEST_F(Reports, TakeALastLineThatIsWholeWithoutItsEnd) {
  const std::string last = step_line(2, "1");
  EXPECT_THAT(steps(step_line(1, "1") + last.substr(0, last.size() - 1)), ElementsAre(1, 2));
}

TEST_F(Reports, OfALogWithoutRecordsSayThatThereAreNone) {
  for (const char* text : {"", "{\"kind\":\"ru", "kind,time,step\n", "kind,ti"}) {
    const auto report = read(text);
    EXPECT_EQ(ending_text(report), "the log has no records yet") << text;
    EXPECT_THAT(report_page(report), HasSubstr("There are no records to draw."));
  }
  EXPECT_THAT([&] { read("to do\n"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("logs/log.jsonl: none of its 1 line is a record of a training: "
                                                       "line 1: no JSON object")));
  EXPECT_THROW(read("import tessera"), InvalidArgument);
}

TEST_F(Reports, FindTheLogOfAFolder) {
  EXPECT_THAT([&] { read_run(files_, {.path = "logs"}); },
              ThrowsMessage<InvalidArgument>(AllOf(HasSubstr("logs: the folder has no log of a training"),
                                                   HasSubstr("JsonLog(\"logs/log.jsonl\")"))));
  write("logs/a.csv", "");
  EXPECT_EQ(find_log(files_, "logs"), "logs/a.csv");
  write("logs/a.jsonl", "");
  EXPECT_EQ(find_log(files_, "logs"), "logs/a.jsonl");
  write("logs/b.jsonl", "");
  EXPECT_THAT([&] { find_log(files_, "logs"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("several logs, a.jsonl, b.jsonl: name one")));
  write("logs/log.csv", "");
  EXPECT_EQ(find_log(files_, "logs"), "logs/log.csv");
  EXPECT_EQ(find_log(files_, "logs/b.jsonl"), "logs/b.jsonl");
  EXPECT_THROW(find_log(files_, "elsewhere"), InvalidArgument);
}

TEST_F(Reports, CountStepsThatAreMadeAgainAsTheyWereMadeLast) {
  const auto report = read(step_line(1, "4") + step_line(2, "0.5") + step_line(3, "2") + step_line(2, "3") +
                           step_line(3, "1") + kEndLine);
  EXPECT_EQ(report.num_returns, 1);
  EXPECT_EQ(report.loss.num_values(), 3);
  EXPECT_EQ(report.loss.least(), (CurvePoint{3, 1}));
  EXPECT_THAT(report_text(report), HasSubstr("The log goes back to an earlier step once"));
}

TEST_F(Reports, SayHowARunEnded) {
  const std::string run = run_line(R"("epochs":2)");
  const std::string one_step = step_line(1, "1");
  EXPECT_EQ(ending_text(read(run + one_step + kEndLine)), "it completed, after step 1 in epoch 1 of 2");
  EXPECT_EQ(ending_text(read(run + one_step)),
            "its log does not end: it still trains, or its process was killed, after step 1 in epoch 1 of 2");
  EXPECT_EQ(ending_text(read(one_step)), "the log does not say it; its last record is of step 1 in epoch 1");
  EXPECT_EQ(ending_text(read(run + one_step + kEndLine + step_line(2, "1"))),
            "its log does not end: it still trains, or its process was killed, after step 2 in epoch 1 of 2")
      << "it went on";
}

TEST_F(Reports, SayWhyARunFailed) {
  const std::string begin = run_line(R"("epochs":2)") + step_line(2, "1");
  const auto failed = [&](const std::string& reason) {
    return read(begin + R"({"kind":"end","epoch":1,"step":2,"ended":"failed","reason":")" + reason + "\"}\n");
  };
  const std::string sentence = "it failed, after step 2 in epoch 1 of 2: epoch: 1 step: 3. Invalid loss. loss is nan";
  const RunReport report = failed("epoch: 1 step: 3. Invalid loss.\\nloss is nan");
  EXPECT_EQ(ending_text(report), sentence);
  EXPECT_EQ(json::parse(report_json(report))["reason"], "epoch: 1 step: 3. Invalid loss. loss is nan");
  EXPECT_THAT(report_page(report), AllOf(HasSubstr("By the log " + sentence), Not(HasSubstr("no rank has failed"))));
  EXPECT_LT(ending_text(failed(std::string(500'000, 'x'))).size(), 2200);
  EXPECT_THAT(ending_text(failed("\\u001b[31mred")), HasSubstr("\\x1b[31mred"));
  const RunReport older = read(begin + R"({"kind":"end","epoch":1,"step":2,"ended":"failed"})" + "\n");
  EXPECT_EQ(ending_text(older), "it failed, after step 2 in epoch 1 of 2");
  EXPECT_THAT(report_page(older), Not(HasSubstr("no rank has failed")));
  EXPECT_THAT(report_page(read(begin + kEndLine)), HasSubstr("no rank has failed"));
  EXPECT_EQ(
      read(begin + R"({"kind":"end","epoch":1,"step":2,"ended":"failed","reason":"no"})" + "\n" + step_line(3, "1"))
          .reason,
      "")
      << "it went on";
}

TEST_F(Reports, SayThatARunFailedWhoseRanksTellOfNoFailure) {
  RunReport report = read(run_line(R"("epochs":2)") + step_line(2, "1") +
                          R"({"kind":"end","epoch":1,"step":2,"ended":"failed","reason":"no more"})" + "\n");
  report.verdict = cluster::Verdict{.kind = "none", .ranks = {}, .text = "no rank has failed"};
  report.why = "no rank has failed";
  EXPECT_THAT(report_page(report), HasSubstr("By the log it failed, after step 2 in epoch 1 of 2: no more."));
  report.verdict->kind = "failed";
  report.verdict->text = "rank 1 failed";
  EXPECT_EQ(ending_text(report), "it failed, after step 2 in epoch 1 of 2; rank 1 failed");
}

TEST_F(Reports, ShowWhatRanksPrintedLast) {
  write("logs/rank.0", "first\nsecond\n");
  write("logs/rank.10", std::string(10000, 'x') + "\n\x1b[2J<b>\n");
  write("logs/rank.2", "");
  write("logs/rank.x", "unnamed");
  const auto report = read_run(files_, {.path = "logs"});
  ASSERT_EQ(report.outputs.size(), 3);
  EXPECT_EQ(report.outputs[0].last_lines, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(report.outputs[1].name, "rank.2");
  EXPECT_EQ(report.outputs[2].size_bytes, 10001 + 8);
  EXPECT_THAT(report_page(report), AllOf(HasSubstr("\\x1b[2J&lt;b&gt;"), Not(HasSubstr("unnamed"))));
}

TEST_F(Reports, ShowCheckpointsAndThoseThatCannotBeRead) {
  files_.create_directories("checkpoints");
  write("checkpoints/CKP-1_4.ckpt", "damaged");
  write("logs/log.jsonl", step_line(1, "1"));
  const auto report = read_run(files_, {.path = "logs", .checkpoints = "checkpoints"});
  ASSERT_EQ(report.checkpoints.size(), 1);
  EXPECT_FALSE(report.checkpoints[0].problem.empty());
  EXPECT_THAT(report_text(report), HasSubstr("1 checkpoint, 1 of them with a problem\n"));
  EXPECT_THAT(report_page(report), HasSubstr("CKP-1_4.ckpt"));
  EXPECT_THROW(read_run(files_, {.path = "logs", .checkpoints = "nowhere"}), InvalidArgument);
}

TEST_F(Reports, ShowThePlanOfTheStep) {
  const auto report = read(run_line(kStepMembers) + step_line(1, "1"));
  ASSERT_NE(report.plan(), nullptr);
  EXPECT_THAT(report_text(report), HasSubstr("[data=2]; 4 of 5 operators are split over the ranks; a step is predicted "
                                             "to take 2.00 ms\n"));
  EXPECT_THAT(report_page(report),
              AllOf(HasSubstr("no plan to less than 3.00 ms: the gap is 25.000 %."),
                    HasSubstr("holds 2.0 KiB of 4.0 KiB of parameters, and 8 B of 8 B of states."),
                    HasSubstr("<td class=\"text\">[data,_]</td>"), HasSubstr("whole on every rank</td>")));
  const auto plan = json::parse(report_json(report))["plan"];
  EXPECT_EQ(plan["mesh"], "[data=2]");
  EXPECT_EQ(plan["bound_seconds"], 0.003);
  EXPECT_EQ(plan["values"][0]["split"], "[data,_]");
  EXPECT_EQ(plan["values"][0]["rank_bytes"], 2048);
}

TEST_F(Reports, SayOfAPlanThatNobodySearchedThatThereWasNone) {
  const auto report = read(run_line(R"("plan":{"mesh":"[data=2]","operators":1,"split_operators":1})"));
  EXPECT_EQ(plan_line(*report.plan()), "[data=2]; 1 of 1 operator is split over the ranks");
  EXPECT_THAT(plan_verdict(*report.plan()), HasSubstr("No search has chosen this plan"));
  EXPECT_THAT(plan_verdict({.predicted_seconds = 0.5}), HasSubstr("nothing is proven"));
}

TEST_F(Reports, DrawTheMemoryOfTheStepOverItsOperations) {
  const auto report = read(run_line(kStepMembers) + step_line(1, "1"));
  ASSERT_NE(report.step_memory(), nullptr);
  EXPECT_THAT(report.step_memory()->alive, ElementsAre(CurvePoint{0, 512}, CurvePoint{7, 4096}, CurvePoint{39, 64}));
  EXPECT_THAT(report_text(report),
              HasSubstr("4.0 KiB are alive at most, at operation 7 of 40, matmul \"fc\", beside 2.0 KiB of parameters "
                        "and 8 B of states\n"));
  EXPECT_THAT(report_page(report),
              AllOf(HasSubstr("a curve over the operations"), HasSubstr(R"("axis":"operation")"),
                    HasSubstr("[[0,512.0],[7,4096.0],[39,64.0]]"), HasSubstr("nobody: it is a result</td>")));
  const auto memory = json::parse(report_json(report))["step_memory"];
  EXPECT_EQ(memory["peak_name"], "matmul \"fc\"");
  EXPECT_EQ(memory["alive_bytes"][1], json({7, 4096.0}));
  EXPECT_EQ(memory["at_peak"][0]["bytes"], 4096);
}

TEST_F(Reports, TakeOfTheMemoryOnlyOperationsThatFollowEachOther) {
  const auto report = read(run_line(
      R"("memory":{"peak_bytes":-1,"alive_bytes":[[3,1],[3,2],["x",1],[4],[-1,1],5,[18446744073709551615,1],[9,"a"],[9,4]]})"));
  EXPECT_THAT(report.step_memory()->alive, ElementsAre(CurvePoint{3, 1}, CurvePoint{9, 4}));
  EXPECT_EQ(report.step_memory()->peak_bytes, 0);
}

TEST_F(Reports, OfOlderRecordsSayHowToGetPlanMemoryAndTime) {
  const auto report = read(run_line(R"("seed":1,"plan":3,"memory":[])") + step_line(1, "1"));
  EXPECT_EQ(report.plan(), nullptr);
  EXPECT_EQ(report.step_memory(), nullptr);
  EXPECT_THAT(report_text(report), AllOf(Not(HasSubstr("  plan")), Not(HasSubstr("memory of a step"))));
  EXPECT_THAT(report_page(report),
              AllOf(HasSubstr("tessera run --trace FILE records it"), HasSubstr("tessera plan --memory says it"),
                    HasSubstr("tessera plan shows plans")));
  const auto read_back = json::parse(report_json(report));
  for (const char* member : {"plan", "step_memory", "trace"}) EXPECT_FALSE(read_back.contains(member)) << member;
}

TEST(OperatorClasses, AddUpTheOperatorsOfOneName) {
  const timeline::TimelineSummary summary{
      .operators = {{.text = "matmul \"a\"",
                     .seconds = 3,
                     .calls = 2,
                     .share = 0.3,
                     .flops = 10,
                     .bytes = 4,
                     .limit_seconds = 1.0},
                    {.text = "relu", .seconds = 5, .calls = 1, .share = 0.5, .bytes = 8},
                    {.text = "matmul \"b\"",
                     .seconds = 1,
                     .calls = 1,
                     .share = 0.1,
                     .flops = 10,
                     .bytes = 4,
                     .limit_seconds = 0.5}}};
  const auto classes = operator_classes(summary);
  ASSERT_THAT(classes, SizeIs(2));
  EXPECT_EQ(classes[0].name, "relu");
  EXPECT_FALSE(classes[0].limit_seconds);
  EXPECT_FALSE(share_of_limit(classes[0]));
  EXPECT_EQ(classes[1].name, "matmul");
  EXPECT_EQ(classes[1].num_operators, 2);
  EXPECT_EQ(classes[1].seconds, 4);
  EXPECT_EQ(classes[1].calls, 3);
  EXPECT_EQ(classes[1].flops, 30);
  EXPECT_EQ(classes[1].bytes, 12);
  EXPECT_EQ(share_of_limit(classes[1]), 1.5 / 4);
}

// A run whose folder has a timeline, too: a step of 10 ms, of which a product takes 6 and a sum of elements 2.
class TracedReports : public Reports {
 protected:
  void SetUp() override {
    Reports::SetUp();
    write("logs/log.jsonl", step_line(1, "1"));
    using timeline::SpanKind;
    timeline::WrittenRank rank(0, 1);
    rank.does(SpanKind::kStep, "step", 0, 10);
    rank.add(0,
             {.kind = SpanKind::kOperator,
              .text = "matmul \"fc\"",
              .graph = "train",
              .dtype = "f32",
              .flops = 1e9,
              .bytes = 1024},
             1, 7);
    rank.add(0, {.kind = SpanKind::kOperator, .text = "</pre><img>", .graph = "train", .dtype = "f32", .bytes = 1024},
             7, 9);
    timeline::write_timeline(files_, "logs/trace.json", {.ranks = {rank.part()}, .clocks = {}, .predicted = {}});
  }
};

TEST_F(TracedReports, ShowTimeByOperatorClassAgainstTheMachine) {
  const auto report = read_run(files_, {.path = "logs", .profile = "h100-80gb"});
  ASSERT_TRUE(report.trace);
  EXPECT_THAT(report_text(report), AllOf(HasSubstr("matmul 60.0 % of a step, at "), HasSubstr(" % of its limit; ")));
  EXPECT_THAT(
      report_page(report),
      AllOf(HasSubstr("time of a step by operator class"), HasSubstr("at its limit</figcaption>"), HasSubstr("6.00 ms"),
            HasSubstr("Where a rank&#39;s step of 10.00 ms goes:"), Not(HasSubstr("<img"))));
  const auto trace = json::parse(report_json(report))["trace"];
  EXPECT_EQ(trace["file"], "logs/trace.json");
  EXPECT_EQ(trace["operator_classes"][0]["name"], "matmul");
  EXPECT_EQ(trace["operator_classes"][0]["flops"], 1e9);
  EXPECT_GT(trace["operator_classes"][0]["limit_seconds"].get<double>(), 0);
  EXPECT_EQ(trace["operators"].size(), 2);
}

TEST_F(TracedReports, WithoutAProfileSayHowToGetLimits) {
  const auto page = report_page(read_run(files_, {.path = "logs"}));
  EXPECT_THAT(page, AllOf(HasSubstr("tessera calibrate --out here.json"), Not(HasSubstr("at its limit</figcaption>"))));
}

TEST_F(TracedReports, OfATraceWithoutOperatorsDoNotAskForAProfile) {
  timeline::WrittenRank rank(0, 1);
  rank.does(timeline::SpanKind::kStep, "step", 0, 10);
  timeline::write_timeline(files_, "logs/trace.json", {.ranks = {rank.part()}, .clocks = {}, .predicted = {}});
  const auto page = report_page(read_run(files_, {.path = "logs"}));
  EXPECT_THAT(page, AllOf(HasSubstr("The trace has no operators."), Not(HasSubstr("tessera calibrate"))));
}

TEST_F(TracedReports, RefuseATraceThatIsNoneOnlyWhereItIsNamed) {
  write("logs/trace.json", "to do");
  const auto report = read_run(files_, {.path = "logs"});
  EXPECT_FALSE(report.trace);
  EXPECT_THAT(report_text(report), HasSubstr("logs/trace.json is there, and is not shown: "));
  EXPECT_THAT(report_page(report), HasSubstr("logs/trace.json is there, and is not shown: "));
  EXPECT_THROW(read_run(files_, {.path = "logs", .trace = "logs/trace.json"}), InvalidArgument);
  EXPECT_THROW(read_run(files_, {.path = "logs", .profile = "h100-80gb"}), InvalidArgument);
  EXPECT_THROW(read_run(files_, {.path = "logs", .trace = "logs/nowhere.json"}), Error);
}

TEST_F(Reports, RefuseAProfileWithoutATrace) {
  write("logs/log.jsonl", step_line(1, "1"));
  EXPECT_THAT([&] { read_run(files_, {.path = "logs", .profile = "h100-80gb"}); },
              ThrowsMessage<UsageError>(HasSubstr("--profile has no effect here: it goes with a trace")));
}

TEST_F(Reports, EscapeWhateverLogsHold) {
  const std::string hostile = "</script><script>alert(1)</script>\\u0000\\\"'&";
  const auto run = run_line(
      fmt::format(R"("command":["python","{0}"],"directory":"{0}","cpu":"{0}","options":{{"{0}":"{0}"}},)"
                  R"("plan":{{"mesh":"{0}","values":[{{"name":"{0}","kind":"{0}","type":"{0}","split":"{0}"}}]}},)"
                  R"("memory":{{"peak_name":"{0}","alive_bytes":[[1,2],[3,4]],)"
                  R"("at_peak":[{{"name":"{0}","type":"{0}","made_by":"{0}","last_read_by":"{0}"}}]}})",
                  hostile));
  const auto text =
      run + step_line(1, "1") +
      fmt::format(R"({{"kind":"evaluation","time":"{0}","epoch":1,"step":1,"metrics":{{"{0}":1}}}})", hostile) + "\n";
  write("logs/rank.0", "</pre><img src=x onerror=alert(1)>\n");
  for (const std::string& page : {report_page(read(text)), comparison_page(compare(text, text + step_line(2, "1")))}) {
    EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
    EXPECT_THAT(page, Not(HasSubstr("<img")));
    EXPECT_THAT(page, Not(HasSubstr(std::string(1, '\0'))));
    // What is written there as markup is the page's own: a script for each figure, and one for all.
    size_t num_begun = 0, num_ended = 0, num_figures = 0;
    for (size_t at = 0; (at = page.find("<script", at)) != std::string::npos; ++at) ++num_begun;
    for (size_t at = 0; (at = page.find("</script", at)) != std::string::npos; ++at) ++num_ended;
    for (size_t at = 0; (at = page.find("<figure tabindex", at)) != std::string::npos; ++at) ++num_figures;
    EXPECT_GT(num_figures, 3);
    EXPECT_EQ(num_begun, num_figures + 1);
    EXPECT_EQ(num_ended, num_begun);
  }
}

TEST_F(Reports, AskForNothingFromElsewhere) {
  const auto page = report_page(read(run_line(R"("epochs":1)") + step_line(1, "1") + step_line(2, "0.5")));
  for (const char* word : {"<link", " src=", "@import", "url(", "fetch(", "<iframe"}) {
    EXPECT_THAT(page, Not(HasSubstr(word)));
  }
  EXPECT_THAT(page, AllOf(HasSubstr("prefers-color-scheme: dark"), HasSubstr("</html>\n")));
}

TEST_F(Reports, InJsonHaveWhatTheTextSays) {
  const auto read_back = json::parse(report_json(
      read(run_line(R"("command":["a","b c"],"seed":7)") + step_line(1, "2") + step_line(2, "\"NaN\"") + kEndLine)));
  EXPECT_EQ(read_back["ended"], "completed");
  EXPECT_EQ(read_back["loss"]["least"], json({{"step", 1}, {"value", 2.0}}));
  EXPECT_EQ(read_back["loss"]["last"], json({{"step", 2}, {"value", "NaN"}}));
  EXPECT_EQ(read_back["rows_per_second"], 1.5);
  EXPECT_EQ(read_back["run"]["seed"], "7");
  EXPECT_EQ(read_back["repeat"], "a 'b c'");
}

TEST_F(Reports, CompareRunsWhoseLogsHaveDifferentSteps) {
  std::string all, few;
  for (int64_t step = 1; step <= 10; ++step) all += step_line(step, fmt::format("{}", step));
  for (int64_t step = 2; step <= 12; step += 2) few += step_line(step, fmt::format("{}", step < 8 ? step : 2 * step));
  const auto found = compare(all, few);
  ASSERT_FALSE(found.numbers.empty());
  const auto& loss = found.numbers[0];
  EXPECT_EQ(loss.name, "loss");
  EXPECT_EQ(loss.num_common, 5);
  EXPECT_EQ(loss.num_left, 5);
  EXPECT_EQ(loss.num_right, 1);
  ASSERT_TRUE(loss.first);
  EXPECT_EQ(loss.first->step, 8);
  EXPECT_EQ(loss.first->left, 8);
  EXPECT_EQ(loss.first->right, 16);
  EXPECT_EQ(loss.greatest->step, 10);
  EXPECT_EQ(relative_difference(*loss.first), 0.5);
  EXPECT_FALSE(found.has_equal_numbers());
  EXPECT_FALSE(found.numbers[1].first) << "the learning rates";
  EXPECT_FALSE(found.knows_settings);
  EXPECT_NEAR(*found.speed_ratio, 7 / 5.5, 1e-12);
  const auto read_back = json::parse(comparison_json(found));
  EXPECT_EQ(read_back["numbers"][0]["first_difference"], json({{"step", 8}, {"left", 8.0}, {"right", 16.0}}));
  EXPECT_EQ(read_back["equal"], false);
}

TEST_F(Reports, CompareARunWithItselfAsEqual) {
  const std::string text = run_line(R"("seed":1)") + step_line(1, "\"NaN\"") + step_line(2, "0.1") +
                           R"({"kind":"evaluation","epoch":1,"step":2,"metrics":{"loss":0.5}})"
                           "\n";
  const auto found = compare(text, text);
  EXPECT_TRUE(found.has_equal_numbers()) << "two that are not numbers are equal";
  EXPECT_TRUE(found.settings.empty());
  ASSERT_THAT(found.numbers, SizeIs(3));
  EXPECT_EQ(found.numbers[2].name, "evaluated loss");
  EXPECT_THAT(comparison_page(found), HasSubstr("equal at every common step"));
}

TEST_F(Reports, NameSettingsThatDifferOrAreSaidByOneRunAlone) {
  const auto found =
      compare(run_line(R"("seed":1,"mode":"data_parallel","options":{"precision":"bf16"})") + step_line(1, "1"),
              run_line(R"("seed":2,"mode":"data_parallel","cpu":"a CPU")") + step_line(1, "1"));
  std::vector<std::string> texts;
  for (const auto& setting : found.settings) texts.push_back(setting.name + ": " + setting.left + ", " + setting.right);
  EXPECT_THAT(texts, ElementsAre("seed: 1, 2", "option precision: bf16, ", "CPU: , a CPU"));
}

TEST_F(Reports, CompareEpochsWhereALogHasNoSteps) {
  const std::string epochs = R"({"kind":"epoch","epoch":1,"step":2,"loss":0.5})"
                             "\n";
  const auto found = compare(step_line(1, "1") + step_line(2, "1") + epochs, epochs);
  ASSERT_THAT(found.numbers, SizeIs(1));
  EXPECT_EQ(found.numbers[0].num_common, 1);
  EXPECT_TRUE(found.has_equal_numbers());
  EXPECT_EQ(read(epochs).loss.num_values(), 1) << "the means of epochs";
}

TEST(RunFacts, SayWhatAShellIsToldToRepeatTheRun) {
  const auto repeat = [](const std::string& members) {
    const auto facts = parse_run_facts(run_line(R"("command":["python","a b","it's"],)" + members));
    return facts ? repeat_command(*facts) : "none";
  };
  const std::string words = "python 'a b' 'it'\\''s'";
  EXPECT_EQ(repeat(R"("directory":"/my work","ranks":1)"), "cd '/my work'\n" + words);
  EXPECT_EQ(repeat(R"("ranks":6,"ranks_of_host":6,"servers":2)"), "tessera run -n 4 --servers 2 " + words);
  EXPECT_EQ(repeat(R"("ranks":2,"ranks_of_host":2,"transport":"threads")"), "tessera run --threads 2 " + words);
  EXPECT_EQ(repeat(R"("ranks":8,"ranks_of_host":4)"), "tessera run --join HOST:PORT -n 4 " + words);
  EXPECT_EQ(repeat(R"("ranks":2,"ranks_of_host":2,"transport":"mpi")"), "mpirun -n 2 " + words);
  EXPECT_FALSE(parse_run_facts("{}"));
  EXPECT_EQ(shell_word(""), "''");
}

TEST(RunFacts, OfARecordThatIsNestedDeepLeaveTheDepthOut) {
  constexpr size_t kDepth = 400'000;
  const std::string deep = std::string(kDepth, '[') + std::string(kDepth, ']');
  for (const char* form :
       {R"("options":{{"x":{},"y":"1"}},"mode":"m")", R"("plan":{},"options":{{"y":"1"}},"mode":"m")",
        R"("memory":{{"at_peak":{}}},"options":{{"y":"1"}},"mode":"m")"}) {
    const auto facts = parse_run_facts(run_line(fmt::format(fmt::runtime(form), deep)));
    ASSERT_TRUE(facts) << form;
    EXPECT_THAT(facts->settings, Contains(std::pair<std::string, std::string>("mode", "m"))) << form;
    EXPECT_THAT(facts->settings, Contains(std::pair<std::string, std::string>("option y", "1"))) << form;
  }
}

TEST(RunFacts, RepeatTheRunWithItsThreadsAndVariables) {
  const auto repeat = [](const std::string& members) {
    return repeat_command(*parse_run_facts(run_line(R"("command":["python","a.py"],)" + members)));
  };
  EXPECT_EQ(repeat(R"("ranks":1,"num_threads":2)"), "TESSERA_NUM_THREADS=2 python a.py");
  EXPECT_EQ(repeat(R"("ranks":4,"ranks_of_host":4,"num_threads":2)"), "tessera run -n 4 --num_threads 2 python a.py");
  EXPECT_EQ(repeat(R"("ranks":2,"ranks_of_host":2,"transport":"threads","num_threads":1)"),
            "tessera run --threads 2 --num_threads 1 python a.py");
  EXPECT_EQ(repeat(R"("ranks":2,"ranks_of_host":2,"transport":"mpi","num_threads":1)"),
            "TESSERA_NUM_THREADS=1 mpirun -n 2 python a.py");
  const std::string variables =
      R"("variables":{"GRAPH_OP_RUN":"1","RANK_SIZE":"4","TESSERA_CUDA_TF32":"1","TESSERA_RECORD_VALUES":"a b",)"
      R"("LD_PRELOAD":"x.so","TESSERA_TLS_PASSWORD":"p","TESSERA_TOKEN":"t","TESSERA_X; rm":"1"})";
  EXPECT_EQ(repeat(R"("ranks":1,)" + variables),
            "GRAPH_OP_RUN=1 RANK_SIZE=4 TESSERA_CUDA_TF32=1 TESSERA_RECORD_VALUES='a b' python a.py");
  EXPECT_EQ(repeat(R"("ranks":2,"ranks_of_host":2,)" + variables),
            "GRAPH_OP_RUN=1 TESSERA_CUDA_TF32=1 TESSERA_RECORD_VALUES='a b' tessera run -n 2 python a.py");
}

TEST(Curves, KeepEveryValueUpToTheirSizeAndEveryExtremeBeyond) {
  Curve few(8);
  for (int64_t step = 1; step <= 16; ++step) few.add(step, static_cast<double>(step % 3));
  EXPECT_EQ(few.buckets().size(), 16);
  Curve many(8);
  constexpr int64_t kSteps = 100'000;
  for (int64_t step = 1; step <= kSteps; ++step) {
    many.add(step, step == 777 ? -5.0 : step == 99'999 ? 50.0 : step == 500 ? std::nan("") : 1.0);
  }
  EXPECT_LE(many.buckets().size(), 16);
  EXPECT_GT(many.buckets().size(), 8);
  EXPECT_EQ(many.num_values(), kSteps);
  EXPECT_EQ(many.least(), (CurvePoint{777, -5}));
  EXPECT_EQ(many.greatest(), (CurvePoint{99'999, 50}));
  EXPECT_EQ(many.last(), (CurvePoint{kSteps, 1}));
  EXPECT_EQ(many.num_non_finite(), 1);
  EXPECT_EQ(many.first_non_finite(), 500);
  const auto points = extremes_of(many);
  EXPECT_THAT(points, testing::Contains(CurvePoint{777, -5}));
  EXPECT_THAT(points, testing::Contains(CurvePoint{99'999, 50}));
  EXPECT_TRUE(std::ranges::is_sorted(points, {}, &CurvePoint::step));
}

TEST(Curves, AreSmoothedWithoutAPullToZero) {
  Curve curve;
  for (int64_t step = 1; step <= 1000; ++step) curve.add(step, step % 2 == 0 ? 3 : 5);
  EXPECT_EQ(curve.smoothing_width(), 20);
  const auto points = curve.smoothed();
  EXPECT_EQ(points.front(), (CurvePoint{1, 5}));
  EXPECT_NEAR(points.back().value, 4, 0.1);
}

TEST(Curves, ForgetWhatIsMadeAgain) {
  Curve curve;
  for (int64_t step = 1; step <= 5; ++step) curve.add(step, static_cast<double>(step));
  curve.go_back_to(3);
  EXPECT_EQ(curve.last(), (CurvePoint{2, 2}));
  curve.go_back_to(0);
  EXPECT_TRUE(curve.empty());
  EXPECT_FALSE(curve.last());
}

TEST(MedianSamples, AreExactWhileTheyAreSmallAndNearBeyond) {
  MedianSample sample;
  EXPECT_FALSE(sample.median());
  for (const double value : {4.0, std::nan(""), 1.0, 2.0, 100.0}) sample.add(value);
  EXPECT_EQ(sample.median(), 3);
  MedianSample large;
  for (int64_t i = 0; i < 1'000'000; ++i) large.add(static_cast<double>(i * 7919 % 1'000'003));
  EXPECT_NEAR(*large.median(), 500'000, 20'000);
}

TEST(Charts, DrawValuesOfAnySize) {
  const double most = std::numeric_limits<double>::max();
  const double least = std::numeric_limits<double>::denorm_min();
  const std::vector<std::vector<double>> cases = {{0},
                                                  {5, 5},
                                                  {-most, most},
                                                  {0, least},
                                                  {least, most},
                                                  {1e16, 1e16 + 2},
                                                  {std::nan("")},
                                                  {most},
                                                  {1, std::nan(""), 2}};
  for (const auto& values : cases) {
    for (const int64_t stride : {int64_t{1}, std::numeric_limits<int64_t>::max() / 4}) {
      Chart chart{.title = "loss", .lines = {{"loss", "first", {}}}, .may_be_logarithmic = true};
      int64_t step = 1;
      for (const double value : values) chart.lines[0].points.push_back({std::exchange(step, step + stride), value});
      const auto text = chart_figure(chart);
      const auto drawn = text.substr(0, text.find("<script"));
      EXPECT_THAT(drawn, AllOf(Not(HasSubstr("nan")), Not(HasSubstr("inf ")), Not(HasSubstr("inf\"")))) << values[0];
    }
  }
  EXPECT_THAT(chart_figure({.title = "a & b"}), HasSubstr("<b>a &amp; b</b>"));
}

// What a figure's axis has: its numbers, bottom up, and then its unit.
std::vector<std::string> axis_of(const std::string& figure) {
  std::vector<std::string> found;
  for (const std::string& name : {std::string("tick"), std::string("unit")}) {
    const std::string begin = "<text class=\"" + name + "\"";
    for (size_t at = 0; (at = figure.find(begin, at)) != std::string::npos; ++at) {
      const size_t text = figure.find('>', at) + 1;
      found.push_back(figure.substr(text, figure.find('<', text) - text));
    }
  }
  return found;
}

std::vector<std::string> axis_of(const std::string& unit, double low, double high, bool may_be_logarithmic = false) {
  return axis_of(chart_figure({.title = "a number",
                               .unit = unit,
                               .lines = {{"a number", "first", {{1, low}, {2, high}}}},
                               .may_be_logarithmic = may_be_logarithmic}));
}

TEST(Charts, HaveBytesAtPowersOfTwoInOneUnit) {
  constexpr double mib = 1 << 20;
  EXPECT_THAT(axis_of("bytes", 0, 80 * mib), ElementsAre("0", "16", "32", "48", "64", "80", "MiB"));
  EXPECT_THAT(axis_of("bytes", 512 * mib, 2560 * mib), ElementsAre("0.5", "1.0", "1.5", "2.0", "2.5", "GiB"));
  EXPECT_THAT(axis_of("bytes", 0, 0), ElementsAre("0", "1", "B"));
  // So little apart that one decimal of a MiB does not tell them apart.
  EXPECT_THAT(axis_of("bytes", 69 * mib, 69 * mib + 4096),
              ElementsAre("70656", "70657", "70658", "70659", "70660", "KiB"));
  // A log of others may have anything there.
  EXPECT_THAT(axis_of("bytes", -5, 1e300).back(), HasSubstr(" bytes"));
}

TEST(Charts, WriteAllNumbersOfAnAxisInOneWay) {
  EXPECT_THAT(axis_of("rows/s", 80000, 120000), ElementsAre("80000", "90000", "100000", "110000", "120000", "rows/s"));
  EXPECT_THAT(axis_of("rows/s", 0, 3e6), ElementsAre("0", "1", "2", "3", "×10⁶ rows/s"));
  EXPECT_THAT(axis_of("", 0, 5e-5), ElementsAre("0", "10", "20", "30", "40", "50", "×10⁻⁶"));
  EXPECT_THAT(axis_of("", 0, 0.4), ElementsAre("0.0", "0.1", "0.2", "0.3", "0.4"));
  EXPECT_THAT(axis_of("", 1e-5, 10, true), ElementsAre("10⁻⁵", "10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "10⁰", "10¹"));
  EXPECT_THAT(axis_of("", 0.01, 100, true), ElementsAre("0.01", "0.1", "1", "10", "100"));
}

TEST(Charts, TellNumbersApartThatDifferInTheirLastDigits) {
  for (const auto& [low, high] : std::vector<std::pair<double, double>>{
           {2.3025850, 2.3025852}, {1e16, 1e16 + 20}, {-1e9 - 3, -1e9}, {1e300, 1.0000001e300}, {4e-324, 9e-322}}) {
    for (const char* unit : {"", "bytes", "rows/s"}) {
      auto texts = axis_of(unit, low, high);
      std::ranges::sort(texts);
      EXPECT_EQ(std::ranges::adjacent_find(texts), texts.end()) << low << ": " << testing::PrintToString(texts);
    }
  }
  EXPECT_THAT(axis_of("", 2.3025850, 2.3025852).back(), HasSubstr("2.30258500 + … ×10⁻⁸"));
}

TEST(Charts, OfBarsHaveTimesInOneUnit) {
  EXPECT_THAT(axis_of(bars_figure("time", {{"matmul", 0.0055, std::nullopt, ""}})),
              ElementsAre("0", "1", "2", "3", "4", "5", "ms"));
  EXPECT_THAT(axis_of(bars_figure("time", {{"matmul", 2.6e-7, std::nullopt, ""}})),
              ElementsAre("0", "50", "100", "150", "200", "250", "ns"));
}

TEST(Pages, ShowTextOfOthersAsText) {
  EXPECT_EQ(escaped_html("<a href=\"x\">'&\x1b"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;\\x1b");
  const auto data = json_in_page(json{{"a", "</script><!--"}}.dump());
  EXPECT_THAT(data, Not(HasSubstr("<")));
  EXPECT_EQ(json::parse(data)["a"], "</script><!--");
}

// The law: whatever bytes a log has, it is reported or refused.
class AnyBytes : public Reports, public testing::WithParamInterface<uint32_t> {};

TEST_P(AnyBytes, AreReportedOrRefused) {
  std::mt19937 random(GetParam());
  const auto below = [&](size_t limit) { return std::uniform_int_distribution<size_t>(0, limit - 1)(random); };
  const std::string seeds[] = {
      run_line(R"("command":["a"],"ranks":2,"epochs":3,"options":{"x":"y"},)" + kStepMembers) + step_line(1, "0.5") +
          step_line(2, "\"NaN\"") + R"({"kind":"epoch","epoch":1,"step":2,"loss":1e308,"metrics":{"f1":-1e308}})" +
          "\n" + R"({"kind":"evaluation","epoch":1,"step":2,"metrics":{"f1":"Infinity","mae":5e-324}})" + "\n" +
          kEndLine,
      "kind,step,epoch,loss,rows_per_second,evaluated_f1\nstep,1,1,nan,5,\nepoch,2,1,0.5,-inf,\nevaluation,2,1,,,"
      "1e308\n"};
  const std::string tokens[] = {
      "\"", "{", "}", ",", "\n", "9223372036854775807", "-1", "1e999", "NaN", "[[[[", std::string("\0\xff", 2), "step"};
  for (int round = 0; round < 100; ++round) {
    std::string text = round % 10 == 0 ? std::string(below(2000) + 1, ' ') : seeds[below(2)];
    if (round % 10 == 0) {
      for (char& c : text) c = static_cast<char>(below(256));
    }
    for (size_t edits = below(12); edits > 0; --edits) {
      const size_t at = below(text.size());
      switch (below(4)) {
        case 0: text[at] = static_cast<char>(below(256)); break;
        case 1: text.insert(at, tokens[below(std::size(tokens))]); break;
        case 2: text.erase(at, below(20)); break;
        default: text += text.substr(at, below(400));
      }
      if (text.empty()) text = "\n";
    }
    SCOPED_TRACE(testing::PrintToString(text));
    try {
      const auto report = read(text);
      EXPECT_THAT(report_page(report), HasSubstr("</html>"));
      EXPECT_FALSE(report_text(report).empty());
      EXPECT_TRUE(json::accept(report_json(report)));
      const auto same = compare(text, text);
      for (const auto& number : same.numbers) EXPECT_FALSE(number.first) << number.name;
      EXPECT_THAT(comparison_page(same), HasSubstr("</html>"));
      EXPECT_TRUE(json::accept(comparison_json(same)));
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("record"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfSeeds, AnyBytes, testing::Range(1U, 9U));

}  // namespace
}  // namespace tessera::tools
