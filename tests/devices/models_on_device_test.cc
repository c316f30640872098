// What a model does beside its steps, on the fake device: data sets, evaluations, checkpoints, errors. Where there is
// something to compare with, the CPU says what is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>

#include "tessera/base/random.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/data/dataset.h"
#include "tessera/executor/executor.h"
#include "tessera/executor/kernel_selection.h"
#include "tessera/nn/layers/convolution.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/devices/fake_communicators.h"
#include "tessera/testing/devices/fake_device.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/timeline/timeline_recorder.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::devices {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using testing::ThrowsMessage;
using train::Model;
using train::ModelOptions;
using train::ParallelMode;

constexpr int64_t kRows = 8;
constexpr int64_t kClasses = 3;

// Classifies small images, which lie channels-last, and a token each.
struct Classifier : nn::Cell {
  nn::Conv2d& conv = child<nn::Conv2d>("conv", 3, 4, nn::Conv2dOptions{.kernel = 3});
  nn::Dropout& dropout = child<nn::Dropout>("dropout", 0.8);
  nn::Dense& head = child<nn::Dense>("head", 4, kClasses);
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return head(dropout(ops::reduce_mean(ops::relu(conv(x)), {2, 3}))); }
};

// A row whose label or first pixel is as it is told, among good ones.
struct Odd {
  int64_t row = -1;
  int64_t label = 0;
  float pixel = 0;
};

data::Dataset images(int64_t rows, const Odd& odd = {}) {
  return data::generator({{"image", {DType::kF32, {3, 6, 6}}}, {"label", {DType::kI32, {}}}}, rows,
                         [odd](int64_t row, std::span<const TensorView> to) {
                           Tensor image(DType::kF32, {3, 6, 6});
                           const auto pixels = image.values<float>();
                           for (size_t i = 0; i < pixels.size(); ++i) {
                             pixels[i] = random_uniform({.seed = 9, .stream = static_cast<uint64_t>(row)}, i);
                           }
                           if (row == odd.row) pixels[0] += odd.pixel;
                           copy_elements(image.view(), to[0]);
                           const int64_t label = row == odd.row && odd.pixel == 0 ? odd.label : row % kClasses;
                           *to[1].as<int32_t>() = static_cast<int32_t>(label);
                         })
      .batch(kRows);
}

struct Trained {
  Trained(cluster::Context& context, const kernels::Backend& backend, ModelOptions options = {}) {
    options.metrics = {train::accuracy()};
    options.session.backend = &backend;
    options.session.num_threads = 1;
    options.seed = 3;
    model = std::make_unique<Model>(context, network, &loss, &optimizer, options);
  }
  std::map<std::string, std::vector<double>> values() {
    std::map<std::string, std::vector<double>> all;
    for (const auto& name : model->names()) all[name] = model->value(name).to_doubles();
    return all;
  }
  Classifier network;
  nn::SoftmaxCrossEntropyWithLogits loss{{.sparse = true, .reduction = "mean"}};
  nn::Momentum optimizer{{.learning_rate = 0.1, .momentum = 0.9}};
  std::unique_ptr<Model> model;
};

// The parameter: devices communicate by themselves.
class ModelsOnDevice : public testing::TestWithParam<bool> {
 protected:
  ModelsOnDevice() { std::filesystem::create_directories(folder_); }
  ~ModelsOnDevice() override { std::filesystem::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }
  const kernels::Backend& cpu() const { return cpu_; }
  const kernels::Backend& fake() const { return fake_; }
  const FakeDevice& device() const { return device_; }

  // What `use` makes of a model, on the CPU and on the device; of rank 0.
  using Result = std::map<std::string, std::vector<double>>;
  void expect_alike(int ranks, const ModelOptions& options, const std::function<Result(Trained&)>& use) {
    std::vector<Result> results;
    for (const kernels::Backend* backend : {&cpu_, &fake_}) {
      std::mutex mutex;
      run_ranks(ranks, [&](cluster::Context& context) {
        Trained trained(context, *backend, options);
        const auto result = use(trained);
        const std::lock_guard lock(mutex);
        if (context.rank() == 0) results.push_back(result);
      });
    }
    EXPECT_EQ(results[0], results[1]);
  }

 private:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-device-{}", ::getpid());
  FakeDevice device_{11};
  kernels::Backend cpu_ = kernels::cpu_backend();
  FakeCommunicators communicators_;
  kernels::Backend fake_ = fake_backend(device_, /*plain_loops=*/false, GetParam() ? &communicators_ : nullptr);
};

INSTANTIATE_TEST_SUITE_P(Collectives, ModelsOnDevice, testing::Bool(),
                         [](const auto& info) { return info.param ? "of_devices" : "of_the_host"; });

TEST_P(ModelsOnDevice, TrainOnADataSetAndEvaluateAsOnTheCpu) {
  const auto use = [](Trained& t) {
    t.model->train(2, images(5 * kRows + 3));
    auto result = t.values();
    for (const auto& [name, value] : t.model->eval(images(2 * kRows + 1))) result[name] = {value};
    return result;
  };
  expect_alike(1, {}, use);
  expect_alike(2, {.parallel_mode = ParallelMode::kDataParallel}, use);
  expect_alike(2, {.parallel_mode = ParallelMode::kSemiAuto, .full_batch = true}, use);
  expect_alike(1, {.gradient_accumulation_steps = 3}, [](Trained& t) {
    t.model->train(1, images(6 * kRows));
    return t.values();
  });
}

TEST_P(ModelsOnDevice, PredictAsOnTheCpu) {
  Tensor x(DType::kF32, {4, 3, 6, 6});
  for (int64_t i = 0; i < x.num_elements(); ++i) {
    x.values<float>()[static_cast<size_t>(i)] = static_cast<float>(std::sin(static_cast<double>(i)));
  }
  expect_alike(1, {}, [&](Trained& t) { return Result{{"y", t.model->predict({x}).to_doubles()}}; });
}

TEST_P(ModelsOnDevice, GoOnWithACheckpointOfTheCpuAndTheOtherWayRound) {
  for (const bool async : {false, true}) {
    for (const bool integrated : {true, false}) {
      // Trains an epoch, from a checkpoint where one is named; saves, and trains another, while it is being saved.
      const auto train = [&](int ranks, const kernels::Backend& backend, const std::string& load,
                             const std::string& save) {
        Result result;
        run_ranks(ranks, [&](cluster::Context& context) {
          Trained trained(context, backend,
                          {.parallel_mode = ParallelMode::kSemiAuto,
                           .parallel_optimizer = true,
                           .parallel_optimizer_threshold = 0});
          if (!load.empty()) trained.model->load_checkpoint(load);
          trained.model->train(1, images(4 * kRows));
          if (!save.empty()) {
            trained.model->save_checkpoint(save, {.integrated = integrated, .async = async});
            trained.model->train(1, images(4 * kRows));
            trained.model->finish_saves();
          }
          const auto values = trained.values();
          if (context.rank() == 0) result = values;
        });
        return result;
      };
      for (const int ranks : {1, 2}) {
        const auto name = fmt::format("{}{}{}", ranks, async ? "a" : "s", integrated ? "w" : "p");
        const auto of_cpu = in("cpu-" + name + "/x.ckpt");
        const auto of_device = in("device-" + name + "/x.ckpt");
        const auto never_stopped = train(ranks, cpu(), "", of_cpu);
        EXPECT_EQ(train(ranks, fake(), "", of_device), never_stopped);
        EXPECT_EQ(train(ranks, fake(), of_cpu, ""), never_stopped);
        EXPECT_EQ(train(ranks, cpu(), of_device, ""), never_stopped);
        EXPECT_EQ(train(ranks, fake(), of_device, ""), never_stopped);
      }
    }
  }
}

TEST_P(ModelsOnDevice, NameABadIndexAndUpdateNothing) {
  for (const bool may_skip : {false, true}) {
    ModelOptions options;
    if (may_skip) options.loss_scale = nn::dynamic_loss_scale();
    const auto context = cluster::single_context(1);
    Trained trained(*context, fake(), options);
    Trained other(*context, fake(), options);
    other.model->train(1, images(2 * kRows));
    EXPECT_THAT([&] { trained.model->train(1, images(3 * kRows, {.row = 19, .label = 5})); },
                ThrowsMessage<executor::InvalidIndex>(
                    StartsWith("epoch 1, batch 3: column \"label\": row 3 holds 5 at [3]; an index of ")));
    EXPECT_EQ(trained.values(), other.values());
  }
}

TEST_P(ModelsOnDevice, NameABadIndexOfOneRankOnAllOfThem) {
  run_ranks(2, [&](cluster::Context& context) {
    Trained trained(context, fake(), {.parallel_mode = ParallelMode::kDataParallel});
    const auto before = trained.values();
    EXPECT_THAT([&] { trained.model->train(1, images(2 * kRows, {.row = 5, .label = -2})); },
                ThrowsMessage<executor::InvalidIndex>(HasSubstr("holds -2 at ")));
    EXPECT_EQ(trained.values(), before);
  });
}

TEST_P(ModelsOnDevice, SayWhereALossThatIsNotFiniteBegan) {
  const Odd odd{.row = 9, .pixel = std::numeric_limits<float>::infinity()};
  for (const int ranks : {1, 2}) {
    std::vector<std::string> errors;
    for (const kernels::Backend* backend : {&cpu(), &fake()}) {
      std::mutex mutex;
      run_ranks(ranks, [&](cluster::Context& context) {
        Trained trained(context, *backend, {.parallel_mode = ParallelMode::kDataParallel});
        const auto value_before = trained.model->value("head.weight").to_doubles();
        try {
          trained.model->train(1, images(3 * kRows, odd).take(3));
        } catch (const Error& error) {
          const std::lock_guard lock(mutex);
          if (context.rank() == 0) errors.emplace_back(error.what());
        }
        EXPECT_NE(trained.model->value("head.weight").to_doubles(), value_before);  // of the steps before
      });
    }
    ASSERT_EQ(errors.size(), 2U);
    EXPECT_THAT(errors[0], HasSubstr("Invalid loss, terminating training. loss is "));
    EXPECT_EQ(errors[0], errors[1]);
  }
}

TEST_P(ModelsOnDevice, TakeAndGiveValuesByName) {
  const auto context = cluster::single_context(1);
  Trained trained(*context, fake());
  const Tensor bias = Tensor::of<float>({kClasses}, {1, 2, 3});
  trained.model->set_value("head.bias", bias);
  EXPECT_TRUE(bit_equal(trained.model->value("head.bias"), bias));
  const auto& values = trained.model->session().values();
  EXPECT_FALSE(values.in_place("head.bias"));
  EXPECT_TRUE(bit_equal(values.read("head.bias"), bias));
  EXPECT_THAT([&] { values.read("tail.bias"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("no parameter or state is named \"tail.bias\"")));
}

TEST_P(ModelsOnDevice, TakeTheValuesOfTheFirstRank) {
  for (const auto mode : {ParallelMode::kDataParallel, ParallelMode::kSemiAuto}) {
    run_ranks(2, [&](cluster::Context& context) {
      Classifier network;
      for (nn::Parameter* parameter : network.parameters()) {
        parameter->data = Tensor::full(parameter->type, 1 + context.rank());
      }
      Model model(context, network, nullptr, nullptr,
                  {.parallel_mode = mode, .parameter_broadcast = true, .session = {.backend = &fake()}});
      for (const auto& name : {"conv.weight", "head.bias"}) {
        EXPECT_THAT(model.session().values().read(name).to_doubles(), testing::Each(1)) << name;
      }
    });
  }
}

TEST_P(ModelsOnDevice, HaveARowOfTheirOwnInATimeline) {
  const auto context = cluster::single_context(1);
  Trained trained(*context, fake());
  Trained untraced(*context, fake());
  auto& recorder = *context->recorder();
  untraced.model->train(1, images(4 * kRows));
  recorder.begin({.file = in("job.json")}, context->file_system(), Clock::system());
  trained.model->train(1, images(4 * kRows));
  const timeline::RankTimeline timeline = recorder.timeline();
  recorder.end();
  EXPECT_EQ(trained.values(), untraced.values()) << "what is recorded changes nothing";
  const auto row = std::ranges::find(timeline.lanes, "device fake stream compute", &timeline::RecordedLane::title);
  ASSERT_NE(row, timeline.lanes.end());
  const auto is_within_a_run = [&](const timeline::TimedSpan& span) {
    return std::ranges::any_of(timeline.lanes.front().spans, [&](const timeline::TimedSpan& other) {
      return timeline.names[other.name].kind == timeline::SpanKind::kRun && other.step == span.step &&
             other.begin_ns <= span.begin_ns && span.end_ns <= other.end_ns;
    });
  };
  int64_t free_ns = 0;
  std::map<int64_t, std::pair<int, int>> by_step;  // operators, and pieces that are replayed as one
  for (const timeline::TimedSpan& span : row->spans) {
    const timeline::SpanName& name = timeline.names[span.name];
    EXPECT_EQ(name.kind, timeline::SpanKind::kDevice) << name.text;
    EXPECT_GE(span.begin_ns, free_ns) << name.text;
    EXPECT_GE(span.end_ns, span.begin_ns) << name.text;
    EXPECT_TRUE(is_within_a_run(span)) << name.text;
    free_ns = span.end_ns;
    auto& [operators, together] = by_step[span.step];
    (name.text.ends_with("as one") ? together : operators) += 1;
  }
  ASSERT_EQ(by_step.size(), 4U);
  EXPECT_GE(by_step[1].first, 5) << "operators of the first run";
  EXPECT_EQ(by_step[1].second, 0);
  EXPECT_GE(by_step[3].second, 1) << "what is replayed";
}

TEST_P(ModelsOnDevice, RefuseWhatADeviceDoesNotDo) {
  const auto context = cluster::single_context(1);
  EXPECT_THAT([&] { Trained(*context, fake(), {.session = {.reference_kernels = true}}); },
              ThrowsMessage<InvalidArgument>(StartsWith("reference kernels compute on the CPU")));
}

TEST_P(ModelsOnDevice, HaveTheirOwnKernelsWhereOthersAreMeasured) {
  const auto context = cluster::single_context(1);
  const auto trained = [&](const ModelOptions& options) {
    Trained t(*context, fake(), options);
    t.model->train(1, images(2 * kRows));
    return t.values();
  };
  EXPECT_EQ(trained({.session = {.kernel_choice = session::KernelChoice::kMeasured}}), trained({}));
}

// The fake device with nothing but matrix products and copies.
class ProductsOnly {
 public:
  explicit ProductsOnly(const kernels::Backend& all)
      : registry_(some_kernels(all, [](const KernelRequest& request) { return request.op == "matmul"; })),
        backend_(all) {
    backend_.registries = {&registry_};
  }
  ProductsOnly(const ProductsOnly&) = delete;
  ProductsOnly& operator=(const ProductsOnly&) = delete;
  const kernels::Backend& backend() const { return backend_; }

 private:
  KernelRegistry registry_;
  kernels::Backend backend_;
};

// exp(x x) x, and a second exponential.
ir::Graph products_and_exponentials() {
  ir::Graph graph("g");
  const ir::Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {2, 2}});
  const ir::Value y = ops::matmul(ops::exp(ops::matmul(x, x)), x);
  graph.add_output("y", y);
  graph.add_output("z", ops::exp(y));
  return graph;
}

TEST_P(ModelsOnDevice, RefuseAnOperatorWithoutAKernel) {
  const ProductsOnly products(fake());
  EXPECT_THAT(
      [&] {
        session::evaluate(products_and_exponentials(), {{"x", Tensor::zeros({DType::kF32, {2, 2}})}},
                          {.backend = &products.backend(), .fusions = compiler::Fusions::none()});
      },
      ThrowsMessage<InvalidArgument>(AllOf(
          HasSubstr("no kernel of fake computes exp on (f32[2,2])"),
          HasSubstr("; cpu_fallback, or TESSERA_CPU_FALLBACK=1, has the host compute what the device has no kernel"))));
}

// In the environment as long as it lives.
class FallbackVariable {
 public:
  explicit FallbackVariable(const char* value) { ::setenv("TESSERA_CPU_FALLBACK", value, 1); }
  ~FallbackVariable() { ::unsetenv("TESSERA_CPU_FALLBACK"); }
  FallbackVariable(const FallbackVariable&) = delete;
  FallbackVariable& operator=(const FallbackVariable&) = delete;
};

TEST_P(ModelsOnDevice, HaveTheHostComputeWhatTheirDeviceDoesNotAndSaySoOnce) {
  const ProductsOnly products(fake());
  const FallbackVariable on("1");
  const std::map<std::string, Tensor> inputs = {{"x", Tensor::of<float>({2, 2}, {0.1, 0.2, 0.3, -0.4})}};
  testing::internal::CaptureStderr();
  const auto there = session::evaluate(products_and_exponentials(), inputs,
                                       {.backend = &products.backend(), .fusions = compiler::Fusions::none()});
  const std::string said = testing::internal::GetCapturedStderr();
  const auto here = session::evaluate(products_and_exponentials(), inputs, {.fusions = compiler::Fusions::none()});
  for (const auto& [name, value] : here) EXPECT_TRUE(bit_equal(there.at(name), value)) << name;
  const std::string line =
      "fake has no kernel for exp of f32: the host computes it, and what it reads and makes is copied";
  EXPECT_THAT(said, HasSubstr(line));
  EXPECT_EQ(said.find(line), said.rfind(line)) << said;
}

TEST_P(ModelsOnDevice, RefuseAFallbackThatIsNeitherOnNorOff) {
  const FallbackVariable on("perhaps");
  const auto context = cluster::single_context(1);
  EXPECT_THAT([&] { session::Session(*context, {.backend = &fake()}); },
              ThrowsMessage<Error>(HasSubstr("TESSERA_CPU_FALLBACK")));
}

TEST_P(ModelsOnDevice, RefuseWhatNeitherTheDeviceNorTheHostComputes) {
  const ProductsOnly products(fake());
  const std::vector<const KernelRegistry*> none_of_host = {products.backend().registries[0]};
  executor::KernelSelection kernels(products.backend().registries, 1);
  kernels.beside_device("fake", none_of_host);
  const Tensor x(DType::kF32, {2, 2});
  KernelRequest request{.op = "exp", .inputs = {x.view()}, .outputs = {x.view()}};
  EXPECT_THAT([&] { kernels.choose(request); },
              ThrowsMessage<InvalidArgument>(
                  HasSubstr("no kernel of fake, nor of the host beside it, computes exp on (f32[2,2])")));
}

TEST_P(ModelsOnDevice, SayWhatNeedsMoreMemoryThanTheirDeviceHasAndGoOnWithLess) {
  FakeDevice small(/*seed=*/3, /*memory_bytes=*/1 << 20);
  const kernels::Backend backend = fake_backend(small);
  const auto context = cluster::single_context(1);
  session::Session session(*context, {.backend = &backend});
  const auto doubling = [](int64_t rows) {
    ir::Graph graph("doubling");
    const ir::Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {rows, 1024}});
    graph.add_output("y", ops::add(x, x));
    return graph;
  };
  EXPECT_THAT(
      [&] { session.compile_local(doubling(256)); },
      ThrowsMessage<NoRoom>(AllOf(StartsWith("fake: out of memory: the arena needs 2.0 MiB"),
                                  HasSubstr("\ngraph doubling needs 2.0 MiB: 0 B of parameters and states, and at "
                                            "the peak, step "),
                                  HasSubstr("\n  1.0 MiB x f32[256,1024] of copy \"x\""))));
  const auto executable = session.compile_local(doubling(64));
  const Tensor x = Tensor::full({DType::kF32, {64, 1024}}, 1.5);
  copy_elements(x.view(), executable->input("x"));
  executable->run();
  EXPECT_TRUE(bit_equal(Tensor::copy_of(executable->output("y")), Tensor::full(x.type(), 3)));
}

TEST_P(ModelsOnDevice, CutWhatIsRecordedWhereTheHostComputes) {
  const ProductsOnly products(fake());
  const auto context = cluster::single_context(1);
  const ir::Graph graph = products_and_exponentials();
  const auto fusions = compiler::Fusions::none();
  session::Session there(*context, {.backend = &products.backend(), .cpu_fallback = true, .fusions = fusions});
  session::Session here(*context, {.fusions = fusions});
  const auto on_device = there.compile_local(graph);
  const auto on_cpu = here.compile_local(graph);
  const int64_t before = device().num_kernels();
  constexpr int kRuns = 5;  // recorded in the second
  for (int run = 0; run < kRuns; ++run) {
    const Tensor x = Tensor::full({DType::kF32, {2, 2}}, 0.25 * (run + 1));
    for (const auto* executable : {on_device.get(), on_cpu.get()}) {
      copy_elements(x.view(), executable->input("x"));
    }
    on_device->run();
    on_cpu->run();
    for (const char* name : {"y", "z"}) {
      EXPECT_TRUE(bit_equal(Tensor::copy_of(on_device->output(name)), Tensor::copy_of(on_cpu->output(name))))
          << name << " of run " << run;
    }
  }
  EXPECT_EQ(device().num_kernels() - before, 2 * kRuns) << "the device computes the products, and no exponential";
}

}  // namespace
}  // namespace tessera::devices
