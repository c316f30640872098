// Training that is stopped and goes on with another number of ranks: the losses are those of one device that was never
// stopped, whatever the checkpoint's form.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>

#include "tessera/base/random.h"
#include "tessera/checkpoint/convert/transform.h"
#include "tessera/checkpoint/lock/directory_lock.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/layers/convolution.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/testing/context_with_disk.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/wrapped_context.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

constexpr int64_t kRows = 12;
constexpr int64_t kStepsPerEpoch = 4;
constexpr int64_t kEpochs = 3;

// Of `parts` x `columns` ranks: the batch over the first, the inner dim, which divides unevenly, over the second.
struct Mlp : nn::Cell {
  Mlp(int parts, int columns, DType dtype)
      : up(child<nn::Dense>("up", 12, 22)),
        dropout(child<nn::Dropout>("dropout", 0.8)),
        down(child<nn::Dense>("down", 22, 5)) {
    up.shard("matmul", {{parts, 1}, {columns, 1}});
    down.shard("matmul", {{parts, columns}, {1, columns}});
    for (nn::Parameter* p : parameters()) p->type.dtype = dtype;
  }
  nn::Dense& up;
  nn::Dropout& dropout;
  nn::Dense& down;
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return down(dropout(ops::tanh(up(x)))); }
};

data::Dataset samples(DType dtype) {
  return data::generator({{"x", {dtype, {12}}}, {"y", {dtype, {5}}}}, kRows * kStepsPerEpoch,
                         [dtype](int64_t index, std::span<const TensorView> outputs) {
                           for (size_t column = 0; column < outputs.size(); ++column) {
                             Tensor values(DType::kF64, outputs[column].shape);
                             const auto at = values.values<double>();
                             for (size_t i = 0; i < at.size(); ++i) {
                               at[i] = random_normal(
                                   {.seed = 3, .stream = column, .step = static_cast<uint64_t>(index)}, i);
                             }
                             copy_elements(values.cast(dtype).view(), outputs[column]);
                           }
                         })
      .shuffle(16)
      .batch(kRows);
}

// One batch.
data::Dataset samples_of(const Tensor& x, const Tensor& y) {
  const auto row_type = [](const Tensor& whole) { return Type{DType::kF32, {whole.shape()[1]}}; };
  return data::generator({{"x", row_type(x)}, {"y", row_type(y)}}, x.shape()[0],
                         [](int64_t, std::span<const TensorView> outputs) {
                           for (const auto& output : outputs) {
                             copy_elements(Tensor::zeros({DType::kF32, output.shape}).view(), output);
                           }
                         })
      .batch(x.shape()[0]);
}

class Losses : public Callback {
 public:
  Losses(std::vector<double>& losses, int64_t last_step) : losses_(losses), last_step_(last_step) {}
  void step_end(RunContext& run) override {
    if (run.model.context().rank() == 0) losses_.push_back(run.loss);
    if (run.step == last_step_) run.request_stop();
  }

 private:
  std::vector<double>& losses_;
  int64_t last_step_;
};

struct Stage {
  int parts;
  int columns;
  int64_t last_step;
};

struct Form {
  std::string name;
  bool integrated;
  bool async;
  bool own_directories;
  DType dtype = DType::kF64;
};

class Resume : public testing::TestWithParam<Form> {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-resume-{}-{}", GetParam().name, ::getpid());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string directory_of(int rank) const {
    return GetParam().own_directories ? (folder_ / fmt::format("rank_{}", rank)).string() : folder_.string();
  }

  // From `first`, the checkpoint of an earlier stage ("" for none), to the stage's last step.
  void train(const Stage& stage, const std::string& prefix, const std::string& first,
             std::vector<double>& losses) const {
    const Form& form = GetParam();
    run_ranks(stage.parts * stage.columns, [&](cluster::Context& context) {
      Mlp network(stage.parts, stage.columns, form.dtype);
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 1e-3});
      Model model(context, network, &loss, &optimizer,
                  {.parallel_mode = ParallelMode::kSemiAuto,
                   .parallel_optimizer = true,
                   .parallel_optimizer_threshold = 0,
                   .seed = 5,
                   .session = {.reference_kernels = form.dtype == DType::kF64}});
      const auto dataset = samples(form.dtype);
      model.build(dataset);
      const auto directory = directory_of(context.rank());
      if (!first.empty()) {
        model.load_checkpoint(join_path(directory_of(context.rank() % 2), first));
        EXPECT_EQ(model.load_report().slices_unverified, 0);
        EXPECT_GT(model.load_report().slices_verified, 0);
      }
      const checkpoint::CheckpointConfig config{
          .keep_checkpoint_max = 1, .integrated_save = form.integrated, .async_save = form.async};
      model.train(kEpochs, dataset, {ModelCheckpoint(prefix, directory, config), Losses(losses, stage.last_step)});
    });
  }

 private:
  std::filesystem::path folder_;
};

TEST_P(Resume, OnOtherRanksGivesTheLossesOfOneDevice) {
  std::vector<double> whole;
  run_ranks(1, [&](cluster::Context& context) {
    Mlp network(1, 1, GetParam().dtype);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9, .weight_decay = 1e-3});
    Model model(context, network, &loss, &optimizer,
                {.seed = 5, .session = {.reference_kernels = GetParam().dtype == DType::kF64}});
    model.train(kEpochs, samples(GetParam().dtype), {Losses(whole, -1)});
  });
  ASSERT_EQ(std::ssize(whole), kEpochs * kStepsPerEpoch);

  std::vector<double> parts;
  train({2, 4, 5}, "eight", "", parts);
  train({2, 3, 7}, "six", "eight-2_1.ckpt", parts);
  train({1, 1, 12}, "one", "six-2_3.ckpt", parts);
  ASSERT_EQ(parts.size(), whole.size());
  const double tolerance = GetParam().dtype == DType::kF64 ? 1e-10 : 1e-5;
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(parts[i], whole[i], std::abs(whole[i]) * tolerance) << i;

  // One checkpoint is kept, verified, with as many files as there were ranks to write them.
  auto& files = FileSystem::local();
  EXPECT_EQ(checkpoint::verify(files, join_path(directory_of(0), "eight-2_1.ckpt")).state, checkpoint::Verified::kYes);
  EXPECT_FALSE(files.exists(join_path(directory_of(0), "eight-1_4.ckpt")));
}

INSTANTIATE_TEST_SUITE_P(Forms, Resume,
                         testing::Values(Form{"whole", true, false, false}, Form{"slices", false, false, false},
                                         Form{"whole_async", true, true, false},
                                         Form{"slices_async", false, true, false},
                                         Form{"slices_of_own_directories", false, false, true},
                                         Form{"slices_of_own_directories_async", false, true, true},
                                         Form{"whole_in_own_directories", true, false, true},
                                         Form{"slices_float32", false, false, false, DType::kF32}),
                         [](const auto& info) { return info.param.name; });

class Saves : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }

 private:
  std::filesystem::path folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-saves-{}", ::getpid());
};

TEST_F(Saves, ThatFailInTheBackgroundAreReportedOnceOnEveryRank) {
  run_ranks(3, [&](cluster::Context& context) {
    nn::Dense network(8, 5);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel});
    FileSystem::local().create_directories(in("x.ckpt.tmp"));  // where a file must be
    for (const bool integrated : {true, false}) {
      const SaveCheckpointOptions options{.integrated = integrated, .async = true};
      EXPECT_EQ(model.save_checkpoint(in("x"), options), in("x.ckpt"));
      EXPECT_THAT([&] { model.finish_saves(); },
                  testing::ThrowsMessage<IoError>(testing::HasSubstr("x.ckpt.tmp: cannot remove")));
      model.finish_saves();
      model.save_checkpoint(in("x"), options);
      EXPECT_THAT([&] { model.save_checkpoint(in("y"), options); },
                  testing::ThrowsMessage<IoError>(testing::HasSubstr("x.ckpt.tmp: cannot remove")));
      model.save_checkpoint(in("y"), options);
      model.finish_saves();
      EXPECT_EQ(checkpoint::verify(FileSystem::local(), in("y.ckpt")).state, checkpoint::Verified::kYes);
    }
  });
}

TEST_F(Saves, InTheBackgroundHoldTheValuesOfTheirStep) {
  run_ranks(2, [&](cluster::Context& context) {
    nn::Dense network(8, 5);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel});
    for (const bool integrated : {true, false}) {
      const auto before = model.value("weight").to_doubles();
      model.save_checkpoint(in("x"), {.integrated = integrated, .async = true});
      model.set_value("weight", Tensor::zeros(model.value("weight").type()));
      model.finish_saves();
      EXPECT_EQ(checkpoint::load(FileSystem::local(), in("x.ckpt")).find("weight")->read().to_doubles(), before);
      model.load_checkpoint(in("x.ckpt"));
      EXPECT_EQ(model.value("weight").to_doubles(), before);
    }
  });
}

TEST_F(Saves, InTheBackgroundHaveAGroupBesideThoseThatOnlySomeRanksAreIn) {
  run_ranks(2, [&](cluster::Context& context) {
    context.create_group("checkpoints", {0});
    context.create_group("checkpoints #2", {1});
    nn::Dense network(8, 5);
    Model model(context, network, nullptr, nullptr, {.parallel_mode = ParallelMode::kDataParallel});
    model.save_checkpoint(in("x"), {.async = true});
    model.finish_saves();
    EXPECT_EQ(checkpoint::verify(FileSystem::local(), in("x.ckpt")).state, checkpoint::Verified::kYes);
  });
}

// A rank's context in which no group can be made.
class WithoutGroups : public WrappedContext {
 public:
  using WrappedContext::WrappedContext;
  comm::Communicator* create_group(const std::string& name, const std::vector<int>&) override {
    throw IoError("no room for the group " + name);
  }
};

TEST_F(Saves, InTheBackgroundThatGetNoGroupEndTheModelInGoodOrder) {
  run_ranks(2, [&](cluster::Context& inner) {
    WithoutGroups context(inner);
    nn::Dense network(8, 5);
    Model model(context, network, nullptr, nullptr, {.parallel_mode = ParallelMode::kDataParallel});
    EXPECT_THAT([&] { model.save_checkpoint(in("x"), {.async = true}); },
                testing::ThrowsMessage<IoError>(testing::HasSubstr("no room for the group checkpoints")));
  });
}

// Does something in each step.
class EachStep : public Callback {
 public:
  explicit EachStep(std::function<void()> call) : call_(std::move(call)) {}
  void step_end(RunContext&) override { call(); }
  void call() const { call_(); }

 private:
  std::function<void()> call_;
};

// Whether somebody holds the lock of a directory.
bool is_locked(const std::string& directory) {
  const auto path = checkpoint::directory_lock_path(directory);
  return FileSystem::local().exists(path) && FileSystem::local().try_lock(path) == nullptr;
}

TEST_F(Saves, OfACallbackWhoseTrainingFailedHoldTheirDirectoryInTheNext) {
  const auto context = cluster::single_context(1);
  Mlp network(1, 1, DType::kF32);
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
  Model model(*context, network, &loss, &optimizer);
  const auto saver = std::make_shared<ModelCheckpoint>("x", in("saves"));
  const auto fails = std::make_shared<EachStep>([] { throw Error("stopped"); });
  EXPECT_THAT([&] { model.train(1, samples(DType::kF32), {saver, fails}); }, testing::ThrowsMessage<Error>("stopped"));
  EXPECT_FALSE(is_locked(in("saves")));
  int held = 0;
  const auto look = std::make_shared<EachStep>([&] { held += is_locked(in("saves")) ? 1 : 0; });
  model.train(1, samples(DType::kF32), {saver, look});
  EXPECT_EQ(held, kStepsPerEpoch);
  EXPECT_FALSE(is_locked(in("saves")));
}

TEST_F(Saves, ThatFailAtTheEndLetGoOfTheirDirectory) {
  const auto context = cluster::single_context(1);
  Mlp network(1, 1, DType::kF32);
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
  Model model(*context, network, &loss, &optimizer);
  FileSystem::local().create_directories(in("saves/x-1_4.ckpt.tmp"));  // where a file must be
  const auto saver =
      std::make_shared<ModelCheckpoint>("x", in("saves"), checkpoint::CheckpointConfig{.save_checkpoint_steps = 3});
  EXPECT_THROW(model.train(1, samples(DType::kF32), {saver}), IoError);
  EXPECT_FALSE(is_locked(in("saves")));
}

TEST_F(Saves, AreDoneWhenATrainingOfNoMoreEpochsReturns) {
  const auto context = cluster::single_context(1);
  Mlp network(1, 1, DType::kF32);
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
  Model first(*context, network, &loss, &optimizer);
  first.train(1, samples(DType::kF32), {std::make_shared<ModelCheckpoint>("x", in("saves"))});
  Model model(*context, network, &loss, &optimizer);
  model.load_checkpoint(in("saves/x-1_4.ckpt"));
  FileSystem::local().create_directories(in("y.ckpt.tmp"));  // where a file must be
  model.save_checkpoint(in("y"), {.async = true});
  EXPECT_THAT([&] { model.train(1, samples(DType::kF32)); },
              testing::ThrowsMessage<IoError>(testing::HasSubstr("y.ckpt.tmp: cannot remove")));
}

TEST_F(Saves, OfRanksThatTrainAloneNeedADirectoryEach) {
  std::array<std::string, 2> errors;
  run_ranks(2, [&](cluster::Context& context) {
    Mlp network(1, 1, DType::kF32);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer);
    const auto own = in(fmt::format("rank_{}", context.rank()));
    model.train(1, samples(DType::kF32), {std::make_shared<ModelCheckpoint>("x", own)});
    EXPECT_EQ(checkpoint::verify(FileSystem::local(), join_path(own, "x-1_4.ckpt")).state, checkpoint::Verified::kYes);
    // Each meets the other while it trains.
    const auto meet = std::make_shared<EachStep>([&] { context.world().barrier("each has begun or been refused"); });
    try {
      model.train(1, samples(DType::kF32), {std::make_shared<ModelCheckpoint>("x", in("one")), meet});
    } catch (const InvalidArgument& error) {
      errors[static_cast<size_t>(context.rank())] = error.what();
      for (int64_t s = 0; s < kStepsPerEpoch; ++s) meet->call();
    }
  });
  const auto& refused = errors[0].empty() ? errors[1] : errors[0];
  EXPECT_NE(errors[0].empty(), errors[1].empty());
  EXPECT_THAT(refused, testing::HasSubstr("a directory of its own"));
}

TEST_F(Saves, OfSlicesAreConvertedWithTheirStrategyFileAndWithoutIt) {
  run_ranks(8, [&](cluster::Context& context) {
    Mlp network(2, 4, DType::kF32);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer,
                {.parallel_mode = ParallelMode::kSemiAuto,
                 .strategy_ckpt_save_file = in("strategy.ckpt"),
                 .parallel_optimizer = true,
                 .parallel_optimizer_threshold = 0});
    model.build(samples(DType::kF32));
    model.save_checkpoint(in(fmt::format("slices/rank_{}/x.ckpt", context.rank())), {.integrated = false});
    model.save_checkpoint(in("whole/x.ckpt"));
    model.save_checkpoint(in("together/x.ckpt"), {.integrated = false});
  });
  auto& files = FileSystem::local();
  checkpoint::transform_checkpoints(files, in("slices"), in("by_strategy"), "x", in("strategy.ckpt"), "");
  checkpoint::transform_checkpoints(files, in("slices"), in("by_manifest"), "x", "", "");
  checkpoint::transform_checkpoints(files, in("together"), in("of_one_directory"), "x", "", "");
  const auto whole = checkpoint::load(files, in("whole/x.ckpt"));
  for (const char* name : {"by_strategy", "by_manifest", "of_one_directory"}) {
    const auto converted = checkpoint::load(files, in(name) + "/rank_0/x0.ckpt");
    ASSERT_EQ(converted.entries().size(), whole.entries().size()) << name;
    for (const auto& entry : whole.entries()) {
      EXPECT_TRUE(bit_equal(converted.find(entry.name)->read(), entry.read())) << name << " " << entry.name;
    }
  }
}

TEST_F(Saves, IntoADirectoryAreRefusedAtOnceInEveryForm) {
  FileSystem::local().create_directories(in("x"));
  run_ranks(2, [&](cluster::Context& context) {
    nn::Dense network(8, 5);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    for (const auto mode : {ParallelMode::kDataParallel, ParallelMode::kStandAlone}) {
      Model model(context, network, &loss, &optimizer, {.parallel_mode = mode});
      for (const bool async : {false, true}) {
        for (const bool integrated : {false, true}) {
          EXPECT_THAT([&] { model.save_checkpoint(in("x"), {.integrated = integrated, .async = async}); },
                      testing::ThrowsMessage<InvalidArgument>(
                          testing::HasSubstr("x: is a directory; a checkpoint needs the name of a file, such as ")));
        }
      }
    }
  });
  EXPECT_FALSE(FileSystem::local().exists(in("x.ckpt")));
}

TEST_F(Saves, OverrideNumbersOfTheOptimizerWithAWord) {
  const auto context = cluster::single_context(1);
  const auto with_model = [&](const nn::MomentumOptions& options, const std::optional<nn::LossScale>& loss_scale,
                              const std::function<void(Model&)>& f) {
    nn::Dense network(8, 5);
    nn::MSELoss loss;
    nn::Momentum optimizer(options);
    Model model(*context, network, &loss, &optimizer, {.loss_scale = loss_scale});
    f(model);
  };
  const auto log_of_load = [&](const nn::MomentumOptions& options, const std::optional<nn::LossScale>& loss_scale) {
    testing::internal::CaptureStderr();
    with_model(options, loss_scale, [&](Model& model) {
      model.load_checkpoint(in("x.ckpt"));
      EXPECT_FLOAT_EQ(static_cast<float>(model.value("momentum").item()), 0.9F);
    });
    return testing::internal::GetCapturedStderr();
  };
  const auto fixed = nn::LossScale{.initial = 8, .factor = 1};
  with_model({.learning_rate = 0.1, .momentum = 0.9}, fixed, [&](Model& model) { model.save_checkpoint(in("x")); });
  EXPECT_EQ(log_of_load({.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.1}, fixed), "");
  const auto log = log_of_load({.learning_rate = 0.2, .momentum = 0.5}, nn::LossScale{.initial = 4, .factor = 1});
  for (const char* said : {"learning_rate 0.1, as it was saved, not with this model's 0.2",
                           "momentum 0.9, as it was saved, not with this model's 0.5",
                           "loss_scale 8, as it was saved, not with this model's 4"}) {
    EXPECT_THAT(log, testing::HasSubstr(std::string("training goes on with ") + said));
  }
}

// One number, with which all is multiplied.
struct Scaled : nn::Cell {
  nn::Parameter& factor = parameter("factor", {DType::kF32, {}}, nn::Init("ones"));
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return x * factor.in(x.graph()); }
};

TEST_F(Saves, OfMomentsThatAreNumbersNothingIsSaid) {
  const auto context = cluster::single_context(1);
  const Tensor x = Tensor::full({DType::kF32, {4, 1}}, 2);
  const auto with_model = [&](const std::function<void(Model&)>& f) {
    Scaled network;
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(*context, network, &loss, &optimizer);
    f(model);
  };
  with_model([&](Model& model) {
    model.train_step({x.view(), Tensor::full({DType::kF32, {4, 1}}, 5).view()}, 4);
    EXPECT_NE(model.value("moments.factor").item(), 0);
    model.save_checkpoint(in("x"));
  });
  testing::internal::CaptureStderr();
  with_model([&](Model& model) { model.load_checkpoint(in("x.ckpt")); });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST_F(Saves, F36_OfAnotherTrainingAreResumedOnlyWhereTheyAreAccepted) {
  run_ranks(2, [&](cluster::Context& context) {
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    const auto with_job = [&](const std::string& job_name, const std::function<void(Model&)>& f) {
      nn::Dense network(8, 5);
      Model model(context, network, &loss, &optimizer,
                  {.parallel_mode = ParallelMode::kDataParallel, .job_name = job_name});
      f(model);
    };
    std::vector<double> saved;
    with_job("first", [&](Model& model) {
      const Tensor x = Tensor::full({DType::kF32, {2, 8}}, 1);
      const Tensor y = Tensor::zeros({DType::kF32, {2, 5}});
      model.train_step({x.view(), y.view()}, 4);
      model.save_checkpoint(in("x"));
      saved = model.value("weight").to_doubles();
    });
    with_job("second", [&](Model& model) {
      model.set_value("weight", Tensor::zeros(model.value("weight").type()));
      EXPECT_THAT([&] { model.load_checkpoint(in("x.ckpt")); },
                  testing::ThrowsMessage<InvalidArgument>(
                      testing::HasSubstr("x.ckpt: is of the training \"first\", not of \"second\"")));
      EXPECT_EQ(model.value("weight").to_doubles(), std::vector<double>(40, 0.0)) << "nothing has changed";
      EXPECT_EQ(model.step(), 0);
      model.load_parameters(in("x.ckpt"));
      EXPECT_EQ(model.value("weight").to_doubles(), saved);
      EXPECT_EQ(model.step(), 0);
      EXPECT_EQ(model.load_checkpoint(in("x.ckpt"), {.accept_other_jobs = true}).job_name, "first");
      EXPECT_EQ(model.step(), 1);
    });
    for (const char* name : {"first", ""}) {
      with_job(name, [&](Model& model) {
        model.load_checkpoint(in("x.ckpt"));
        EXPECT_EQ(model.step(), 1);
      });
    }
  });
}

// A flipped bit in the values of the newest is found when they are read: the one before it is taken.
TEST_F(Saves, F35_OfADirectoryTheNewestThatIsWholeIsLoaded) {
  auto& files = FileSystem::local();
  const auto with_ranks = [&](int ranks, const std::function<void(Model&)>& f) {
    run_ranks(ranks, [&](cluster::Context& context) {
      nn::Dense network(8, 5);
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
      Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel});
      f(model);
    });
  };
  for (const std::string key : {"", "0123456789abcdef"}) {
    files.remove_directory_tree(in(""));
    const checkpoint::Encryption encryption{.key = key};
    std::vector<double> saved;
    with_ranks(2, [&](Model& model) {
      const Tensor x = Tensor::full({DType::kF32, {2, 8}}, 1);
      const Tensor y = Tensor::zeros({DType::kF32, {2, 5}});
      for (int step = 1; step <= 3; ++step) {
        model.train_step({x.view(), y.view()}, 4);
        const auto weight = model.value("weight").to_doubles();
        if (step == 1 && model.context().rank() == 0) saved = weight;
        model.save_checkpoint(in(fmt::format("CKP-1_{}", step)), {.encryption = encryption});
      }
    });
    // All at the same place of training, but for their names: what differs is what was done to them.
    const auto damaged = in("CKP-1_3.ckpt");
    auto bytes = files.read_text(damaged);
    const auto at = [&]() -> size_t {
      if (!key.empty()) return bytes.size() / 2;
      const auto whole = checkpoint::load(files, damaged);
      return static_cast<size_t>(whole.find("weight")->pieces[0].data() - whole.file().bytes().data());
    }();
    bytes[at] = static_cast<char>(bytes[at] ^ 4);
    files.create(damaged)->append(bytes);
    files.remove(in("CKP-1_2.ckpt.manifest"));
    for (const int ranks : {1, 3}) {
      testing::internal::CaptureStderr();
      with_ranks(ranks, [&](Model& model) {
        EXPECT_EQ(model.load_checkpoint(in(""), {.decryption = encryption}).step, 1);
        EXPECT_EQ(model.value("weight").to_doubles(), saved);
      });
      const auto said = testing::internal::GetCapturedStderr();
      EXPECT_THAT(said, testing::HasSubstr(in("CKP-1_1.ckpt") + " is taken instead"));
      EXPECT_THAT(said, testing::ContainsRegex("CKP-1_3.ckpt: (.* is damaged: )?crc32c is"));
    }
    with_ranks(2, [&](Model& model) {
      EXPECT_THROW(model.load_checkpoint(damaged, {.decryption = encryption}), Error) << "by its name it is refused";
      model.load_parameters(in(""), {.decryption = encryption});
      EXPECT_EQ(model.value("weight").to_doubles(), saved);
    });
  }
}

// Of all names, as they are in memory.
std::map<std::string, Tensor> values_of(Model& model) {
  std::map<std::string, Tensor> values;
  for (const auto& name : model.names()) values[name] = model.value(name);
  return values;
}

void expect_equal_values(Model& model, const std::map<std::string, Tensor>& expected) {
  for (const auto& [name, value] : expected) EXPECT_TRUE(bit_equal(model.value(name), value)) << name;
}

// Where the last value of each file has a flipped bit, all others have been read when it is found.
TEST_F(Saves, F35_ThatAreDamagedChangeNoValueOfAFreshOrATrainedModel) {
  auto& files = FileSystem::local();
  files.remove_directory_tree(in(""));
  const auto with_ranks = [&](int ranks, const std::function<void(Model&)>& f) {
    run_ranks(ranks, [&](cluster::Context& context) {
      nn::Dense network(8, 5);
      nn::MSELoss loss;
      nn::Adam optimizer({.learning_rate = 0.1});
      Model model(context, network, &loss, &optimizer,
                  {.parallel_mode = ParallelMode::kDataParallel, .parallel_optimizer = ranks > 1, .seed = 7});
      f(model);
    });
  };
  const Tensor x = Tensor::full({DType::kF32, {4, 8}}, 1);
  const Tensor y = Tensor::zeros({DType::kF32, {4, 5}});
  const auto train = [&](Model& model) {
    const int64_t rows = 4 / model.context().size();
    const int64_t first = rows * model.context().rank();
    const auto rows_of = [&](const Tensor& whole) {
      return checkpoint::view_of(whole.view(), {{first, 0}, {rows, whole.shape()[1]}});
    };
    return model.train_step({rows_of(x), rows_of(y)}, 4);
  };
  with_ranks(1, [&](Model& model) {
    train(model);
    for (const char* name : {"CKP-1_1", "CKP-1_2"}) model.save_checkpoint(in(name));
  });
  for (const char* name : {"CKP-1_1.ckpt", "CKP-1_2.ckpt"}) {
    auto bytes = files.read_text(in(name));
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    files.create(in(name))->append(bytes);
  }
  for (const int ranks : {1, 2}) {
    for (const bool is_built : {false, true}) {
      double loss_of_fresh = 0;
      with_ranks(ranks, [&](Model& model) {
        const double loss = train(model);
        if (model.context().rank() == 0) loss_of_fresh = loss;
      });
      with_ranks(ranks, [&](Model& model) {
        const auto dataset = samples_of(x, y);
        if (is_built) model.build(dataset);
        const auto initial = values_of(model);
        for (const auto& path : {in("CKP-1_2.ckpt"), in("")}) {
          EXPECT_THROW(model.load_checkpoint(path), InvalidArgument);
          expect_equal_values(model, initial);
        }
        EXPECT_EQ(model.step(), 0);
        const double loss = train(model);
        if (model.context().rank() == 0) {
          EXPECT_EQ(loss, loss_of_fresh);
        }
        const auto trained = values_of(model);
        EXPECT_THROW(model.load_checkpoint(in("")), InvalidArgument);
        expect_equal_values(model, trained);
        EXPECT_EQ(model.step(), 1);
      });
    }
  }
  // What a user has set is kept, too.
  with_ranks(1, [&](Model& model) {
    model.set_value("weight", Tensor::full({DType::kF32, {5, 8}}, 2));
    EXPECT_THROW(model.load_checkpoint(in("CKP-1_2.ckpt")), InvalidArgument);
    EXPECT_EQ(model.value("weight").to_doubles(), std::vector<double>(40, 2));
  });
}

// A disk on which no file is in the system's memory, that counts what is read of it.
class CountingDisk : public MemoryFileSystem {
 public:
  std::unique_ptr<RangeReader> open_ranges(const std::string& path) override {
    return std::make_unique<Reader>(MemoryFileSystem::open_ranges(path), num_bytes);
  }
  std::atomic<int64_t> num_bytes = 0;

 private:
  class Reader : public RangeReader {
   public:
    Reader(std::unique_ptr<RangeReader> inner, std::atomic<int64_t>& num_bytes)
        : inner_(std::move(inner)), num_bytes_(num_bytes) {}
    void read(int64_t offset, std::span<std::byte> to) const override {
      num_bytes_ += std::ssize(to);
      inner_->read(offset, to);
    }
    bool is_on_disk(int64_t, int64_t) const override { return true; }

   private:
    std::unique_ptr<RangeReader> inner_;
    std::atomic<int64_t>& num_bytes_;
  };
};

// What a training of so many ranks has given that saves every third step into `directory` and ends after `last_step`.
struct Resumed {
  std::vector<double> losses = {};
  std::vector<std::string> said = {};  // of what it goes on from
  Tensor weight = {};
};

Resumed resumed_training(int ranks, const std::string& directory, const std::string& resume,
                         int64_t last_step = kEpochs * kStepsPerEpoch, const std::string& key = "") {
  Resumed result;
  run_ranks(ranks, [&](cluster::Context& context) {
    Mlp network(ranks, 1, DType::kF32);
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kSemiAuto, .seed = 5});
    const checkpoint::CheckpointConfig config{.save_checkpoint_steps = 3, .enc_key = key};
    model.train(kEpochs, samples(DType::kF32),
                {ModelCheckpoint("net", directory, config), Losses(result.losses, last_step)},
                {.resume = resume, .print = [&](const std::string& line) { result.said.push_back(line); }});
    const Tensor weight = model.value("up.weight");
    if (context.rank() == 0) result.weight = weight;
  });
  return result;
}

TEST_F(Saves, AreFoundByATrainingThatResumesByItselfOrItBegins) {
  for (const int ranks : {1, 2}) {
    for (const std::string key : {"", "0123456789abcdef"}) {
      FileSystem::local().remove_directory_tree(in(""));
      const Resumed whole = resumed_training(ranks, in("whole"), "");
      EXPECT_THAT(whole.said, testing::IsEmpty());
      const Resumed first = resumed_training(ranks, in("parts"), "auto", 5, key);
      EXPECT_THAT(first.said, testing::ElementsAre("train: " + in("parts") +
                                                   " holds no checkpoint net-*.ckpt: begins with the model as it is"));
      const Resumed second = resumed_training(ranks, in("parts"), "auto", kEpochs * kStepsPerEpoch, key);
      EXPECT_THAT(second.said,
                  testing::ElementsAre("train: goes on from " + in("parts/net-2_1.ckpt") + ", after step 5"));
      std::vector<double> losses = first.losses;
      losses.insert(losses.end(), second.losses.begin(), second.losses.end());
      EXPECT_EQ(losses, whole.losses);
      EXPECT_TRUE(bit_equal(second.weight, whole.weight));
    }
  }
}

TEST_F(Saves, WithoutTheirManifestSayThatTheTrainingBeginsAtStepZero) {
  const Resumed whole = resumed_training(1, in("saved"), "");
  FileSystem::local().remove(in("saved/net-2_2.ckpt.manifest"));
  testing::internal::CaptureStderr();
  const Resumed second = resumed_training(1, in("others"), in("saved/net-2_2.ckpt"));
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::HasSubstr("its place in the training (step, epoch, position in the data) is not known, because it "
                         "has no manifest: training begins at step 0 of epoch 1 with its values"));
  EXPECT_THAT(second.said, testing::ElementsAre("train: begins at step 0 with the values of " +
                                                in("saved/net-2_2.ckpt") + ", which has no manifest"));
  EXPECT_EQ(second.losses.size(), whole.losses.size());
}

TEST_F(Saves, AreGoneOnFromByTheirPath) {
  const Resumed whole = resumed_training(2, in("saved"), "");
  const Resumed second = resumed_training(2, in("others"), in("saved/net-2_2.ckpt"));
  EXPECT_THAT(second.said, testing::ElementsAre("train: goes on from " + in("saved/net-2_2.ckpt") + ", after step 6"));
  EXPECT_EQ(second.losses, std::vector(whole.losses.begin() + 6, whole.losses.end()));
  EXPECT_TRUE(bit_equal(second.weight, whole.weight));
  EXPECT_THAT(resumed_training(2, in("more"), in("saved"), 9).said,
              testing::ElementsAre(testing::HasSubstr("net-3_4.ckpt, after step 12")));
  EXPECT_THROW(resumed_training(1, in("none"), in("there/is/none")), Error);
  EXPECT_THAT([&] { resumed_training(1, in("none"), in("")); },
              testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("holds no checkpoint")));
}

TEST_F(Saves, OfWhichNoneCanBeUsedAreNoReasonToBeginAnew) {
  resumed_training(1, in("saved"), "", 5);
  auto& files = FileSystem::local();
  for (const char* name : {"saved/net-1_3.ckpt", "saved/net-2_1.ckpt"}) {
    const std::string begin = files.read_text(in(name)).substr(0, 100);
    files.create(in(name))->append(begin);
  }
  EXPECT_THAT([&] { resumed_training(1, in("saved"), "auto"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("none of the 2 checkpoints there can be used")));
  // Those of another network.
  const auto context = cluster::single_context(1);
  nn::Dense network(12, 5);
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
  Model model(*context, network, &loss, &optimizer);
  resumed_training(1, in("mlp"), "", 5);
  const auto resume = [&](const Callbacks& callbacks, const std::string& from) {
    std::vector<std::string> said;
    model.train(1, samples(DType::kF32), callbacks,
                {.resume = from, .print = [&](const std::string& line) { said.push_back(line); }});
    return said;
  };
  const auto refuses = [&](const Callbacks& callbacks, const std::string& from, const std::string& words) {
    EXPECT_THAT([&] { resume(callbacks, from); }, testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr(words)));
    EXPECT_EQ(model.step(), 0);
  };
  const auto saver = [&](const std::string& prefix) {
    return std::make_shared<ModelCheckpoint>(prefix, in("mlp"), checkpoint::CheckpointConfig{});
  };
  refuses({saver("net")}, "auto", "none of the 2 checkpoints there can be used");
  refuses({}, "auto", "there is none among the callbacks: add one, or name the checkpoint or its directory");
  refuses({saver("a"), saver("b")}, "auto", "and there are 2, that of");
  EXPECT_THROW(model.eval(samples(DType::kF32), {.resume = "auto"}), InvalidArgument);
  const auto words_of_missing = [&](const std::string& from) -> std::string {
    try {
      resume({saver("net")}, from);
    } catch (const IoError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(words_of_missing("Automatic"), testing::AllOf(testing::StartsWith("Automatic: cannot open"),
                                                            testing::EndsWith("; did you mean resume=\"auto\"?")));
  EXPECT_THAT(words_of_missing("latest"), testing::HasSubstr("; resume=\"auto\" goes on from the newest"));
  EXPECT_THAT(words_of_missing(in("mlp/none.ckpt")), testing::Not(testing::HasSubstr("resume=")));
  // Those of another prefix are not looked at.
  EXPECT_THAT(resume({saver("dense")}, "auto"), testing::ElementsAre(testing::HasSubstr("no checkpoint dense-*.ckpt")));
  EXPECT_EQ(model.step(), kStepsPerEpoch);
}

TEST_F(Saves, AreReadOnceByAModelThatHasNotTrainedYet) {
  CountingDisk disk;
  ContextWithDisk context(disk);
  nn::Dense network(100, 60);
  nn::MSELoss loss;
  nn::Adam optimizer({.learning_rate = 0.1});
  Model saved(context, network, &loss, &optimizer);
  disk.create_directories("d");
  saved.save_checkpoint("d/CKP-1_1");
  const int64_t file_bytes = disk.size_bytes("d/CKP-1_1.ckpt");
  const auto bytes_to_load = [&](Model& model) {
    const int64_t before = disk.num_bytes;
    model.load_checkpoint("d");
    return disk.num_bytes - before;
  };
  Model model(context, network, &loss, &optimizer, {.seed = 2});
  EXPECT_LT(bytes_to_load(model), file_bytes + file_bytes / 4) << "of values and headers";
  expect_equal_values(model, values_of(saved));
  EXPECT_GT(bytes_to_load(model), 2 * file_bytes - file_bytes / 4) << "its values could not be made again";
}

// Equal names and shapes, another function.
struct Activated : nn::Cell {
  explicit Activated(bool is_tanh) : is_tanh(is_tanh), dense(child<nn::Dense>("dense", 12, 5)) {}
  bool is_tanh;
  nn::Dense& dense;
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return is_tanh ? ops::tanh(dense(x)) : ops::relu(dense(x)); }
};

struct Job {
  bool is_tanh = true;
  std::string optimizer = "Momentum";
  nn::LearningRate rate = 0.05;
  int64_t rows = kRows;
  ParallelMode mode = ParallelMode::kDataParallel;
  std::optional<DType> precision = std::nullopt;
};

void with_job(const Job& job, int ranks, const std::function<void(Model&)>& f) {
  run_ranks(ranks, [&](cluster::Context& context) {
    Activated network(job.is_tanh);
    nn::MSELoss loss;
    nn::Momentum momentum({.learning_rate = job.rate, .momentum = 0.9});
    nn::Adam adam({.learning_rate = job.rate});
    nn::AdamW adam_w({.learning_rate = job.rate});
    nn::Optimizer* optimizer = &momentum;
    if (job.optimizer == "Adam") optimizer = &adam;
    if (job.optimizer == "AdamW") optimizer = &adam_w;
    Model model(context, network, &loss, optimizer, {.parallel_mode = job.mode, .precision = job.precision});
    f(model);
  });
}

TEST_F(Saves, F36_OfAnotherNetworkOrOptimizerAreNotResumed) {
  const auto data = samples(DType::kF32);
  with_job({}, 2, [&](Model& model) {
    model.train(1, data);
    model.save_checkpoint(in("CKP-1_4.ckpt"));
  });
  const Job relu{.is_tanh = false};
  const auto refusal =
      in("CKP-1_4.ckpt") +
      ": is of another training: its network computes something else, relu: 0 there, 1 here; tanh: 1 "
      "there, 0 here; to go on with it nevertheless accept other jobs, to start a new training from its "
      "weights load the parameters only";
  with_job(relu, 2, [&](Model& model) {
    model.build(data);
    const auto before = model.value("dense.weight").to_doubles();
    for (const auto& path : {in("CKP-1_4.ckpt"), in("")}) {
      EXPECT_THAT([&] { model.load_checkpoint(path); },
                  testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr(refusal)));
    }
    EXPECT_EQ(model.value("dense.weight").to_doubles(), before);
    EXPECT_EQ(model.step(), 0);
    EXPECT_EQ(model.load_checkpoint(in("CKP-1_4.ckpt"), {.accept_other_jobs = true}).step, 4);
  });
  with_job(relu, 2, [&](Model& model) {  // it is not known yet what the network computes
    model.load_checkpoint(in("CKP-1_4.ckpt"));
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT([&] { model.train(2, data); }, testing::ThrowsMessage<InvalidArgument>(refusal));
    }
    EXPECT_EQ(model.step(), 4);
  });
  with_job(relu, 2, [&](Model& model) {
    model.load_parameters(in("CKP-1_4.ckpt"));
    model.train(1, data);
    EXPECT_EQ(model.step(), 4) << "a new training from its weights";
  });
}

TEST_F(Saves, F36_OfAnOptimizerWithStatesOfEqualNamesAreNotResumed) {
  const auto data = samples(DType::kF32);
  with_job({.optimizer = "Adam"}, 2, [&](Model& model) {
    model.train(1, data);
    model.save_checkpoint(in("CKP-1_4.ckpt"));
  });
  with_job({.optimizer = "AdamW"}, 2, [&](Model& model) {
    EXPECT_THAT([&] { model.load_checkpoint(in("CKP-1_4.ckpt")); },
                testing::ThrowsMessage<InvalidArgument>(
                    testing::HasSubstr("is of another training: its optimizer is Adam, here it is AdamW; to go on")));
    EXPECT_EQ(model.step(), 0);
    EXPECT_EQ(model.load_checkpoint(in("CKP-1_4.ckpt"), {.accept_other_jobs = true}).optimizer, "Adam");
  });
}

TEST_F(Saves, OfTheSameNetworkAreResumedWhateverItsBatchPrecisionAndRanks) {
  const auto data = samples(DType::kF32);
  with_job({}, 2, [&](Model& model) { model.train(1, data, {ModelCheckpoint("CKP", in(""))}); });
  for (const int ranks : {1, 3}) {
    for (const auto mode : {ParallelMode::kDataParallel, ParallelMode::kSemiAuto}) {
      for (const auto precision : {std::optional<DType>(), std::optional(DType::kBF16)}) {
        with_job({.mode = mode, .precision = precision}, ranks, [&](Model& model) {
          model.build(data);
          EXPECT_EQ(model.load_checkpoint(in("CKP-1_4.ckpt")).step, 4);
          model.train(2, data);
          EXPECT_EQ(model.step(), 8);
        });
      }
    }
  }
  with_job({}, 1, [&](Model& model) {
    model.load_checkpoint(in("CKP-1_4.ckpt"));
    const Tensor x = Tensor::full({DType::kF32, {7, 12}}, 1);
    const Tensor y = Tensor::zeros({DType::kF32, {7, 5}});
    model.train_step({x.view(), y.view()}, 7);
    EXPECT_EQ(model.step(), 5);
  });
}

// Six epochs with a rate for each of their steps, where three were meant at first.
TEST_F(Saves, AreResumedByALongerTrainingWithItsOwnLearningRates) {
  const auto data = samples(DType::kF32);
  const auto table = [](int64_t steps, double rate) { return std::vector<double>(static_cast<size_t>(steps), rate); };
  const auto losses_of = [&](const Job& job, int64_t epochs, const std::string& from, const std::string& to) {
    std::vector<double> losses;
    with_job(job, 2, [&](Model& model) {
      if (!from.empty()) model.load_checkpoint(from);
      Callbacks callbacks = {Losses(losses, -1)};
      if (!to.empty()) callbacks.emplace_back(ModelCheckpoint(to, in("")));
      model.train(epochs, data, callbacks);
      EXPECT_EQ(model.step(), epochs * kStepsPerEpoch);
    });
    return losses;
  };
  const Job longer{.rate = table(6 * kStepsPerEpoch, 0.05)};
  const auto whole = losses_of(longer, 6, "", "");
  auto parts = losses_of({.rate = table(3 * kStepsPerEpoch, 0.05)}, 3, "", "x");
  const auto rest = losses_of(longer, 6, in("x-3_4.ckpt"), "");
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(parts, whole);
  // Another kind of rate, and one of the same length: what this training says counts.
  const auto fixed = losses_of({.rate = 0.05}, 6, in("x-3_4.ckpt"), "");
  EXPECT_EQ(fixed, rest);
  const auto stopped = losses_of({.rate = table(3 * kStepsPerEpoch, 0.0)}, 4, in("x-3_4.ckpt"), "");
  EXPECT_EQ(stopped.size(), static_cast<size_t>(kStepsPerEpoch));
}

TEST_F(Saves, OfATrainingThatIsResumedCountTogether) {
  const auto data = samples(DType::kF32);
  const checkpoint::CheckpointConfig config{.keep_checkpoint_max = 3};
  const auto names = [&] {
    std::vector<std::string> found;
    for (const auto& name : FileSystem::local().list(in(""))) {
      if (name.ends_with(".ckpt")) found.push_back(name);
    }
    return found;
  };
  for (int run = 0; run < 3; ++run) {
    with_job({}, 2, [&](Model& model) {
      if (run > 0) model.load_checkpoint(in(""));
      model.train(run + 1, data, {ModelCheckpoint("LM", in(""), config)});
    });
    EXPECT_EQ(names().size(), 3U) << run;
  }
  EXPECT_THAT(names(), testing::Each(testing::StartsWith("LM_2-3_")));
  with_job({}, 2, [&](Model& model) { model.train(1, data, {ModelCheckpoint("LM", in(""), config)}); });
  EXPECT_EQ(names().size(), 6U) << "a new training leaves those of the other one alone";
}

TEST_F(Saves, EndRemovalsThatACrashInterruptedBeforeTheFirstStep) {
  struct Looks : Callback {
    explicit Looks(std::function<void()> f) : look(std::move(f)) {}
    void step_begin(RunContext& run) override {
      if (run.model.context().rank() == 0) look();  // the first rank of a directory looks after it
    }
    std::function<void()> look;
  };
  auto& files = FileSystem::local();
  files.create_directories(in(""));
  for (const char* name : {"LM-1_1.ckpt.removing", "LM-1_1.ckpt.rank_1", "LM-1_1.ckpt.manifest"}) {
    files.create(in(name))->append("x");
  }
  with_job({}, 2, [&](Model& model) {
    const auto nothing_is_left = [&] {
      for (const auto& name : files.list(in(""))) EXPECT_FALSE(name.starts_with("LM-1_1.ckpt")) << name;
    };
    model.train(1, samples(DType::kF32),
                {ModelCheckpoint("LM", in(""), {.save_checkpoint_steps = 100}), Looks(nothing_is_left)});
  });
}

struct Normalised : nn::Cell {
  nn::Conv2d& conv = child<nn::Conv2d>("conv", 3, 4, nn::Conv2dOptions{.kernel = 3});
  nn::BatchNorm2d& norm = child<nn::BatchNorm2d>("norm", 4);
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return ops::reduce_mean(norm(conv(x)), {2, 3}); }
};

TEST_F(Saves, OfStatisticsOfEachRanksBatchHaveItsRowAndMeetInTheMean) {
  const std::string name = "norm.moving_mean";
  std::vector<double> rows;  // of all ranks
  const auto on_ranks = [&](int ranks, const std::function<void(Model&)>& f) {
    run_ranks(ranks, [&](cluster::Context& context) {
      Normalised network;
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
      Model model(context, network, &loss, &optimizer,
                  {.parallel_mode = ParallelMode::kDataParallel, .batch_norm_statistics = BatchNormStatistics::kLocal});
      f(model);
    });
  };
  on_ranks(4, [&](Model& model) {
    const int rank = model.context().rank();
    const Tensor x = Tensor::full({DType::kF32, {2, 3, 6, 6}}, rank);
    const Tensor y = Tensor::zeros({DType::kF32, {2, 4}});
    model.train_step({x.view(), y.view()}, 8);
    const auto all = model.value(name).to_doubles();
    if (rank == 0) rows = all;
    model.save_checkpoint(in(fmt::format("rank_{}/x.ckpt", rank)), {.integrated = false});
    const auto own = checkpoint::load(FileSystem::local(), in(fmt::format("rank_{}/x.ckpt", rank)));
    EXPECT_EQ(own.find(name)->shape, Shape({4}));
    const auto begin = all.begin() + rank * 4;
    EXPECT_EQ(own.find(name)->read().to_doubles(), std::vector<double>(begin, begin + 4));
  });
  EXPECT_NE(rows[0], rows[4]);
  on_ranks(4, [&](Model& model) {
    model.load_checkpoint(in("rank_0/x.ckpt"));
    EXPECT_EQ(model.value(name).to_doubles(), rows);
  });
  for (const int ranks : {1, 2, 6}) {
    on_ranks(ranks, [&](Model& model) {
      model.load_checkpoint(in(fmt::format("rank_{}/x.ckpt", model.context().rank())));
      const auto values = model.value(name).to_doubles();
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t channel = i % 4;
        EXPECT_NEAR(values[i], (rows[channel] + rows[channel + 4] + rows[channel + 8] + rows[channel + 12]) / 4, 1e-6);
      }
    });
  }
}

TEST_F(Saves, OfStatisticsOfEachRanksBatchAreWholeTheMeanAndGoOnExactlyOnAsManyRanks) {
  const std::string name = "norm.moving_mean";
  std::vector<double> rows;  // of all ranks
  const auto on_ranks = [&](int ranks, const std::function<void(Model&, Normalised&)>& f) {
    run_ranks(ranks, [&](cluster::Context& context) {
      Normalised network;
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
      Model model(context, network, &loss, &optimizer,
                  {.parallel_mode = ParallelMode::kDataParallel, .batch_norm_statistics = BatchNormStatistics::kLocal});
      f(model, network);
    });
  };
  on_ranks(2, [&](Model& model, Normalised& network) {
    const int rank = model.context().rank();
    const Tensor x = Tensor::full({DType::kF32, {2, 3, 6, 6}}, rank);
    const Tensor y = Tensor::zeros({DType::kF32, {2, 4}});
    model.train_step({x.view(), y.view()}, 4);
    const auto all = model.value(name).to_doubles();
    if (rank == 0) rows = all;
    const auto own = std::vector<double>(all.begin() + rank * 4, all.begin() + rank * 4 + 4);
    EXPECT_TRUE(model.has_row_per_rank(name));
    EXPECT_EQ(model.own_value(name).shape(), Shape({4}));
    EXPECT_EQ(model.own_value(name).to_doubles(), own);
    EXPECT_EQ(network.find_parameter(name).type.shape, Shape({4}));
    model.save_checkpoint(in("whole/x.ckpt"));
  });
  const auto saved = checkpoint::load(FileSystem::local(), in("whole/x.ckpt"));
  EXPECT_EQ(saved.find(name)->shape, Shape({4}));
  EXPECT_EQ(saved.find(name + ".of_ranks")->read().to_doubles(), rows);
  for (const int ranks : {1, 2, 3}) {
    on_ranks(ranks, [&](Model& model, Normalised&) {
      model.load_checkpoint(in("whole/x.ckpt"));
      const auto values = model.value(name).to_doubles();
      if (ranks == 2) {
        EXPECT_EQ(values, rows);
        return;
      }
      for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], (rows[i % 4] + rows[i % 4 + 4]) / 2, 1e-6);
    });
    on_ranks(ranks, [&](Model& model, Normalised&) {
      EXPECT_THAT(model.load_parameters(in("whole/x.ckpt")).left_out, testing::Not(testing::Contains(name)));
      if (ranks == 2) {
        EXPECT_EQ(model.value(name).to_doubles(), rows);
      }
    });
  }
}

TEST_F(Saves, ARankPredictsAllItsRowsByItsOwnStatistics) {
  for (const bool shards : {false, true}) {
    run_ranks(3, [&](cluster::Context& context) {
      Normalised network;
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
      ModelOptions options{.parallel_mode = ParallelMode::kDataParallel,
                           .batch_norm_statistics = BatchNormStatistics::kLocal};
      options.parallel_optimizer = shards;
      options.parallel_optimizer_threshold = 0;
      Model model(context, network, &loss, &optimizer, options);
      const int rank = context.rank();
      const Tensor x = Tensor::full({DType::kF32, {2, 3, 6, 6}}, rank + 1);
      const Tensor y = Tensor::zeros({DType::kF32, {2, 4}});
      model.train_step({x.view(), y.view()}, 6);
      const Tensor five = Tensor::full({DType::kF32, {5, 3, 6, 6}}, 1);
      const auto before = model.predict({five}).to_doubles();
      ASSERT_EQ(before.size(), 20U);
      for (size_t i = 4; i < before.size(); ++i) EXPECT_NEAR(before[i], before[i % 4], 1e-6);
      // A row further from the images by 1 on one rank moves what that rank alone predicts.
      Tensor moved = model.own_value("norm.moving_mean");
      for (float& value : moved.values<float>()) value -= static_cast<float>(rank);
      model.set_own_value("norm.moving_mean", moved);
      const auto variance = model.own_value("norm.moving_variance").to_doubles();
      const auto gamma = model.value("norm.gamma").to_doubles();
      const auto after = model.predict({five}).to_doubles();
      for (size_t i = 0; i < after.size(); ++i) {
        EXPECT_NEAR(after[i] - before[i], rank * gamma[i % 4] / std::sqrt(variance[i % 4] + 1e-5), 1e-4);
      }
    });
  }
}

// A weight that only has the name of a statistic.
struct NamedAlike : nn::Cell {
  explicit NamedAlike(int64_t rows) : weight(parameter("moving_mean", {DType::kF32, {rows, 3}}, nn::ones())) {}
  nn::Parameter& weight;
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return ops::matmul(weight, x); }
};

TEST_F(Saves, OfAWeightThatIsNamedLikeAStatisticAreNotAveraged) {
  run_ranks(1, [&](cluster::Context& context) {
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    NamedAlike two(2);
    Model(context, two, &loss, &optimizer).save_checkpoint(in("x.ckpt"));
    NamedAlike four(4);
    Model model(context, four, &loss, &optimizer);
    EXPECT_THAT([&] { model.load_parameters(in("x.ckpt")); },
                testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("f32[4,3]")));
  });
}

// A network whose parts may have names of their own.
struct TwoParts : nn::Cell {
  TwoParts(const std::string& first, const std::string& second, int64_t classes)
      : body(child<nn::Dense>(first, 3, 5)), head(child<nn::Dense>(second, 5, classes)) {}
  nn::Dense& body;
  nn::Dense& head;
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return head(body(x)); }
};

class PartialLoads : public Saves {
 protected:
  // On one rank and on three, whose rows are uneven: a model of that network, which has other first values than what
  // was saved.
  void with_model(const std::string& first, const std::string& second, int64_t classes,
                  const std::function<void(Model&)>& check) {
    for (const int ranks : {1, 3}) {
      run_ranks(ranks, [&](cluster::Context& context) {
        TwoParts network(first, second, classes);
        nn::MSELoss loss;
        nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
        Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel, .seed = 7});
        check(model);
      });
    }
  }
  // Saves a training of the network body and head; returns its values.
  std::map<std::string, std::vector<double>> save() {
    std::map<std::string, std::vector<double>> saved;
    run_ranks(1, [&](cluster::Context& context) {
      TwoParts network("body", "head", 2);
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
      Model model(context, network, &loss, &optimizer);
      for (const nn::Parameter* parameter : network.parameters()) {
        const auto name = parameter->full_name();
        model.set_value(name, Tensor::full(parameter->type, static_cast<double>(saved.size() + 1)));
        saved[name] = model.value(name).to_doubles();
      }
      model.save_checkpoint(in("x.ckpt"));
    });
    return saved;
  }
};

TEST_F(PartialLoads, WithoutStrictKeepWhatTheCheckpointLacks) {
  const auto saved = save();
  with_model("body", "classifier", 2, [&](Model& model) {
    const auto before = model.value("classifier.weight").to_doubles();
    EXPECT_THAT([&] { model.load_parameters(in("x.ckpt")); },
                testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("classifier.weight f32[2,5]")));
    EXPECT_NE(model.value("body.weight").to_doubles(), saved.at("body.weight")) << "nothing has changed";
    const auto report = model.load_parameters(in("x.ckpt"), {.strict = false});
    EXPECT_THAT(report.loaded, testing::ElementsAre("body.weight", "body.bias"));
    EXPECT_THAT(report.missing, testing::ElementsAre("classifier.weight", "classifier.bias"));
    EXPECT_THAT(report.left_out, testing::IsSupersetOf({"head.weight", "head.bias", "moments.body.weight"}));
    EXPECT_THAT(report.left_out, testing::Not(testing::Contains("body.weight")));
    EXPECT_EQ(model.value("body.weight").to_doubles(), saved.at("body.weight"));
    EXPECT_EQ(model.value("classifier.weight").to_doubles(), before);
  });
}

TEST_F(PartialLoads, TakeOnlyWhatPatternsMatch) {
  const auto saved = save();
  with_model("body", "head", 9, [&](Model& model) {  // its head has another shape
    EXPECT_THAT([&] { model.load_parameters(in("x.ckpt"), {.strict = false}); },
                testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("head.weight: f32[2,5] in the checkpoint")));
    EXPECT_THAT([&] { model.load_parameters(in("x.ckpt"), {.only = {"boddy.*"}}); },
                testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("did you mean body?")));
    const auto report = model.load_parameters(in("x.ckpt"), {.only = {"body.weight", "body.b*"}});
    EXPECT_THAT(report.loaded, testing::ElementsAre("body.weight", "body.bias"));
    EXPECT_THAT(report.missing, testing::ElementsAre());
    EXPECT_EQ(model.value("body.bias").to_doubles(), saved.at("body.bias"));
  });
}

TEST_F(PartialLoads, RenameValues) {
  const auto saved = save();
  const auto rename = [](const std::string& name) {
    if (name.starts_with("head.")) return "classifier." + name.substr(5);
    return name == "body.bias" ? std::string() : name;
  };
  with_model("body", "classifier", 2, [&](Model& model) {
    EXPECT_THAT([&] { model.load_parameters(in("x.ckpt"), {.rename = rename}); },
                testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("body.bias f32[5]")));
    const auto report = model.load_parameters(in("x.ckpt"), {.strict = false, .rename = rename});
    EXPECT_THAT(report.loaded, testing::ElementsAre("body.weight", "classifier.weight", "classifier.bias"));
    EXPECT_THAT(report.missing, testing::ElementsAre("body.bias"));
    EXPECT_THAT(report.left_out, testing::Contains("body.bias"));
    EXPECT_EQ(model.value("classifier.weight").to_doubles(), saved.at("head.weight"));
    EXPECT_EQ(model.value("classifier.bias").to_doubles(), saved.at("head.bias"));
  });
}

TEST_F(PartialLoads, ThatWouldLoadNothingOrOneValueTwiceAreRefused) {
  save();
  with_model("body", "head", 2, [&](Model& model) {
    const auto before = model.value("head.weight").to_doubles();
    EXPECT_THAT(
        [&] {
          model.load_parameters(in("x.ckpt"),
                                {.strict = false, .rename = [](const std::string& name) { return "other." + name; }});
        },
        testing::ThrowsMessage<InvalidArgument>(
            testing::HasSubstr("has none of the 4 parameters that were to be loaded; nothing was loaded")));
    EXPECT_THAT(
        [&] { model.load_parameters(in("x.ckpt"), {.rename = [](const std::string&) { return "head.weight"; }}); },
        testing::ThrowsMessage<InvalidArgument>(testing::HasSubstr("are both renamed \"head.weight\"")));
    const auto same = [](const std::string& name) { return name; };
    EXPECT_THAT(
        [&] {
          model.load_parameters(in("x.ckpt"), {.rename = same, .renamed = {"body", "haed"}});
        },
        testing::ThrowsMessage<InvalidArgument>(
            testing::HasSubstr("rename names \"haed\", of which the checkpoint has no value, did you mean head?")));
    EXPECT_EQ(model.value("head.weight").to_doubles(), before);
  });
}

}  // namespace
}  // namespace tessera::train
