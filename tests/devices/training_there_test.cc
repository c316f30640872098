// Training on a GPU, real or emulated (tests/equivalence/where.h says which): the losses are the CPU's, a checkpoint
// goes from one to the other and back, and a step that goes wrong changes nothing.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/testing/full.h"
#include "tessera/train/model.h"
#include "tests/equivalence/networks.h"
#include "tests/equivalence/where.h"

namespace tessera::devices {
namespace {

struct Trainee {
  std::unique_ptr<cluster::Context> context = cluster::single_context(1);
  std::string name;
  std::unique_ptr<nn::Cell> network;
  nn::SoftmaxCrossEntropyWithLogits loss{{.sparse = true, .reduction = "mean"}};
  nn::Momentum optimizer{{.learning_rate = 0.01, .momentum = 0.9, .weight_decay = 1e-4}};
  std::unique_ptr<train::Model> model;

  Trainee(const std::string& network_name, bool is_there, DType precision = DType::kF32) : name(network_name) {
    network = equivalence::make_network(name, DType::kF32);
    train::ModelOptions options{.session =
                                    is_there ? equivalence::session_there(false) : equivalence::session_on_cpu(false)};
    options.seed = 3;
    options.precision = precision;
    model = std::make_unique<train::Model>(*context, *network, &loss, &optimizer, options);
  }
  std::vector<double> train(int64_t first, int64_t steps) {
    std::vector<double> losses;
    for (int64_t step = first; step < first + steps; ++step) {
      const auto batch = equivalence::make_batch(name, kRows, step, DType::kF32);
      losses.push_back(model->train_step({batch[0].view(), batch[1].view()}, kRows));
    }
    return losses;
  }
  std::map<std::string, Tensor> values() const {
    std::map<std::string, Tensor> values;
    for (const auto& value : model->names()) values[value] = model->value(value);
    return values;
  }

  static constexpr int64_t kRows = 6;
};

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], tolerance * std::max(1.0, std::abs(expected[i]))) << "step " << i;
  }
}

class TrainingThere : public testing::TestWithParam<std::string> {};

TEST_P(TrainingThere, GivesTheLossesOfTheCpu) {
  // Rounding differs, and what differs grows from step to step.
  Trainee cpu(GetParam(), false);
  Trainee there(GetParam(), true);
  expect_near(there.train(0, 10), cpu.train(0, 10), 2e-3);
}

TEST_P(TrainingThere, GivesAboutTheLossesOfTheCpuInBf16) {
  Trainee cpu(GetParam(), false);
  Trainee there(GetParam(), true, DType::kBF16);
  expect_near(there.train(0, 3), cpu.train(0, 3), 0.1);
}

INSTANTIATE_TEST_SUITE_P(Networks, TrainingThere, testing::Values("mlp", "resnet", "transformer", "translator"),
                         [](const auto& info) { return info.param; });

TEST(CheckpointThere, GoesToTheCpuAndBack) {
  const auto directory = std::filesystem::temp_directory_path() / fmt::format("training_there_{}", ::getpid());
  std::filesystem::create_directories(directory);
  const std::string first = (directory / "first.ckpt").string();
  const std::string second = (directory / "second.ckpt").string();

  Trainee there("resnet", true);
  there.train(0, 3);
  there.model->save_checkpoint(first);
  const auto before = there.values();
  const auto expected = there.train(3, 3);

  Trainee cpu("resnet", false);
  cpu.model->load_checkpoint(first);
  for (const auto& [name, value] : cpu.values()) EXPECT_TRUE(bit_equal(value, before.at(name))) << name;
  expect_near(cpu.train(3, 2), {expected[0], expected[1]}, 1e-3);
  cpu.model->save_checkpoint(second);

  Trainee back("resnet", true);
  back.model->load_checkpoint(second);
  const auto of_cpu = cpu.values();
  for (const auto& [name, value] : back.values()) EXPECT_TRUE(bit_equal(value, of_cpu.at(name))) << name;
  expect_near(back.train(5, 1), {expected[2]}, 1e-3);
  std::filesystem::remove_all(directory);
}

TEST(CheckpointThere, HoldsItsStepWhereTheNextOnesRunMeanwhile) {
  const auto directory = std::filesystem::temp_directory_path() / fmt::format("saving_there_{}", ::getpid());
  std::filesystem::create_directories(directory);
  Trainee there("resnet", true);
  there.train(0, 4);  // the steps are recorded by now
  for (int64_t save = 0; save < 3; ++save) {
    const auto path = (directory / fmt::format("{}.ckpt", save)).string();
    const auto before = there.values();
    there.model->save_checkpoint(path, {.async = true});
    there.train(4 + 3 * save, 3);
    there.model->finish_saves();
    const auto saved = checkpoint::GlobalCheckpoint::open(FileSystem::local(), path);
    for (const auto& entry : saved.entries()) {
      EXPECT_TRUE(bit_equal(saved.read_whole(entry.name), before.at(entry.name))) << entry.name << " of save " << save;
    }
    EXPECT_GE(saved.entries().size() + 1, before.size());  // a state that says nothing may be left out
  }
  std::filesystem::remove_all(directory);
}

TEST(BadStepThere, ALossThatIsNotFiniteChangesNothing) {
  Trainee there("mlp", true);
  there.train(0, 4);  // the steps are recorded by now
  const auto before = there.values();
  auto batch = equivalence::make_batch("mlp", Trainee::kRows, 4, DType::kF32);
  batch[0].values<float>()[0] = std::numeric_limits<float>::infinity();
  EXPECT_THROW(there.model->train_step({batch[0].view(), batch[1].view()}, Trainee::kRows), executor::NonFiniteLoss);
  for (const auto& [name, value] : there.values()) EXPECT_TRUE(bit_equal(value, before.at(name))) << name;
  for (const double loss : there.train(4, 2)) EXPECT_TRUE(std::isfinite(loss));
}

TEST(BadStepThere, ALabelOutOfRangeIsNamedAndChangesNothing) {
  Trainee there("mlp", true);
  there.train(0, 4);
  const auto before = there.values();
  auto batch = equivalence::make_batch("mlp", Trainee::kRows, 4, DType::kF32);
  batch[1] = batch[1].cast(batch[1].dtype());
  if (batch[1].dtype() == DType::kI32) {
    batch[1].values<int32_t>()[2] = 10;
  } else {
    batch[1].values<int64_t>()[2] = 10;
  }
  try {
    there.model->train_step({batch[0].view(), batch[1].view()}, Trainee::kRows);
    FAIL() << "a label that is no class was taken";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("10"), std::string::npos) << error.what();
  }
  for (const auto& [name, value] : there.values()) EXPECT_TRUE(bit_equal(value, before.at(name))) << name;
}

}  // namespace
}  // namespace tessera::devices
