// Normalisation, pooling and optimizers: the kernels of a convolutional network besides its convolutions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "tessera/testing/kernels/kernel_testing.h"

namespace tessera::kernels::cpu {
namespace {

struct BatchCase {
  Shape shape;
  std::vector<int64_t> group_rows = {};  // empty: not grouped
};

const std::vector<BatchCase> kBatches = {
    {{7, 5}},       {{2, 3, 11}},     {{4, 64, 7, 7}},    {{5, 17, 9, 11}, {2, 2, 1}},  {{3, 33, 2, 3, 5}},
    {{1, 1, 1, 1}}, {{6, 300, 3, 3}}, {{64, 16, 32, 32}}, {{4, 8, 5, 5}, {1, 1, 1, 1}},
};

struct BatchOperands {
  TestOperand image, channel, statistic, variance;
  Attributes attributes;
};

BatchOperands operands_of(const BatchCase& batch, TestStrides layout) {
  int64_t pixels = 1;
  for (int dim = 2; dim < batch.shape.ndim(); ++dim) pixels *= batch.shape[dim];
  Ints counts;
  for (const int64_t rows : batch.group_rows) counts.push_back(rows * pixels);
  const bool grouped = !counts.empty();
  if (!grouped) counts.push_back(batch.shape[0] * pixels);
  const int64_t c = batch.shape[1];
  const Shape statistic = grouped ? Shape{static_cast<int64_t>(counts.size()), c} : Shape{c};
  return {.image = {{DType::kF32, batch.shape}, layout, 1, 5},
          .channel = {{DType::kF32, {c}}},
          .statistic = {{DType::kF32, statistic}, TestStrides::kDense, 2.5, 3.5},
          .variance = {{DType::kF32, statistic}, TestStrides::kDense, 0.1, 3},
          .attributes = {{"counts", counts}, {"grouped", grouped}, {"eps", 1e-5}, {"batch_stats", true}}};
}

std::vector<TestCase> batch_norm_cases(const BatchOperands& o) {
  const TestOperand sum = {o.statistic.type, TestStrides::kDense, -50, 50};
  return {
      {.op = "batch_norm_mean", .inputs = {o.image}, .outputs = {o.statistic}},
      {.op = "batch_norm_variance", .inputs = {o.image, o.statistic}, .outputs = {o.variance}},
      {.op = "batch_norm", .inputs = {o.image, o.statistic, o.variance, o.channel, o.channel}, .outputs = {o.image}},
      {.op = "batch_norm_grad_reduce",
       .inputs = {o.image, o.image, o.statistic, o.variance},
       .outputs = {o.statistic, o.statistic}},
      {.op = "batch_norm_grad_input",
       .inputs = {o.image, o.image, o.statistic, o.variance, o.channel, sum, sum},
       .outputs = {o.image}},
  };
}

TEST(BatchNorm, AgreesWithReferenceOnGroupsLayoutsAndThreads) {
  for (const BatchCase& batch : kBatches) {
    for (const TestStrides layout : {TestStrides::kChannelsLast, TestStrides::kDense}) {
      const BatchOperands operands = operands_of(batch, layout);
      for (TestCase& test : batch_norm_cases(operands)) {
        test.attributes = operands.attributes;
        test.rtol = 5e-6;
        test.atol = test.op == "batch_norm_grad_reduce" ? 1e-6 * static_cast<double>(batch.shape.num_elements()) : 1e-5;
        for (const int num_threads : {1, 3}) {
          test.num_threads = num_threads;
          test.kernel = "cpu." + test.op;
          EXPECT_TRUE(compare_with_reference(test));
        }
      }
    }
  }
}

TEST(BatchNorm, HalfImagesHaveF32Statistics) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const BatchCase& batch : kBatches) {
      BatchOperands operands = operands_of(batch, TestStrides::kChannelsLast);
      operands.image.type.dtype = dtype;
      for (TestCase& test : batch_norm_cases(operands)) {
        test.attributes = operands.attributes;
        test.rtol = 5e-6;
        test.atol = test.op == "batch_norm_grad_reduce" ? 1e-6 * static_cast<double>(batch.shape.num_elements()) : 1e-5;
        test.kernel = "cpu." + test.op;
        EXPECT_TRUE(compare_with_reference(test));
      }
    }
  }
}

TEST(BatchNorm, StatisticsOfFourHundredThousandRowsKeepSixDigits) {
  const BatchCase batch{{128, 3, 56, 56}};
  const BatchOperands operands = operands_of(batch, TestStrides::kChannelsLast);
  for (TestCase& test : batch_norm_cases(operands)) {
    if (!(test.outputs[0].type == operands.statistic.type)) continue;
    test.attributes = operands.attributes;
    test.rtol = test.op == "batch_norm_grad_reduce" ? 1e-5 : 1e-6;
    EXPECT_TRUE(compare_with_reference(test));
  }
}

TEST(BatchNorm, DeclinesOtherStridesOrCopies) {
  const BatchOperands operands = operands_of({{4, 6, 5, 5}}, TestStrides::kPadded);
  for (TestCase& test : batch_norm_cases(operands)) {
    test.attributes = operands.attributes;
    if (!(test.outputs[0].type == operands.statistic.type)) continue;
    EXPECT_EQ(fast_kernel_name(test),
              test.op == "batch_norm_grad_reduce" ? "cpu.batch_norm_grad_reduce.copied" : "declined");
  }
}

TEST(MovingAverage, MovesTowardsTheScaledValueOfEachGroup) {
  for (const Doubles& scales : {Doubles{1.0}, Doubles{1.25, 1.5, 1.125}}) {
    const TestOperand value{{DType::kF32, {3, 70}}};
    EXPECT_TRUE(compare_with_reference({.op = "moving_average",
                                        .inputs = {value, value},
                                        .outputs = {value},
                                        .attributes = {{"momentum", 0.9}, {"scales", scales}},
                                        .atol = 1e-6}));
  }
}

struct PoolCase {
  Shape image;
  Ints kernel, strides, padding;
};

TEST(Pooling, AgreesWithReferenceOnWindowsAndThreads) {
  const std::vector<PoolCase> cases = {
      {{2, 64, 12, 12}, {3, 3}, {2, 2}, {1, 1, 1, 1}}, {{2, 37, 9, 11}, {3, 3}, {2, 2}, {0, 1, 0, 1}},
      {{3, 5, 7, 7}, {7, 7}, {1, 1}, {0, 0, 0, 0}},    {{1, 16, 8, 6}, {2, 2}, {2, 2}, {0, 0, 0, 0}},
      {{2, 20, 10, 9}, {2, 3}, {3, 1}, {1, 0, 2, 1}},  {{0, 4, 6, 6}, {2, 2}, {2, 2}, {0, 0, 0, 0}},
      {{1, 1, 5, 5}, {1, 1}, {2, 2}, {0, 0, 0, 0}},
  };
  int num_threads = 0;
  for (const PoolCase& c : cases) {
    Shape pooled = c.image;
    for (int d = 0; d < 2; ++d) {
      const auto i = static_cast<size_t>(d);
      pooled[d + 2] = (c.image[d + 2] + c.padding[2 * i] + c.padding[2 * i + 1] - c.kernel[i]) / c.strides[i] + 1;
    }
    for (const bool special : {false, true}) {
      const TestOperand x{{DType::kF32, c.image}, TestStrides::kChannelsLast, -2, 2, special};
      const TestOperand y{{DType::kF32, pooled}, TestStrides::kChannelsLast};
      const TestOperand index{
          {DType::kU8, pooled}, TestStrides::kChannelsLast, 0, static_cast<double>(c.kernel[0] * c.kernel[1])};
      const Attributes attributes = {{"kernel", c.kernel},
                                     {"strides", c.strides},
                                     {"padding", c.padding},
                                     {"input_size", Ints{c.image[2], c.image[3]}}};
      std::vector<TestCase> tests = {{.op = "max_pool2d", .inputs = {x}, .outputs = {y, index}}};
      if (!special) {
        tests.push_back({.op = "max_pool2d_grad", .inputs = {y, index}, .outputs = {x}});
        tests.push_back({.op = "avg_pool2d", .inputs = {x}, .outputs = {y}});
        tests.push_back({.op = "avg_pool2d_grad", .inputs = {y}, .outputs = {x}});
      }
      for (TestCase& test : tests) {
        for (const bool count_include_pad : {false, true}) {
          test.attributes = attributes;
          test.attributes.set("count_include_pad", count_include_pad);
          test.atol = 1e-6;
          test.num_threads = num_threads = num_threads % 3 + 1;
          test.kernel = "cpu." + test.op;
          EXPECT_TRUE(compare_with_reference(test));
        }
      }
    }
  }
}

TEST(Optimizers, UpdateInOnePassLikeTheReference) {
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{3, 7}, Shape{40, 33, 3, 3}, Shape{0}}) {
    for (const bool nesterov : {false, true}) {
      for (const double decay : {0.0, 0.01}) {
        for (const double loss_scale : {1.0, 128.0}) {
          for (const DType grad_type : {DType::kF32, DType::kBF16}) {
            const TestOperand param{{DType::kF32, shape}};
            const TestOperand grad{{grad_type, shape}};
            const TestOperand second{{DType::kF32, shape}, TestStrides::kDense, 0, 2};
            const TestOperand scalar{{DType::kF32, {}}, TestStrides::kDense, 0.1, 0.9};
            std::vector<TestCase> tests = {
                {.op = "momentum", .inputs = {param, param, grad, scalar, scalar}, .outputs = {param, param}},
                {.op = "adam",
                 .inputs = {param, param, second, grad, scalar, scalar, scalar},
                 .outputs = {param, param, second}},
                {.op = "adam_weight_decay",
                 .inputs = {param, param, second, grad, scalar},
                 .outputs = {param, param, second}},
            };
            for (const double first : {0.0, 1.0}) {
              for (const double momentum : {0.0, 0.9}) {
                tests.push_back({.op = "sgd",
                                 .inputs = {param,
                                            param,
                                            grad,
                                            scalar,
                                            {scalar.type, TestStrides::kDense, momentum, momentum},
                                            {scalar.type, TestStrides::kDense, first, first}},
                                 .outputs = {param, param}});
              }
            }
            for (TestCase& test : tests) {
              test.attributes = {
                  {"weight_decay", decay}, {"loss_scale", loss_scale}, {"nesterov", nesterov}, {"dampening", 0.1},
                  {"beta1", 0.9},          {"beta2", 0.999},           {"eps", 1e-8}};
              test.rtol = 1e-5;
              test.atol = 1e-5;
              test.num_threads = 3;
              test.kernel = "cpu." + test.op;
              EXPECT_TRUE(compare_with_reference(test));
            }
          }
        }
      }
    }
  }
}

TEST(Optimizers, OfLogisticModelsUpdateLikeTheReference) {
  for (const Shape& shape : {Shape{}, Shape{5}, Shape{40, 33}, Shape{0}}) {
    const TestOperand param{{DType::kF32, shape}};
    const TestOperand second{{DType::kF32, shape}, TestStrides::kDense, 0.1, 2};
    const TestOperand rate{{DType::kF32, {}}, TestStrides::kDense, 0.1, 0.9};
    for (const double decay : {0.0, 0.01}) {
      for (const double number : {0.0, 0.3}) {
        const Attributes common{{"weight_decay", decay}, {"loss_scale", 2.0}};
        TestCase adagrad{.op = "adagrad", .inputs = {param, second, param, rate}, .outputs = {param, second}};
        adagrad.attributes = common;
        adagrad.attributes.set("update_slots", number == 0);
        TestCase ftrl{.op = "ftrl", .inputs = {param, second, param, param, rate}, .outputs = {param, second, param}};
        ftrl.attributes = common;
        ftrl.attributes.set("l1", number);
        ftrl.attributes.set("l2", number);
        ftrl.attributes.set("lr_power", number == 0 ? -0.5 : -number);
        TestCase still = ftrl;  // at a rate of 0
        still.inputs[4] = {{DType::kF32, {}}, TestStrides::kDense, 0, 0};
        for (TestCase& test : {std::ref(adagrad), std::ref(ftrl), std::ref(still)}) {
          test.rtol = 1e-5;
          test.atol = 1e-5;
          test.num_threads = 3;
          test.kernel = "cpu." + test.op;
          EXPECT_TRUE(compare_with_reference(test));
        }
      }
    }
  }
}

// Of tables in any order of memory, by numbers that repeat, are none of rows, or, where they are few, all differ, of
// more rows than a block has.
TEST(Optimizers, UpdateRowsLikeTheReference) {
  struct Table {
    Shape shape;
    int64_t count;
  };
  const std::string adam = "{beta1=0.9, beta2=0.999, eps=1e-08, loss_scale=1.0, nesterov=false, weight_decay=0.01}";
  const std::string sgd = "{dampening=0.1, loss_scale=2.0, nesterov=false, weight_decay=0.0}";
  const std::string ftrl = "{l1=0.1, l2=0.1, loss_scale=1.0, lr_power=-0.5, weight_decay=0.0}";
  for (const Table& table :
       {Table{{40, 7}, 60}, Table{{5000, 3}, 3000}, Table{{9, 2, 3}, 5}, Table{{70}, 30}, Table{{3, 5000}, 4},
        Table{{60, 2100}, 3}, Table{{400, 600}, 8}, Table{{4, 6}, 0}, Table{{0, 6}, 3}}) {
    for (const TestStrides layout : {TestStrides::kDense, TestStrides::kPadded, TestStrides::kReversed}) {
      for (const DType gradient : {DType::kF32, DType::kBF16}) {
        Shape rows = table.shape;
        rows[0] = table.count;
        const double last = static_cast<double>(table.shape[0]);
        const TestOperand param{{DType::kF32, table.shape}, layout};
        const TestOperand second{{DType::kF32, table.shape}, layout, 0.1, 2};
        const TestOperand ids{{DType::kI32, {table.count}}, TestStrides::kDense, -1, last + 1};
        const TestOperand given{{gradient, rows}, layout};
        const TestOperand scalar{{DType::kF32, {}}, TestStrides::kDense, 0.1, 0.9};
        std::vector<TestCase> tests;
        tests.push_back({.op = "update_rows",
                         .inputs = {param, param, second, ids, given, scalar, scalar, scalar},
                         .outputs = {param, param, second},
                         .attributes = {{"optimizer", "adam"}, {"settings", adam}, {"states", int64_t{2}}}});
        tests.back().attributes.set("may_be_whole", false);
        tests.back().attributes.set("keeps_states", false);
        for (const double momentum : {0.0, 0.9}) {
          const TestOperand of_sgd{{DType::kF32, {}}, TestStrides::kDense, momentum, momentum};
          tests.push_back({.op = "update_rows",
                           .inputs = {param, param, ids, given, scalar, of_sgd, scalar},
                           .outputs = {param, param},
                           .attributes = {{"optimizer", "sgd"}, {"settings", sgd}, {"states", int64_t{1}}}});
          tests.back().attributes.set("may_be_whole", false);
          tests.back().attributes.set("keeps_states", momentum == 0);
        }
        for (const double whole : {0.0, 1.0}) {
          const TestOperand is_whole{{DType::kF32, {}}, TestStrides::kDense, whole, whole};
          tests.push_back({.op = "update_rows",
                           .inputs = {param, second, param, ids, given, scalar, is_whole},
                           .outputs = {param, second, param},
                           .attributes = {{"optimizer", "ftrl"}, {"settings", ftrl}, {"states", int64_t{2}}}});
          tests.back().attributes.set("may_be_whole", true);
          tests.back().attributes.set("keeps_states", whole == 0);
        }
        for (TestCase& test : tests) {
          test.rtol = 1e-4;
          test.atol = 1e-4;
          for (const int threads : {1, 3}) {
            test.num_threads = threads;
            test.kernel = fmt::format("cpu.{}.rows", test.attributes.get_string("optimizer"));
            EXPECT_TRUE(compare_with_reference(test));
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::cpu
