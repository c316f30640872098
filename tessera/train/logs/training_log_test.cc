// Claims about what logs write of a training, and of one that goes on.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/cluster/termination.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/session/executable.h"
#include "tessera/session/session.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/wrapped_context.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/logs/csv_log.h"
#include "tessera/train/logs/json_log.h"
#include "tessera/train/logs/last_line.h"
#include "tessera/train/logs/run_record.h"
#include "tessera/train/logs/tensor_board.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

// Ten rows whose label is twice the sample, in batches of four, four and two.
data::Dataset doubles() {
  return data::generator({{"x", {DType::kF32, {1}}}, {"y", {DType::kF32, {1}}}}, 10,
                         [](int64_t index, std::span<const TensorView> outputs) {
                           *outputs[0].as<float>() = static_cast<float>(index) / 10;
                           *outputs[1].as<float>() = static_cast<float>(2 * index) / 10;
                         })
      .batch(4);
}

// A step takes half a second.
class Sleeper : public Callback {
 public:
  void step_begin(RunContext& run) override { run.model.context().clock().sleep_ms(500); }
};

// One weight, which begins with 1; the rate is a table.
struct Job {
  explicit Job(cluster::Context& context)
      : optimizer({.learning_rate = std::vector{0.25, 0.125, 0.0625, 0.5, 0.75, 1e-3}}),
        model(context, start(network), &loss, &optimizer,
              {.parallel_mode = ParallelMode::kDataParallel, .metrics = {mean_loss()}}) {}
  static nn::Dense& start(nn::Dense& network) {
    network.parameters()[0]->data = Tensor::full({DType::kF32, {1, 1}}, 1);
    return network;
  }

  nn::Dense network{1, 1, {.has_bias = false}};
  nn::MSELoss loss;
  nn::SGD optimizer;
  Model model;
};

class Logs : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::vector<std::string> lines(const std::string& name) const { return whole_lines(FileSystem::local(), at(name)); }
  // Those of steps, epochs and evaluations.
  std::vector<json> records(const std::string& name) const {
    std::vector<json> all;
    for (const auto& line : lines(name)) {
      if (auto record = json::parse(line); record["kind"] != "run" && record["kind"] != "end") all.push_back(record);
    }
    return all;
  }
  std::vector<json> records_of_kind(const std::string& name, const std::string& kind) const {
    std::vector<json> all;
    for (const auto& line : lines(name)) {
      if (auto record = json::parse(line); record["kind"] == kind) all.push_back(record);
    }
    return all;
  }
  // "step 1", "epoch 3": of each record its kind and step.
  std::vector<std::string> moments(const std::string& name) const {
    std::vector<std::string> all;
    for (const auto& record : records(name)) {
      all.push_back(fmt::format("{} {}", record["kind"].get<std::string>(), record["step"].get<int64_t>()));
    }
    return all;
  }
  void write(const std::string& name, const std::string& text) const {
    FileSystem::local().write_atomically(at(name), text);
  }

  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-logs-{}", ::getpid());
  std::unique_ptr<cluster::Context> one_rank_ = cluster::single_context(1);
  FakeClock clock_;
  ContextWithClock context_{*one_rank_, clock_};
};

TEST_F(Logs, HaveARecordForEachStepEpochAndEvaluation) {
  Job job(context_);
  job.model.train(2, doubles(),
                  {Sleeper(), EpochSummary({.valid = doubles()}, [](const auto&) {}), JsonLog(at("log"))});
  EXPECT_THAT(moments("log"), ElementsAre("step 1", "step 2", "step 3", "epoch 3", "evaluation 3", "step 4", "step 5",
                                          "step 6", "epoch 6", "evaluation 6"));
  const auto all = records("log");
  EXPECT_EQ(all[1]["time"], "1970-01-01T00:16:41.000Z");
  EXPECT_EQ(all[1]["seconds"], 1.0);
  EXPECT_EQ(all[1]["epoch"], 1);
  EXPECT_EQ(all[1]["learning_rate"], 0.125);
  EXPECT_EQ(all[1]["rows_per_second"], 8.0) << "four rows in half a second";
  EXPECT_EQ(all[2]["rows_per_second"], 4.0) << "two";
  EXPECT_EQ(all[3]["rows_per_second"], 6.667) << "ten in one and a half";
  EXPECT_FALSE(all[9].contains("learning_rate")) << "of an evaluation";
  EXPECT_EQ(all[7]["learning_rate"].get<float>(), 1e-3F);
  EXPECT_GT(all[0]["resident_bytes"], 0);
  EXPECT_GT(all[0]["arena_bytes"], 0);
  const double mean = (all[0]["loss"].get<double>() + all[1]["loss"].get<double>() + all[2]["loss"].get<double>()) / 3;
  EXPECT_NEAR(all[3]["loss"].get<double>(), mean, 1e-6);
  EXPECT_EQ(all[4]["metrics"].size(), 1);
  EXPECT_GE(all[4]["metrics"]["loss"], 0.0);
}

TEST_F(Logs, SeeEvaluationsOfCallbacksBehindThemAtTheirStep) {
  Job job(context_);
  job.model.train(2, doubles(),
                  {JsonLog(at("log"), {.every_steps = 0}), EpochSummary({.valid = doubles()}, [](const auto&) {})});
  EXPECT_THAT(moments("log"), ElementsAre("epoch 3", "evaluation 3", "epoch 6", "evaluation 6"));
  EXPECT_EQ(records("log")[1]["epoch"], 1);
}

TEST_F(Logs, HaveEveryNthStepAlsoWhereTheDataSetSinks) {
  Job job(context_);
  job.model.train(2, doubles(), {JsonLog(at("steps"), {.every_steps = 2})});
  EXPECT_THAT(moments("steps"), ElementsAre("step 2", "epoch 3", "step 4", "step 6", "epoch 6"));
  Job sinks(context_);
  sinks.model.train(2, doubles(), {JsonLog(at("sinks"), {.every_steps = 2})},
                    {.dataset_sink_mode = true, .sink_size = 2});
  EXPECT_THAT(moments("sinks"), ElementsAre("step 2", "epoch 3", "step 5", "step 6", "epoch 6"));
}

TEST_F(Logs, TakeTheRateOfAFunction) {
  Job job(context_);
  job.model.train(1, doubles(), {JsonLog(at("log"), {.learning_rate = [](int64_t step) { return 0.5 * step; }})});
  EXPECT_EQ(records("log")[1]["learning_rate"], 1.0);
}

TEST_F(Logs, OfATableAreRowsUnderTheirColumns) {
  Job job(context_);
  job.model.train(1, doubles(), {Sleeper(), EpochSummary({.valid = doubles()}, [](const auto&) {}), CsvLog(at("log"))});
  const auto all = lines("log");
  ASSERT_EQ(all.size(), 6);
  EXPECT_EQ(
      all[0],
      "kind,time,seconds,epoch,step,loss,learning_rate,rows_per_second,resident_bytes,arena_bytes,evaluated_loss");
  EXPECT_THAT(all[2],
              testing::MatchesRegex("step,1970-01-01T00:16:41.000Z,1.0,1,2,[0-9.e-]+,0.125,8.0,[0-9]+,[0-9]+,"));
  EXPECT_THAT(all[5], testing::MatchesRegex("evaluation,[^,]+,1.5,1,3,,,,[0-9]+,[0-9]+,[0-9.e-]+"));
}

struct AddsMetrics : Callback {
  explicit AddsMetrics(std::shared_ptr<TrainingLog> log) : log(std::move(log)) {}
  void step_end(RunContext& run) override { log->add_metrics({{"f1, macro", run.step / 2.0}}); }
  std::shared_ptr<TrainingLog> log;
};

// A training of two epochs is killed after step 4, and its checkpoint is that of step 3.
TEST_F(Logs, GoOnWithoutTheStepsThatAreMadeAgain) {
  const auto checkpoint = at("saved.ckpt");
  struct Saves : Callback {
    explicit Saves(std::string path) : path(std::move(path)) {}
    void step_end(RunContext& run) override {
      if (run.step == 3) run.model.save_checkpoint(path);
      if (run.step == 4) throw Error("killed");
    }
    std::string path;
  };
  Job killed(context_);
  const auto train = [&] {
    killed.model.train(2, doubles(), {Sleeper(), JsonLog(at("json")), CsvLog(at("csv")), Saves(checkpoint)});
  };
  EXPECT_THROW(train(), Error);
  EXPECT_THAT(moments("json"), ElementsAre("step 1", "step 2", "step 3", "epoch 3", "step 4"));
  write("json", FileSystem::local().read_text(at("json")) + R"({"kind":"st)");
  write("csv", FileSystem::local().read_text(at("csv")) + "step,1970");

  Job resumed(context_);
  resumed.model.load_checkpoint(checkpoint);
  const auto table = std::make_shared<CsvLog>(at("csv"));
  resumed.model.train(2, doubles(), {Sleeper(), JsonLog(at("json")), table, AddsMetrics(table)});
  EXPECT_THAT(moments("json"),
              ElementsAre("step 1", "step 2", "step 3", "epoch 3", "step 4", "step 5", "step 6", "epoch 6"));
  EXPECT_EQ(records("json")[4]["seconds"], 2.0) << "one and a half of the first process, and a half";
  const auto rows = lines("csv");
  ASSERT_EQ(rows.size(), 1 + 4 + 4 + 3) << "the columns, the old rows, the new ones, those of add_metrics()";
  EXPECT_TRUE(rows[0].ends_with(",evaluated_loss,\"evaluated_f1, macro\"")) << rows[0];
  EXPECT_TRUE(rows[1].starts_with("step,") && rows[1].ends_with(",,")) << rows[1];
  EXPECT_TRUE(rows[6].starts_with("evaluation,") && rows[6].ends_with(",,2.0")) << rows[6];
}

TEST_F(Logs, InJsonSayFirstHowTheyWereStarted) {
  Job job(context_);
  job.model.train(2, doubles(), {JsonLog(at("log"))});
  EXPECT_EQ(json::parse(lines("log")[0])["kind"], "run");
  const auto runs = records_of_kind("log", "run");
  ASSERT_EQ(runs.size(), 1);
  const json& run = runs[0];
  EXPECT_EQ(run["step"], 0);
  EXPECT_EQ(run["epochs"], 2);
  EXPECT_EQ(run["steps_per_epoch"], 3);
  ASSERT_FALSE(run["command"].empty());
  EXPECT_THAT(run["command"][0].get<std::string>(), HasSubstr("training_log_test"));
  EXPECT_EQ(run["directory"], std::filesystem::current_path().string());
  EXPECT_FALSE(run["version"].get<std::string>().empty());
  EXPECT_EQ(run["ranks"], 1);
  EXPECT_EQ(run["mode"], "data_parallel");
  EXPECT_EQ(run["seed"], 1);
  EXPECT_GT(run["cores"], 0);
  EXPECT_EQ(run["options"], json::object()) << "all are as they are by default";
}

TEST_F(Logs, InJsonHaveOptionsThatAreNotTheUsualOnes) {
  nn::Dense network(1, 1);
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.25});
  Model model(context_, network, &loss, &optimizer,
              {.precision = DType::kBF16,
               .loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 1024}),
               .seed = 7,
               .job_name = "a \xff",
               .session = {.num_threads = 1}});
  model.train(1, doubles(), {JsonLog(at("log"))});
  const auto run = records_of_kind("log", "run").at(0);
  EXPECT_EQ(run["seed"], 7);
  EXPECT_EQ(run["mode"], "stand_alone");
  EXPECT_EQ(run["options"], json({{"job_name", "a \ufffd"},
                                  {"loss_scale", "1024, times 2 after 2000 clean steps"},
                                  {"num_threads", "1"},
                                  {"precision", "bf16"}}));
}

TEST_F(Logs, InJsonSayHowTheStepIsSpreadAndWhatMemoryItTakes) {
  nn::Dense network(3, 5);
  nn::MSELoss loss;
  nn::SGD optimizer({.learning_rate = 0.25});
  const auto rows = data::generator({{"x", {DType::kF32, {3}}}, {"y", {DType::kF32, {5}}}}, 8,
                                    [](int64_t, std::span<const TensorView> outputs) {
                                      std::fill_n(outputs[0].as<float>(), 3, 1.0F);
                                      std::fill_n(outputs[1].as<float>(), 5, 1.0F);
                                    })
                        .batch(4);
  Model model(context_, network, &loss, &optimizer);
  model.train(1, rows, {JsonLog(at("log"))});
  const auto run = records_of_kind("log", "run").at(0);
  const auto& plan = run["plan"];
  EXPECT_GT(plan["operators"], 3);
  EXPECT_EQ(plan["parameter_bytes"], 4 * (3 * 5 + 5));
  EXPECT_EQ(plan["rank_parameter_bytes"], plan["parameter_bytes"]);
  EXPECT_FALSE(plan.contains("predicted_seconds")) << "nothing was searched";
  std::vector<int64_t> sizes;
  for (const auto& value : plan["values"]) sizes.push_back(value["bytes"].get<int64_t>());
  ASSERT_GE(sizes.size(), 4) << "two parameters and two columns";
  EXPECT_TRUE(std::ranges::is_sorted(sizes, std::greater{}));
  EXPECT_EQ(sizes[0], 4 * 4 * 5) << "the column y";

  const auto& memory = run["memory"];
  EXPECT_EQ(memory["parameter_bytes"], plan["parameter_bytes"]);
  int64_t most = 0;
  int64_t last = -1;
  for (const auto& point : memory["alive_bytes"]) {
    EXPECT_GT(point[0], last) << "in order";
    last = point[0].get<int64_t>();
    most = std::max(most, point[1].get<int64_t>());
  }
  EXPECT_LT(last, memory["operations"]);
  EXPECT_EQ(most, memory["peak_bytes"]);
  EXPECT_LE(most, memory["planned_bytes"]);
  EXPECT_FALSE(memory["peak_name"].get<std::string>().empty());
  EXPECT_FALSE(memory["at_peak"].empty());
}

TEST(SampledPeaks, KeepTheMostOfEachPart) {
  using Points = std::vector<std::pair<int64_t, int64_t>>;
  const std::vector<int64_t> alive{1, 5, 5, 2, 9, 0, 3};
  EXPECT_EQ(sampled_peaks(alive, 3), (Points{{1, 5}, {2, 5}, {4, 9}}));
  EXPECT_EQ(sampled_peaks(alive, 200).size(), alive.size());
  EXPECT_TRUE(sampled_peaks({}, 3).empty());
}

TEST_F(Logs, InJsonSayHowTheTrainingEnded) {
  struct Ends : Callback {
    explicit Ends(bool fails) : fails(fails) {}
    void step_end(RunContext& run) override {
      if (run.step < 2) return;
      if (fails) throw Error("no more");
      run.request_stop();
    }
    bool fails;
  };
  const auto ended = [&] {
    const auto ends = records_of_kind("log", "end");
    EXPECT_EQ(ends.size(), 1);
    EXPECT_EQ(json::parse(lines("log").back()), ends.at(0)) << "it is the last record";
    return fmt::format("{} {}", ends.at(0)["ended"].get<std::string>(), ends.at(0)["step"].get<int64_t>());
  };
  Job completes(context_);
  completes.model.train(1, doubles(), {JsonLog(at("log"))});
  EXPECT_EQ(ended(), "completed 3");
  EXPECT_FALSE(records_of_kind("log", "end").at(0).contains("reason"));
  Job stops(context_);
  stops.model.train(1, doubles(), {JsonLog(at("log")), Ends(false)});
  EXPECT_EQ(ended(), "stopped 2");
  Job fails(context_);
  EXPECT_THROW(fails.model.train(1, doubles(), {JsonLog(at("log")), Ends(true)}), Error);
  EXPECT_EQ(ended(), "failed 2");
  EXPECT_EQ(records_of_kind("log", "end").at(0)["reason"], "no more");
  struct IsTold : Callback {
    void step_end(RunContext& run) override {
      if (run.step == 2) throw cluster::Terminated("SIGTERM");
    }
  };
  Job told(context_);
  EXPECT_THROW(told.model.train(1, doubles(), {JsonLog(at("log")), IsTold()}), cluster::Terminated);
  EXPECT_EQ(ended(), "stopped 2");
  EXPECT_EQ(records_of_kind("log", "end").at(0)["signal"], "SIGTERM");
  Job interrupted(context_);
  EXPECT_THROW(interrupted.model.train(1, doubles(), {JsonLog(at("log")), Ends(true)},
                                       {.signal_of = [](const std::exception_ptr&) { return "SIGINT"; }}),
               Error);
  EXPECT_EQ(ended(), "stopped 2");
  EXPECT_EQ(records_of_kind("log", "end").at(0)["signal"], "SIGINT");
}

TEST_F(Logs, InJsonSayWhyTheTrainingFailed) {
  struct Fails : Callback {
    explicit Fails(std::string words) : words(std::move(words)) {}
    void step_end(RunContext& /*run*/) override { throw Error(words); }
    std::string words;
  };
  const auto reason_of = [&](const std::string& words) {
    Job job(context_);
    EXPECT_THROW(job.model.train(1, doubles(), {JsonLog(at("log")), Fails(words)}), Error);
    return records_of_kind("log", "end").at(0)["reason"].get<std::string>();
  };
  EXPECT_EQ(reason_of("two \"lines\"\nof words\n"), "two \"lines\"\nof words");
  EXPECT_EQ(reason_of("Traceback (most recent call last):\n  File \"a.py\", line 1\n    f()\n    ^^^\n"
                      "ValueError: no more\n  of these\n"),
            "ValueError: no more\n  of these");
  const std::string many = reason_of("a" + std::string(1999, 'x') + "\u00e9 and more");
  EXPECT_EQ(many, "a" + std::string(1999, 'x') + " ...");
  EXPECT_EQ(reason_of("a" + std::string(1998, 'x') + "\u00e9 and more"), "a" + std::string(1998, 'x') + " ...")
      << "a character is not cut";
}

TEST_F(Logs, InJsonNameTheStepWhoseLossIsNotFinite) {
  const auto rows = data::generator({{"x", {DType::kF32, {1}}}, {"y", {DType::kF32, {1}}}}, 6,
                                    [](int64_t row, std::span<const TensorView> outputs) {
                                      *outputs[0].as<float>() = row == 4 ? std::numeric_limits<float>::quiet_NaN() : 1;
                                      *outputs[1].as<float>() = 1;
                                    })
                        .batch(2);
  Job job(context_);
  EXPECT_THROW(job.model.train(1, rows, {JsonLog(at("log"))}), Error);
  const auto end = records_of_kind("log", "end").at(0);
  EXPECT_EQ(end["step"], 2);
  EXPECT_THAT(end["reason"].get<std::string>(), HasSubstr("epoch: 1 step: 3. Invalid loss"));
}

TEST_F(Logs, OfANewTrainingLeaveAnOlderOneAside) {
  for (int i = 0; i < 3; ++i) {
    Job job(context_);
    job.model.train(1 + i, doubles(), {JsonLog(at("log"))});
  }
  EXPECT_EQ(records("log.1").size(), 4);
  EXPECT_EQ(records("log.2").size(), 8);
  EXPECT_EQ(records("log").size(), 12);
}

TEST_F(Logs, OfANewTrainingLeaveWhatIsNoLogWhereItIs) {
  const auto refused = [&](const std::shared_ptr<Callback>& log, const char* why) {
    Job job(context_);
    EXPECT_THAT([&] { job.model.train(1, doubles(), {log}); }, ThrowsMessage<Error>(HasSubstr(why)));
  };
  write("notes", "to do\n");
  refused(std::make_shared<JsonLog>(at("notes")), "notes: line 1: this is no log of JsonLog, and is left as it is");
  refused(std::make_shared<CsvLog>(at("notes")), "no log of CsvLog");
  write("other", "{\"kind\": \"recipe\"}\n");
  refused(std::make_shared<JsonLog>(at("other")), "no log of JsonLog");
  write("other", R"({"kind": "recipe", "time": "now", "step": 1, "epoch": 1})");
  refused(std::make_shared<JsonLog>(at("other")), "no log of JsonLog");
  Job job(context_);
  job.model.train(1, doubles(), {CsvLog(at("table"))});
  refused(std::make_shared<JsonLog>(at("table")), "no log of JsonLog");
  ASSERT_EQ(mkfifo(at("pipe").c_str(), 0600), 0);
  refused(std::make_shared<JsonLog>(at("pipe")), "pipe: it is a pipe, and is left as it is; give JsonLog a file");
  refused(std::make_shared<CsvLog>("/dev/full"), "/dev/full: it is a device");
  refused(std::make_shared<CsvLog>("/proc/none/log.csv"),
          "/proc/none/log.csv: there is no such file, and logs are not");
  refused(std::make_shared<JsonLog>("/dev/stdout"), "ProgressBar(log_format=\"json\") prints records");
  std::filesystem::create_directory(at("folder"));
  refused(std::make_shared<JsonLog>(at("folder")), "folder: it is a directory");
  std::filesystem::create_symlink(at("nowhere"), at("lost"));
  refused(std::make_shared<CsvLog>(at("lost")), "lost: it is a link that leads to nothing");
  EXPECT_TRUE(std::filesystem::is_symlink(at("lost")));
  EXPECT_EQ(FileSystem::local().read_text(at("notes")), "to do\n");
  EXPECT_TRUE(std::filesystem::is_fifo(at("pipe")));
  for (const char* name : {"notes", "other", "table", "pipe"}) {
    EXPECT_FALSE(std::filesystem::exists(at(name) + ".1")) << name;
  }
  // An empty file is nobody's.
  write("empty", "");
  Job begins(context_);
  begins.model.train(1, doubles(), {JsonLog(at("empty"))});
  EXPECT_EQ(records("empty").size(), 4);
}

TEST_F(Logs, AreWrittenThroughALink) {
  std::filesystem::create_symlink(at("log"), at("link"));
  write("log", "");
  for (int i = 0; i < 2; ++i) {
    Job job(context_);
    job.model.train(1 + i, doubles(), {JsonLog(at("link"))});
  }
  EXPECT_TRUE(std::filesystem::is_symlink(at("link")));
  EXPECT_EQ(records("log.1").size(), 4);
  EXPECT_EQ(records("log").size(), 8);
}

TEST_F(Logs, ThatAnotherTrainingWritesAreRefused) {
  struct TrainsBeside : Callback {
    explicit TrainsBeside(std::function<void()> f) : f(std::move(f)) {}
    void step_end(RunContext& run) override {
      if (run.step == 2) f();
    }
    std::function<void()> f;
  };
  const auto trains_beside = [&] {
    Job other(context_);
    EXPECT_THAT([&] { other.model.train(1, doubles(), {JsonLog(at("json"))}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("json: a training of this process writes this log; ")));
    EXPECT_THAT([&] { other.model.train(1, doubles(), {CsvLog(at("csv"))}); },
                ThrowsMessage<InvalidArgument>(HasSubstr("csv: a training of this process writes this log; ")));
  };
  Job job(context_);
  job.model.train(1, doubles(), {JsonLog(at("json")), CsvLog(at("csv")), TrainsBeside(trains_beside)});
  EXPECT_EQ(records("json").size(), 4);
  EXPECT_EQ(lines("csv").size(), 5);
  EXPECT_FALSE(std::filesystem::exists(at("json.1")));
  EXPECT_FALSE(std::filesystem::exists(at("csv.1")));
}

TEST_F(Logs, ThatAnotherProcessWritesAreRefusedUntilItEnds) {
  {
    Job job(context_);
    job.model.train(1, doubles(), {JsonLog(at("log"))});
  }
  const std::string path = at("log");
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t writer = ::fork();
  if (writer == 0) {
    const int fd = ::open(path.c_str(), O_RDWR);
    const char is_locked = ::flock(fd, LOCK_EX) == 0 ? 1 : 0;
    [[maybe_unused]] const ssize_t written = ::write(ends[1], &is_locked, 1);
    while (true) ::pause();
  }
  char is_locked = 0;
  ASSERT_EQ(::read(ends[0], &is_locked, 1), 1);
  ASSERT_EQ(is_locked, 1);
  Job job(context_);
  EXPECT_THAT([&] { job.model.train(1, doubles(), {JsonLog(at("log"))}); },
              ThrowsMessage<InvalidArgument>(testing::AnyOf(
                  HasSubstr(fmt::format("log: another training (process {} on ", writer)),
                  HasSubstr("log: another training, of a process that the system does not name, writes this log"))));
  EXPECT_EQ(records("log").size(), 4) << "it is as it was";
  ::kill(writer, SIGKILL);
  ::waitpid(writer, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  job.model.train(1, doubles(), {JsonLog(at("log"))});
  EXPECT_EQ(records("log.1").size(), 4);
}

TEST_F(Logs, AreAsTheyWereWhereATrainingIsRefused) {
  struct Refuses : Callback {
    void begin(RunContext&) override { throw InvalidArgument("no"); }
  };
  Job first(context_);
  first.model.train(1, doubles(), {JsonLog(at("log")), CsvLog(at("table"))});
  for (const bool goes_on : {false, true}) {
    Job job(context_);
    if (goes_on) job.model.train(1, doubles());
    EXPECT_THROW(
        job.model.train(2, doubles(), {JsonLog(at("log")), CsvLog(at("table")), JsonLog(at("new")), Refuses()}),
        InvalidArgument);
  }
  EXPECT_EQ(records("log").size(), 4);
  EXPECT_EQ(lines("table").size(), 5);
  for (const char* name : {"log.1", "table.1", "new"}) EXPECT_FALSE(std::filesystem::exists(at(name))) << name;
}

TEST_F(Logs, ThatCannotBeMadeAreCalledWhatTheUserCallsThem) {
  write("file", "");
  Job job(context_);
  EXPECT_THAT([&] { job.model.train(1, doubles(), {JsonLog(at("file/log"))}); },
              ThrowsMessage<Error>(testing::AllOf(HasSubstr("file"), testing::Not(HasSubstr(".tmp")))));
}

TEST_F(Logs, OfASecondCallGoOn) {
  Job job(context_);
  const auto log = std::make_shared<JsonLog>(at("log"), LogOptions{.every_steps = 3});
  job.model.train(1, doubles(), {log});
  job.model.train(1, doubles(), {log});
  EXPECT_THAT(moments("log"), ElementsAre("step 3", "epoch 3", "step 6", "epoch 6"));
}

TEST_F(Logs, RefuseAFileThatHasSomethingElse) {
  write("notes", "to do\n");
  for (const bool is_table : {false, true}) {
    Job job(context_);
    job.model.train(1, doubles());
    const std::shared_ptr<TrainingLog> log = is_table
                                                 ? std::shared_ptr<TrainingLog>(std::make_shared<CsvLog>(at("notes")))
                                                 : std::make_shared<JsonLog>(at("notes"));
    EXPECT_THAT(
        [&] { job.model.train(1, doubles(), {log}); },
        ThrowsMessage<InvalidArgument>(HasSubstr(is_table ? "line 1 has no column kind" : "line 1: no record")));
    EXPECT_THROW(log->add_metrics({{"f1", 1}}), InvalidArgument) << "it has not begun";
  }
  EXPECT_EQ(FileSystem::local().read_text(at("notes")), "to do\n");
  EXPECT_THROW(JsonLog(""), InvalidArgument);
  EXPECT_THROW(CsvLog("x", {.every_steps = -1}), InvalidArgument);
}

// What a child process leaves of a file of one line, which it ends by a signal.
struct KilledChild {
  KilledChild(const std::string& path, int number, bool has_ended) {
    const pid_t child = ::fork();
    if (child == 0) {
      auto line = std::make_unique<LastLine>(path);
      line->set("{\"time\":\"", "\",\"signal\":\"", "\"}");
      line->set(R"({"step":7,"time":")", R"(","signal":")", "\"}");
      { const LastLine::Writing writing(*line); }
      if (has_ended) line.reset();
      ::raise(number);
      ::_exit(1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  int signal = 0;
};

TEST_F(Logs, HaveALastLineWhereASignalEndsTheProcessAtOnce) {
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) {
    write("log", "first\n");
    EXPECT_EQ(KilledChild(at("log"), number, false).signal, number);
    const auto all = lines("log");
    ASSERT_EQ(all.size(), 2);
    const json last = json::parse(all[1]);
    EXPECT_EQ(last["step"], 7) << "the latest one";
    EXPECT_EQ(last["signal"], number == SIGTERM ? "SIGTERM" : number == SIGINT ? "SIGINT" : "SIGHUP");
    const int64_t now_ms = Clock::system().wall_ms();
    const std::string time = last["time"];
    EXPECT_LE(time, utc_time(now_ms));
    EXPECT_GE(time, utc_time(now_ms - 600'000));
  }
  write("log", "first\n");
  EXPECT_EQ(KilledChild(at("log"), SIGTERM, true).signal, SIGTERM);
  EXPECT_EQ(lines("log").size(), 1) << "the log had ended";
}

// A disk that takes files, and after them no bytes.
class FullDisk : public MemoryFileSystem {
 public:
  std::unique_ptr<WritableFile> create(const std::string& path, unsigned mode) override {
    struct File : WritableFile {
      explicit File(const FullDisk& disk) : disk(disk) {}
      void append(std::span<const std::byte>) override {}
      void write_at(int64_t, std::span<const std::byte>) override {
        if (disk.is_full) throw IoError("no space left");
      }
      void sync() override {}
      void close() override {}
      const FullDisk& disk;
    };
    MemoryFileSystem::create(path, mode);
    return std::make_unique<File>(*this);
  }
  bool is_full = false;
};

class ContextWithFiles : public WrappedContext {
 public:
  ContextWithFiles(cluster::Context& inner, FileSystem& files) : WrappedContext(inner), files_(files) {}
  FileSystem& file_system() override { return files_; }

 private:
  FileSystem& files_;
};

TEST_F(Logs, EndWhereTheDiskIsFullAndTheTrainingGoesOn) {
  FullDisk disk;
  ContextWithFiles context(context_, disk);
  struct Fills : Callback {
    explicit Fills(FullDisk& disk) : disk(disk) {}
    void step_end(RunContext&) override { disk.is_full = true; }
    FullDisk& disk;
  };
  Job job(context);
  job.model.train(1, doubles(),
                  {JsonLog("log"), CsvLog("table"), TensorBoard("runs", {.histogram_steps = 1}), Fills(disk)});
  EXPECT_EQ(job.model.step(), 3);
}

TEST_F(Logs, CannotBeAddedToOutsideOfATraining) {
  JsonLog log(at("log"));
  EXPECT_THAT(
      [&] {
        log.add_metrics({{"f1", 1}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("while a training goes on")));
  TensorBoard board(at("runs"));
  EXPECT_THROW(board.add_scalar("x", 1), InvalidArgument);
}

TEST_F(Logs, HaveTheModeOfTheUmask) {
  const mode_t before = ::umask(027);
  Job job(context_);
  job.model.train(1, doubles(), {JsonLog(at("log")), TensorBoard(at("runs"))});
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(at("log").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640);
}

TEST_F(Logs, AreWrittenByRank0AndHaveWeightsThatAreSplit) {
  run_ranks(3, [&](cluster::Context& context) {
    nn::Dense network(1, 6);
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.25});
    Model model(
        context, network, &loss, &optimizer,
        {.parallel_mode = ParallelMode::kDataParallel, .parallel_optimizer = true, .parallel_optimizer_threshold = 0});
    const auto rows = data::generator({{"x", {DType::kF32, {1}}}, {"y", {DType::kF32, {6}}}}, 12,
                                      [](int64_t, std::span<const TensorView> outputs) {
                                        for (const auto& output : outputs) {
                                          std::fill_n(output.as<float>(), output.shape.num_elements(), 0.5F);
                                        }
                                      })
                          .batch(6);
    model.train(1, rows, {JsonLog(at("log")), TensorBoard(at("runs"), {.histogram_steps = 2})});
    EXPECT_TRUE(model.session().is_split("weight"));
  });
  EXPECT_THAT(moments("log"), ElementsAre("step 1", "step 2", "epoch 2"));
  const auto files = FileSystem::local().list(at("runs"));
  ASSERT_EQ(files.size(), 1);
  EXPECT_THAT(FileSystem::local().read_text(at("runs/" + files[0])), HasSubstr("weights/weight"));
}

TEST_F(Logs, OfTensorBoardHaveTheTagsOfTheTraining) {
  Job job(context_);
  job.model.train(
      1, doubles(),
      {EpochSummary({.valid = doubles()}, [](const auto&) {}),
       TensorBoard(at("runs"),
                   {.histogram_steps = 2, .hyper_parameters = {{"rate", 0.5}, {"is_deep", false}, {"name", "mlp"}}})});
  const auto files = FileSystem::local().list(at("runs"));
  ASSERT_EQ(files.size(), 1);
  const std::string bytes = FileSystem::local().read_text(at("runs/" + files[0]));
  for (const char* tag : {"brain.Event:2", "loss", "learning_rate", "rows_per_second", "memory/resident_bytes",
                          "memory/arena_bytes", "epoch/loss", "evaluation/loss", "weights/weight",
                          "_hparams_/session_start_info", "is_deep", "mlp", "_hparams_/session_end_info"}) {
    EXPECT_THAT(bytes, HasSubstr(tag));
  }
}

TEST_F(Logs, OfTensorBoardHaveTheGraphOnce) {
  struct Sees : Callback {
    explicit Sees(std::string& graph) : graph(graph) {}
    void begin(RunContext& run) override { graph = graph_message(run.model.train_executable()->compiled().logical); }
    std::string& graph;
  };
  Job job(context_);
  std::string graph;
  job.model.train(1, doubles(), {TensorBoard(at("runs")), Sees(graph)});
  const auto files = FileSystem::local().list(at("runs"));
  ASSERT_EQ(files.size(), 1);
  const std::string bytes = FileSystem::local().read_text(at("runs/" + files[0]));
  const size_t begin = bytes.find(graph);
  ASSERT_NE(begin, std::string::npos);
  EXPECT_EQ(bytes.find("_output_shapes", begin + graph.size()), std::string::npos) << "no second one";
  EXPECT_THAT(graph, AllOf(HasSubstr("matmul"), HasSubstr("loss/square"), Not(HasSubstr("optimizer"))));
}

TEST_F(Logs, OfTensorBoardHaveNoGraphWhereNoneIsWanted) {
  Job job(context_);
  job.model.train(1, doubles(), {TensorBoard(at("runs"), {.graph = false})});
  const auto files = FileSystem::local().list(at("runs"));
  ASSERT_EQ(files.size(), 1);
  EXPECT_THAT(FileSystem::local().read_text(at("runs/" + files[0])), Not(HasSubstr("_output_shapes")));
}

TEST_F(Logs, HaveNoGraphOfAModelThatHasCompiledNothing) {
  Job job(context_);
  EventWriter writer(FileSystem::local(), clock_, at("runs"), 0);
  EXPECT_THAT([&] { writer.add_graph(job.model); }, ThrowsMessage<InvalidArgument>(HasSubstr("train it before")));
  job.model.train(1, doubles());
  writer.add_graph(job.model);
  EXPECT_THAT(FileSystem::local().read_text(writer.path()), HasSubstr("loss/square"));
}

TEST(TrainingRecord, WritesNumbersThatJsonDoesNotHaveAsTexts) {
  const double infinity = std::numeric_limits<double>::infinity();
  const TrainingRecord record{
      .kind = "step", .loss = std::nan(""), .learning_rate = infinity, .metrics = {{"a\"b", -infinity}}};
  const auto read = json::parse(json_line(record));
  EXPECT_EQ(read["loss"], "NaN");
  EXPECT_EQ(read["learning_rate"], "Infinity");
  EXPECT_EQ(read["metrics"]["a\"b"], "-Infinity");
  EXPECT_FALSE(read.contains("rows_per_second"));
}

TEST(TrainingRecord, WritesTheShortestDecimal) {
  EXPECT_EQ(shortest_number(static_cast<double>(0.1F)), "0.1");
  EXPECT_EQ(shortest_number(0.1), "0.1");
  EXPECT_EQ(shortest_number(3), "3.0");
  EXPECT_EQ(utc_time(1'772'600'767'089), "2026-03-04T05:06:07.089Z");
}

}  // namespace
}  // namespace tessera::train
