#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/testing/kernels/run_kernel.h"

namespace tessera::kernels {
namespace {

using testing::DoubleNear;
using testing::Pointwise;

constexpr int kSteps = 10;

struct Settings {
  double rate = 0.1;
  double momentum = 0.9;
  double dampening = 0;
  double weight_decay = 0;
  double loss_scale = 1;
  bool nesterov = false;
};

// Ten steps of an optimizer on five parameters, each compared with `expected`, which changes (param, states) of one
// element given its gradient and the step.
template <typename Expected>
void expect_ten_steps(const std::string& op, const Attributes& attributes, size_t num_states,
                      const std::vector<std::function<double(int)>>& scalars, Expected&& expected,
                      double first_state = 0) {
  const Type type{DType::kF64, {5}};
  std::vector<Tensor> values{random_tensor(type, 1)};
  for (size_t i = 0; i < num_states; ++i) values.push_back(Tensor::full(type, first_state));
  std::vector<std::vector<double>> numbers;
  for (const Tensor& value : values) numbers.push_back(value.to_doubles());
  for (int step = 1; step <= kSteps; ++step) {
    const Tensor grad = random_tensor(type, static_cast<uint64_t>(step) + 1);
    std::vector<Tensor> inputs = values;
    inputs.push_back(grad);
    for (const auto& scalar : scalars) inputs.push_back(Tensor::scalar(scalar(step)));
    values =
        run_kernel(op, inputs, attributes, std::vector<Type>(1 + num_states, type), {.layout = StrideOrder::kReversed});
    for (size_t i = 0; i < 5; ++i) {
      std::vector<double> element;
      for (const auto& number : numbers) element.push_back(number[i]);
      expected(element, grad.values<double>()[i], step);
      for (size_t v = 0; v < numbers.size(); ++v) numbers[v][i] = element[v];
    }
    for (size_t v = 0; v < values.size(); ++v) {
      EXPECT_THAT(values[v].to_doubles(), Pointwise(DoubleNear(1e-14), numbers[v]))
          << "step " << step << " value " << v;
    }
  }
}

std::function<double(int)> fixed(double value) {
  return [value](int) { return value; };
}

TEST(ReferenceOptimizers, MomentumFollowsItsFormula) {
  for (const Settings s : {Settings{}, Settings{.weight_decay = 0.01, .loss_scale = 128},
                           Settings{.weight_decay = 0.01, .nesterov = true}, Settings{.momentum = 0}}) {
    expect_ten_steps("momentum",
                     {{"weight_decay", s.weight_decay}, {"loss_scale", s.loss_scale}, {"nesterov", s.nesterov}}, 1,
                     {fixed(s.rate), fixed(s.momentum)}, [&](std::vector<double>& value, double grad, int) {
                       const double g = grad / s.loss_scale + s.weight_decay * value[0];
                       value[1] = s.momentum * value[1] + g;
                       value[0] -= s.nesterov ? g * s.rate + value[1] * s.momentum * s.rate : s.rate * value[1];
                     });
  }
}

TEST(ReferenceOptimizers, SgdTakesTheFirstGradientWhole) {
  for (const Settings s : {Settings{}, Settings{.dampening = 0.3, .weight_decay = 0.01, .loss_scale = 4},
                           Settings{.nesterov = true}, Settings{.momentum = 0, .dampening = 0.3}}) {
    expect_ten_steps("sgd",
                     {{"dampening", s.dampening},
                      {"weight_decay", s.weight_decay},
                      {"loss_scale", s.loss_scale},
                      {"nesterov", s.nesterov}},
                     1, {fixed(s.rate), fixed(s.momentum), [](int step) { return step == 1 ? 1.0 : 0.0; }},
                     [&](std::vector<double>& value, double grad, int step) {
                       double d = grad / s.loss_scale + s.weight_decay * value[0];
                       if (s.momentum != 0) {
                         value[1] = step == 1 ? d : s.momentum * value[1] + (1 - s.dampening) * d;
                         d = s.nesterov ? d + s.momentum * value[1] : value[1];
                       }
                       value[0] -= s.rate * d;
                     });
  }
}

TEST(ReferenceOptimizers, AdamCorrectsItsBias) {
  for (const Settings s : {Settings{}, Settings{.weight_decay = 0.01, .loss_scale = 8}, Settings{.nesterov = true}}) {
    expect_ten_steps(
        "adam",
        {{"beta1", 0.9},
         {"beta2", 0.99},
         {"eps", 1e-8},
         {"weight_decay", s.weight_decay},
         {"loss_scale", s.loss_scale},
         {"nesterov", s.nesterov}},
        2, {fixed(s.rate), [](int step) { return std::pow(0.9, step); }, [](int step) { return std::pow(0.99, step); }},
        [&](std::vector<double>& value, double grad, int step) {
          const double g = grad / s.loss_scale + s.weight_decay * value[0];
          value[1] = 0.9 * value[1] + 0.1 * g;
          value[2] = 0.99 * value[2] + 0.01 * g * g;
          const double rate = s.rate * std::sqrt(1 - std::pow(0.99, step)) / (1 - std::pow(0.9, step));
          const double mean = s.nesterov ? 0.9 * value[1] + 0.1 * g : value[1];
          value[0] -= rate * mean / (std::sqrt(value[2]) + 1e-8);
        });
  }
}

TEST(ReferenceOptimizers, AdamWeightDecayDoesNotCorrectItsBias) {
  for (const Settings s : {Settings{}, Settings{.weight_decay = 0.01, .loss_scale = 8}}) {
    expect_ten_steps("adam_weight_decay",
                     {{"beta1", 0.9},
                      {"beta2", 0.999},
                      {"eps", 1e-6},
                      {"weight_decay", s.weight_decay},
                      {"loss_scale", s.loss_scale}},
                     2, {fixed(s.rate)}, [&](std::vector<double>& value, double grad, int) {
                       const double g = grad / s.loss_scale;
                       value[1] = 0.9 * value[1] + 0.1 * g;
                       value[2] = 0.999 * value[2] + 0.001 * g * g;
                       value[0] -= s.rate * (value[1] / (std::sqrt(value[2]) + 1e-6) + s.weight_decay * value[0]);
                     });
  }
}

TEST(ReferenceOptimizers, HalfParametersAreUpdatedInF32AndRoundedOnce) {
  const Tensor param = Tensor::of<float>({1}, {1}).cast(DType::kBF16);
  const Tensor moment = Tensor::of<float>({1}, {0.5F});
  const Tensor grad = Tensor::of<float>({1}, {0.25F}).cast(DType::kF16);
  const auto result = run_kernel("momentum", {param, moment, grad, Tensor::scalar(0.125F), Tensor::scalar(0.5F)},
                                 {{"weight_decay", 0.0}, {"loss_scale", 1.0}, {"nesterov", false}},
                                 {{DType::kBF16, {1}}, {DType::kF32, {1}}});
  EXPECT_EQ(result[1].item(), 0.5);
  EXPECT_EQ(result[0].item(), 0.9375);
}

TEST(ReferenceOptimizers, LargeEmptyAndScalarParametersWork) {
  const Attributes attributes{{"weight_decay", 0.0}, {"loss_scale", 1.0}, {"nesterov", false}};
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{71, 53}}) {
    const Type type{DType::kF32, shape};
    const Tensor param = random_tensor(type, 1);
    const auto result =
        run_kernel("momentum", {param, Tensor::zeros(type), param, Tensor::scalar(0.5F), Tensor::scalar(0.0F)},
                   attributes, {type, type}, {.threads = 3});
    for (size_t i = 0; i < param.values<float>().size(); ++i) {
      ASSERT_EQ(result[0].values<float>()[i], param.values<float>()[i] * 0.5F);
    }
  }
}

TEST(ReferenceOptimizers, AdagradDividesByTheRootOfAllSquares) {
  for (const bool update_slots : {true, false}) {
    for (const Settings s : {Settings{}, Settings{.weight_decay = 0.01, .loss_scale = 8}}) {
      expect_ten_steps(
          "adagrad", {{"update_slots", update_slots}, {"weight_decay", s.weight_decay}, {"loss_scale", s.loss_scale}},
          1, {fixed(s.rate)},
          [&](std::vector<double>& value, double grad, int) {
            const double g = grad / s.loss_scale + s.weight_decay * value[0];
            if (update_slots) value[1] += g * g;
            value[0] -= s.rate * g / std::sqrt(value[1]);
          },
          /*first_state=*/0.1);
    }
  }
}

TEST(ReferenceOptimizers, FtrlShrinksWhatIsSmallToZero) {
  for (const double l1 : {0.0, 1.5}) {
    for (const double exponent : {0.5, 0.3}) {
      const auto power = [exponent](double x) { return exponent == 0.5 ? std::sqrt(x) : std::pow(x, exponent); };
      expect_ten_steps(
          "ftrl", {{"l1", l1}, {"l2", 0.2}, {"lr_power", -exponent}, {"weight_decay", 0.01}, {"loss_scale", 2.0}}, 2,
          {fixed(0.1)},
          [&](std::vector<double>& value, double grad, int) {
            const double g = grad / 2 + 0.01 * value[0];
            const double next = value[1] + g * g;
            value[2] = value[2] + g - (power(next) - power(value[1])) / 0.1 * value[0];
            value[1] = next;
            const double sign = value[2] > 0 ? 1 : value[2] < 0 ? -1 : 0;
            value[0] = std::abs(value[2]) > l1 ? (sign * l1 - value[2]) / (power(next) / 0.1 + 0.4) : 0;
          },
          /*first_state=*/0.1);
    }
  }
}

TEST(ReferenceOptimizers, FtrlLeavesAllAsItIsAtARateOfZero) {
  expect_ten_steps(
      "ftrl", {{"l1", 0.7}, {"l2", 0.2}, {"lr_power", -0.5}, {"weight_decay", 0.01}, {"loss_scale", 2.0}}, 2,
      {fixed(0)}, [](std::vector<double>&, double, int) {}, /*first_state=*/0.1);
}

const Attributes kSgdRows{{"optimizer", "sgd"},
                          {"settings", "{dampening=0.0, loss_scale=1.0, nesterov=false, weight_decay=0.0}"},
                          {"states", int64_t{1}},
                          {"may_be_whole", true},
                          {"keeps_states", false}};

// Row 3 is named twice, 7 and -1 are numbers of no row.
std::vector<Tensor> update_rows(double momentum, double whole, bool keeps_states = false) {
  const Type table{DType::kF64, {5, 2}};
  const Tensor param = Tensor::of<double>({5, 2}, {10, 11, 20, 21, 30, 31, 40, 41, 50, 51});
  const Tensor ids = Tensor::of<int32_t>({5}, {3, 7, 0, 3, -1});
  const Tensor rows = Tensor::of<double>({5, 2}, {1, 2, 100, 100, 3, 4, 5, 6, 100, 100});
  Attributes attributes = kSgdRows;
  attributes.set("keeps_states", keeps_states);
  return run_kernel("update_rows",
                    {param, Tensor::full(table, 1), ids, rows, Tensor::scalar(0.5), Tensor::scalar(momentum),
                     Tensor::scalar(0.0), Tensor::scalar(whole)},
                    attributes, {table, table});
}

TEST(ReferenceOptimizers, RowsThatAreNamedAreUpdatedOnceByTheSumOfTheirGradients) {
  const auto without_momentum = update_rows(0, 0);
  EXPECT_EQ(without_momentum[0].to_doubles(), (std::vector<double>{8.5, 9, 20, 21, 30, 31, 37, 37, 50, 51}));
  EXPECT_EQ(without_momentum[1].to_doubles(), std::vector<double>(10, 1));
  const auto with_momentum = update_rows(0.5, 0);
  EXPECT_EQ(with_momentum[0].to_doubles(), (std::vector<double>{8.25, 8.75, 20, 21, 30, 31, 36.75, 36.75, 50, 51}));
  EXPECT_EQ(with_momentum[1].to_doubles(), (std::vector<double>{3.5, 4.5, 1, 1, 1, 1, 6.5, 8.5, 1, 1}));
}

TEST(ReferenceOptimizers, StatesThatAreKeptAreNeitherReadNorWrittenUnlessAllRowsAreUpdated) {
  const auto some = update_rows(0.5, 0, true);
  EXPECT_EQ(some[0].to_doubles(), (std::vector<double>{8.5, 9, 20, 21, 30, 31, 37, 37, 50, 51}));
  EXPECT_EQ(some[1].to_doubles(), std::vector<double>(10, 1));
  const auto all = update_rows(0.5, 1, true);
  const auto without = update_rows(0.5, 1);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].to_doubles(), without[i].to_doubles()) << i;
}

TEST(ReferenceOptimizers, WhereAllRowsAreUpdatedTheOthersHaveAGradientOfZero) {
  const auto whole = update_rows(0.5, 1);
  EXPECT_EQ(whole[0].to_doubles(),
            (std::vector<double>{8.25, 8.75, 19.75, 20.75, 29.75, 30.75, 36.75, 36.75, 49.75, 50.75}));
  EXPECT_EQ(whole[1].to_doubles(), (std::vector<double>{3.5, 4.5, 0.5, 0.5, 0.5, 0.5, 6.5, 8.5, 0.5, 0.5}));
}

}  // namespace
}  // namespace tessera::kernels
