// Devices that communicate by themselves, when something goes wrong: who waits on its device for another rank hears of
// that one's failure, and says whom it has waited for. And two ranks on one device, which tell each other through its
// memory, or through the host's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tessera/comm/job_state.h"
#include "tessera/data/dataset.h"
#include "tessera/executor/executor.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/executable.h"
#include "tessera/session/session.h"
#include "tessera/testing/devices/fake_communicators.h"
#include "tessera/testing/devices/fake_device.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/test_folder.h"
#include "tessera/timeline/align_clocks.h"
#include "tessera/timeline/step_times.h"
#include "tessera/train/model.h"
#include "tests/devices/shared_fake.h"
#include "tests/equivalence/networks.h"

namespace tessera::devices {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr int64_t kRows = 8;

// A device for each rank, and a small network that they train together.
struct Devices {
  explicit Devices(FakeCommunicators::Places places = FakeCommunicators::Places::kApart) : communicators(places) {}
  FakeDevice device{23};
  FakeCommunicators communicators;
  kernels::Backend backend = fake_backend(device, /*plain_loops=*/false, &communicators);
};

class Trainee {
 public:
  Trainee(cluster::Context& context, const Devices& devices) : Trainee(context, devices.backend) {}
  Trainee(cluster::Context& context, const kernels::Backend& backend) : rank_(context.rank()), size_(context.size()) {
    train::ModelOptions options{.parallel_mode = train::ParallelMode::kDataParallel};
    options.session.num_threads = 1;
    options.session.backend = &backend;
    model_ = std::make_unique<train::Model>(context, *network_, &loss_, &optimizer_, options);
  }
  double step(int64_t number) {
    const auto batch = equivalence::make_batch("mlp", kRows, number, DType::kF32);
    const auto rows = mesh::balanced_part(kRows, size_, rank_);
    const auto rows_of = [&](const Tensor& tensor) {
      std::vector<mesh::Range> slice = {rows};
      for (int dim = 1; dim < tensor.ndim(); ++dim) slice.push_back({0, tensor.shape()[dim]});
      return mesh::piece_of(tensor.view(), slice);
    };
    return model_->train_step({rows_of(batch[0]), rows_of(batch[1])}, kRows);
  }
  // The ranks meet before it begins, not before each step.
  void train(const train::CallbackHandle& callback) {
    const auto rows = equivalence::make_batch("mlp", 4 * kRows, 0, DType::kF32);
    model_->train(1, data::tensors({{"x", rows[0]}, {"label", rows[1]}}).batch(kRows), {callback});
  }
  const ir::Schedule& schedule() const { return model_->train_executable()->executor().schedule(); }

 private:
  int rank_;
  int size_;
  std::unique_ptr<nn::Cell> network_ = equivalence::make_network("mlp", DType::kF32);
  nn::SoftmaxCrossEntropyWithLogits loss_{{.sparse = true, .reduction = "mean"}};
  nn::Momentum optimizer_{{.learning_rate = 0.05, .momentum = 0.9}};
  std::unique_ptr<train::Model> model_;
};

TEST(CommunicatingDevices, ARankThatFailsEndsTheWaitsOfTheOthers) {
  for (const int64_t steps_before : {0, 1, 3}) {  // the first run, the one that records, one that replays
    const Devices devices;
    std::string error_of_rank_0;
    std::atomic<bool> waits = false;  // rank 0, or it is about to
    EXPECT_THAT(
        [&] {
          run_ranks(2, [&](cluster::Context& context) {
            Trainee trainee(context, devices);
            for (int64_t step = 0; step < steps_before; ++step) trainee.step(step);
            if (context.rank() == 1) {
              while (!waits) std::this_thread::sleep_for(std::chrono::milliseconds(1));
              throw IoError("the disk is full");
            }
            waits = true;
            try {
              trainee.step(steps_before);
            } catch (const comm::PeerFailure& error) {
              error_of_rank_0 = error.what();
              throw;
            }
          });
        },
        ThrowsMessage<IoError>("rank 1: the disk is full"))
        << steps_before;
    EXPECT_THAT(error_of_rank_0, HasSubstr("because rank 1 failed: the disk is full")) << steps_before;
  }
}

// Behind its second step a rank goes no further until another one is at its end.
struct HoldsUp : train::Callback {
  HoldsUp(bool holds, std::atomic<bool>& is_over) : holds(holds), is_over(is_over) {}
  void step_end(train::RunContext&) override {
    if (++num_steps < 2) return;
    for (int i = 0; holds && !is_over && i < 12'000; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

  bool holds;
  std::atomic<bool>& is_over;
  int num_steps = 0;
};

// Within the deadline the first steps are compiled and made, also where the machine keeps a rank waiting.
TEST(CommunicatingDevices, ARankThatDoesNotComeIsNamedAfterTheDeadline) {
  const Devices devices;
  const auto train = [&] {
    std::atomic<bool> is_over = false;
    run_ranks(2,
              [&](cluster::Context& context) {
                Trainee trainee(context, devices);
                try {
                  trainee.train(std::make_shared<HoldsUp>(context.rank() == 1, is_over));
                } catch (...) {
                  is_over = true;
                  throw;
                }
              },
              {.timeout_ms = 10'000});
  };
  EXPECT_THAT(train, ThrowsMessage<IoError>(AllOf(HasSubstr("rank 0: all_reduce"),
                                                  HasSubstr("rank 0 heard nothing from rank 1 for "),
                                                  HasSubstr("it has not come there on its device"))));
}

TEST(CommunicatingDevices, WhatTheDeviceSaysOfACallEndsTheJob) {
  Devices devices;
  devices.communicators.set_failing_call(1);
  EXPECT_THAT(
      [&] {
        run_ranks(2, [&](cluster::Context& context) {
          Trainee trainee(context, devices);
          for (int64_t step = 0; step < 3; ++step) trainee.step(step);
        });
      },
      ThrowsMessage<IoError>(HasSubstr("fake device: a call has failed")));
}

TEST(CommunicatingDevices, TwoRanksOnOneGoThroughTheHost) {
  std::vector<double> losses;
  const auto train = [&](const Devices& devices) {
    run_ranks(2, [&](cluster::Context& context) {
      Trainee trainee(context, devices);
      for (int64_t step = 0; step < 4; ++step) {
        const double loss = trainee.step(step);
        if (context.rank() == 0) losses.push_back(loss);
      }
    });
  };
  const Devices on_one(FakeCommunicators::Places::kOne);
  train(on_one);
  EXPECT_EQ(on_one.communicators.num_calls(), 0);
  const Devices apart;
  train(apart);
  EXPECT_GT(apart.communicators.num_calls(), 0);
  ASSERT_EQ(losses.size(), 8U);
  for (size_t step = 0; step < 4; ++step) EXPECT_EQ(losses[step], losses[4 + step]) << step;
}

// The losses of four steps of so many ranks.
std::vector<double> losses_of(const kernels::Backend& backend, int ranks = 2) {
  std::vector<double> losses;
  run_ranks(ranks, [&](cluster::Context& context) {
    Trainee trainee(context, backend);
    for (int64_t step = 0; step < 4; ++step) {
      const double loss = trainee.step(step);
      if (context.rank() == 0) losses.push_back(loss);
    }
  });
  return losses;
}

TEST(SharedDevice, RanksOnOneTellEachOtherInItsMemoryAndCutTheirRecordingsThere) {
  for (const int ranks : {2, 4}) {
    const Devices apart;
    SharedFake fake(/*seed=*/23);
    EXPECT_EQ(losses_of(fake.backend, ranks), losses_of(apart.backend, ranks));
    EXPECT_GT(fake.shared.num_calls(), 0);
    EXPECT_EQ(apart.device.num_replays(), 3 * ranks) << "whole steps, but the first";
    EXPECT_GT(fake.device.num_replays(), 3 * ranks) << "pieces of them";
  }
}

// Each rank's own and that of the others, which it does not reach.
class OutOfReach final : public DeviceCommunicators {
 public:
  explicit OutOfReach(kernels::SharedDevice& shared) : shared_(shared) {}
  std::string name() override { return shared_.name(); }
  std::string place() override { return shared_.place(); }
  std::string offer() override { return "a page"; }
  void try_offer(const std::string& offer) override { throw IoError("{} is out of reach", offer); }
  std::string make_id() override { return shared_.make_id(); }
  std::unique_ptr<DeviceCommunicator> join(const std::string& id, int rank, int size,
                                           std::function<void()> waiting) override {
    return shared_.join(id, rank, size, std::move(waiting));
  }

 private:
  kernels::SharedDevice& shared_;
};

TEST(SharedDevice, RanksThatDoNotReachEachOtherGoThroughTheHostAndSaySoOnce) {
  SharedFake fake(/*seed=*/23);
  OutOfReach out_of_reach(fake.shared);
  fake.backend.within_device = &out_of_reach;
  testing::internal::CaptureStderr();
  const auto losses = losses_of(fake.backend);
  const std::string text = testing::internal::GetCapturedStderr();
  constexpr std::string_view kSaid =
      "ranks on one device do not reach each other's memory there, they go through the host: rank 0 does not reach the "
      "memory of rank 1: a page is out of reach";
  const size_t first = text.find(kSaid);
  EXPECT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("do not reach each other's memory", first + kSaid.size()), std::string::npos) << text;
  EXPECT_EQ(fake.shared.num_calls(), 0);
  const Devices apart;
  EXPECT_EQ(losses, losses_of(apart.backend));
}

TEST(SharedDevice, ARankThatFailsEndsTheWaitsOfTheOthers) {
  for (const int64_t steps_before : {0, 1, 3}) {  // the first run, the one that records, one that replays
    SharedFake fake(/*seed=*/23);
    std::string error_of_rank_0;
    std::atomic<bool> waits = false;  // rank 0, or it is about to
    EXPECT_THAT(
        [&] {
          run_ranks(2, [&](cluster::Context& context) {
            Trainee trainee(context, fake.backend);
            for (int64_t step = 0; step < steps_before; ++step) trainee.step(step);
            if (context.rank() == 1) {
              while (!waits) std::this_thread::sleep_for(std::chrono::milliseconds(1));
              throw IoError("the disk is full");
            }
            waits = true;
            try {
              trainee.step(steps_before);
            } catch (const comm::PeerFailure& error) {
              error_of_rank_0 = error.what();
              throw;
            }
          });
        },
        ThrowsMessage<IoError>("rank 1: the disk is full"))
        << steps_before;
    EXPECT_THAT(error_of_rank_0, HasSubstr("because rank 1 failed: the disk is full")) << steps_before;
  }
}

TEST(CommunicatingDevices, AStepIsOneRecordingOnEachRank) {
  constexpr int64_t kNumSteps = 5;
  for (const int ranks : {2, 4}) {
    const Devices devices;
    run_ranks(ranks, [&](cluster::Context& context) {
      Trainee trainee(context, devices);
      for (int64_t step = 0; step < kNumSteps; ++step) trainee.step(step);
      EXPECT_GE(trainee.schedule().gate, 0);
    });
    EXPECT_GT(devices.communicators.num_calls(), 0);
    EXPECT_EQ(devices.device.num_replays(), ranks * (kNumSteps - 1)) << "all but the first";
  }
}

// By gates that agree, where the loss is what one sum has given to all ranks; else by the host of each.
TEST(CommunicatingDevices, ALossThatIsNotFiniteChangesNothingWhetherRanksShareItOrNot) {
  for (const bool is_shared : {true, false}) {
    const Devices devices;
    const auto context = cluster::single_context(1);
    session::Session session(*context, {.backend = &devices.backend});
    const Type type{DType::kF32, {3}};
    session.declare("w", type);
    session.set_value("w", Tensor::full(type, 1));
    ir::Graph graph("g");
    const ir::Value w = graph.add_input(ir::InputKind::kParameter, "w", type);
    const ir::Value x = graph.add_input(ir::InputKind::kInput, "x", type);
    const ops::RankGroup group{.name = "alone", .ranks = {0}, .own = 0};
    const ir::Value own = ops::reduce_sum(x * w, {0});
    const ir::Value sum = ops::all_reduce(own, group);
    graph.add_output("loss", is_shared ? sum : own);
    if (!is_shared) graph.add_output("sum", sum);
    graph.add_output("w", w + x);
    const auto step = session.compile_local(graph);
    const auto& steps = step->executor().schedule().steps;
    const bool is_checked =
        std::ranges::any_of(steps, [](const ir::Step& one) { return one.kind == ir::StepKind::kCheckFinite; });
    EXPECT_EQ(step->executor().schedule().gate >= 0, is_shared);
    EXPECT_EQ(is_checked, !is_shared);
    double expected = 1;
    for (const double number : {1.0, 2.0, std::numeric_limits<double>::infinity(), 3.0, 4.0}) {
      copy_elements(Tensor::full(type, number).view(), step->input("x"));
      if (std::isfinite(number)) {
        step->run();
        EXPECT_EQ(Tensor::copy_of(step->output("loss")).item(), 3 * number * expected);
        expected += number;
      } else {
        EXPECT_THAT([&] { step->run(); }, ThrowsMessage<executor::NonFiniteLoss>(HasSubstr("loss is ")));
      }
      EXPECT_THAT(session.value("w").to_doubles(), testing::Each(expected)) << number;
    }
    if (is_shared) {
      EXPECT_EQ(devices.device.num_replays(), 4) << "all runs but the first";
    } else {
      EXPECT_GT(devices.device.num_replays(), 4) << "a check cuts a run";
    }
  }
}

TEST(CommunicatingDevices, CollectivesHaveARowOfTheirOwnInATimeline) {
  constexpr int64_t kNumSteps = 4;  // of which the last two replay
  constexpr int kRanks = 2;
  const TestFolder folder("communicating-devices");
  std::vector<timeline::RankTimeline> parts(kRanks);
  std::vector<double> losses;
  size_t num_collectives = 0;
  for (const bool is_traced : {false, true}) {
    const Devices devices;
    run_ranks(kRanks, [&](cluster::Context& context) {
      auto& recorder = *context.recorder();
      if (is_traced) recorder.begin({.file = folder.in("job.json")}, context.file_system(), Clock::system());
      Trainee trainee(context, devices);
      for (int64_t step = 0; step < kNumSteps; ++step) {
        const double loss = trainee.step(step);
        if (context.rank() == 0) losses.push_back(loss);
      }
      if (!is_traced) return;
      parts[static_cast<size_t>(context.rank())] = recorder.timeline();
      recorder.end();
      if (context.rank() > 0) return;
      num_collectives = static_cast<size_t>(std::ranges::count(trainee.schedule().steps, ir::StepKind::kStart,
                                                               [](const ir::Step& step) { return step.kind; }));
    });
  }
  for (size_t step = 0; step < kNumSteps; ++step) EXPECT_EQ(losses[step], losses[kNumSteps + step]) << step;
  ASSERT_GT(num_collectives, 0U);
  for (timeline::RankTimeline& part : parts) {
    part.is_written = true;
    const auto row = std::ranges::find(part.lanes, "device fake stream collectives", &timeline::RecordedLane::title);
    ASSERT_NE(row, part.lanes.end());
    std::map<int64_t, size_t> by_step;
    int64_t free_ns = 0;
    for (const timeline::TimedSpan& span : row->spans) {
      const timeline::SpanName& name = part.names[span.name];
      EXPECT_EQ(name.kind, timeline::SpanKind::kCollective) << name.text;
      EXPECT_GT(name.bytes, 0) << name.text;
      EXPECT_THAT(name.ranks, testing::ElementsAre(0, 1)) << name.text;
      EXPECT_GE(span.begin_ns, free_ns) << name.text;
      EXPECT_GE(span.end_ns, span.begin_ns) << name.text;
      free_ns = span.end_ns;
      if (span.step > 0) ++by_step[span.step];
    }
    EXPECT_EQ(by_step.size(), static_cast<size_t>(kNumSteps));
    for (const auto& [step, count] : by_step) EXPECT_EQ(count, num_collectives) << step;
  }
  const timeline::JobSteps steps = timeline::find_steps(timeline::align(parts));
  EXPECT_EQ(steps.steps.size(), static_cast<size_t>(kNumSteps));
  EXPECT_GE(steps.meetings.size(), kNumSteps * num_collectives);
  for (const timeline::Meeting& meeting : steps.meetings) EXPECT_TRUE(meeting.is_complete) << meeting.text;
}

TEST(CommunicatingDevices, AGroupOfOneRankIsDoneThereToo) {
  const Devices devices;
  const auto context = cluster::single_context(1);
  session::Session session(*context, {.backend = &devices.backend});
  ir::Graph graph("g");
  const ir::Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {2, 3}});
  const ops::RankGroup group{.name = "alone", .ranks = {0}, .own = 0};
  graph.add_output("y", ops::neg(ops::all_gather(ops::all_reduce(ops::exp(x), group), group, 1)));
  const auto executable = session.compile_local(graph);
  const Tensor values = Tensor::of<float>({2, 3}, {0, 0, 0, 0, 0, 0});
  for (int run = 0; run < 4; ++run) {
    copy_elements(values.view(), executable->input("x"));
    executable->run();
    EXPECT_THAT(Tensor::copy_of(executable->output("y")).to_doubles(), testing::Each(-1));
  }
  EXPECT_EQ(devices.communicators.num_calls(), 4) << "each in the first run, and once more for the recording";
}

}  // namespace
}  // namespace tessera::devices
