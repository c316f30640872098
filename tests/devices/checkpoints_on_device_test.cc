// Checkpoints of values on the fake device: they cross slice by slice, and one that is saved beside the next steps
// holds the values of its own step. The CPU says what is right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "tessera/base/random.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/session/values/transfer_slices.h"
#include "tessera/testing/devices/fake_communicators.h"
#include "tessera/testing/devices/fake_device.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"
#include "tessera/train/saving/snapshot.h"

namespace tessera::devices {
namespace {

using testing::HasSubstr;
using train::Model;
using train::ModelOptions;
using train::ParallelMode;

constexpr int64_t kRows = 12;

struct Perceptron : nn::Cell {
  explicit Perceptron(int64_t width) : width(width) {}
  int64_t width;
  nn::Dense& up = child<nn::Dense>("up", 6, width);
  nn::Dense& down = child<nn::Dense>("down", width, 5);
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return down(ops::tanh(up(x))); }
};

Tensor normal(const Shape& shape, uint64_t stream) {
  Tensor made(DType::kF32, shape);
  auto values = made.values<float>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal({.seed = 2, .stream = stream}, i);
  return made;
}

// How a training is spread, and what is special about it.
struct Form {
  std::string name;
  int ranks = 1;
  ParallelMode mode = ParallelMode::kStandAlone;
  bool integrated = true;
  int64_t accumulation = 1;
  bool skips = false;  // the step after a save is skipped
  bool splits = false;
  int64_t width = 33;
};

struct Trainee {
  Trainee(cluster::Context& context, const Form& form, const kernels::Backend& backend)
      : form(form), context(context), network(form.width) {
    if (form.splits) {
      network.up.shard("matmul", {{2, 1}, {2, 1}});
      network.down.shard("matmul", {{2, 2}, {1, 2}});
    }
    ModelOptions options{.parallel_mode = form.mode,
                         .gradient_accumulation_steps = form.accumulation,
                         .parallel_optimizer = form.splits,
                         .parallel_optimizer_threshold = 0};
    if (form.skips) options.loss_scale = nn::dynamic_loss_scale();
    options.session.backend = &backend;
    options.session.num_threads = 1;
    options.seed = 3;
    model = std::make_unique<Model>(context, network, &loss, &optimizer, options);
  }
  void step(float factor = 1) {
    const bool takes_rows = form.mode == ParallelMode::kDataParallel;
    const int64_t own = takes_rows ? mesh::balanced_part(kRows, context.size(), context.rank()).size : kRows;
    Tensor x = normal({own, 6}, ++number);
    x.values<float>()[0] *= factor;
    const Tensor y = normal({own, 5}, 100 + number);
    for (int64_t i = 0; i < form.accumulation; ++i) model->train_step({x.view(), y.view()}, kRows);
  }
  std::map<std::string, Tensor> values() {
    std::map<std::string, Tensor> all;
    for (const auto& name : model->names()) all[name] = model->value(name);
    return all;
  }

  const Form& form;
  cluster::Context& context;
  Perceptron network;
  nn::MSELoss loss;
  nn::Momentum optimizer{{.learning_rate = 1.65 / static_cast<double>(form.width), .momentum = 0.9}};
  std::unique_ptr<Model> model;
  uint64_t number = 0;
};

class CheckpointsOnDevice : public testing::Test {
 protected:
  CheckpointsOnDevice() { std::filesystem::create_directories(folder_); }
  ~CheckpointsOnDevice() override { std::filesystem::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }

  // Trains, saves after two steps in both ways, each under a name that begins with `name`, and trains on meanwhile.
  void save_in_both_ways(const std::string& name, const Form& form, const kernels::Backend& backend) {
    run_ranks(form.ranks, [&](cluster::Context& context) {
      Trainee trainee(context, form, backend);
      const auto path = [&](const std::string& way) {
        const bool is_own = form.mode == ParallelMode::kHybrid;
        return in(name + way + (is_own ? fmt::format("/rank_{}/x", context.rank()) : "/x"));
      };
      trainee.step();
      for (int round = 0; round < 2; ++round) {
        trainee.step();
        trainee.model->save_checkpoint(path(fmt::format("-blocking{}", round)), {.integrated = form.integrated});
        trainee.model->save_checkpoint(path(fmt::format("-async{}", round)),
                                       {.integrated = form.integrated, .async = true});
        if (form.skips) trainee.step(std::numeric_limits<float>::infinity());
        trainee.step();
        trainee.step();
        trainee.model->finish_saves();
      }
    });
  }
  void expect_equal_checkpoints(const std::string& a, const std::string& b) const {
    const auto first = checkpoint::GlobalCheckpoint::open(FileSystem::local(), in(a));
    const auto second = checkpoint::GlobalCheckpoint::open(FileSystem::local(), in(b));
    ASSERT_EQ(first.entries().size(), second.entries().size());
    for (const auto& entry : first.entries()) {
      ASSERT_NE(second.find(entry.name), nullptr) << entry.name;
      EXPECT_TRUE(bit_equal(first.read_whole(entry.name), second.read_whole(entry.name))) << entry.name << " of " << b;
    }
  }

  FakeDevice device_{13};
  kernels::Backend cpu_ = kernels::cpu_backend();
  kernels::Backend fake_ = fake_backend(device_);
  // A device for each rank, which communicate by themselves.
  FakeCommunicators communicators_;
  kernels::Backend communicating_ = fake_backend(device_, /*plain_loops=*/false, &communicators_);

 private:
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("tessera-device-saves-{}", ::getpid());
};

class SavedOnDevice : public CheckpointsOnDevice, public testing::WithParamInterface<Form> {};

TEST_P(SavedOnDevice, HoldTheBitsOfTheCpusOfTheirSteps) {
  const Form& form = GetParam();
  save_in_both_ways("cpu", form, cpu_);
  save_in_both_ways("device", form, fake_);
  std::vector<std::string> trained = {"device"};
  if (form.ranks > 1 && form.mode != ParallelMode::kHybrid) {
    trained.emplace_back("communicating");
    save_in_both_ways("communicating", form, communicating_);
    EXPECT_GT(communicators_.num_calls(), 0);
  }
  for (int round = 0; round < 2; ++round) {
    for (int rank = 0; rank < (form.mode == ParallelMode::kHybrid ? form.ranks : 1); ++rank) {
      const auto file = form.mode == ParallelMode::kHybrid ? fmt::format("/rank_{}/x.ckpt", rank) : "/x.ckpt";
      const auto expected = fmt::format("cpu-blocking{}", round) + file;
      for (const auto& where : trained) {
        for (const char* way : {"blocking", "async"}) {
          expect_equal_checkpoints(expected, fmt::format("{}-{}{}", where, way, round) + file);
        }
      }
    }
  }
}

TEST_P(SavedOnDevice, HoldThemWhereTheDeviceHasNoRoomForCopies) {
  const Form& form = GetParam();
  device_.set_free_bytes(0);
  testing::internal::CaptureStderr();
  save_in_both_ways("device", form, fake_);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("fake has no room for the copy of "));
  for (int round = 0; round < 2; ++round) {
    for (int rank = 0; rank < (form.mode == ParallelMode::kHybrid ? form.ranks : 1); ++rank) {
      const auto file = form.mode == ParallelMode::kHybrid ? fmt::format("/rank_{}/x.ckpt", rank) : "/x.ckpt";
      expect_equal_checkpoints(fmt::format("device-blocking{}", round) + file,
                               fmt::format("device-async{}", round) + file);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, SavedOnDevice,
    testing::Values(
        Form{.name = "alone"}, Form{.name = "accumulated", .accumulation = 3}, Form{.name = "skipped", .skips = true},
        Form{.name = "data_parallel", .ranks = 3, .mode = ParallelMode::kDataParallel},
        Form{.name = "data_parallel_slices", .ranks = 3, .mode = ParallelMode::kDataParallel, .integrated = false},
        Form{.name = "data_parallel_parts_of_values",
             .ranks = 3,
             .mode = ParallelMode::kDataParallel,
             .integrated = false,
             .width = 60'000},
        Form{.name = "hybrid", .ranks = 2, .mode = ParallelMode::kHybrid, .integrated = false},
        Form{.name = "split", .ranks = 4, .mode = ParallelMode::kSemiAuto, .splits = true},
        Form{.name = "split_slices", .ranks = 4, .mode = ParallelMode::kSemiAuto, .integrated = false, .splits = true},
        Form{.name = "split_accumulated",
             .ranks = 4,
             .mode = ParallelMode::kSemiAuto,
             .integrated = false,
             .accumulation = 2,
             .splits = true}),
    [](const auto& info) { return info.param.name; });

TEST_F(CheckpointsOnDevice, CrossSliceBySliceThroughAFewPiecesOfTheHostsMemory) {
  constexpr int64_t kWidth = 200'000;
  constexpr int64_t kAll = 2 * (6 + 1 + 5) * kWidth * 4;  // parameters and moments
  constexpr int64_t kSlices = session::SliceSizes().count * session::SliceSizes().bytes;
  static_assert(kAll > kSlices);
  const Form form{.width = kWidth};
  const auto context = cluster::single_context(1);
  Trainee trainee(*context, form, fake_);
  trainee.step();
  const auto before = trainee.values();
  int64_t num_slices = 0;  // more than there are values
  for (const auto& [name, value] : before) {
    num_slices += (value.size_bytes() + session::SliceSizes().bytes - 1) / session::SliceSizes().bytes;
  }
  ASSERT_GT(num_slices, std::ssize(before));
  const int64_t on_host = device_.allocated_on_host();
  const int64_t copies = device_.num_copies();
  trainee.model->save_checkpoint(in("blocking"));
  EXPECT_EQ(device_.allocated_on_host() - on_host, kSlices);
  EXPECT_GE(device_.num_copies() - copies, num_slices);
  trainee.model->save_checkpoint(in("async"), {.async = true});
  EXPECT_EQ(trainee.model->snapshot().size_bytes(), 0) << "the copy is the device's";
  EXPECT_GE(trainee.model->snapshot().device_bytes(), kAll);
  trainee.step();
  trainee.model->finish_saves();
  expect_equal_checkpoints("blocking.ckpt", "async.ckpt");
  trainee.model->load_checkpoint(in("async.ckpt"));
  EXPECT_EQ(device_.allocated_on_host() - on_host, kSlices) << "one set of slices serves all";
  for (const auto& [name, value] : trainee.values()) EXPECT_TRUE(bit_equal(value, before.at(name))) << name;
}

TEST_F(CheckpointsOnDevice, TakeTheMemoryOfTheCopyBeforeItIsNeeded) {
  const Form form{};
  const auto context = cluster::single_context(1);
  Trainee trainee(*context, form, fake_);
  trainee.step();
  trainee.model->reserve_snapshot(in("x"), {.async = true});
  const int64_t reserved = trainee.model->snapshot().device_bytes();
  EXPECT_GT(reserved, 0);
  for (int save = 0; save < 3; ++save) {
    trainee.model->save_checkpoint(in("x"), {.async = true});
    trainee.step();
  }
  trainee.model->finish_saves();
  EXPECT_EQ(trainee.model->snapshot().device_bytes(), reserved);
  EXPECT_EQ(trainee.model->snapshot().size_bytes(), 0);
}

TEST_F(CheckpointsOnDevice, LieBesideTheArenaWhichTellsWhatIsFree) {
  const Form form{};
  const auto context = cluster::single_context(1);
  Trainee trainee(*context, form, fake_);
  trainee.step();
  trainee.model->save_checkpoint(in("x"), {.async = true});
  trainee.model->finish_saves();
  const session::Session& session = std::as_const(*trainee.model).session();
  EXPECT_EQ(session.arena_memory().resident_bytes, session.arena_bytes());
  EXPECT_EQ(session.arena_memory().free_bytes, std::nullopt);
  device_.set_free_bytes(12345);
  EXPECT_EQ(session.arena_memory().free_bytes, 12345);
}

TEST_F(CheckpointsOnDevice, GoOnOnTheCpuAndBackOnOtherNumbersOfRanks) {
  const Form alone{.name = "alone", .mode = ParallelMode::kSemiAuto};
  const Form split{.name = "split", .ranks = 4, .mode = ParallelMode::kSemiAuto, .integrated = false, .splits = true};
  // Loads what is named, trains a step, saves; the values before and after of rank 0.
  using Values = std::map<std::string, Tensor>;
  const auto go_on = [&](const Form& form, const kernels::Backend& backend, const std::string& from,
                         const std::string& to) {
    std::pair<Values, Values> of_rank_0;
    std::mutex mutex;
    run_ranks(form.ranks, [&](cluster::Context& context) {
      Trainee trainee(context, form, backend);
      if (!from.empty()) trainee.model->load_checkpoint(in(from + "/x.ckpt"));
      auto loaded = trainee.values();
      trainee.step();
      trainee.model->save_checkpoint(in(to + "/x"), {.integrated = form.integrated});
      auto trained = trainee.values();
      const std::lock_guard lock(mutex);
      if (context.rank() == 0) of_rank_0 = {std::move(loaded), std::move(trained)};
    });
    return of_rank_0;
  };
  const auto expect_equal = [](const Values& a, const Values& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, value] : a) EXPECT_TRUE(bit_equal(value, b.at(name))) << name;
  };
  const auto first = go_on(split, fake_, "", "first");
  const auto second = go_on(alone, cpu_, "first", "second");
  expect_equal(second.first, first.second);
  const auto third = go_on(split, fake_, "second", "third");
  expect_equal(third.first, second.second);
  const auto fourth = go_on(alone, fake_, "third", "fourth");
  expect_equal(fourth.first, third.second);
}

TEST_F(CheckpointsOnDevice, ChangeNothingWhereTheyAreDamaged) {
  const Form form{};
  const auto context = cluster::single_context(1);
  Trainee saved(*context, form, fake_);
  saved.step();
  saved.model->save_checkpoint(in("x"));
  auto& files = FileSystem::local();
  auto text = files.read_text(in("x.ckpt"));
  text[300] = static_cast<char>(text[300] ^ 1);  // of a weight
  files.create(in("x.ckpt"))->append(text);
  for (const bool has_trained : {false, true}) {
    Trainee trainee(*context, form, fake_);
    if (has_trained) trainee.step();
    const auto before = trainee.values();
    EXPECT_THAT([&] { trainee.model->load_checkpoint(in("x.ckpt")); },
                testing::ThrowsMessage<InvalidArgument>(HasSubstr("is damaged")));
    for (const auto& [name, value] : trainee.values()) EXPECT_TRUE(bit_equal(value, before.at(name))) << name;
  }
}

TEST_F(CheckpointsOnDevice, AreWholeAfterOneThatFailed) {
  const Form form{};
  const auto context = cluster::single_context(1);
  Trainee trainee(*context, form, fake_);
  trainee.step();
  trainee.model->save_checkpoint(in("blocking"));
  trainee.model->save_checkpoint(in("failed"),
                                 {.async = true, .before_write = [] { throw IoError("the disk is full"); }});
  EXPECT_THAT([&] { trainee.model->finish_saves(); }, testing::ThrowsMessage<IoError>(HasSubstr("the disk is full")));
  trainee.model->save_checkpoint(in("async"), {.async = true});
  trainee.step();
  trainee.model->finish_saves();
  expect_equal_checkpoints("blocking.ckpt", "async.ckpt");
}

}  // namespace
}  // namespace tessera::devices
