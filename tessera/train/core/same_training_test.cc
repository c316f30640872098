// Ranks of an elastic job that come later with other arguments are the ones that leave it.
#include "tessera/train/core/same_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/cluster/recovery/recovery.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/testing/wrapped_context.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A rank of an elastic job, that has trained in it before or is new.
class RankOfElasticJob final : public WrappedContext, public cluster::Recovery {
 public:
  RankOfElasticJob(cluster::Context& inner, bool has_trained, bool is_elastic = true)
      : WrappedContext(inner), is_elastic_(is_elastic) {
    if (!has_trained) return;
    memory_.begin(64);
    memory_.commit();
  }
  cluster::Recovery* recovery() override { return this; }
  uint64_t generation() const override { return 1; }
  bool has_failed() const override { return false; }
  cluster::KeptMemory& memory() override { return memory_; }
  int64_t keep_steps() const override { return 1; }
  std::string begin_anew(const std::string&) override { return "it is a thread"; }
  std::optional<std::string> find_state(const std::string&) override { return std::nullopt; }
  void set_state(const std::string&, const std::string&) override {}
  bool is_elastic() const override { return is_elastic_; }
  void leave_for_good() override { leaves = true; }

  bool leaves = false;

 private:
  bool is_elastic_;
  cluster::KeptMemory memory_;
};

// What a rank says at the end: "leaves: ..." where it does not fit, "stays: ..." where others do not, else "trains".
template <typename Work>
std::string outcome_of(RankOfElasticJob& rank, const Work& work) {
  try {
    work();
  } catch (const cluster::Misfit& error) {
    EXPECT_TRUE(rank.leaves);
    return std::string("leaves: ") + error.what();
  } catch (const cluster::Resizing& error) {
    EXPECT_FALSE(rank.leaves);
    return std::string("stays: ") + error.what();
  }
  EXPECT_FALSE(rank.leaves);
  return "trains";
}

// The outcomes by rank of a job of which `settings` says what each rank is about to do.
std::vector<std::string> outcomes_of(const std::vector<TrainingSettings>& settings, const std::set<int>& have_trained,
                                     bool is_elastic = true) {
  std::vector<std::string> outcomes(settings.size());
  run_ranks(static_cast<int>(settings.size()), [&](cluster::Context& context) {
    RankOfElasticJob rank(context, have_trained.contains(context.rank()), is_elastic);
    const auto place = static_cast<size_t>(context.rank());
    outcomes[place] = outcome_of(rank, [&] { require_same_as_job(rank, settings[place]); });
  });
  return outcomes;
}

const TrainingSettings kOfJob = {{"epochs", "8"}, {"batch_size", "16"}};

TEST(SameTraining, WhoComesLaterWithOtherArgumentsLeavesWhateverRankItHas) {
  for (const size_t late : {0U, 1U, 2U}) {
    std::vector<TrainingSettings> settings(3, kOfJob);
    settings[late] = {{"epochs", "2"}, {"batch_size", "16"}};
    std::set<int> old = {0, 1, 2};
    old.erase(static_cast<int>(late));
    const auto outcomes = outcomes_of(settings, old);
    for (size_t rank = 0; rank < 3; ++rank) {
      if (rank == late) {
        EXPECT_EQ(outcomes[rank],
                  "leaves: train: this rank does not fit its job: epochs: 2 here, 8 in the job; it leaves the job, "
                  "which goes on without it: start it as the job's ranks were started");
      } else {
        EXPECT_EQ(outcomes[rank], fmt::format("stays: rank {} does not fit the job and leaves it: epochs: 2 there, 8 "
                                              "in the job",
                                              late));
      }
    }
  }
}

TEST(SameTraining, OneThatHasTrainedCountsMoreThanManyThatHaveNot) {
  const TrainingSettings other = {{"epochs", "8"}, {"batch_size", "32"}};
  const auto outcomes = outcomes_of({other, other, kOfJob, other}, {2});
  EXPECT_THAT(outcomes[0], StartsWith("leaves: "));
  EXPECT_THAT(outcomes[0], HasSubstr("batch_size: 32 here, 16 in the job"));
  EXPECT_THAT(outcomes[2],
              StartsWith("stays: 3 ranks do not fit the job and leave it: batch_size: 32 there, 16 in the job"));
}

TEST(SameTraining, WhereNobodyHasTrainedMostRanksAreTheJob) {
  const auto outcomes = outcomes_of({{{"epochs", "2"}}, {{"epochs", "8"}}, {{"epochs", "8"}}}, {});
  EXPECT_THAT(outcomes[0], StartsWith("leaves: "));
  EXPECT_THAT(outcomes[1], StartsWith("stays: "));
}

TEST(SameTraining, WhatIsEqualTrainsAndAJobThatIsNotElasticComparesNothing) {
  EXPECT_THAT(outcomes_of({kOfJob, kOfJob}, {0}), testing::Each("trains"));
  EXPECT_THAT(outcomes_of({kOfJob, {{"epochs", "2"}}}, {0}, /*is_elastic=*/false), testing::Each("trains"));
}

TEST(SameTraining, ARankAtAnotherPlaceOfItsProgramDoesNotFit) {
  const auto outcomes = outcomes_of({kOfJob, {{"the network", "one"}}}, {0});
  EXPECT_THAT(outcomes[1], HasSubstr("epochs: nothing here, 8 in the job; batch_size: nothing here, 16 in the job"));
}

// What a script has as arguments.
struct Arguments {
  int64_t epochs = 2;
  int64_t batch_size = 4;
  int64_t width = 16;
  bool relu = false;
};

struct Network : nn::Cell {
  explicit Network(const Arguments& arguments) : relu(arguments.relu), width(arguments.width) {}
  bool relu;
  int64_t width;
  nn::Dense& up = child<nn::Dense>("up", 8, width);
  nn::Dense& down = child<nn::Dense>("down", width, 4);
  using Cell::construct;
  ir::Value construct(ir::Value x) override {
    const ir::Value hidden = up(x);
    return down(relu ? ops::relu(hidden) : ops::tanh(hidden));
  }
};

void train(cluster::Context& context, const Arguments& arguments) {
  Network network(arguments);
  nn::MSELoss loss;
  nn::Momentum optimizer({.learning_rate = 0.05, .momentum = 0.9});
  const auto rows = data::generator({{"x", {DType::kF32, {8}}}, {"y", {DType::kF32, {4}}}}, 24,
                                    [](int64_t, std::span<const TensorView> outputs) {
                                      for (const TensorView& output : outputs) {
                                        copy_elements(Tensor::zeros({output.dtype, output.shape}).view(), output);
                                      }
                                    })
                        .batch(arguments.batch_size);
  Model model(context, network, &loss, &optimizer, {.parallel_mode = ParallelMode::kDataParallel, .seed = 5});
  model.build(rows);
  model.train(arguments.epochs, rows, {});
}

TEST(SameTraining, EachArgumentOfAScriptThatDiffersIsNamed) {
  struct Case {
    Arguments arguments;
    std::string words;
  };
  const Case kCases[] = {{{.epochs = 3}, "epochs: 3 here, 2 in the job"},
                         {{.batch_size = 8}, "batch_size: 8 here, 4 in the job"},
                         {{.width = 32}, "the network: one of 4 parameters with 420 elements"},
                         {{.relu = true}, "what the network computes: "}};
  for (const Case& other : kCases) {
    std::array<std::string, 3> outcomes;
    run_ranks(3, [&](cluster::Context& context) {
      const bool is_late = context.rank() == 1;
      RankOfElasticJob rank(context, !is_late);
      outcomes.at(static_cast<size_t>(context.rank())) =
          outcome_of(rank, [&] { train(rank, is_late ? other.arguments : Arguments{}); });
    });
    EXPECT_THAT(outcomes[1], StartsWith("leaves: "));
    EXPECT_THAT(outcomes[1], HasSubstr(other.words));
    for (const size_t rank : {0U, 2U}) {
      EXPECT_THAT(outcomes.at(rank), StartsWith("stays: rank 1 does not fit the job and leaves it: "));
    }
  }
}

}  // namespace
}  // namespace tessera::train
