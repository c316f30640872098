// The law of options: in every parallel mode an option that is set has an effect, or a line says that it has none, or
// the model refuses it. Every row of mode_options() is set in every mode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <type_traits>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/tuning/rate_schedule.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"
#include "tessera/train/modes/mode_options.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::array kModes = {ParallelMode::kStandAlone, ParallelMode::kDataParallel, ParallelMode::kHybrid,
                               ParallelMode::kSemiAuto,   ParallelMode::kAutomatic,    ParallelMode::kPipeline};
static_assert(kModes.size() == kNumParallelModes);

// A row of the table without a word on each mode does not compile.
static_assert(std::is_constructible_v<OptionUses, OptionUse, OptionUse, OptionUse, OptionUse, OptionUse, OptionUse>);
static_assert(!std::is_constructible_v<OptionUses, OptionUse, OptionUse, OptionUse, OptionUse, OptionUse>);
static_assert(!std::is_default_constructible_v<OptionUses>);

constexpr int kRanks = 4;
constexpr int64_t kRowsOfStep = 8;
constexpr int64_t kWidth = 4;

struct UpAndDown : nn::Cell {
  UpAndDown()
      : norm(child<nn::BatchNorm1d>("norm", kWidth)),
        up(child<nn::Dense>("up", kWidth, 8)),
        down(child<nn::Dense>("down", 8, kWidth)) {
    up.set_stage(0);
    down.set_stage(1);
  }
  nn::BatchNorm1d& norm;
  nn::Dense& up;
  nn::Dense& down;
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return down(ops::relu(up(norm(x)))); }
};

// One option: how it is set, and what must be set around it for the option to matter.
struct Setting {
  std::function<void(ModelOptions&)> set;
  std::function<void(ModelOptions&)> around = [](ModelOptions&) {};
  std::function<void(UpAndDown&)> network = [](UpAndDown&) {};
  bool values_differ = false;  // between the ranks, at first
};

class ModeOptions : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-mode-options-{}", ::getpid());
    std::filesystem::create_directories(folder_);
    // A strategy file and a plan that differ from what the modes do by themselves.
    ModelOptions semi{.parallel_mode = ParallelMode::kSemiAuto, .strategy_ckpt_save_file = in("given.strategy")};
    observe(semi, {.set = nullptr, .network = split_columns});
    ModelOptions automatic = base(ParallelMode::kAutomatic);
    automatic.automatic.save_file = in("given.plan");
    observe(automatic, {.set = nullptr, .network = split_columns});
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }

  static void split_columns(UpAndDown& network) { network.up.shard("matmul", {{1, 1}, {2, 1}}); }
  static void split_sums(UpAndDown& network) { network.down.shard("matmul", {{1, 2}, {1, 2}}); }

  // Plans depend on no measurement.
  static ModelOptions base(ParallelMode mode) {
    ModelOptions options{.parallel_mode = mode};
    options.automatic.profile = compiler::example_profile();
    options.pipeline.profile = compiler::example_profile();
    if (mode == ParallelMode::kPipeline) options.pipeline.stages = options.pipeline.micro_batches = 2;
    return options;
  }

  struct Observed {
    std::string text;  // the plan, the values of two ranks, and which files are there
    std::string log;
  };
  // Two steps on four ranks.
  Observed observe(const ModelOptions& options, const Setting& setting, int num_ranks = kRanks) const {
    std::map<int, std::string> texts;
    std::mutex mutex;
    testing::internal::CaptureStderr();
    try {
      run_ranks(num_ranks, [&](cluster::Context& context) {
        UpAndDown network;
        setting.network(network);
        if (setting.values_differ) {
          network.find_parameter("up.weight").data =
              Tensor::full({DType::kF32, {8, kWidth}}, 0.1 * (1 + context.rank()));
        }
        nn::MSELoss loss;
        nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
        Model model(context, network, &loss, &optimizer, options);
        const auto rows = data::generator({{"x", {DType::kF32, {kWidth}}}, {"y", {DType::kF32, {kWidth}}}}, kRowsOfStep,
                                          [](int64_t row, std::span<const TensorView> columns) {
                                            for (int64_t i = 0; i < kWidth; ++i) {
                                              const auto x = static_cast<float>(row * row + i);
                                              columns[0].as<float>()[i] = x / 8;
                                              columns[1].as<float>()[i] = x / 4 - 1;
                                            }
                                          })
                              .batch(kRowsOfStep);
        model.train(2, rows);
        std::string text;
        for (const auto& name : model.names()) {
          text += fmt::format("{} {}: {}\n", name, model.session().values().type(name),
                              fmt::join(model.value(name).to_doubles(), " "));
        }
        const auto& compiled = model.train_executable()->compiled();
        text += compiler::print(compiled.logical, compiled.plan);
        const std::lock_guard lock(mutex);
        texts[context.rank()] = text;
      });
    } catch (...) {
      testing::internal::GetCapturedStderr();
      throw;
    }
    Observed observed{.text = "", .log = testing::internal::GetCapturedStderr()};
    for (const auto& [rank, text] : texts) observed.text += text;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("new.")) observed.text += name + " is there\n";
      if (name.starts_with("new.")) std::filesystem::remove(entry.path());
    }
    return observed;
  }

  // What is seen, or why the model refuses the options.
  Observed outcome(const ModelOptions& options, const Setting& setting) const {
    try {
      return observe(options, setting);
    } catch (const InvalidArgument& error) {
      return {.text = error.what(), .log = ""};
    }
  }

  std::map<std::string_view, Setting> settings() const {
    const auto share = [](ModelOptions& o) {
      o.parallel_optimizer = true;
      o.parallel_optimizer_threshold = 0;
    };
    const auto share_large = [](ModelOptions& o) { o.parallel_optimizer = true; };
    return {
        {"full_batch", {.set = [](ModelOptions& o) { o.full_batch = true; }}},
        {"sharding_propagation",
         {.set = [](ModelOptions& o) { o.sharding_propagation = true; }, .network = split_columns}},
        {"dataset_strategy",
         {.set =
              [](ModelOptions& o) {
                o.dataset_strategy = {{1, 4}, {4, 1}};
              }}},
        {"strategy_ckpt_save_file",
         {.set = [this](ModelOptions& o) { o.strategy_ckpt_save_file = in("new.strategy"); }}},
        {"strategy_ckpt_load_file",
         {.set = [this](ModelOptions& o) { o.strategy_ckpt_load_file = in("given.strategy"); }}},
        {"group_ckpt_save_file", {.set = [this](ModelOptions& o) { o.group_ckpt_save_file = in("new.group"); }}},
        {"automatic",
         {.set =
              [](ModelOptions& o) {
                o.automatic.planner = [](const ir::Graph& graph) {
                  std::vector<int> ranks = {0, 1, 2, 3};
                  ir::Graph split = graph;
                  for (ir::NodeId n = 0; n < split.num_nodes(); ++n) {
                    ir::Node& node = split.mutable_node(n);
                    if (node.op == "matmul" && node.source == "up" && node.forward == ir::kNone) {
                      node.strategy = {{1, 1}, {4, 1}};
                    }
                  }
                  const auto chosen =
                      compiler::search(split, ranks, compiler::example_profile(), {.whole_results = true});
                  return compiler::record_plan(graph, chosen.choices);
                };
              }}},
        {"automatic.load_file", {.set = [this](ModelOptions& o) { o.automatic.load_file = in("given.plan"); }}},
        {"automatic.save_file", {.set = [this](ModelOptions& o) { o.automatic.save_file = in("new.plan"); }}},
        {"pipeline", {.set = [](ModelOptions& o) { o.pipeline.stages = 2, o.pipeline.micro_batches = 4; }}},
        {"servers",
         {.set = [](ModelOptions& o) { o.servers = 1; }, .network = [](UpAndDown& n) { n.set_on_servers(); }}},
        // Where the ranks have servers; the network's statistics are refused.
        {"server_staleness",
         {.set = [](ModelOptions& o) { o.server_staleness = ServerStaleness::steps(1); },
          .around =
              [](ModelOptions& o) {
                if (o.parallel_mode == ParallelMode::kDataParallel) o.servers = 1;
              },
          .network = [](UpAndDown& n) { n.set_on_servers(); }}},
        // The parameters are small: the threshold goes along.
        {"parallel_optimizer", {.set = share}},
        {"parallel_optimizer_threshold",
         {.set = [](ModelOptions& o) { o.parallel_optimizer_threshold = 0; }, .around = share_large}},
        {"optimizer_weight_shard_size",
         {.set =
              [](ModelOptions& o) {
                o.optimizer_weight_shard_size =
                    o.parallel_mode == ParallelMode::kPipeline ? 1 : 2;  // a stage has 2 ranks
              },
          .around = share}},
        {"gradients_mean", {.set = [](ModelOptions& o) { o.gradients_mean = false; }}},
        {"parameter_broadcast", {.set = [](ModelOptions& o) { o.parameter_broadcast = true; }, .values_differ = true}},
        {"batch_norm_statistics",
         {.set = [](ModelOptions& o) { o.batch_norm_statistics = BatchNormStatistics::kLocal; }}},
    };
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(ModeOptions, HaveAnEffectOrAWordInEveryMode) {
  const auto settings = this->settings();
  ASSERT_EQ(settings.size(), mode_options().size());
  for (const OptionInfo& option : mode_options()) {
    const auto name = option.name_in_cpp();
    const Setting& setting = settings.at(name);
    for (const ParallelMode mode : kModes) {
      SCOPED_TRACE(fmt::format("{} in {}", name, to_string(mode)));
      ModelOptions without = base(mode);
      // The profile is itself an option of automatic parallel.
      if (mode != ParallelMode::kAutomatic) without.automatic.profile.reset();
      const bool around_is_refused = mode == ParallelMode::kHybrid;
      if (!around_is_refused) setting.around(without);
      ModelOptions with = without;
      setting.set(with);
      ASSERT_TRUE(is_set(with, name));
      const std::string word = fmt::format("{} has no effect in {}", name, to_string(mode));
      const OptionUse use = option.uses->in(mode);
      if (use == OptionUse::kRefused) {
        try {
          observe(with, setting);
          ADD_FAILURE() << "the option was taken";
        } catch (const InvalidArgument& error) {
          EXPECT_THAT(error.what(), HasSubstr(std::string(name)));
        }
        continue;
      }
      const Observed before = observe(without, setting);
      const Observed after = outcome(with, setting);
      if (use == OptionUse::kUnused) {
        EXPECT_THAT(after.log, HasSubstr(word));
      } else {
        EXPECT_THAT(after.log, Not(HasSubstr(fmt::format("{} has no effect", name))));
      }
      if (use == OptionUse::kRead) {
        EXPECT_NE(after.text, before.text);
      } else {
        EXPECT_EQ(after.text, before.text);
      }
    }
  }
}

TEST_F(ModeOptions, OneRankNeitherReadsNorWritesFilesAndSaysSo) {
  for (const OptionInfo& option : mode_options()) {
    if (!option.names_file) continue;
    ModelOptions options = base(ParallelMode::kAutomatic);
    settings().at(option.name_in_cpp()).set(options);
    const auto observed = observe(options, {.set = nullptr}, 1);
    EXPECT_THAT(observed.log, HasSubstr(fmt::format("{} has no effect on one rank", option.name_in_cpp())));
    EXPECT_THAT(observed.text, Not(HasSubstr("is there")));
  }
}

TEST_F(ModeOptions, AnOptionThatNeedsAnotherSaysSo) {
  ModelOptions options = base(ParallelMode::kDataParallel);
  options.automatic.profile.reset();
  options.parallel_optimizer_threshold = 1;
  options.optimizer_weight_shard_size = 2;
  const auto observed = observe(options, {.set = nullptr});
  EXPECT_THAT(observed.log, HasSubstr("parallel_optimizer_threshold has no effect without parallel_optimizer\n"));
  EXPECT_THAT(observed.log, HasSubstr("optimizer_weight_shard_size has no effect without parallel_optimizer, "));
  EXPECT_EQ(observed.text, observe({.parallel_mode = ParallelMode::kDataParallel}, {.set = nullptr}).text);
}

TEST(UnusedOptions, SayWhatTheyNeedAndWhatTheyCannotStandBeside) {
  const auto lines = [](const ModelOptions& options, int num_ranks = 4) { return unused_options(options, num_ranks); };
  using testing::ElementsAre;
  using testing::IsEmpty;
  EXPECT_THAT(lines({.session = {.kernel_cache = "cache"}}),
              ElementsAre("session.kernel_cache has no effect without session.kernel_choice"));
  const auto measured = session::KernelChoice::kMeasured;
  EXPECT_THAT(lines({.session = {.kernel_choice = measured, .kernel_cache = "cache"}}), IsEmpty());
  EXPECT_THAT(lines({.session = {.reference_kernels = true, .kernel_choice = measured}}),
              ElementsAre("session.kernel_choice has no effect beside session.reference_kernels"));
  EXPECT_THAT(lines({.session = {.reference_kernels = true, .kernel_choice = measured}, .are_of_python = true}),
              ElementsAre("kernels has no effect beside reference_kernels"));
  const ModelOptions servers{.parallel_mode = ParallelMode::kDataParallel, .servers = 2};
  EXPECT_THAT(lines(servers, 1), ElementsAre("servers has no effect on one rank: `tessera run -n` starts more"));
  EXPECT_THAT(lines(servers), IsEmpty());
  EXPECT_THAT(lines({.parallel_mode = ParallelMode::kPipeline, .pipeline = {.schedule = "gpipe"}}),
              ElementsAre("pipeline has no effect without pipeline.stages, pipeline.ranks, servers"));
}

TEST(UnusedOptions, AreCalledAsTheirUserCallsThem) {
  ModelOptions options{.parallel_mode = ParallelMode::kDataParallel, .are_of_python = true};
  options.automatic.save_file = "a.plan";
  options.pipeline.stages = 2;
  EXPECT_THAT(
      unused_options(options, 4),
      testing::ElementsAre("search[\"save\"] has no effect in data_parallel: only in auto_parallel",
                           "pipeline has no effect in data_parallel: only in auto_parallel, pipeline_parallel"));
  options.are_of_python = false;
  EXPECT_THAT(unused_options(options, 4).front(), testing::StartsWith("automatic.save_file has no effect"));
}

TEST(RefusedOptions, NameTheWayOut) {
  const auto refusal = [](const ModelOptions& options) { require_no_refused(options, 4); };
  EXPECT_THAT([&] { refusal({.parallel_mode = ParallelMode::kAutomatic, .servers = 2}); },
              testing::ThrowsMessage<InvalidArgument>(
                  "servers is not available in auto_parallel: the ranks beside servers train in data_parallel: say "
                  "that, or leave servers out"));
  EXPECT_THAT([&] { refusal({.parallel_mode = ParallelMode::kHybrid, .parallel_optimizer = true}); },
              testing::ThrowsMessage<InvalidArgument>(
                  HasSubstr("leave it out, or train in one of data_parallel, semi_auto_parallel, pipeline_parallel")));
}

TEST(RefusedOptions, NameTheOneThatTheyCannotStandBesideOnAnyNumberOfRanks) {
  ModelOptions options{.session = {.deterministic = true}};
  require_no_refused(options, 1);
  require_no_refused(options, 4);
  options.session.kernel_choice = session::KernelChoice::kMeasured;
  for (const int num_ranks : {1, 4}) {
    EXPECT_THAT([&] { require_no_refused(options, num_ranks); },
                testing::ThrowsMessage<InvalidArgument>("session.deterministic is not available beside "
                                                        "session.kernel_choice: with that another run may give other "
                                                        "bits; leave one of them out"));
  }
  options = {.parallel_mode = ParallelMode::kDataParallel,
             .servers = 1,
             .server_staleness = ServerStaleness::asynchronous(),
             .session = {.deterministic = true},
             .are_of_python = true};
  EXPECT_THAT([&] { require_no_refused(options, 4); },
              testing::ThrowsMessage<InvalidArgument>(
                  testing::StartsWith("deterministic is not available beside server_staleness: ")));
}

TEST_F(ModeOptions, StrategiesSplitOrAWordSaysThatTheyDoNot) {
  for (const ParallelMode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    ModelOptions options{.parallel_mode = mode};
    if (mode == ParallelMode::kAutomatic || mode == ParallelMode::kPipeline) options = base(mode);
    const auto plain = observe(options, {.set = nullptr});
    const auto split = observe(options, {.set = nullptr, .network = split_sums});
    const bool splits = reads_strategies(mode);
    const std::string word = fmt::format(
        "the strategies of 1 operator have no effect in {}: only in "
        "semi_auto_parallel, auto_parallel, pipeline_parallel; \"down:matmul\" has one\n",
        to_string(mode));
    EXPECT_EQ(plain.text == split.text, !splits);
    EXPECT_THAT(plain.log, Not(HasSubstr("strategies")));
    if (splits) {
      EXPECT_THAT(split.log, Not(HasSubstr("strategies")));
    } else {
      EXPECT_THAT(split.log, HasSubstr(word));
      EXPECT_EQ(split.log.find(word), split.log.rfind(word)) << "it is said once: " << split.log;
    }
  }
}

TEST_F(ModeOptions, StagesCutTheNetworkOrAWordSaysThatTheyDoNot) {
  for (const ParallelMode mode : kModes) {
    SCOPED_TRACE(to_string(mode));
    const std::string word =
        fmt::format("the stages of cells have no effect in {}: only in pipeline_parallel; \"down\" is on stage 1\n",
                    to_string(mode));
    const auto log = observe(base(mode), {.set = nullptr}).log;
    if (mode == ParallelMode::kPipeline) {
      EXPECT_THAT(log, Not(HasSubstr("stages of cells")));
    } else {
      EXPECT_THAT(log, HasSubstr(word));
      EXPECT_EQ(log.find(word), log.rfind(word)) << "it is said once: " << log;
    }
  }
}

// A table of three rates, for a training of so many steps and one of two more.
std::string log_of_training(int64_t steps, const nn::LearningRate& rate = std::vector<double>{0.3, 0.2, 0.1}) {
  testing::internal::CaptureStderr();
  run_ranks(2, [&](cluster::Context& context) {
    nn::Dense network(1, 1);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = rate, .momentum = 0});
    Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel});
    const auto rows = data::generator({{"x", {DType::kF32, {1}}}, {"y", {DType::kF32, {1}}}}, 2,
                                      [](int64_t row, std::span<const TensorView> columns) {
                                        *columns[0].as<float>() = static_cast<float>(row);
                                        *columns[1].as<float>() = 1;
                                      })
                          .batch(2);
    model.train(steps, rows);
    model.train(2, rows);
  });
  return testing::internal::GetCapturedStderr();
}

TEST(LearningRates, ATableThatEndsBeforeTheTrainingIsSaidOnce) {
  EXPECT_THAT(log_of_training(1), Not(HasSubstr("learning_rate")));
  for (const int64_t steps : {2, 4}) {
    const std::string word = fmt::format(
        "train: learning_rate has the rates of 3 steps, the training goes on to step {}: the last rate holds from "
        "step 3 on\n",
        std::max<int64_t>(steps, 4));
    const auto log = log_of_training(steps);
    EXPECT_THAT(log, HasSubstr(word));
    EXPECT_EQ(log.find(word), log.rfind(word)) << log;
  }
}

TEST(LearningRates, ATableThatEndsInZerosIsSaidOnceWhoeverMadeIt) {
  const std::string word =
      "train: learning_rate is 0 from step 3 on, the training goes on to step 6: it learns nothing there; give "
      "rates above 0 for 6 steps\n";
  for (const nn::LearningRate& rate :
       {nn::LearningRate(nn::schedules::cosine(0.3, 2)), nn::LearningRate(std::vector<double>{0.3, 0.1, 0})}) {
    const auto log = log_of_training(6, rate);
    EXPECT_THAT(log, HasSubstr(word));
    EXPECT_EQ(log.find("learning_rate"), log.rfind("learning_rate")) << log;
  }
  EXPECT_THAT(log_of_training(1, std::vector<double>{0.3, 0.1, 0}), Not(HasSubstr("learning_rate")));
}

TEST(LearningRates, AScheduleThatEndsInZeroIsSaidFromItsFirstStepWithoutARateOn) {
  const auto log_of = [](int64_t num_rates, int64_t steps) {
    return log_of_training(steps, nn::schedules::cosine(0.3, num_rates));
  };
  const std::string word =
      "learning_rate is 0 from step {} on, the training goes on to step 6: it learns nothing there";
  EXPECT_THAT(log_of(4, 4), HasSubstr(fmt::format(fmt::runtime(word), 5))) << "of the training after the first one";
  EXPECT_THAT(log_of(4, 6), HasSubstr(fmt::format(fmt::runtime(word), 5)));
  EXPECT_THAT(log_of(5, 6), HasSubstr(fmt::format(fmt::runtime(word), 6)));
  EXPECT_THAT(log_of(6, 4), Not(HasSubstr("learning_rate")));
}

TEST(LearningRates, ATableThatEndsInALevelRateIsMeantToHold) {
  EXPECT_THAT(log_of_training(4, nn::schedules::linear(0.3, 0.1, 2)), Not(HasSubstr("learning_rate")));
  EXPECT_THAT(log_of_training(4, std::vector<double>{0.3, 0.1, 0.1}), Not(HasSubstr("learning_rate")));
}

}  // namespace
}  // namespace tessera::train
