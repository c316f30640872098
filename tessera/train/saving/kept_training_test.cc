// What a rank has kept of a training is taken up by a training whose values lie as they lay, and by no other one.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <optional>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/cluster/recovery/recovery.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/wrapped_context.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kSteps = 6;
constexpr int64_t kRows = 8;

// What outlives a rank's process.
struct Kept {
  cluster::KeptMemory memory;
  std::map<std::string, std::string> states;
};

// A rank's process in a generation of its job.
class Process final : public WrappedContext, public cluster::Recovery {
 public:
  Process(cluster::Context& inner, uint64_t generation, Kept& kept)
      : WrappedContext(inner), generation_(generation), kept_(kept) {}
  cluster::Recovery* recovery() override { return this; }
  uint64_t generation() const override { return generation_; }
  bool has_failed() const override { return false; }
  cluster::KeptMemory& memory() override { return kept_.memory; }
  int64_t keep_steps() const override { return 1; }
  std::string begin_anew(const std::string&) override { return "it is a thread"; }
  std::optional<std::string> find_state(const std::string& name) override {
    const auto it = kept_.states.find(name);
    return it == kept_.states.end() ? std::nullopt : std::optional(it->second);
  }
  void set_state(const std::string& name, const std::string& text) override { kept_.states[name] = text; }

 private:
  uint64_t generation_;
  Kept& kept_;
};

struct Mlp : nn::Cell {
  nn::Dense& up = child<nn::Dense>("up", 8, 16);
  nn::Dense& down = child<nn::Dense>("down", 16, 4);
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return down(ops::tanh(up(x))); }
};

data::Dataset samples() {
  return data::generator({{"x", {DType::kF32, {8}}}, {"y", {DType::kF32, {4}}}}, kRows * kSteps,
                         [](int64_t index, std::span<const TensorView> outputs) {
                           for (size_t column = 0; column < outputs.size(); ++column) {
                             Tensor values(DType::kF32, outputs[column].shape);
                             const auto at = values.values<float>();
                             for (size_t i = 0; i < at.size(); ++i) {
                               at[i] = static_cast<float>(random_normal(
                                   {.seed = 3, .stream = column, .step = static_cast<uint64_t>(index)}, i));
                             }
                             copy_elements(values.view(), outputs[column]);
                           }
                         })
      .batch(kRows);
}

using Losses = std::map<int64_t, double>;  // by step

// Notes the losses on rank 0, and loses a rank before the end of a step.
class Watch : public Callback {
 public:
  Watch(Losses& losses, int64_t lost_in_step) : losses_(losses), lost_in_step_(lost_in_step) {}
  void step_end(RunContext& run) override {
    if (run.step == lost_in_step_) throw IoError("a rank is lost");
    if (run.model.context().rank() == 0) losses_[run.step] = run.loss;
  }

 private:
  Losses& losses_;
  int64_t lost_in_step_;
};

// What rank 0 has seen of a generation.
struct Trained {
  Losses losses;
  std::string layout;  // of the weight that is split
  Type local_type;
};

class Job {
 public:
  // The next generation trains with the first layer's product split so.
  Trained train(const mesh::Strategy& strategy, int64_t lost_in_step = 0) {
    ++generation_;
    Trained trained;
    const auto run = [&](cluster::Context& inner) {
      Process process(inner, generation_, kept_.at(static_cast<size_t>(inner.rank())));
      Mlp network;
      network.up.shard("matmul", strategy);
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
      Model model(process, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kSemiAuto, .seed = 5});
      model.train(1, samples(), {Watch(trained.losses, lost_in_step)});
      if (inner.rank() != 0) return;
      trained.layout = model.session().layouts("up.weight")[0].to_string();
      trained.local_type = model.session().values().type("up.weight");
    };
    if (lost_in_step > 0) {
      EXPECT_THROW(run_ranks(kRanks, run), IoError);
    } else {
      run_ranks(kRanks, run);
    }
    return trained;
  }

 private:
  std::array<Kept, kRanks> kept_;
  uint64_t generation_ = 0;
};

// A half of the weight's rows on each rank: on every second one the first half, or on the first two.
const mesh::Strategy kBatchThenRows = {{2, 1}, {2, 1}};
const mesh::Strategy kRowsAlone = {{1, 1}, {2, 1}};

TEST(KeptValues, AreTakenUpByATrainingWhoseValuesLieAsTheyLay) {
  for (const auto& strategy : {kBatchThenRows, kRowsAlone}) {
    Losses straight = Job().train(strategy).losses;
    Job job;
    EXPECT_EQ(job.train(strategy, /*lost_in_step=*/4).losses.size(), 3U);
    straight.erase(straight.begin(), straight.find(4));
    EXPECT_EQ(job.train(strategy).losses, straight);
  }
}

TEST(KeptValues, AreNotTakenUpByATrainingWhoseValuesLieInAnotherWay) {
  const auto rows = Job().train(kRowsAlone);
  const auto both = Job().train(kBatchThenRows);
  ASSERT_EQ(rows.local_type, both.local_type) << "the types alone do not tell them apart";
  ASSERT_NE(rows.layout, both.layout);
  ASSERT_EQ(rows.losses.size(), static_cast<size_t>(kSteps));
  Job job;
  job.train(kBatchThenRows, /*lost_in_step=*/4);
  EXPECT_EQ(job.train(kRowsAlone).losses, rows.losses) << "from the first step on";
}

}  // namespace
}  // namespace tessera::train
