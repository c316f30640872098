// Hybrid parallel: slices that are each rank's own, and what the ranks must agree on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <functional>
#include <map>

#include "tessera/base/error.h"
#include "tessera/checkpoint/write/save.h"
#include "tessera/data/dataset.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/agree/rank_group.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/metrics.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// `weight` is a slice of each rank's own, `bias` is shared.
struct Slices : nn::Cell {
  Slices() { weight.layerwise_parallel = true; }
  nn::Parameter& weight = parameter("weight", {DType::kF32, {2, 2}}, nn::normal());
  nn::Parameter& bias = parameter("bias", {DType::kF32, {2}}, nn::normal());
  using Cell::construct;
  ir::Value construct(ir::Value x) override { return ops::bias_add(ops::matmul(x, weight), bias); }
};

TEST(LayerwiseParameters, StartApartAndStayApart) {
  std::vector<std::vector<double>> weights(2);
  std::vector<std::vector<double>> biases(2);
  testing::internal::CaptureStderr();
  run_ranks(2, [&](cluster::Context& context) {
    Slices network;
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.1});
    Model model(context, network, &loss, &optimizer,
                {.parallel_mode = ParallelMode::kHybrid, .parameter_broadcast = true});
    const Tensor x = Tensor::full({DType::kF32, {2, 2}}, 1);
    model.train_step({x.view(), x.view()}, 2);
    weights[static_cast<size_t>(context.rank())] = model.value("weight").to_doubles();
    biases[static_cast<size_t>(context.rank())] = model.value("bias").to_doubles();
  });
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_NE(weights[0], weights[1]);
  EXPECT_EQ(biases[0], biases[1]);
}

TEST(LayerwiseParameters, AreRefusedWhereTesseraSplits) {
  for (const auto mode : {ParallelMode::kDataParallel, ParallelMode::kSemiAuto}) {
    EXPECT_THAT(
        [&] {
          run_ranks(2, [&](cluster::Context& context) {
            Slices network;
            const Model model(context, network, nullptr, nullptr, {.parallel_mode = mode});
          });
        },
        ThrowsMessage<InvalidArgument>(
            AllOf(HasSubstr("\"weight\" is layerwise_parallel"), HasSubstr("hybrid_parallel"))));
  }
}

TEST(LayerwiseParameters, AreSavedByEachRankInADirectoryOfItsOwn) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tessera-slices-{}", ::getpid());
  run_ranks(2, [&](cluster::Context& context) {
    const auto path = (folder / fmt::format("rank_{}", context.rank()) / "slices.ckpt").string();
    const ModelOptions options{.parallel_mode = ParallelMode::kHybrid};
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.1});
    Slices network;
    Model model(context, network, &loss, &optimizer, options);
    const Tensor x = Tensor::full({DType::kF32, {2, 2}}, 1);
    model.train_step({x.view(), x.view()}, 2);
    model.save_checkpoint(path);
    EXPECT_THAT([&] { model.save_checkpoint((folder / "together" / "slices.ckpt").string()); },
                ThrowsMessage<InvalidArgument>(HasSubstr("rank 1 shares directory")));
    Slices fresh;
    Model resumed(context, fresh, &loss, &optimizer, options);
    resumed.load_checkpoint(path);
    for (const auto& name : model.names()) {
      EXPECT_EQ(resumed.value(name).to_doubles(), model.value(name).to_doubles()) << name;
    }
    EXPECT_EQ(resumed.step(), 1);
  });
  std::filesystem::remove_all(folder);
}

TEST(LayerwiseParameters, OfDifferentStepsAreNotGoneOnWith) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tessera-steps-{}", ::getpid());
  run_ranks(2, [&](cluster::Context& context) {
    const auto path = [&](const char* name) {
      return (folder / fmt::format("rank_{}", context.rank()) / name).string();
    };
    const ModelOptions options{.parallel_mode = ParallelMode::kHybrid};
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.1});
    Slices network;
    Model model(context, network, &loss, &optimizer, options);
    const Tensor x = Tensor::full({DType::kF32, {2, 2}}, 1);
    for (const char* name : {"one.ckpt", "two.ckpt"}) {
      model.train_step({x.view(), x.view()}, 2);
      model.save_checkpoint(path(name));
    }
    if (context.rank() == 1) std::filesystem::remove(path("one.ckpt.manifest"));
    context.world().barrier("saved");
    const auto refused = [&](const std::string& file, const std::string& words) {
      EXPECT_THAT([&] { model.load_checkpoint(file); }, ThrowsMessage<Error>(HasSubstr(words))) << file;
    };
    const auto before = model.value("weight").to_doubles();
    refused(path("one.ckpt"), "rank 1 no step, without a manifest");
    refused(path(context.rank() == 0 ? "one.ckpt" : "two.ckpt"), "rank 0 finds step 1 of 2 ranks");
    refused(path(context.rank() == 0 ? "none.ckpt" : "two.ckpt"), "none.ckpt");
    EXPECT_EQ(model.value("weight").to_doubles(), before);
    model.load_checkpoint(path("two.ckpt"));
    EXPECT_EQ(model.step(), 2);
    model.save_checkpoint(path("three.ckpt"));
  });
  std::filesystem::remove_all(folder);
}

// A collective that only one rank calls, or with another shape.
struct Uneven : nn::Cell {
  Uneven(const cluster::Context& context, const ops::RankGroup& group) : rank(context.rank()), ranks(group) {}
  int rank;
  ops::RankGroup ranks;
  nn::Dense& dense = child<nn::Dense>("dense", 2, 2);
  using Cell::construct;
  ir::Value construct(ir::Value x) override {
    x = dense(x);
    return rank == 0 ? ops::all_reduce(x, ranks) : ops::all_gather(x, ranks);
  }
};

TEST(HandWrittenCollectives, ThatDoNotMatchAreRefusedBeforeTheFirstStep) {
  EXPECT_THAT(
      [] {
        run_ranks(2, [](cluster::Context& context) {
          Uneven network(context, session::rank_group(context));
          Model model(context, network, nullptr, nullptr, {.parallel_mode = ParallelMode::kHybrid});
          model.predict({Tensor::full({DType::kF32, {2, 2}}, 1)});
        });
      },
      ThrowsMessage<InvalidArgument>(
          AllOf(HasSubstr("rank 0 comes to all_reduce sum of f32[2,2]"), HasSubstr("rank 1 comes to all_gather"))));
}

data::Dataset ones(int64_t rows) {
  return data::generator({{"x", {DType::kF32, {2}}}, {"y", {DType::kF32, {2}}}}, rows,
                         [](int64_t, std::span<const TensorView> outputs) {
                           for (const auto& output : outputs) output.as<float>()[0] = output.as<float>()[1] = 1;
                         })
      .batch(2);
}

TEST(HybridDataSets, AreEachRanksOwnAndHaveAsManySteps) {
  const auto train = [](int64_t rows_of_rank_1) {
    run_ranks(2, [&](cluster::Context& context) {
      Slices network;
      nn::MSELoss loss;
      nn::SGD optimizer({.learning_rate = 0.1});
      Model model(context, network, &loss, &optimizer,
                  {.parallel_mode = ParallelMode::kHybrid, .metrics = {mean_loss()}});
      model.train(2, ones(context.rank() == 0 ? 8 : rows_of_rank_1));
      EXPECT_EQ(model.step(), 8);
      EXPECT_GT(model.eval(ones(4)).at("loss"), 0);
    });
  };
  train(8);
  EXPECT_THAT([&] { train(6); },
              ThrowsMessage<InvalidArgument>(HasSubstr("rank 1 has 3 steps an epoch, rank 0 has 4")));
}

// An epoch's last batch is shorter, and not of every rank's data in the same step.
TEST(HybridSteps, OfOtherRowsAreCompiledByTheRanksThatHaveThem) {
  const std::vector<std::array<int64_t, 2>> rows_of_steps = {{2, 2}, {2, 1}, {1, 2}, {3, 1}};
  std::vector<std::vector<double>> biases(2);
  run_ranks(2, [&](cluster::Context& context) {
    const auto rank = static_cast<size_t>(context.rank());
    Slices network;
    nn::MSELoss loss;
    nn::SGD optimizer({.learning_rate = 0.1});
    Model model(context, network, &loss, &optimizer,
                {.parallel_mode = ParallelMode::kHybrid, .parameter_broadcast = true});
    for (const auto& rows : rows_of_steps) {
      const Tensor x = Tensor::full({DType::kF32, {rows[rank], 2}}, 1);
      model.train_step({x.view(), x.view()}, rows[rank]);
    }
    EXPECT_EQ(model.step(), 4);
    biases[rank] = model.value("bias").to_doubles();
  });
  EXPECT_EQ(biases[0], biases[1]);
}

TEST(HybridCheckpoints, ResumeEachRankFromItsOwn) {
  const auto folder = std::filesystem::temp_directory_path() / fmt::format("tessera-hybrid-{}", ::getpid());
  run_ranks(2, [&](cluster::Context& context) {
    const auto own = (folder / fmt::format("rank_{}", context.rank())).string();
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    const ModelOptions options{.parallel_mode = ParallelMode::kHybrid};
    Slices whole_network;
    Model whole(context, whole_network, &loss, &optimizer, options);
    const checkpoint::CheckpointConfig config{.save_checkpoint_steps = 4, .integrated_save = false, .async_save = true};
    whole.train(2, ones(8), {ModelCheckpoint("hybrid", own, config)});
    Slices network;
    Model resumed(context, network, &loss, &optimizer, options);
    resumed.load_checkpoint(own + "/hybrid-1_4.ckpt");
    resumed.train(2, ones(8));
    for (const auto& name : whole.names()) {
      EXPECT_EQ(resumed.value(name).to_doubles(), whole.value(name).to_doubles()) << name;
    }
  });
  std::filesystem::remove_all(folder);
}

// What two ranks say when each has values of its own before `use` is called on both.
class HybridValues : public testing::Test {
 protected:
  HybridValues()
      : folder_(std::filesystem::temp_directory_path() / fmt::format("tessera-hybrid-values-{}", ::getpid())) {}
  ~HybridValues() override { std::filesystem::remove_all(folder_); }

  using Use = std::function<void(Model&)>;
  // Trained for a step, so that the values have been compared once.
  static std::string log_of(const std::function<void(Model&)>& change, const Use& use) {
    testing::internal::CaptureStderr();
    try {
      run_ranks(2, [&](cluster::Context& context) {
        Slices network;
        nn::MSELoss loss;
        nn::SGD optimizer({.learning_rate = 0.1});
        Model model(context, network, &loss, &optimizer,
                    {.parallel_mode = ParallelMode::kHybrid, .metrics = {mean_loss()}});
        model.train(1, ones(2));
        change(model);
        use(model);
      });
    } catch (...) {
      testing::internal::GetCapturedStderr();
      throw;
    }
    return testing::internal::GetCapturedStderr();
  }

  // A file of each rank: its slice, and `bias`.
  std::string own_file(int rank, float bias) const {
    const auto path = (folder_ / fmt::format("rank_{}", rank) / "values.ckpt").string();
    const checkpoint::Entry entries[] = {{"weight", Tensor::full({DType::kF32, {2, 2}}, 1 + rank)},
                                         {"bias", Tensor::full({DType::kF32, {2}}, bias)}};
    checkpoint::save(FileSystem::local(), {.path = path}, entries, {});
    return path;
  }

  static std::map<std::string, Use> uses() {
    return {{"train", [](Model& model) { model.train(2, ones(2)); }},
            {"eval", [](Model& model) { model.eval(ones(2)); }},
            {"predict", [](Model& model) {
               model.predict({Tensor::full({DType::kF32, {2, 2}}, 1)});
             }}};
  }

 private:
  std::filesystem::path folder_;
};

constexpr const char* kDiffer = "rank 1 has other parameter values than rank 0";

TEST_F(HybridValues, ThatAreLoadedAndDifferAreWarnedAbout) {
  for (const auto& [name, use] : uses()) {
    const auto load = [&](Model& model) {
      const int rank = model.context().rank();
      model.load_parameters(own_file(rank, static_cast<float>(rank)));
    };
    EXPECT_THAT(log_of(load, use), HasSubstr(kDiffer)) << name;
  }
}

TEST_F(HybridValues, OfEachRanksOwnMayDiffer) {
  for (const auto& [name, use] : uses()) {
    const auto load = [&](Model& model) { model.load_parameters(own_file(model.context().rank(), 3)); };
    EXPECT_EQ(log_of(load, use), "") << name;
  }
}

TEST_F(HybridValues, ThatOneRankAloneLoadsAreRefused) {
  for (const auto& [name, use] : uses()) {
    const auto load = [&](Model& model) {
      if (model.context().rank() == 0) model.load_parameters(own_file(0, 3));
    };
    EXPECT_THROW(log_of(load, use), IoError) << name;
  }
}

TEST_F(HybridValues, ThatOneRankAloneSetsAreWarnedAbout) {
  const auto set = [](const char* name, const Shape& shape) {
    return [=](Model& model) {
      if (model.context().rank() == 0) model.set_value(name, Tensor::full({DType::kF32, shape}, 7));
    };
  };
  for (const auto& [name, use] : uses()) {
    EXPECT_THAT(log_of(set("bias", {2}), use), HasSubstr(kDiffer)) << name;
    EXPECT_EQ(log_of(set("weight", {2, 2}), use), "") << name;
  }
}

}  // namespace
}  // namespace tessera::train
