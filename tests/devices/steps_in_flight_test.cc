// A device that is given steps ahead: while it does one, the host reads the batch of the next. Losses, values, errors
// and what callbacks see are those of the CPU, which ends a step before it begins the next one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>

#include "tessera/base/random.h"
#include "tessera/data/dataset.h"
#include "tessera/executor/executor.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/executable.h"
#include "tessera/testing/devices/fake_communicators.h"
#include "tessera/testing/devices/fake_device.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::devices {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using train::Model;
using train::ModelOptions;
using train::ParallelMode;
using train::RunContext;

constexpr int64_t kRows = 8;  // of a batch
constexpr int64_t kClasses = 3;
constexpr int64_t kNumbers = 6;  // of a row
constexpr int64_t kSteps = 6;    // of an epoch, the last of fewer rows
constexpr int64_t kRowsOfEpoch = (kSteps - 1) * kRows + 4;

// A row of zeros has a loss, and a gradient that is not finite.
struct Classifier : nn::Cell {
  nn::Dense& body = child<nn::Dense>("body", kNumbers, 5, nn::DenseOptions{.has_bias = false});
  nn::Dense& head = child<nn::Dense>("head", 5, kClasses);
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return head(ops::sqrt(ops::abs(body(x)))); }
};

enum class Fault { kNone, kLoss, kGradient, kLabel };

// Rows of numbers with a label, of which one is at fault.
struct Data {
  Fault fault = Fault::kNone;
  int64_t step = 0;         // from 1: in whose batch
  int64_t row_in_step = 1;  // below 4, as many as the last batch has

  data::Dataset dataset() const {
    const int64_t odd = fault == Fault::kNone ? -1 : (step - 1) * kRows + row_in_step;
    const auto read = [fault = fault, odd](int64_t row, std::span<const TensorView> to) {
      for (int64_t i = 0; i < kNumbers; ++i) {
        float number = random_uniform({.seed = 9, .stream = static_cast<uint64_t>(row)}, static_cast<uint64_t>(i));
        if (row == odd && fault == Fault::kLoss) number = std::numeric_limits<float>::infinity();
        if (row == odd && fault == Fault::kGradient) number = 0;
        to[0].as<float>()[i] = number;
      }
      const bool is_bad = row == odd && fault == Fault::kLabel;
      *to[1].as<int32_t>() = static_cast<int32_t>(is_bad ? kClasses : row % kClasses);
    };
    return data::generator({{"x", {DType::kF32, {kNumbers}}}, {"label", {DType::kI32, {}}}}, kRowsOfEpoch, read)
        .batch(kRows);
  }
};

struct Row {
  Data data = {};
  int ranks = 1;
  int64_t num_epochs = 2;
  bool may_skip = false;
  double loss_scale = 0;  // fixed, where a step may be skipped; 0: a dynamic one
  int64_t sink_size = 0;  // 0: the data set does not sink
  int64_t accumulated = 1;
  // Called after each step that is reported.
  std::function<void(RunContext&)> after_step = {};
};

// What rank 0 has seen.
struct Seen {
  std::vector<std::string> steps;  // as callbacks are told of them
  std::map<std::string, std::vector<uint64_t>> values;
  std::string error;
  std::string ended_at;
  int64_t step = 0;
  bool was_skipped = false;

  bool operator==(const Seen&) const = default;
};

// All NaNs are alike.
std::vector<uint64_t> bits_of(const Tensor& value) {
  std::vector<uint64_t> bits;
  for (const double x : value.to_doubles()) bits.push_back(std::isnan(x) ? ~uint64_t{0} : std::bit_cast<uint64_t>(x));
  return bits;
}

std::map<std::string, std::vector<uint64_t>> values_of(Model& model) {
  std::map<std::string, std::vector<uint64_t>> values;
  for (const auto& name : model.names()) values[name] = bits_of(model.value(name));
  return values;
}

std::string words_of(const RunContext& run) {
  return fmt::format("epoch {} step {} in all {} of {} rows: {}", run.epoch, run.step_in_epoch, run.step,
                     run.rows_of_epoch, run.loss);
}

class Watcher : public train::Callback {
 public:
  Watcher(Seen& seen, std::function<void(RunContext&)> after_step) : seen_(seen), after_step_(std::move(after_step)) {}
  void step_begin(RunContext& run) override {
    seen_.steps.push_back(fmt::format("begin of step {}", run.step_in_epoch));
  }
  void step_end(RunContext& run) override {
    seen_.steps.push_back(words_of(run));
    if (after_step_) after_step_(run);
  }
  void epoch_end(RunContext& run) override { seen_.steps.push_back(fmt::format("end of epoch {}", run.epoch)); }
  void end(RunContext& run) override { seen_.ended_at = words_of(run); }

 private:
  Seen& seen_;
  std::function<void(RunContext&)> after_step_;
};

Seen train(const Row& row, const kernels::Backend& backend, int steps_in_flight) {
  Seen of_first;
  std::mutex mutex;
  run_ranks(row.ranks, [&](cluster::Context& context) {
    Classifier network;
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    ModelOptions options;
    options.metrics = {train::accuracy()};
    options.session.backend = &backend;
    options.session.num_threads = 1;
    options.seed = 3;
    options.steps_in_flight = steps_in_flight;
    options.gradient_accumulation_steps = row.accumulated;
    if (row.ranks > 1) options.parallel_mode = ParallelMode::kDataParallel;
    if (row.may_skip) {
      options.loss_scale = row.loss_scale > 0 ? nn::fixed_loss_scale(row.loss_scale) : nn::dynamic_loss_scale();
    }
    Model model(context, network, &loss, &optimizer, options);
    Seen seen;
    try {
      model.train(row.num_epochs, row.data.dataset(), {Watcher(seen, row.after_step)},
                  {.dataset_sink_mode = row.sink_size > 0, .sink_size = row.sink_size > 0 ? row.sink_size : -1});
    } catch (const std::exception& error) {
      seen.error = error.what();
    }
    seen.values = values_of(model);
    seen.step = model.step();
    seen.was_skipped = model.was_skipped();
    const std::lock_guard lock(mutex);
    if (context.rank() == 0) of_first = seen;
  });
  return of_first;
}

// Returns what the CPU has seen.
Seen expect_as_on_cpu(const Row& row, std::initializer_list<int> in_flight = {1, 2, 4}) {
  const auto cpu = kernels::cpu_backend();
  const Seen expected = train(row, cpu, 2);
  uint64_t seed = 0;
  for (const int steps_in_flight : in_flight) {
    // The last time devices of several ranks communicate by themselves.
    for (int i = 0; i < (row.ranks > 1 ? 3 : 2); ++i) {
      FakeDevice device(++seed);
      FakeCommunicators communicators;
      const bool communicate = i == 2;
      const auto fake = fake_backend(device, /*plain_loops=*/false, communicate ? &communicators : nullptr);
      const Seen seen = train(row, fake, steps_in_flight);
      const auto about = fmt::format("{} in flight, seed {}, {} ranks{}", steps_in_flight, seed, row.ranks,
                                     communicate ? " that communicate" : "");
      EXPECT_EQ(communicators.num_calls() > 0, communicate) << about;
      EXPECT_EQ(seen.steps, expected.steps) << about;
      EXPECT_EQ(seen.error, expected.error) << about;
      EXPECT_EQ(seen.ended_at, expected.ended_at) << about;
      EXPECT_EQ(seen.step, expected.step) << about;
      EXPECT_EQ(seen.was_skipped, expected.was_skipped) << about;
      EXPECT_EQ(seen.values, expected.values) << about;
    }
  }
  return expected;
}

// With callbacks after each step, after several, and after an epoch.
constexpr int64_t kSinkSizes[] = {0, 4, kSteps};

TEST(StepsInFlight, GiveTheLossesAndValuesOfTheCpuThoughBatchesChangeTheirShape) {
  for (const int ranks : {1, 2, 4}) {
    for (const int64_t sink_size : kSinkSizes) {
      const Seen seen = expect_as_on_cpu({.ranks = ranks, .sink_size = sink_size}, {0, 1, 2, 3, 4});
      EXPECT_THAT(seen.error, IsEmpty());
      EXPECT_EQ(seen.step, 2 * kSteps);
    }
  }
}

TEST(StepsInFlight, GiveThemWhereStepsMayBeSkippedAndWhereGradientsAreAccumulated) {
  for (const int ranks : {1, 2}) {
    for (const int64_t sink_size : kSinkSizes) {
      expect_as_on_cpu({.ranks = ranks, .may_skip = true, .sink_size = sink_size});
      expect_as_on_cpu({.ranks = ranks, .sink_size = sink_size / 2, .accumulated = 2});
    }
  }
}

TEST(StepsInFlight, NameALossThatIsNotFiniteAndKeepTheValuesBeforeItsStep) {
  for (const int ranks : {1, 2}) {
    for (const int64_t step : {int64_t{1}, int64_t{3}, kSteps}) {
      for (const int64_t sink_size : kSinkSizes) {
        const Seen seen = expect_as_on_cpu({.data = {Fault::kLoss, step}, .ranks = ranks, .sink_size = sink_size});
        EXPECT_THAT(seen.error, HasSubstr(fmt::format("epoch: 1 step: {}. Invalid loss", step)));
        EXPECT_THAT(seen.error, HasSubstr("first non-finite result: "));
        EXPECT_EQ(seen.step, step - 1);
      }
    }
  }
}

TEST(StepsInFlight, GoOnFromAGradientThatIsNotFiniteAsTheCpuDoes) {
  for (const int ranks : {1, 2}) {
    for (const int64_t step : {int64_t{1}, int64_t{3}, kSteps}) {
      for (const int64_t sink_size : kSinkSizes) {
        // Nobody looks at it: the next loss is not finite.
        const Row row{.data = {Fault::kGradient, step}, .ranks = ranks, .num_epochs = 1, .sink_size = sink_size};
        const Seen seen = expect_as_on_cpu(row);
        if (step < kSteps) {
          EXPECT_THAT(seen.error, HasSubstr(fmt::format("epoch: 1 step: {}. Invalid loss", step + 1)));
        } else {
          EXPECT_THAT(seen.error, IsEmpty());
        }
        EXPECT_EQ(seen.step, step);
      }
    }
  }
}

TEST(StepsInFlight, SkipWhatTheCpuSkips) {
  for (const int ranks : {1, 2}) {
    for (const auto fault : {Fault::kGradient, Fault::kLoss}) {
      for (const int64_t step : {int64_t{1}, int64_t{3}, kSteps}) {
        const Row row{.data = {fault, step}, .ranks = ranks, .num_epochs = 1, .may_skip = true};
        const Seen seen = expect_as_on_cpu(row);
        EXPECT_THAT(seen.error, IsEmpty());
        EXPECT_EQ(seen.was_skipped, step == kSteps);
      }
    }
    // No scale changes the loss.
    const Seen fixed = expect_as_on_cpu({.data = {Fault::kLoss, 3}, .ranks = ranks, .may_skip = true, .loss_scale = 8});
    EXPECT_THAT(fixed.error, HasSubstr("loss is not finite, with a loss scale that cannot fall"));
    EXPECT_EQ(fixed.step, 2);
  }
}

TEST(StepsInFlight, NameABadLabelAfterWhatCameBefore) {
  for (const int ranks : {1, 2}) {
    for (const int64_t step : {int64_t{1}, int64_t{3}, kSteps}) {
      for (const int64_t sink_size : kSinkSizes) {
        const Seen seen = expect_as_on_cpu({.data = {Fault::kLabel, step}, .ranks = ranks, .sink_size = sink_size});
        EXPECT_THAT(seen.error, HasSubstr(fmt::format("epoch 1, batch {}: ", step)));
        EXPECT_EQ(seen.step, step - 1);
      }
    }
  }
}

// The fault is of one rank: in the last batch the first row is the first rank's, and the fourth the last one's.
TEST(StepsInFlight, StopOnAllRanksForWhatOneOfThemHas) {
  for (const int ranks : {2, 4}) {
    for (const auto fault : {Fault::kLoss, Fault::kGradient, Fault::kLabel}) {
      for (const int64_t step : {int64_t{1}, int64_t{3}, kSteps}) {
        for (const int64_t row : {0, 3}) {
          const Seen seen = expect_as_on_cpu(
              {.data = {.fault = fault, .step = step, .row_in_step = row}, .ranks = ranks, .num_epochs = 1}, {2});
          const bool is_seen_later = fault == Fault::kGradient;
          EXPECT_EQ(seen.step, is_seen_later ? step : step - 1);
          EXPECT_EQ(seen.error.empty(), is_seen_later && step == kSteps) << seen.error;
        }
      }
    }
  }
}

TEST(StepsInFlight, ShowCallbacksTheValuesOfTheirStep) {
  for (const int ranks : {1, 2}) {
    for (const int64_t sink_size : kSinkSizes) {
      std::vector<std::map<std::string, std::vector<uint64_t>>> of_cpu;
      for (const int steps_in_flight : {0, 1, 2, 4}) {
        std::vector<std::map<std::string, std::vector<uint64_t>>> all;
        const Row row{.ranks = ranks, .sink_size = sink_size, .after_step = [&](RunContext& run) {
                        const auto values = values_of(run.model);
                        if (run.model.context().rank() == 0) all.push_back(values);
                      }};
        FakeDevice device(static_cast<uint64_t>(steps_in_flight) + 20);
        // The CPU first.
        train(row, steps_in_flight == 0 ? kernels::cpu_backend() : fake_backend(device), steps_in_flight);
        if (steps_in_flight == 0) of_cpu = all;
        EXPECT_THAT(all, Not(IsEmpty()));
        EXPECT_EQ(all, of_cpu);
      }
    }
  }
}

TEST(StepsInFlight, TakeWhatCallbacksDoBetweenThem) {
  const auto at = [](int64_t step, std::function<void(RunContext&)> call) {
    return [step, call = std::move(call)](RunContext& run) {
      if (run.step == step) call(run);
    };
  };
  const auto halve_rate = [](RunContext& run) {
    const double rate = run.model.value("learning_rate").item();
    run.model.set_value("learning_rate", Tensor::full({DType::kF32, {}}, rate / 2));
  };
  const auto evaluate = [](RunContext& run) {
    const double accuracy = run.model.eval(Data().dataset()).at("accuracy");
    run.model.set_value("head.bias", Tensor::full({DType::kF32, {kClasses}}, accuracy));
  };
  for (const int ranks : {1, 2}) {
    for (const int64_t sink_size : {0, 2}) {
      for (const int64_t step : {2, 4, 8}) {
        expect_as_on_cpu({.ranks = ranks, .sink_size = sink_size, .after_step = at(step, halve_rate)}, {2, 3});
        expect_as_on_cpu({.ranks = ranks, .sink_size = sink_size, .after_step = at(step, evaluate)}, {2, 3});
      }
      const Seen stopped = expect_as_on_cpu(
          {.ranks = ranks, .sink_size = sink_size, .after_step = at(4, [](RunContext& run) { run.request_stop(); })},
          {2, 3});
      EXPECT_EQ(stopped.step, 4);
      const Seen thrown = expect_as_on_cpu(
          {.ranks = ranks, .sink_size = sink_size, .after_step = at(4, [](RunContext&) { throw Error("enough"); })},
          {2, 3});
      EXPECT_EQ(thrown.error, "enough");
      EXPECT_EQ(thrown.step, 4);
    }
  }
}

TEST(StepsInFlight, SaveTheStepThatIsDone) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tessera-in-flight-{}", ::getpid());
  for (const bool async : {false, true}) {
    for (const int64_t sink_size : {0, 2}) {
      std::filesystem::create_directories(folder);
      const auto path = (folder / "x.ckpt").string();
      const Row row{.sink_size = sink_size, .after_step = [&](RunContext& run) {
                      if (run.step == 4) run.model.save_checkpoint(path, {.async = async});
                    }};
      const Seen whole = expect_as_on_cpu(row, {2, 3});
      // What was saved last is the device's: the CPU goes on with it.
      const auto context = cluster::single_context(1);
      Classifier network;
      nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
      nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
      ModelOptions options;
      options.seed = 3;
      options.session.num_threads = 1;
      Model model(*context, network, &loss, &optimizer, options);
      model.load_checkpoint(path);
      EXPECT_EQ(model.step(), 4);
      model.train(row.num_epochs, row.data.dataset());
      EXPECT_EQ(values_of(model), whole.values);
      std::filesystem::remove_all(folder);
    }
  }
}

struct Trained {
  Trained(const kernels::Backend& backend, int steps_in_flight) {
    ModelOptions options;
    options.steps_in_flight = steps_in_flight;
    options.session.backend = &backend;
    options.session.num_threads = 1;
    options.seed = 3;
    model = std::make_unique<Model>(*context, network, &loss, &optimizer, options);
  }
  void train(double number) { model->train_step({numbers(number).view(), labels.view()}, kRows); }
  // Gives the step without looking at its loss.
  void start(double number) {
    session::Executable& step = *model->train_executable();
    copy_elements(numbers(number).view(), step.input("input0"));
    copy_elements(labels.view(), step.input("input1"));
    step.start();
  }
  const TensorView& loss_of_step() const { return model->train_executable()->output("loss"); }
  static Tensor numbers(double number) { return Tensor::full({DType::kF32, {kRows, kNumbers}}, number); }

  std::unique_ptr<cluster::Context> context = cluster::single_context(1);
  Classifier network;
  nn::SoftmaxCrossEntropyWithLogits loss{{.sparse = true, .reduction = "mean"}};
  nn::Momentum optimizer{{.learning_rate = 0.1, .momentum = 0.9}};
  Tensor labels = Tensor::zeros({DType::kI32, {kRows}});
  std::unique_ptr<Model> model;
};

TEST(StepsInFlight, LeaveADeviceBusyWhenTheirLossIsKnown) {
  int64_t most_left = 0;
  for (const int steps_in_flight : {1, 2}) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      FakeDevice device(seed);
      const auto fake = fake_backend(device);
      Trained trained(fake, steps_in_flight);
      for (int step = 0; step < 4; ++step) {
        trained.train(0.5);
        if (steps_in_flight == 1) {
          EXPECT_EQ(device.num_unfinished(), 0);
        } else {
          most_left = std::max(most_left, device.num_unfinished());
        }
      }
    }
  }
  EXPECT_GT(most_left, 3) << "kernels of the backward pass and of the update";
}

TEST(StepsInFlight, AreGivenWhileEarlierOnesAreNotDoneThoughTheHostLooksAtTheirLabels) {
  int64_t most_left = 0;
  int64_t of_a_step = 0;  // kernels and copies
  for (uint64_t seed = 0; seed < 16; ++seed) {
    FakeDevice device(seed);
    const auto fake = fake_backend(device);
    Trained trained(fake, 4);
    trained.train(0.5);
    values_of(*trained.model);  // all is done
    const int64_t before = device.num_kernels() + device.num_copies();
    trained.start(0.5);
    of_a_step = device.num_kernels() + device.num_copies() - before;
    for (int step = 1; step < 4; ++step) trained.start(0.5);
    most_left = std::max(most_left, device.num_unfinished());
    for (int step = 0; step < 4; ++step) trained.model->train_executable()->finish();
  }
  EXPECT_GT(most_left, 2 * of_a_step);
}

TEST(StepsInFlight, AreOneRecordingEachWhereNobodyLooksInMidStep) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    FakeDevice device(seed);
    const auto fake = fake_backend(device);
    const auto replays_of = [&](const std::function<void()>& call) {
      const int64_t before = device.num_replays();
      call();
      return device.num_replays() - before;
    };
    Trained one_by_one(fake, 1);
    for (int step = 0; step < 4; ++step) {
      EXPECT_EQ(replays_of([&] { one_by_one.train(0.5); }), step == 0 ? 0 : 1) << "step " << step;
    }
    Trained trained(fake, 3);
    for (int step = 0; step < 4; ++step) {
      EXPECT_EQ(replays_of([&] { trained.train(0.5); }), step == 0 ? 0 : 2) << "before and behind its loss " << step;
    }
    session::Executable& ahead = *trained.model->train_executable();
    for (int step = 0; step < 8; ++step) {
      EXPECT_EQ(replays_of([&] { trained.start(0.5); }), step == 0 ? 0 : 1) << "step " << step;
      if (step < 2) continue;
      ahead.finish();
      one_by_one.train(0.5);
      EXPECT_EQ(Tensor::copy_of(ahead.output("loss")).item(), Tensor::copy_of(one_by_one.loss_of_step()).item());
    }
    for (int step = 0; step < 2; ++step) {
      ahead.finish();
      one_by_one.train(0.5);
    }
    EXPECT_EQ(values_of(*trained.model), values_of(*one_by_one.model));
  }
}

TEST(StepsInFlight, ChangeNothingBehindALossThatIsNotFinite) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    FakeDevice device(seed);
    const auto fake = fake_backend(device);
    Trained ahead(fake, 4);
    Trained one_by_one(fake, 1);
    for (int round = 0; round < 3; ++round) {
      ahead.train(0.5);
      session::Executable& step = *ahead.model->train_executable();
      ASSERT_TRUE(step.may_run_ahead());
      ahead.start(0.25);
      ahead.start(std::numeric_limits<double>::infinity());
      ahead.start(0.75);
      ahead.start(1.5);
      step.finish();
      const double loss = Tensor::copy_of(step.output("loss")).item();
      EXPECT_THAT([&] { step.finish(); },
                  testing::ThrowsMessage<executor::NonFiniteLoss>(HasSubstr("first non-finite result: ")));
      step.forget();
      one_by_one.train(0.5);
      EXPECT_EQ(one_by_one.model->train_step({Trained::numbers(0.25).view(), one_by_one.labels.view()}, kRows), loss);
      EXPECT_EQ(values_of(*ahead.model), values_of(*one_by_one.model)) << "round " << round;
    }
  }
}

TEST(StepsInFlight, AreAtLeastNone) {
  const auto context = cluster::single_context(1);
  Classifier network;
  EXPECT_THAT([&] { Model(*context, network, nullptr, nullptr, {.steps_in_flight = -1}); },
              testing::ThrowsMessage<InvalidArgument>(HasSubstr("steps_in_flight must be at least 0")));
}

}  // namespace
}  // namespace tessera::devices
