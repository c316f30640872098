// Strategy files of training steps: what a plan says is written, and read into another model gives the same plan.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <mutex>

#include "tessera/base/error.h"
#include "tessera/checkpoint/strategy/group_file.h"
#include "tessera/checkpoint/strategy/strategy_file.h"
#include "tessera/mesh/strategy_error.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"

namespace tessera::train {
namespace {

using ir::Value;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

struct Mlp : nn::Cell {
  explicit Mlp(int64_t inner = 16) : up(child<nn::Dense>("up", 8, inner)), down(child<nn::Dense>("down", inner, 4)) {}
  nn::Dense& up;
  nn::Dense& down;
  using Cell::construct;
  Value construct(Value x) override { return down(ops::relu(up(x))); }
};

class StrategyFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("tessera-strategy-{}", ::getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string in(const std::string& name) const { return (folder_ / name).string(); }

  // One step on four ranks; the plan as text. With `sharded`, columns and rows over two ranks each, the batch over two.
  std::string plan_of(bool sharded, const ModelOptions& base, int64_t inner = 16) const {
    std::string text;
    std::mutex mutex;
    run_ranks(4, [&](cluster::Context& context) {
      Mlp network(inner);
      if (sharded) {
        network.up.shard("matmul", {{2, 1}, {2, 1}});
        network.down.shard("matmul", {{2, 2}, {1, 2}});
      }
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
      auto options = base;
      options.parallel_mode = ParallelMode::kSemiAuto;
      options.parallel_optimizer_threshold = 0;
      const auto named = [&](std::string path) {
        const auto at = path.find('#');
        return at == std::string::npos ? path : path.replace(at, 1, std::to_string(context.rank()));
      };
      options.group_ckpt_save_file = named(options.group_ckpt_save_file);
      Model model(context, network, &loss, &optimizer, options);
      const Tensor x = Tensor::full({DType::kF32, {8, 8}}, 0.5);
      const Tensor y = Tensor::full({DType::kF32, {8, 4}}, 0.25);
      model.train_step({x.view(), y.view()}, 8);
      const auto& compiled = model.train_executable()->compiled();
      const std::lock_guard lock(mutex);
      if (context.rank() == 0) text = compiler::print(compiled.logical, compiled.plan);
    });
    return text;
  }

  checkpoint::StrategyFile read(const std::string& name) const {
    return checkpoint::read_strategy_file(FileSystem::local(), in(name));
  }

 private:
  std::filesystem::path folder_;
};

TEST(DatasetStrategy, HoldsForPredictions) {
  run_ranks(4, [](cluster::Context& context) {
    const Tensor x = Tensor::full({DType::kF32, {8, 8}}, 0.5);
    const Tensor y = Tensor::full({DType::kF32, {8, 4}}, 0.25);
    const auto predictions = [&](const ModelOptions& base) {
      Mlp network;
      nn::MSELoss loss;
      nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
      auto options = base;
      options.parallel_mode = ParallelMode::kSemiAuto;
      Model model(context, network, &loss, &optimizer, options);
      auto all = model.predict({x}).to_doubles();
      model.train_step({x.view(), y.view()}, 8);
      for (const double value : model.predict({x}).to_doubles()) all.push_back(value);
      return all;
    };
    const auto expected = predictions({.full_batch = true});
    const auto found = predictions({.dataset_strategy = {{2, 2}, {4, 1}}});
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5);
    EXPECT_THAT(
        [&] {
          predictions({.dataset_strategy = {{2}, {4, 1}}});
        },
        testing::ThrowsMessage<mesh::StrategyError>(HasSubstr("has 1 counts for input")));
  });
}

template <typename Items, typename Name>
auto item(const Items& items, Name member, const std::string& name) {
  for (const auto& one : items) {
    if (one.*member == name) return one;
  }
  throw InternalError("no item " + name);
}

TEST_F(StrategyFiles, GiveAFreshModelTheSamePlan) {
  for (const bool shards : {false, true}) {
    for (const std::string name : {"strategy.ckpt", "strategy.json"}) {
      const auto plan = plan_of(true, {.strategy_ckpt_save_file = in(name), .parallel_optimizer = shards});
      EXPECT_EQ(plan_of(false, {.strategy_ckpt_save_file = in("again.json"), .strategy_ckpt_load_file = in(name)}),
                plan);
      EXPECT_NE(plan_of(false, {.parallel_optimizer = shards}), plan);
      auto first = read(name);
      const auto again = read("again.json");
      EXPECT_EQ(first.strategies, again.strategies);
      ASSERT_EQ(first.layouts.size(), again.layouts.size());
      for (size_t i = 0; i < first.layouts.size(); ++i) {
        first.layouts[i].tensor_shape = again.layouts[i].tensor_shape;
        EXPECT_EQ(first.layouts[i], again.layouts[i]);
      }
    }
  }
}

TEST_F(StrategyFiles, OfAPredictionAreThoseOfTheTrainingThatFollows) {
  run_ranks(4, [&](cluster::Context& context) {
    Mlp network;
    network.up.shard("matmul", {{2, 1}, {2, 1}});
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer,
                {.parallel_mode = ParallelMode::kSemiAuto, .strategy_ckpt_save_file = in("strategy.json")});
    model.build_predict({{DType::kF32, {8, 8}}});
    if (context.rank() == 0) {
      for (const auto& layout : read("strategy.json").layouts) EXPECT_FALSE(layout.name.starts_with("moments."));
    }
    const Tensor x = Tensor::full({DType::kF32, {8, 8}}, 0.5);
    const Tensor y = Tensor::full({DType::kF32, {8, 4}}, 0.25);
    model.train_step({x.view(), y.view()}, 8);
    context.world().barrier("the file is written");
    const auto moments = item(read("strategy.json").layouts, &checkpoint::ParameterLayout::name, "moments.up.weight");
    EXPECT_EQ(moments.tensor_shape, (std::vector<int64_t>{16, 8}));
  });
}

TEST_F(StrategyFiles, SayHowOperatorsAndParametersAreSplit) {
  plan_of(true, {.strategy_ckpt_save_file = in("plain.json")});
  const auto plain = read("plain.json");
  const auto up = item(plain.strategies, &checkpoint::NodeStrategy::node, "MatMul_up.weight");
  EXPECT_THAT(up.inputs, ElementsAre(ElementsAre(2, 1), ElementsAre(2, 1)));
  const auto weight = item(plain.layouts, &checkpoint::ParameterLayout::name, "up.weight");
  EXPECT_THAT(weight.device_matrix, ElementsAre(2, 2));
  EXPECT_THAT(weight.tensor_map, ElementsAre(ElementsAre(0), ElementsAre()));
  EXPECT_THAT(weight.tensor_shape, ElementsAre(16, 8));
  EXPECT_EQ(weight.num_optimizer_shards(), 1);
  EXPECT_EQ(item(plain.layouts, &checkpoint::ParameterLayout::name, "moments.up.weight").tensor_map, weight.tensor_map);

  // The two ranks that hold one slice lie two apart.
  plan_of(true, {.strategy_ckpt_save_file = in("shards.json"), .parallel_optimizer = true});
  const auto sharded = item(read("shards.json").layouts, &checkpoint::ParameterLayout::name, "up.weight");
  EXPECT_EQ(sharded.tensor_map, weight.tensor_map);
  EXPECT_EQ(sharded.opt_weight_shard_size, 2);
  EXPECT_EQ(sharded.opt_weight_shard_step, 2);
}

TEST_F(StrategyFiles, OfGroupsNameTheRanksThatHoldTheSame) {
  plan_of(true, {.group_ckpt_save_file = in("group#.pb")});
  EXPECT_THAT(checkpoint::restore_group_info_list(FileSystem::local(), in("group0.pb")), ElementsAre(0, 2));
  EXPECT_THAT(checkpoint::restore_group_info_list(FileSystem::local(), in("group3.pb")), ElementsAre(1, 3));
  const auto file = checkpoint::read_group_file(FileSystem::local(), in("group3.pb"));
  EXPECT_FALSE(file.groups.empty());
  for (const auto& group : file.groups) EXPECT_THAT(group.ranks, testing::Contains(3));
}

// A prediction that was built splits the parameters; it and a training after it give what one rank gives.
TEST_F(StrategyFiles, AreWrittenOfAPredictionToo) {
  const auto run = [&](cluster::Context& context, bool builds_prediction) {
    Mlp network;
    network.up.shard("matmul", {{2, 1}, {2, 1}});
    nn::MSELoss loss;
    nn::Momentum optimizer({.learning_rate = 0.1, .momentum = 0.9});
    Model model(context, network, &loss, &optimizer,
                {.parallel_mode = ParallelMode::kSemiAuto, .strategy_ckpt_save_file = in("predict.json")});
    const Tensor x = Tensor::full({DType::kF32, {8, 8}}, 0.5);
    const Tensor y = Tensor::full({DType::kF32, {8, 4}}, 0.25);
    EXPECT_TRUE(model.layouts().empty());
    if (builds_prediction) {
      model.build_predict({x.type()});
      EXPECT_EQ(model.session().values().type("up.weight").shape, Shape({8, 8}));
      EXPECT_EQ(item(model.layouts(), &checkpoint::ParameterLayout::name, "up.weight").num_optimizer_shards(), 1);
    }
    auto results = model.predict({x}).to_doubles();
    for (int step = 0; step < 2; ++step) results.push_back(model.train_step({x.view(), y.view()}, 8));
    if (context.size() > 1) item(model.layouts(), &checkpoint::ParameterLayout::name, "moments.up.weight");
    return results;
  };
  std::vector<double> alone;
  run_ranks(1, [&](cluster::Context& context) { alone = run(context, false); });
  run_ranks(4, [&](cluster::Context& context) {
    const auto split = run(context, true);
    ASSERT_EQ(split.size(), alone.size());
    for (size_t i = 0; i < split.size(); ++i) EXPECT_NEAR(split[i], alone[i], 1e-6) << i;
  });
  const auto weight = item(read("predict.json").layouts, &checkpoint::ParameterLayout::name, "up.weight");
  EXPECT_THAT(weight.device_matrix, ElementsAre(2, 2));
  EXPECT_THAT(weight.tensor_map, ElementsAre(ElementsAre(0), ElementsAre()));
}

TEST_F(StrategyFiles, ThatDoNotFitAreRefusedByName) {
  plan_of(true, {.strategy_ckpt_save_file = in("good.json")});
  const auto refused = [&](const std::function<void(checkpoint::StrategyFile&)>& edit, int64_t inner = 16) {
    auto file = read("good.json");
    edit(file);
    checkpoint::write_strategy_file(FileSystem::local(), in("bad.json"), file);
    try {
      plan_of(false, {.strategy_ckpt_load_file = in("bad.json")}, inner);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused([](auto&) {}), "accepted");
  EXPECT_THAT(refused([](auto& file) { file.strategies[0].node = "MatMul_upp.weight"; }),
              AllOf(HasSubstr("bad.json: the network has no operator MatMul_upp.weight"), HasSubstr("did you mean")));
  EXPECT_THAT(refused([](auto& file) { file.layouts[0].name = "nothing"; }),
              HasSubstr("the network has no parameter or state \"nothing\""));
  EXPECT_THAT(refused([](auto&) {}, 32), AllOf(HasSubstr("weight\" has shape ["), HasSubstr("the network's is f32[")));
  EXPECT_THAT(refused([](auto& file) {
                for (auto& layout : file.layouts) {
                  if (layout.name == "up.weight") layout.tensor_map = {{}, {}};
                }
              }),
              HasSubstr("\"up.weight\" lies as ([2,2],[-1,-1]) there, in this network as ([2,2],[0,-1])"));
}

}  // namespace
}  // namespace tessera::train
