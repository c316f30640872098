// What a rank has kept of a training is taken up by a training whose values lie as they lay, and by no other one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/files/file_system.h"
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
#include "tessera/train/callbacks.h"
#include "tessera/train/kept/kept_pieces.h"
#include "tessera/train/model.h"
#include "tessera/train/saving/snapshot.h"

namespace tessera::train {
namespace {

constexpr int kRanks = 4;
constexpr int64_t kSteps = 6;
constexpr int64_t kRows = 8;

// What outlives a rank's process.
struct Kept {
  cluster::KeptMemory memory;
  cluster::KeptMemory for_others;
  std::string keeper;  // "": ranks have no buddies
  std::map<std::string, std::string> states;
};

// A rank's process in a generation of its job.
class Process final : public WrappedContext, public cluster::Recovery {
 public:
  Process(cluster::Context& inner, uint64_t generation, Kept& kept, bool is_elastic = false)
      : WrappedContext(inner), generation_(generation), kept_(kept), is_elastic_(is_elastic) {}
  cluster::Recovery* recovery() override { return this; }
  uint64_t generation() const override { return generation_; }
  bool has_failed() const override { return false; }
  cluster::KeptMemory& memory() override { return kept_.memory; }
  std::string keeper() const override { return kept_.keeper; }
  cluster::KeptMemory* memory_for_others() override { return kept_.keeper.empty() ? nullptr : &kept_.for_others; }
  int64_t keep_steps() const override { return 1; }
  std::string begin_anew(const std::string&) override { return "it is a thread"; }
  std::optional<std::string> find_state(const std::string& name) override {
    const auto it = kept_.states.find(name);
    return it == kept_.states.end() ? std::nullopt : std::optional(it->second);
  }
  void set_state(const std::string& name, const std::string& text) override { kept_.states[name] = text; }
  bool is_elastic() const override { return is_elastic_; }
  int num_newcomers() const override { return num_newcomers_; }
  void fix_ranks(const std::string& why, const std::string& unsaved) override {
    fixed_why = why;
    unsaved_for = unsaved;
  }
  std::string fixed_by() const override { return fixed_why; }
  std::string stop_reason() const override { return stop_reason_; }
  void leave_for_good() override { has_left_for_good = true; }
  void tell_last_save(bool is_training, const std::string& unsaved) override {
    told_of_last_save.push_back(is_training ? "training: " + unsaved : "none");
  }
  std::string last_reason() const override { return last_reason_; }
  void end_for(const std::string& reason) { last_reason_ = reason; }
  void set_newcomers(int count) { num_newcomers_ = count; }
  void ask_to_stop(const std::string& reason) { stop_reason_ = reason; }

  std::string fixed_why;
  std::string unsaved_for;
  bool has_left_for_good = false;
  std::vector<std::string> told_of_last_save;

 private:
  uint64_t generation_;
  Kept& kept_;
  bool is_elastic_;
  int num_newcomers_ = 0;
  std::string stop_reason_;
  std::string last_reason_;
};

struct Mlp : nn::Cell {
  explicit Mlp(int64_t width = 16) : up(child<nn::Dense>("up", 8, width)), down(child<nn::Dense>("down", width, 4)) {}
  nn::Dense& up;
  nn::Dense& down;
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return down(ops::tanh(up(x))); }
};

data::Dataset samples(int64_t num_shards = 1, int64_t shard = 0) {
  return data::generator({{"x", {DType::kF32, {8}}}, {"y", {DType::kF32, {4}}}}, kRows * kSteps * num_shards,
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
                         },
                         {.num_shards = num_shards, .shard_id = shard})
      .batch(kRows);
}

// The same number of batches, of numbers that are drawn one after the other, whichever sample is read.
class Drawn : public data::SourceState {
 public:
  std::string get(int64_t) override { return std::to_string(count_); }
  void set(const std::string& text) override { count_ = std::stoll(text); }
  uint64_t draw() { return static_cast<uint64_t>(count_++); }

 private:
  int64_t count_ = 0;
};

data::Dataset drawn_samples() {
  const auto drawn = std::make_shared<Drawn>();
  return data::generator(
             {{"x", {DType::kF32, {8}}}, {"y", {DType::kF32, {4}}}}, kRows * kSteps,
             [drawn](int64_t, std::span<const TensorView> outputs) {
               for (const TensorView& output : outputs) {
                 const double value = random_normal({.seed = 3, .step = drawn->draw()}, 0);
                 copy_elements(Tensor::full({DType::kF32, output.shape}, value).view(), output);
               }
             },
             {}, drawn)
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

// A job whose generations have numbers of ranks of their own. What the ranks keep is by node. With buddies, two nodes
// each are of one host.
class ElasticJob {
 public:
  explicit ElasticJob(const ModelOptions& options, bool has_buddies = false, bool is_elastic = true)
      : options_(options), has_buddies_(has_buddies), is_elastic_(is_elastic) {
    for (size_t node = 0; node < kept_.size(); ++node) lose(node);
  }
  // Not elastic, of so many values that they are copied beside the next step.
  static ElasticJob of_many_values(const ModelOptions& options) {
    ElasticJob job(options, /*has_buddies=*/false, /*is_elastic=*/false);
    job.width_ = 4096;
    return job;
  }
  // Its data set draws random numbers by itself, and tells their state.
  void draw_samples() { draws_samples_ = true; }
  // From now on each value is copied when it is about to change.
  void copy_late() { copies_late_ = true; }

  // The next generation, of these nodes in the order of their ranks. It ends with an error in a step, or at the end of
  // an epoch where `num_newcomers` wait to be taken in. Returns the losses that its rank 0 has seen.
  Losses train(const std::vector<size_t>& nodes, int64_t lost_in_step = 0, int num_newcomers = 0) {
    ++generation_;
    num_drawn_ = 0;
    Losses losses;
    fixed_by_.clear();
    const auto run = [&](cluster::Context& inner) {
      Process process(inner, generation_, *kept_.at(nodes[static_cast<size_t>(inner.rank())]), is_elastic_);
      process.set_newcomers(num_newcomers);
      Mlp network(width_);
      for (nn::Parameter* parameter : network.parameters()) {
        if (!parameter->init) continue;
        parameter->init = [this, init = parameter->init](const nn::InitContext& value) {
          ++std::atomic_ref(num_drawn_);
          return init(value);
        };
      }
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.8 / static_cast<double>(width_), .momentum = 0.9});
      ModelOptions options = options_;
      options.seed = 5;
      if (options.parallel_mode == ParallelMode::kPipeline) {
        network.up.set_stage(0);
        network.down.set_stage(1);
      }
      Model model(process, network, &loss, &optimizer, options);
      model.snapshot().set_copies_in_background(!copies_late_);
      model.train(2, draws_samples_ ? drawn_samples() : samples(), {Watch(losses, lost_in_step)});
      if (inner.rank() == 0) fixed_by_ = process.fixed_why;
    };
    const auto size = static_cast<int>(nodes.size());
    if (num_newcomers > 0) {
      EXPECT_THROW(run_ranks(size, run), Error);
    } else if (lost_in_step > 0) {
      EXPECT_THROW(run_ranks(size, run), IoError);
    } else {
      run_ranks(size, run);
    }
    return losses;
  }
  // What a node has kept is gone with its host.
  void lose(size_t node) {
    kept_.at(node) = std::make_unique<Kept>();
    if (has_buddies_) kept_[node]->keeper = node < 2 ? "left/run" : "right/run";
  }
  // The node was killed while it copied the newest step, which it has kept to the end.
  void leave_half(size_t node) {
    cluster::KeptMemory& memory = kept_.at(node)->memory;
    const auto versions = memory.versions();
    ASSERT_EQ(versions.size(), 2U);
    memory.forget_newer(versions[1]);
  }
  const std::string& fixed_by() const { return fixed_by_; }
  // How many parameters' initial values ranks have made in the latest generation.
  int num_drawn() const { return num_drawn_; }

 private:
  ModelOptions options_;
  bool has_buddies_;
  bool is_elastic_;
  int64_t width_ = 16;
  bool copies_late_ = false;
  bool draws_samples_ = false;
  std::array<std::unique_ptr<Kept>, kRanks> kept_;
  std::string fixed_by_;
  int num_drawn_ = 0;
  uint64_t generation_ = 0;
};
const ModelOptions kWhole = {.parallel_mode = ParallelMode::kDataParallel};
// The optimizer's states are split over the ranks.
const ModelOptions kSplit = {
    .parallel_mode = ParallelMode::kDataParallel, .parallel_optimizer = true, .parallel_optimizer_threshold = 0};

// What docs/cluster.md says of float32: sums of other numbers of ranks round otherwise.
constexpr double kRoundingAfterResize = 1e-5;

// Whether these are the losses of an undisturbed job from that step on, but for rounding.
void expect_from(int64_t first_step, const Losses& losses, const Losses& straight) {
  ASSERT_FALSE(losses.empty());
  EXPECT_EQ(losses.begin()->first, first_step);
  for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, straight.at(step), kRoundingAfterResize) << step;
}

TEST(KeptValues, OfFewerRanksAndOfMoreGoOnWithTheSameLossesToOneInAHundredThousand) {
  const Losses straight = ElasticJob(kWhole).train({0, 1, 2, 3});
  ASSERT_EQ(straight.size(), static_cast<size_t>(2 * kSteps));
  ElasticJob job(kWhole);
  job.train({0, 1, 2, 3}, /*lost_in_step=*/4);
  expect_from(3, job.train({0, 1, 3}, /*lost_in_step=*/8), straight);  // rank 2's callbacks of step 3 may be due
  expect_from(7, job.train({0, 3}, /*lost_in_step=*/10), straight);
  job.lose(1);
  job.lose(2);
  expect_from(10, job.train({0, 1, 2, 3}, /*lost_in_step=*/11), straight);  // nobody was lost
  expect_from(11, job.train({0, 1, 2, 3}), straight);
}

TEST(KeptValues, ThatAreSplitArePutTogetherForMoreRanks) {
  const Losses straight = ElasticJob(kSplit).train({0, 1, 2, 3});
  ElasticJob job(kSplit);
  job.train({0, 1}, /*lost_in_step=*/4);
  expect_from(4, job.train({0, 1, 2, 3}, /*lost_in_step=*/9), straight);
  // The step before counts, which all four have kept by now, and so it does for ranks in another order.
  expect_from(9, job.train({0, 1, 3, 2}), straight);
}

TEST(KeptValues, TakeThePlaceOfInitialOnesWhichNobodyMakes) {
  for (const ModelOptions& options : {kWhole, kSplit}) {
    ElasticJob job(options, /*has_buddies=*/false, /*is_elastic=*/false);
    job.train({0, 1, 2, 3}, /*lost_in_step=*/4);
    EXPECT_GE(job.num_drawn(), kRanks);
    job.train({0, 1, 2, 3}, /*lost_in_step=*/8);
    EXPECT_EQ(job.num_drawn(), 0);
    for (const size_t node : {0, 1, 2, 3}) job.lose(node);
    expect_from(1, job.train({0, 1, 2, 3}), ElasticJob(options).train({0, 1, 2, 3}));
    EXPECT_GE(job.num_drawn(), kRanks);
  }
}

// Nothing was kept, and rank 1 makes what rank 0 was given.
TEST(KeptValues, ThatNobodyHasAreRankZerosWhereThoseCountThatItStartsWith) {
  ModelOptions broadcast = kWhole;
  broadcast.parameter_broadcast = true;
  for (const ModelOptions& options : {broadcast, ModelOptions{.parallel_mode = ParallelMode::kSemiAuto}}) {
    std::array<Kept, 2> kept;
    run_ranks(2, [&](cluster::Context& inner) {
      Process process(inner, /*generation=*/2, kept.at(static_cast<size_t>(inner.rank())));
      Mlp network;
      for (nn::Parameter* parameter : network.parameters()) {
        if (inner.rank() == 0) parameter->data = Tensor::full(parameter->type, 0.5);
      }
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
      Model model(process, network, &loss, &optimizer, options);
      for (const std::string& name : model.parameter_names()) {
        EXPECT_EQ(model.value(name).to_doubles()[0], 0.5) << name << " of rank " << inner.rank();
      }
    });
  }
}

TEST(KeptValues, ThatAreNotWholeWithoutALostRankAreNotTakenUp) {
  const Losses straight = ElasticJob(kSplit).train({0, 1, 2, 3});
  ElasticJob job(kSplit);
  job.train({0, 1, 2, 3}, /*lost_in_step=*/4);
  expect_from(1, job.train({0, 1, 3}), straight);  // there is no checkpoint
}

// The losses are those of the undisturbed job, bit by bit, from the first one that is due: as many steps as `newest`,
// or one less, for the callbacks of a lost rank may be due.
void expect_same_from(int64_t newest, const Losses& losses, Losses straight) {
  ASSERT_FALSE(losses.empty());
  EXPECT_TRUE(losses.begin()->first == newest || losses.begin()->first == newest - 1) << losses.begin()->first;
  straight.erase(straight.begin(), straight.find(losses.begin()->first));
  EXPECT_EQ(losses, straight);
}

TEST(KeptValues, OfLostRanksComeFromAsManyOthersAsThereAre) {
  const Losses straight = ElasticJob(kWhole).train({0, 1, 2, 3});
  for (const std::vector<size_t>& lost : std::vector<std::vector<size_t>>{{2}, {0, 3}, {0, 1, 3}}) {
    ElasticJob job(kWhole, /*has_buddies=*/false, /*is_elastic=*/false);
    job.train({0, 1, 2, 3}, /*lost_in_step=*/4);
    for (const size_t node : lost) job.lose(node);
    expect_same_from(4, job.train({0, 1, 2, 3}), straight);
  }
}

// Steps up to the fourth are kept, the last one beside the fifth.
TEST(KeptValues, ThatAreCopiedBesideTheNextStepAreThoseBeforeIt) {
  const Losses straight = ElasticJob::of_many_values(kWhole).train({0, 1, 2, 3});
  for (const bool is_late : {false, true}) {
    ElasticJob job = ElasticJob::of_many_values(kWhole);
    if (is_late) job.copy_late();
    job.train({0, 1, 2, 3}, /*lost_in_step=*/5);
    const Losses losses = job.train({0, 1, 2, 3});
    EXPECT_EQ(losses.begin()->first, 5);
    expect_same_from(5, losses, straight);
  }
}

TEST(KeptValues, OfARankThatIsKilledWhileItCopiesThemComeFromAnother) {
  const Losses straight = ElasticJob::of_many_values(kWhole).train({0, 1, 2, 3});
  for (const size_t killed : {0, 2}) {
    ElasticJob job = ElasticJob::of_many_values(kWhole);
    job.train({0, 1, 2, 3}, /*lost_in_step=*/5);
    job.leave_half(killed);
    const Losses losses = job.train({0, 1, 2, 3});
    EXPECT_EQ(losses.begin()->first, 5) << "no step is lost";
    expect_same_from(5, losses, straight);
  }
}

TEST(KeptValues, ThatNoRankHasCopiedToTheEndAreThoseOfTheStepBefore) {
  const Losses straight = ElasticJob::of_many_values(kWhole).train({0, 1, 2, 3});
  ElasticJob job = ElasticJob::of_many_values(kWhole);
  job.train({0, 1, 2, 3}, /*lost_in_step=*/5);
  for (size_t node = 0; node < kRanks; ++node) job.leave_half(node);
  const Losses losses = job.train({0, 1, 2, 3});
  EXPECT_EQ(losses.begin()->first, 4);
  expect_same_from(4, losses, straight);
}

// The callbacks of a rank whose memory is gone may be due for the step that others have begun to copy.
TEST(KeptValues, OfARankThatCopiesThemWhileAnotherIsLostAreThoseOfTheStepBefore) {
  const Losses straight = ElasticJob::of_many_values(kWhole).train({0, 1, 2, 3});
  ElasticJob job = ElasticJob::of_many_values(kWhole);
  job.train({0, 1, 2, 3}, /*lost_in_step=*/5);
  job.leave_half(1);
  job.lose(2);
  const Losses losses = job.train({0, 1, 2, 3});
  EXPECT_EQ(losses.begin()->first, 4);
  expect_same_from(4, losses, straight);
}

// Node 1 is killed while it copies step 4, and goes on with what others have of it, which are killed next, twice, while
// they copy step 5.
TEST(KeptValues, OfTheStepThatAllHaveStayHoweverOftenRanksAreKilledWhileTheyCopyTheNextOne) {
  const Losses straight = ElasticJob::of_many_values(kWhole).train({0, 1, 2, 3});
  ElasticJob job = ElasticJob::of_many_values(kWhole);
  job.train({0, 1, 2, 3}, /*lost_in_step=*/5);
  job.leave_half(1);
  EXPECT_TRUE(job.train({0, 1, 2, 3}, /*lost_in_step=*/6).contains(5));
  for (const size_t node : {0, 2, 3}) job.leave_half(node);
  EXPECT_TRUE(job.train({0, 1, 2, 3}, /*lost_in_step=*/6).contains(5));
  for (size_t node = 0; node < kRanks; ++node) job.leave_half(node);
  const Losses losses = job.train({0, 1, 2, 3});
  EXPECT_EQ(losses.begin()->first, 5);
  expect_same_from(5, losses, straight);
}

TEST(KeptValues, ComeBackWithTheStateOfTheDataSetsSource) {
  for (const ModelOptions& options : {kWhole, kSplit}) {
    ElasticJob undisturbed(options, /*has_buddies=*/false, /*is_elastic=*/false);
    undisturbed.draw_samples();
    const Losses straight = undisturbed.train({0, 1, 2, 3});
    ASSERT_EQ(straight.size(), static_cast<size_t>(2 * kSteps));
    ElasticJob job(options, /*has_buddies=*/false, /*is_elastic=*/false);
    job.draw_samples();
    job.train({0, 1, 2, 3}, /*lost_in_step=*/4);
    expect_same_from(4, job.train({0, 1, 2, 3}, /*lost_in_step=*/9), [&] {
      Losses part = straight;
      part.erase(part.find(9), part.end());
      return part;
    }());
    expect_same_from(9, job.train({0, 1, 2, 3}), straight);
  }
}

// Its rank draws on from what another one has, which has drawn as often.
TEST(KeptValues, OfARankWhoseMemoryIsGoneComeWithTheStateOfAnothersSource) {
  ElasticJob undisturbed(kWhole, /*has_buddies=*/false, /*is_elastic=*/false);
  undisturbed.draw_samples();
  const Losses straight = undisturbed.train({0, 1, 2, 3});
  ElasticJob job(kWhole, /*has_buddies=*/false, /*is_elastic=*/false);
  job.draw_samples();
  job.train({0, 1, 2, 3}, /*lost_in_step=*/5);
  job.lose(1);
  expect_same_from(5, job.train({0, 1, 2, 3}), straight);
}

TEST(KeptValues, OfAHostThatIsLostComeBackFromBuddies) {
  const Losses straight = ElasticJob(kSplit).train({0, 1, 2, 3});
  ElasticJob job(kSplit, /*has_buddies=*/true, /*is_elastic=*/false);
  job.train({0, 1, 2, 3}, /*lost_in_step=*/5);
  for (const int64_t next_loss : {8, 11, 0}) {
    const size_t lost = next_loss == 8 ? 2 : 0;
    job.lose(lost);
    job.lose(lost + 1);
    const int64_t before = next_loss == 8 ? 5 : next_loss == 11 ? 8 : 11;
    expect_same_from(
        before, job.train({0, 1, 2, 3}, next_loss), next_loss == 0 ? straight : [&] {
          Losses part = straight;
          part.erase(part.find(next_loss), part.end());
          return part;
        }());
  }
}

TEST(KeptValues, ThatABuddyHasNotAreNotTakenUp) {
  const Losses straight = ElasticJob(kSplit).train({0, 1, 2, 3});
  ElasticJob job(kSplit, /*has_buddies=*/true, /*is_elastic=*/false);
  job.train({0, 1, 2, 3}, /*lost_in_step=*/5);
  job.lose(1);
  job.lose(3);  // its buddy
  expect_same_from(1, job.train({0, 1, 2, 3}), straight);
}

TEST(KeptValues, OfEachRankAloneComeBackFromBuddies) {
  ModelOptions options = kWhole;
  options.batch_norm_statistics = BatchNormStatistics::kLocal;
  const Losses straight = ElasticJob(options).train({0, 1, 2, 3});
  ElasticJob job(options, /*has_buddies=*/true, /*is_elastic=*/false);
  job.train({0, 1, 2, 3}, /*lost_in_step=*/5);
  job.lose(0);
  expect_same_from(5, job.train({0, 1, 2, 3}), straight);
}

TEST(KeptValues, OfAStageThatIsLostComeBackFromBuddies) {
  const ModelOptions options = {
      .parallel_mode = ParallelMode::kPipeline,
      .pipeline = {.stages = 2, .micro_batches = 2, .schedule = "1f1b", .profile = compiler::example_profile()}};
  const Losses straight = ElasticJob(options).train({0, 1, 2, 3});
  for (const size_t lost : {0, 2}) {
    ElasticJob job(options, /*has_buddies=*/true, /*is_elastic=*/false);
    job.train({0, 1, 2, 3}, /*lost_in_step=*/5);
    job.lose(lost);
    job.lose(lost + 1);
    expect_same_from(5, job.train({0, 1, 2, 3}), straight);
  }
}

TEST(KeptValues, OfALostRankArePutTogetherFromItsBuddy) {
  const Losses straight = ElasticJob(kSplit).train({0, 1, 2, 3});
  ElasticJob job(kSplit, /*has_buddies=*/true);
  job.train({0, 1, 2, 3}, /*lost_in_step=*/5);
  job.lose(1);
  expect_from(4, job.train({0, 2, 3}, /*lost_in_step=*/9), straight);
  job.lose(2);
  job.lose(3);
  expect_from(8, job.train({0}), straight);
}

TEST(KeptValues, OneRankThatIsLeftGoesOnByItselfAndTakesOthersIn) {
  const Losses straight = ElasticJob(kWhole).train({0, 1});
  ElasticJob job(kWhole);
  job.train({0, 1}, /*lost_in_step=*/4);
  expect_from(3, job.train({0}, /*lost_in_step=*/6), straight);
  job.lose(1);
  expect_from(6, job.train({0, 1, 2}), straight);
}

TEST(KeptValues, WhoWaitsIsTakenInAtTheEndOfAnEpochWhereNothingIsSaved) {
  const Losses straight = ElasticJob(kWhole).train({0, 1, 2});
  ElasticJob job(kWhole);
  EXPECT_EQ(job.train({0, 1, 2}, 0, /*num_newcomers=*/1).size(), static_cast<size_t>(kSteps));
  expect_from(kSteps + 1, job.train({0, 1, 2, 3}), straight);
}

TEST(KeptValues, ATrainingThatNeedsItsRanksSaysSo) {
  const auto fixed_by = [](const ModelOptions& options) {
    ElasticJob job(options);
    job.train({0, 1});
    return job.fixed_by();
  };
  EXPECT_EQ(fixed_by(kWhole), "");
  EXPECT_EQ(fixed_by(kSplit), "");
  EXPECT_EQ(fixed_by({.parallel_mode = ParallelMode::kSemiAuto}),
            "it trains in semi_auto_parallel, not in data_parallel or auto_parallel");
  EXPECT_EQ(
      fixed_by({.parallel_mode = ParallelMode::kDataParallel, .batch_norm_statistics = BatchNormStatistics::kLocal}),
      "each rank has batch statistics of its own (batch_norm_statistics)");
}

struct SavesNothing : Callback {
  bool saves() const override { return true; }
};

// A job whose first product is split over all of its ranks. Rank 1 alone has heard that the job was asked for another
// number of them.
// The losses of one rank that goes on from what was saved there.
Losses go_on_from(const std::filesystem::path& folder) {
  Losses losses;
  run_ranks(1, [&](cluster::Context& context) {
    Mlp network;
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer, {.seed = 5});
    model.train(1, samples(), {Watch(losses, 0), ModelCheckpoint("job", folder.string())}, {.resume = "auto"});
  });
  return losses;
}

class AskedToStop : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Losses train(bool saves, bool says_that_it_saves = false) {
    Losses losses;
    run_ranks(kRanks, [&](cluster::Context& inner) {
      Kept kept;
      Process process(inner, 1, kept, /*is_elastic=*/true);
      if (inner.rank() == 1) process.ask_to_stop("asked for 2 ranks in place of 4");
      Mlp network;
      network.up.shard("matmul", kBatchThenRows);
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
      Model model(process, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kSemiAuto, .seed = 5});
      Callbacks callbacks = {Watch(losses, 0)};
      if (saves) callbacks.emplace_back(ModelCheckpoint("job", folder_.string(), {.save_checkpoint_steps = 1000}));
      if (says_that_it_saves) callbacks.emplace_back(SavesNothing());
      try {
        model.train(1, samples(), callbacks);
      } catch (const cluster::JobStopped&) {
        EXPECT_TRUE(process.has_left_for_good);
        throw;
      }
      EXPECT_FALSE(process.has_left_for_good);
      if (inner.rank() == 0) unsaved_for_ = process.unsaved_for;
    });
    return losses;
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("tessera-asked-to-stop-{}", ::getpid());
  std::string unsaved_for_;
};

TEST_F(AskedToStop, ForANumberOfRanksThatItCannotHaveATrainingSavesOnAllRanksAndAnotherNumberGoesOn) {
  const Losses straight = Job().train(kBatchThenRows).losses;
  const auto stops =
      testing::AllOf(testing::HasSubstr("asked for 2 ranks in place of 4: it stops after epoch 1, step 1, saved as "),
                     testing::HasSubstr("job-1_1.ckpt; start it again with that number of ranks"));
  EXPECT_THAT([&] { train(/*saves=*/true); }, testing::ThrowsMessage<Error>(stops));
  expect_from(2, go_on_from(folder_), straight);
}

TEST_F(AskedToStop, ATrainingThatSavesNothingHasSaidSoAndGoesOn) {
  const Losses straight = Job().train(kBatchThenRows).losses;
  EXPECT_EQ(train(/*saves=*/false), straight);
  EXPECT_EQ(unsaved_for_, "no ModelCheckpoint is among the callbacks: add one");
}

TEST_F(AskedToStop, ATrainingThatHasSavedNothingSaysSoWhenItGoesOn) {
  EXPECT_EQ(train(/*saves=*/false, /*says_that_it_saves=*/true).size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(unsaved_for_, "no ModelCheckpoint is among the callbacks: add one");
}

// A job of one rank whose training is to go on from its newest checkpoint, one of which is saved after every second
// step.
class ResumingJob : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(saved_); }
  // What the training of the next generation says of its beginning.
  std::vector<std::string> train(int64_t lost_in_step = 0) {
    ++generation_;
    std::vector<std::string> said;
    const auto run = [&](cluster::Context& inner) {
      Process process(inner, generation_, *kept_);
      Mlp network;
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
      Model model(process, network, &loss, &optimizer, {.seed = 5});
      Losses losses;
      const auto note = [&](const std::string& line) { said.push_back(line); };
      model.train(1, samples(),
                  {Watch(losses, lost_in_step), ModelCheckpoint("job", saved_.string(), {.save_checkpoint_steps = 2})},
                  {.resume = "auto", .print = note});
    };
    if (lost_in_step > 0) {
      EXPECT_THROW(run_ranks(1, run), IoError);
    } else {
      run_ranks(1, run);
    }
    return said;
  }
  void lose_memory() {
    auto next = std::make_unique<Kept>();
    next->states = kept_->states;
    kept_ = std::move(next);
  }

  std::filesystem::path saved_ =
      std::filesystem::temp_directory_path() / fmt::format("tessera-resuming-{}", ::getpid());
  std::unique_ptr<Kept> kept_ = std::make_unique<Kept>();
  uint64_t generation_ = 0;
};

TEST_F(ResumingJob, SaysAfterALossThatItGoesOnFromMemoryAndFromACheckpointOnlyWhereThatCounts) {
  using testing::ElementsAre;
  EXPECT_THAT(train(/*lost_in_step=*/4),
              ElementsAre(fmt::format("train: {} holds no checkpoint job-*.ckpt: begins with the model as it is",
                                      saved_.string())));
  EXPECT_THAT(train(/*lost_in_step=*/6),
              ElementsAre("train: goes on after step 3 with the values that were kept in memory"));
  lose_memory();
  EXPECT_THAT(train(), ElementsAre(fmt::format("train: goes on from {}/job-1_4.ckpt, after step 4", saved_.string())));
  EXPECT_THAT(train(),
              ElementsAre("train: this training was over before: the values are those that were kept in memory "
                          "since"));
}

// A job of four ranks that is not elastic and loses one; those that are left make its last generation.
class LastGeneration : public testing::Test {
 protected:
  void SetUp() override { begin_job(); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // Another one, of which nothing is left.
  void begin_job() {
    std::filesystem::remove_all(folder_);
    for (auto& kept : kept_) kept = std::make_unique<Kept>();
    generation_ = 0;
  }
  // The next generation, of these nodes, which is the last one where there is a reason. Returns the losses that its
  // rank 0 has seen.
  Losses train(const ModelOptions& model_options, const std::vector<size_t>& nodes, int64_t lost_in_step,
               const std::string& last_reason = "") {
    ++generation_;
    Losses losses;
    const auto run = [&](cluster::Context& inner) {
      Process process(inner, generation_, *kept_.at(nodes[static_cast<size_t>(inner.rank())]));
      process.end_for(last_reason);
      Mlp network;
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
      ModelOptions options = model_options;
      options.seed = 5;
      Model model(process, network, &loss, &optimizer, options);
      Callbacks callbacks = {Watch(losses, lost_in_step)};
      if (saves_)
        callbacks.emplace_back(ModelCheckpoint("job", saved_.string(), {.save_checkpoint_steps = save_steps_}));
      if (saves_twice_) callbacks.emplace_back(ModelCheckpoint("too", (folder_ / "too").string()));
      const auto tell = [&] {
        if (inner.rank() == 0) told_ = process.told_of_last_save;
      };
      try {
        model.train(1, samples(num_shards_, num_shards_ > 1 ? inner.rank() : 0), callbacks);
      } catch (const Error&) {
        EXPECT_EQ(process.has_left_for_good, !last_reason.empty());
        tell();
        throw;
      }
      tell();
    };
    const auto size = static_cast<int>(nodes.size());
    if (lost_in_step > 0) {
      EXPECT_THROW(run_ranks(size, run), IoError);
    } else {
      run_ranks(size, run);
    }
    return losses;
  }
  // What is saved, by path.
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(saved_)) {
      const std::string path = entry.path().string();
      if (path.find(".ckpt") != std::string::npos) found[path] = FileSystem::local().read_text(path);
    }
    return found;
  }
  // The words with which the last generation ends.
  std::string end(const ModelOptions& options, const std::vector<size_t>& nodes) {
    try {
      EXPECT_TRUE(train(options, nodes, 0, "rank 1 is lost").empty());
    } catch (const Error& error) {
      return error.what();
    }
    return "it has trained";
  }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / fmt::format("tessera-last-generation-{}", ::getpid());
  std::filesystem::path saved_ = folder_ / "saved";
  bool saves_ = true;
  bool saves_twice_ = false;
  int64_t save_steps_ = 1000;
  int64_t num_shards_ = 1;  // of the data set
  std::vector<std::string> told_;
  std::array<std::unique_ptr<Kept>, kRanks> kept_;
  uint64_t generation_ = 0;
};

TEST_F(LastGeneration, OfSeveralRanksOrOfOneSavesTheNewestStepAndNothingIsLost) {
  const Losses straight = ElasticJob(kWhole).train({0, 1, 2, 3});
  for (const std::vector<size_t>& nodes : {std::vector<size_t>{0, 2, 3}, std::vector<size_t>{0}}) {
    begin_job();
    train(kWhole, {0, 1, 2, 3}, /*lost_in_step=*/4);
    const std::string who = nodes.size() == 1 ? "the rank that is left has" : "the ranks that are left have";
    EXPECT_THAT(end(kWhole, nodes),
                testing::HasSubstr(fmt::format("rank 1 is lost; {} saved what was kept, after epoch 1, step 3, as "
                                               "{}/job-1_3.ckpt; start the job again with resume=\"auto\"",
                                               who, saved_.string())));
    expect_from(4, go_on_from(saved_), straight);
  }
}

TEST_F(LastGeneration, NamesTheValuesThatAreNotWholeAndTheNewestCheckpoint) {
  save_steps_ = 2;
  train(kSplit, {0, 1, 2, 3}, /*lost_in_step=*/4);
  const std::string words = end(kSplit, {0, 2, 3});
  EXPECT_THAT(words, testing::HasSubstr("rank 1 is lost; what the ranks that are left have kept is not saved: of step "
                                        "3, "));
  EXPECT_THAT(words, testing::HasSubstr("values lack pieces that only a lost rank had: \""));
  EXPECT_THAT(words, testing::EndsWith("the newest checkpoint is " + (saved_ / "job-1_2.ckpt").string()));
}

// It has the states of the data sets of all ranks, which those that are left have not.
TEST_F(LastGeneration, LeavesACheckpointAsAllRanksHaveSavedIt) {
  save_steps_ = 3;
  train(kWhole, {0, 1, 2, 3}, /*lost_in_step=*/4);
  const auto before = contents();
  EXPECT_THAT(end(kWhole, {0, 2, 3}),
              testing::HasSubstr(fmt::format("have saved what was kept, after epoch 1, step 3, as {}/job-1_3.ckpt;",
                                             saved_.string())));
  EXPECT_EQ(contents(), before);
}

TEST_F(LastGeneration, NeedsNoPartOfTheDataForEachRankThatWas) {
  num_shards_ = 4;
  train(kWhole, {0, 1, 2, 3}, /*lost_in_step=*/4);
  EXPECT_THAT(end(kWhole, {0, 2, 3}), testing::HasSubstr("have saved what was kept, after epoch 1, step 3"));
}

TEST_F(LastGeneration, WhoseSaveFailsHasTheLossInItsWordsAndNoHalfOfACheckpoint) {
  train(kWhole, {0, 1, 2, 3}, /*lost_in_step=*/4);
  std::filesystem::remove_all(saved_);
  std::filesystem::create_directories(folder_);
  std::ofstream(saved_) << "no folder";
  const std::string words = end(kWhole, {0, 2, 3});
  EXPECT_THAT(words, testing::HasSubstr("rank 1 is lost; what the ranks that are left have kept is not saved: "));
  EXPECT_THAT(words, testing::HasSubstr(saved_.string()));
  EXPECT_TRUE(std::filesystem::is_regular_file(saved_));
}

TEST_F(LastGeneration, SavesByEachModelCheckpointThatCan) {
  saves_twice_ = true;
  train(kWhole, {0, 1, 2, 3}, /*lost_in_step=*/4);
  const std::string too = (folder_ / "too" / "too-1_3.ckpt").string();
  EXPECT_THAT(end(kWhole, {0, 2, 3}), testing::HasSubstr(fmt::format(
                                          "as {}/job-1_3.ckpt, {}; start the job again with resume=\"{}/job-1_3.ckpt\"",
                                          saved_.string(), too, saved_.string())));
  begin_job();
  train(kWhole, {0, 1, 2, 3}, /*lost_in_step=*/4);
  std::filesystem::remove_all(saved_);
  std::ofstream(saved_) << "no folder";
  const std::string words = end(kWhole, {0, 2, 3});
  EXPECT_THAT(words, testing::HasSubstr(
                         fmt::format("step 3, as {}, and not by every ModelCheckpoint: {}", too, saved_.string())));
  EXPECT_THAT(words, testing::HasSubstr("start the job again with resume=\"auto\""));
  EXPECT_TRUE(std::filesystem::exists(too));
}

TEST_F(LastGeneration, IsAnnouncedByWhoWouldSaveAndTakenBackWhenTheTrainingEnds) {
  train(kWhole, {0, 1, 2, 3}, 0);
  EXPECT_THAT(told_, testing::ElementsAre("training: ", "none"));
  saves_ = false;
  begin_job();
  train(kWhole, {0, 1, 2, 3}, /*lost_in_step=*/4);
  EXPECT_THAT(told_, testing::ElementsAre("training: no ModelCheckpoint is among the callbacks: add one"));
  saves_ = true;
  begin_job();
  ModelOptions local = kWhole;
  local.batch_norm_statistics = BatchNormStatistics::kLocal;
  train(local, {0, 1, 2, 3}, /*lost_in_step=*/4);
  EXPECT_THAT(told_, testing::ElementsAre("training: fewer ranks cannot hold its values: each rank has batch "
                                          "statistics of its own (batch_norm_statistics)"));
}

// Else those that tell it would wait for the others when they save.
TEST(DataStates, ThatSomeRanksTellAndOthersDoNotAreRefusedOnEveryRankBeforeTheFirstStep) {
  std::array<std::string, 3> words;
  run_ranks(3, [&](cluster::Context& context) {
    Mlp network;
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer, kWhole);
    Losses losses;
    try {
      model.train(1, context.rank() == 1 ? drawn_samples() : samples(), {Watch(losses, 0)});
    } catch (const InvalidArgument& error) {
      words[static_cast<size_t>(context.rank())] = error.what();
    }
    EXPECT_TRUE(losses.empty());
  });
  for (const std::string& text : words) {
    EXPECT_THAT(text, testing::HasSubstr("tells the state of the random numbers that it draws on rank 1, and not on "
                                         "ranks 0, 2; a checkpoint has the states of all ranks"));
  }
}

TEST(KeptPieces, ComeBackFromTheirText) {
  const KeptPieces pieces = {
      {"fc.weight", {.type = {DType::kF32, {6, 4}}, .region = {.offset = {2, 0}, .shape = {3, 4}}, .at = 64}},
      {"step", {.type = {DType::kI64, {}}, .region = {}, .at = 0}}};
  const std::string text = print_pieces(pieces);
  EXPECT_EQ(text, "fc.weight\tf32[6,4]\t2,0\t3,4\t64\nstep\ti64[]\t\t\t0\n");
  EXPECT_EQ(print_pieces(parse_pieces(text)), text);
}

TEST(KeptPieces, WhatCannotBeIsRefused) {
  for (const char* text :
       {"a\tf32[2]\t0\t2\n", "a\tf32[2]\t1\t2\t0\n", "a\tf32[2]\t0,0\t2\t0\n", "a\tf32[2]\t0\t2\t-1\n",
        "a\tf32[2]\t-1\t2\t0\n", "a\tf32[2]\tx\t2\t0\n", "a\tf32[2]\t0\t2\t0\na\tf32[2]\t0\t2\t0\n"}) {
    EXPECT_THROW(parse_pieces(text), InvalidArgument) << text;
  }
}

TEST(KeptPieces, MakeUpAValueWhereEachElementIsThere) {
  const Type type{DType::kF32, {6}};
  const auto piece = [&](int64_t offset, int64_t size) {
    return KeptPieces{{"w", {.type = type, .region = {.offset = {offset}, .shape = {size}}, .at = 0}}};
  };
  const auto found = find_sources({piece(0, 2), {}, piece(0, 2), piece(2, 4)}, "w", type);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 2U);
  EXPECT_EQ((*found)[0].version, 0U);
  EXPECT_EQ((*found)[1].version, 3U);
  EXPECT_FALSE(find_sources({piece(0, 2), piece(3, 3)}, "w", type)) << "element 2 is not there";
  EXPECT_FALSE(find_sources({piece(0, 6)}, "w", {DType::kF64, {6}}));
  EXPECT_FALSE(find_sources({piece(0, 6)}, "v", type));
}

}  // namespace
}  // namespace tessera::train
