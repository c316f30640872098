// Tables of which a batch looks up some rows: optimizers that leave the others alone update these rows by themselves,
// with the results that the whole gradient gives.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tessera/nn/losses.h"
#include "tessera/nn/optimizers/adagrad.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/ftrl.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/executable.h"
#include "tessera/testing/relative_deviation.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/model.h"
#include "tests/equivalence/networks.h"

namespace tessera::equivalence {
namespace {

// Hides from an optimizer that gradients are made of rows.
class OfWholeGradients : public nn::Optimizer {
 public:
  explicit OfWholeGradients(std::unique_ptr<nn::Optimizer> inner) : inner_(std::move(inner)) {}
  void update(ir::Graph& graph, std::span<const nn::ParameterGradient> gradients) override {
    std::vector<nn::ParameterGradient> whole(gradients.begin(), gradients.end());
    for (auto& pair : whole) pair.gradient = ops::maximum(pair.gradient, pair.gradient);
    inner_->update(graph, whole);
  }
  std::vector<nn::Parameter> states(std::span<nn::Parameter* const> parameters) const override {
    return inner_->states(parameters);
  }
  void set_state_prefix(const std::string& prefix) override { inner_->set_state_prefix(prefix); }

 private:
  std::unique_ptr<nn::Optimizer> inner_;
};

struct Outcome {
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> values;
  std::map<std::string, std::vector<double>> first_values;
  int row_updates = 0;  // nodes of the step
  int whole_gradients = 0;
};

struct Training {
  DType dtype = DType::kF64;
  int64_t steps = 6;
  std::optional<nn::LossScale> loss_scale = std::nullopt;
  double set_momentum = 0;  // the state, before the first step
  double set_deep = 0;      // the table "deep": a large value makes large gradients
};

Outcome train(nn::Optimizer& optimizer, const Training& training = {}) {
  Outcome outcome;
  run_ranks(1, [&](cluster::Context& context) {
    const auto network = make_network("clicks", training.dtype);
    nn::SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
    train::Model model(
        context, *network, &loss, &optimizer,
        {.loss_scale = training.loss_scale, .seed = 4, .session = {.kernel_choice = session::KernelChoice::kFixed}});
    if (training.set_momentum != 0) {
      model.set_value("momentum", Tensor::full(model.value("momentum").type(), training.set_momentum));
    }
    if (training.set_deep != 0) {
      const std::string table = "deep.embedding_table";
      model.set_value(table, Tensor::full(model.value(table).type(), training.set_deep));
    }
    for (const auto& name : model.names()) outcome.first_values[name] = model.value(name).to_doubles();
    for (int64_t step = 0; step < training.steps; ++step) {
      const auto batch = make_batch("clicks", 8, step, training.dtype);
      outcome.losses.push_back(model.train_step({batch[0].view(), batch[1].view()}, 8));
    }
    for (const auto& name : model.names()) outcome.values[name] = model.value(name).to_doubles();
    const auto& graph = model.train_executable()->compiled().logical;
    for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
      if (graph.node(n).op == "update_rows") ++outcome.row_updates;
      if (graph.node(n).op == "scatter_add") ++outcome.whole_gradients;
    }
  });
  return outcome;
}

std::unique_ptr<nn::Optimizer> make_exact(const std::string& name) {
  if (name == "sgd") return std::make_unique<nn::SGD>(nn::SGDOptions{.learning_rate = 0.05});
  if (name == "adagrad") return std::make_unique<nn::Adagrad>(nn::AdagradOptions{.learning_rate = 0.05});
  return std::make_unique<nn::FTRL>(nn::FTRLOptions{.learning_rate = 0.05, .l1 = 1e-3, .l2 = 1e-3});
}

void expect_equal(const Outcome& found, const Outcome& expected, double tolerance) {
  EXPECT_LE(relative_deviation(found.losses, expected.losses), tolerance);
  ASSERT_EQ(found.values.size(), expected.values.size());
  for (const auto& [name, value] : expected.values) {
    EXPECT_LE(relative_deviation(found.values.at(name), value), tolerance) << name;
  }
}

class ExactRowUpdates : public testing::TestWithParam<std::string> {};

TEST_P(ExactRowUpdates, GiveWhatWholeGradientsGive) {
  for (const DType dtype : {DType::kF64, DType::kF32}) {
    const auto by_rows = make_exact(GetParam());
    OfWholeGradients whole(make_exact(GetParam()));
    const auto found = train(*by_rows, {.dtype = dtype});
    const auto expected = train(whole, {.dtype = dtype});
    expect_equal(found, expected, dtype == DType::kF64 ? 1e-12 : 1e-5);
    EXPECT_EQ(found.row_updates, 2);
    EXPECT_EQ(found.whole_gradients, 0);
    EXPECT_EQ(expected.row_updates, 0);
  }
}

TEST_P(ExactRowUpdates, AreSkippedAndScaledWithTheLoss) {
  const auto by_rows = make_exact(GetParam());
  OfWholeGradients whole(make_exact(GetParam()));
  // The first step overflows.
  const Training training{
      .dtype = DType::kF32, .loss_scale = nn::dynamic_loss_scale({.init_loss_scale = 0x1p127}), .set_deep = 20};
  const auto found = train(*by_rows, training);
  expect_equal(found, train(whole, training), 1e-5);
  EXPECT_EQ(found.row_updates, 2);
  EXPECT_EQ(found.whole_gradients, 0);
  EXPECT_LT(found.values.at("loss_scale")[0], 0x1p127);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ExactRowUpdates, testing::Values("sgd", "adagrad", "ftrl"),
                         [](const auto& info) { return info.param; });

// The momentum is a state, which may have been loaded: then every row has to move.
TEST(RowUpdates, OfSgdMoveAllRowsWhereTheStateSaysThatThereIsMomentum) {
  const auto by_rows = make_exact("sgd");
  OfWholeGradients whole(make_exact("sgd"));
  const auto found = train(*by_rows, {.set_momentum = 0.9});
  expect_equal(found, train(whole, {.set_momentum = 0.9}), 1e-12);
  EXPECT_EQ(found.row_updates, 2);
}

TEST(RowUpdates, AreNotOfOptimizersThatMoveRowsWithoutGradient) {
  nn::Momentum momentum({.learning_rate = 0.05});
  nn::Adam adam({.learning_rate = 0.05});
  nn::SGD decayed({.learning_rate = 0.05, .weight_decay = 1e-3});
  nn::SGD with_momentum({.learning_rate = 0.05, .momentum = 0.9});
  nn::FTRL of_changing_rate({.learning_rate = std::vector<double>{0.05, 0.01}});
  nn::Adagrad without_first_sum({.accum = 0});
  for (nn::Optimizer* optimizer :
       std::vector<nn::Optimizer*>{&momentum, &adam, &decayed, &with_momentum, &of_changing_rate, &without_first_sum}) {
    EXPECT_EQ(train(*optimizer, {.steps = 1}).row_updates, 0) << optimizer->name();
  }
}

// The rows that some batch has looked up.
std::set<int64_t> rows_looked_up(int64_t steps) {
  std::set<int64_t> rows;
  for (int64_t step = 0; step < steps; ++step) {
    const auto batch = make_batch("clicks", 8, step, DType::kF64);
    for (const int32_t id : batch[0].values<int32_t>()) rows.insert(id);
  }
  return rows;
}

TEST(LazyAdam, UpdatesRowsThatWereLookedUpAndNoOthers) {
  nn::LazyAdam lazy({.learning_rate = 0.01});
  const auto found = train(lazy, {.steps = 1});
  nn::Adam adam({.learning_rate = 0.01});
  const auto expected = train(adam, {.steps = 1});
  const auto rows = rows_looked_up(1);
  ASSERT_LT(rows.size(), 30U);
  for (const std::string state : {"", "moment1.", "moment2."}) {
    const auto name = state + "wide.embedding_table";
    const auto& values = found.values.at(name);
    for (int64_t row = 0; row < 97; ++row) {
      for (int64_t column = 0; column < 10; ++column) {
        const auto at = static_cast<size_t>(row * 10 + column);
        // In its first step Adam moves no row whose gradient is 0.
        EXPECT_NEAR(values[at], expected.values.at(name)[at], 1e-14) << name << " row " << row;
        if (rows.contains(row)) continue;
        EXPECT_EQ(values[at], found.first_values.at(name)[at]) << name << " row " << row;
      }
    }
  }
  EXPECT_LE(relative_deviation(found.values.at("head.weight"), expected.values.at("head.weight")), 1e-14);
}

TEST(LazyAdam, LeavesRowsThatALaterBatchDoesNotLookUp) {
  nn::LazyAdam lazy({.learning_rate = 0.01});
  const auto one = train(lazy, {.steps = 1});
  const auto two = train(lazy, {.steps = 2});
  nn::Adam adam({.learning_rate = 0.01});
  const auto not_lazy = train(adam, {.steps = 2});
  std::set<int64_t> of_second;
  const auto batch = make_batch("clicks", 8, 1, DType::kF64);
  for (const int32_t id : batch[0].values<int32_t>()) of_second.insert(id);
  int left = 0;
  for (const int64_t row : rows_looked_up(1)) {
    if (of_second.contains(row)) continue;
    ++left;
    const auto at = static_cast<size_t>(row * 5);
    for (const std::string name : {"deep.embedding_table", "moment1.deep.embedding_table"}) {
      EXPECT_EQ(two.values.at(name)[at], one.values.at(name)[at]) << name << " row " << row;
      EXPECT_NE(not_lazy.values.at(name)[at], one.values.at(name)[at]) << name << " row " << row;
    }
  }
  EXPECT_GT(left, 3);
}

TEST(LazyAdam, IsAdamForParametersThatItIsToldOf) {
  nn::LazyAdam lazy(
      {.learning_rate = 0.01, .is_lazy = [](const std::string& name) { return name == "wide.embedding_table"; }});
  nn::Adam adam({.learning_rate = 0.01});
  const auto found = train(lazy, {.steps = 3});
  const auto expected = train(adam, {.steps = 3});
  EXPECT_EQ(found.row_updates, 1);
  EXPECT_GT(relative_deviation(found.values.at("moment1.wide.embedding_table"),
                               expected.values.at("moment1.wide.embedding_table")),
            1e-3);
}

// The first step of FTRL moves rows without gradient, too.
TEST(Ftrl, LeavesRowsOfTablesThatItIsToldOf) {
  const nn::FTRLOptions options{
      .learning_rate = std::vector<double>{0.05, 0.01}, .l1 = 1e-3, .l2 = 1e-3, .weight_decay = 0.01};
  nn::FTRLOptions with_lazy = options;
  with_lazy.is_lazy = [](const std::string& name) { return name == "wide.embedding_table"; };
  nn::FTRL lazy(with_lazy);
  nn::FTRL dense(options);
  const auto found = train(lazy, {.steps = 1});
  const auto expected = train(dense, {.steps = 1});
  EXPECT_EQ(found.row_updates, 1);
  const auto rows = rows_looked_up(1);
  const std::string name = "wide.embedding_table";
  for (int64_t row = 0; row < 97; ++row) {
    const auto at = static_cast<size_t>(row * 10);
    const double before = found.first_values.at(name)[at];
    EXPECT_NE(expected.values.at(name)[at], before) << row;
    if (rows.contains(row)) {
      EXPECT_NEAR(found.values.at(name)[at], expected.values.at(name)[at], 1e-12) << row;
    } else {
      EXPECT_EQ(found.values.at(name)[at], before) << row;
    }
  }
}

}  // namespace
}  // namespace tessera::equivalence
