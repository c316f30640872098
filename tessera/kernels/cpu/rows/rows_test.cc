// Reductions, softmax, layer normalisation, copies, indexing, dropout.
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/testing/kernels/kernel_testing.h"

namespace tessera::kernels::cpu {
namespace {

const std::vector<TestStrides> kLayouts = {TestStrides::kDense, TestStrides::kChannelsLast, TestStrides::kPadded,
                                           TestStrides::kReversed};

void expect_equal_to_reference(TestCase test, const std::string& name) {
  test.kernel = name;
  EXPECT_TRUE(compare_with_reference(test));
}

Shape reduced_shape(const Shape& shape, const Ints& axes, bool keep_dims) {
  Shape result;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    const bool is_reduced = std::find(axes.begin(), axes.end(), dim) != axes.end();
    if (!is_reduced) result.push_back(shape[dim]);
    if (is_reduced && keep_dims) result.push_back(1);
  }
  return result;
}

TEST(Reduce, AgreesWithReferenceOnAxesLayoutsAndThreads) {
  const std::vector<std::pair<Shape, std::vector<Ints>>> cases = {
      {{1}, {{0}}},
      {{70001}, {{0}}},
      {{37, 53}, {{0}, {1}, {0, 1}, {}}},
      {{3, 30000}, {{0}, {1}}},
      {{2000, 33}, {{0}, {1}}},
      {{4, 17, 9, 11}, {{0}, {1}, {2, 3}, {0, 2, 3}, {0, 1, 2, 3}, {1, 3}, {0, 2}}},
      {{2, 64, 56, 56}, {{0, 2, 3}, {2, 3}, {0}, {1}}},
  };
  int num_threads = 0;
  for (const auto& [shape, axes_lists] : cases) {
    for (const Ints& axes : axes_lists) {
      for (const TestStrides layout : kLayouts) {
        for (const char* op : {"reduce_sum", "reduce_mean", "reduce_max", "reduce_min"}) {
          const bool keep_dims = num_threads % 2 == 0;
          const bool sums = std::string_view(op) == "reduce_sum";
          num_threads = num_threads % 3 + 1;
          expect_equal_to_reference({.op = op,
                                     .inputs = {{{DType::kF32, shape}, layout}},
                                     .outputs = {{{DType::kF32, reduced_shape(shape, axes, keep_dims)}}},
                                     .attributes = {{"axes", axes}, {"keep_dims", keep_dims}},
                                     .num_threads = num_threads,
                                     .atol = sums ? 1e-3 : 1e-6},
                                    std::string("cpu.") + op);
        }
      }
    }
  }
}

TEST(Reduce, HalfTypesAccumulateInWiderFloats) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const TestStrides layout : kLayouts) {
      for (const Ints& axes : {Ints{0}, Ints{0, 2, 3}, Ints{2, 3}, Ints{0, 1, 2, 3}}) {
        for (const char* op : {"reduce_sum", "reduce_mean", "reduce_max"}) {
          const Shape shape{6, 33, 20, 21};
          expect_equal_to_reference({.op = op,
                                     .inputs = {{{dtype, shape}, layout}},
                                     .outputs = {{{dtype, reduced_shape(shape, axes, false)}}},
                                     .attributes = {{"axes", axes}, {"keep_dims", false}},
                                     .atol = 1e-3},
                                    std::string("cpu.") + op);
        }
      }
    }
  }
}

TEST(Reduce, ExtremesKeepNanAndInfinities) {
  for (const char* op : {"reduce_max", "reduce_min"}) {
    for (const Ints& axes : {Ints{0}, Ints{1}}) {
      for (const Shape& shape : {Shape{5, 40}, Shape{40, 5}, Shape{2, 1}}) {
        expect_equal_to_reference({.op = op,
                                   .inputs = {{{DType::kF32, shape}, TestStrides::kDense, -1, 1, true}},
                                   .outputs = {{{DType::kF32, reduced_shape(shape, axes, false)}}},
                                   .attributes = {{"axes", axes}, {"keep_dims", false}}},
                                  std::string("cpu.") + op);
      }
    }
  }
}

TEST(Reduce, SumsOfMillionsKeepSixDigits) {
  expect_equal_to_reference({.op = "reduce_sum",
                             .inputs = {{{DType::kF32, {3000000}}, TestStrides::kDense, 0, 1}},
                             .outputs = {{{DType::kF32, {}}}},
                             .attributes = {{"axes", Ints{0}}, {"keep_dims", false}},
                             .rtol = 3e-7},
                            "cpu.reduce_sum");
}

TEST(Softmax, RowsAgreeWithReference) {
  for (const Shape& shape : {Shape{7}, Shape{5, 10}, Shape{3, 4, 1000}, Shape{2, 3, 5, 1}, Shape{65, 33}}) {
    for (const TestStrides layout : {TestStrides::kDense, TestStrides::kPadded}) {
      const TestOperand x{{DType::kF32, shape}, layout, -20, 20};
      const TestOperand y{{DType::kF32, shape}, layout, 0, 1};
      const TestOperand log_y{{DType::kF32, shape}, layout, -5, 0};
      for (const bool special : {false, true}) {
        TestOperand from = x;
        from.special = special;
        for (const char* op : {"softmax", "log_softmax"}) {
          expect_equal_to_reference({.op = op,
                                     .inputs = {from},
                                     .outputs = {y},
                                     .attributes = {{"axis", int64_t{-1}}},
                                     .num_threads = 3,
                                     .rtol = 1e-5,
                                     .atol = 1e-6},
                                    std::string("cpu.") + op);
        }
      }
      expect_equal_to_reference({.op = "softmax_grad",
                                 .inputs = {x, y},
                                 .outputs = {x},
                                 .attributes = {{"axis", int64_t{shape.ndim() - 1}}},
                                 .rtol = 1e-5,
                                 .atol = 1e-3},
                                "cpu.softmax_grad");
      expect_equal_to_reference({.op = "log_softmax_grad",
                                 .inputs = {x, log_y},
                                 .outputs = {x},
                                 .attributes = {{"axis", int64_t{-1}}},
                                 .rtol = 1e-5,
                                 .atol = 1e-3},
                                "cpu.log_softmax_grad");
    }
  }
}

TEST(SoftmaxCrossEntropy, LossAndGradientWithLabelsOutOfRange) {
  for (const DType label_type : {DType::kI32, DType::kI64}) {
    for (const Shape& shape : {Shape{32, 10}, Shape{7, 1000}, Shape{3, 1}}) {
      const TestOperand logits{{DType::kF32, shape}, TestStrides::kPadded, -10, 10};
      const TestOperand probabilities{{DType::kF32, shape}, TestStrides::kPadded, 0, 1};
      const TestOperand labels{{label_type, {shape[0]}}, TestStrides::kDense, -1, static_cast<double>(shape[1]) + 1};
      const TestOperand losses{{DType::kF32, {shape[0]}}};
      expect_equal_to_reference({.op = "softmax_cross_entropy",
                                 .inputs = {logits, labels},
                                 .outputs = {losses, probabilities},
                                 .rtol = 1e-5,
                                 .atol = 1e-6},
                                "cpu.softmax_cross_entropy");
      expect_equal_to_reference({.op = "softmax_cross_entropy_grad",
                                 .inputs = {probabilities, labels, losses},
                                 .outputs = {logits},
                                 .atol = 1e-6},
                                "cpu.softmax_cross_entropy_grad");
    }
  }
}

TEST(LayerNorm, ForwardAndGradientAgreeWithReference) {
  for (const auto& [shape, begin_axis] : std::vector<std::pair<Shape, int64_t>>{
           {{5, 33}, 1}, {{4, 3, 768}, 2}, {{3, 5, 7}, 1}, {{300, 16}, 1}, {{2, 3}, 0}}) {
    Shape leading, trailing;
    for (int dim = 0; dim < shape.ndim(); ++dim) (dim < begin_axis ? leading : trailing).push_back(shape[dim]);
    const TestOperand x{{DType::kF32, shape}, TestStrides::kDense, 1, 3};
    const TestOperand weight{{DType::kF32, trailing}};
    const TestOperand statistic{{DType::kF32, leading}, TestStrides::kDense, 1, 3};
    for (const int num_threads : {1, 3}) {
      expect_equal_to_reference({.op = "layer_norm",
                                 .inputs = {x, weight, weight},
                                 .outputs = {x, statistic, statistic},
                                 .attributes = {{"begin_axis", begin_axis}, {"eps", 1e-5}},
                                 .num_threads = num_threads,
                                 .rtol = 1e-5,
                                 .atol = 1e-5},
                                "cpu.layer_norm");
      expect_equal_to_reference({.op = "layer_norm_grad",
                                 .inputs = {x, x, weight, statistic, statistic},
                                 .outputs = {x, weight, weight},
                                 .attributes = {{"begin_axis", begin_axis}},
                                 .num_threads = num_threads,
                                 .rtol = 1e-5,
                                 .atol = 1e-3},
                                "cpu.layer_norm_grad");
    }
  }
}

TEST(Copies, TransposesAndReshapesOfEveryWidthAreExact) {
  for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kF64, DType::kI32, DType::kI64}) {
    for (const TestStrides from : kLayouts) {
      for (const TestStrides to : kLayouts) {
        const Shape shape{3, 37, 9, 70};
        const TestOperand x{{dtype, shape}, from, 0, 200};
        expect_equal_to_reference({.op = "transpose",
                                   .inputs = {x},
                                   .outputs = {{{dtype, {9, 3, 70, 37}}, to}},
                                   .attributes = {{"perm", Ints{2, 0, 3, 1}}},
                                   .num_threads = 3},
                                  "cpu.transpose");
        if (from != TestStrides::kDense && to != TestStrides::kDense) continue;
        expect_equal_to_reference({.op = "reshape",
                                   .inputs = {x},
                                   .outputs = {{{dtype, {3 * 37, 9 * 70}}, to}},
                                   .attributes = {{"shape", Ints{3 * 37, 9 * 70}}}},
                                  "cpu.reshape");
      }
    }
  }
}

TEST(Copies, ConcatSplitSliceAndBroadcastAreExact) {
  for (const TestStrides layout : kLayouts) {
    const auto operand = [&](const Shape& shape) { return TestOperand{{DType::kF32, shape}, layout}; };
    const Attributes axis = {{"axis", int64_t{1}}, {"sizes", Ints{5, 0, 12}}};
    expect_equal_to_reference({.op = "concat",
                               .inputs = {operand({2, 5, 7, 9}), operand({2, 0, 7, 9}), operand({2, 12, 7, 9})},
                               .outputs = {operand({2, 17, 7, 9})},
                               .attributes = axis},
                              "cpu.concat");
    expect_equal_to_reference({.op = "split",
                               .inputs = {operand({2, 17, 7, 9})},
                               .outputs = {operand({2, 5, 7, 9}), operand({2, 0, 7, 9}), operand({2, 12, 7, 9})},
                               .attributes = axis},
                              "cpu.split");
    expect_equal_to_reference(
        {.op = "strided_slice",
         .inputs = {operand({9, 8, 7, 6})},
         .outputs = {operand({3, 8, 4, 2})},
         .attributes = {{"begin", Ints{1, 7, 0, 2}}, {"end", Ints{9, -1, 7, 4}}, {"strides", Ints{3, -1, 2, 1}}}},
        "cpu.strided_slice");
    expect_equal_to_reference({.op = "broadcast_to",
                               .inputs = {operand({5, 1, 7})},
                               .outputs = {operand({2, 5, 40, 7})},
                               .attributes = {{"shape", Ints{2, 5, 40, 7}}}},
                              "cpu.broadcast_to");
    expect_equal_to_reference(
        {.op = "bias_add", .inputs = {operand({4, 40, 6, 5}), operand({40})}, .outputs = {operand({4, 40, 6, 5})}},
        "cpu.bias_add");
  }
  expect_equal_to_reference({.op = "bias_add",
                             .inputs = {{{DType::kF32, {64, 10}}}, {{DType::kF32, {10}}}},
                             .outputs = {{{DType::kF32, {64, 10}}}}},
                            "cpu.bias_add");
}

TEST(Indexing, GatherAndScatterAddTakeIndicesOutOfRange) {
  for (const DType index_type : {DType::kI32, DType::kI64}) {
    const TestOperand table{{DType::kF32, {50, 3, 33}}};
    const TestOperand indices{{index_type, {40, 5}}, TestStrides::kDense, -3, 53};
    const TestOperand rows{{DType::kF32, {40, 5, 3, 33}}};
    expect_equal_to_reference({.op = "gather",
                               .inputs = {table, indices},
                               .outputs = {rows},
                               .attributes = {{"axis", int64_t{0}}},
                               .num_threads = 3},
                              "cpu.gather");
    expect_equal_to_reference({.op = "scatter_add",
                               .inputs = {table, indices, rows},
                               .outputs = {table},
                               .attributes = {{"axis", int64_t{0}}},
                               .num_threads = 3},
                              "cpu.scatter_add");
  }
}

// By numbers that repeat or are none of rows, in parts of which some are empty, in the rows' own memory, too.
TEST(Indexing, RowsOfOneNumberAddUpAsInTheReference) {
  struct Rows {
    Shape ids;
    Shape row;
    Ints bounds;
  };
  const std::vector<Rows> cases = {{{60}, {33}, {0, 60}},         {{61}, {7, 5}, {0, 0, 20, 20, 61}},
                                   {{30, 3}, {16}, {0, 11, 30}},  {{5000}, {3}, {0, 2500, 5000}},
                                   {{40}, {}, {0, 1, 2, 40, 40}}, {{0}, {4}, {0, 0}}};
  for (const auto& [ids, row, bounds] : cases) {
    for (const auto& [dtype, index_type] : {std::pair{DType::kF32, DType::kI32}, {DType::kF64, DType::kI64}}) {
      for (const double last : {0.5, 9.5, 3000.5}) {
        Shape shape = ids;
        for (const int64_t size : row) shape.push_back(size);
        const TestOperand rows{{dtype, shape}};
        const TestOperand numbers{{index_type, ids}, TestStrides::kDense, -2, last};
        TestCase test{.op = "add_up_rows",
                      .inputs = {rows, numbers},
                      .outputs = {rows, numbers},
                      .attributes = {{"bounds", bounds}, {"num_rows", static_cast<int64_t>(last)}, {"clears", true}},
                      .num_threads = 3};
        if (shape.num_elements() > 0) {
          expect_equal_to_reference(test, "cpu.add_up_rows");
        } else {
          EXPECT_FALSE(compare_with_reference(test));
        }
      }
    }
  }
}

TEST(Indexing, NumbersAreListedAsInTheReference) {
  struct Numbers {
    Shape ids;
    Ints bounds;
  };
  const std::vector<Numbers> cases = {
      {{60}, {0, 60}}, {{30, 3}, {0, 11, 30}}, {{5000}, {0, 2500, 5000}}, {{40}, {0, 1, 2, 40, 40}}, {{0}, {0, 0}}};
  for (const auto& [ids, bounds] : cases) {
    for (const DType index_type : {DType::kI32, DType::kI64}) {
      for (const double last : {0.5, 9.5, 3000.5}) {
        const TestOperand numbers{{index_type, ids}, TestStrides::kDense, -2, last};
        const TestCase test{.op = "list_rows",
                            .inputs = {numbers},
                            .outputs = {numbers, {{DType::kI32, ids}}},
                            .attributes = {{"bounds", bounds}, {"num_rows", static_cast<int64_t>(last)}},
                            .num_threads = 3};
        if (ids.num_elements() > 0) {
          expect_equal_to_reference(test, "cpu.list_rows");
        } else {
          EXPECT_FALSE(compare_with_reference(test));
        }
      }
    }
  }
}

TEST(Fill, WritesTheRoundedValueIntoEveryElement) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kU8, DType::kI32, DType::kBool}) {
    for (const Shape& shape : {Shape{}, Shape{3, 7}, Shape{513, 300}}) {
      for (const TestStrides layout : {TestStrides::kDense, TestStrides::kChannelsLast}) {
        expect_equal_to_reference({.op = "fill",
                                   .inputs = {},
                                   .outputs = {{{dtype, shape}, layout}},
                                   .attributes = {{"value", 2.7}},
                                   .num_threads = 3},
                                  "cpu.fill");
        expect_equal_to_reference(
            {.op = "zeros_like", .inputs = {{{dtype, shape}, layout}}, .outputs = {{{dtype, shape}, layout}}},
            "cpu.zeros_like");
      }
    }
  }
}

TEST(Dropout, DrawsByGlobalIndexWhateverTheLayout) {
  const int64_t billions = int64_t{1} << 33;
  for (const auto& [dtype, layout] : {std::pair{DType::kF32, TestStrides::kDense},
                                      {DType::kF32, TestStrides::kChannelsLast},
                                      {DType::kF32, TestStrides::kPadded},
                                      {DType::kF32, TestStrides::kReversed},
                                      {DType::kBF16, TestStrides::kDense},
                                      {DType::kF16, TestStrides::kPadded}}) {
    for (const double keep_prob : {0.1, 0.5, 1.0, 0.0}) {
      const TestOperand x{{dtype, {3, 19, 5, 43}}, layout};
      TestCase test{.op = "dropout",
                    .inputs = {x, {{DType::kI64, {}}, TestStrides::kDense, 5, 5}},
                    .outputs = {x},
                    .attributes = {{"keep_prob", keep_prob},
                                   {"seed", int64_t{-12345}},
                                   {"stream", int64_t{77}},
                                   {"global_shape", Ints{}},
                                   {"offset", Ints{}}},
                    .num_threads = 3};
      expect_equal_to_reference(test, "cpu.dropout");
      test.attributes.set("global_shape", Ints{billions, 40, 10, 50});
      test.attributes.set("offset", Ints{billions - 7, 20, 4, 3});
      expect_equal_to_reference(test, "cpu.dropout");
      // The last rows' indices cross a multiple of 2^32.
      test.attributes.set("global_shape", Ints{100, 19, 5, 45199961});
      test.attributes.set("offset", Ints{0, 0, 0, 0});
      expect_equal_to_reference(test, "cpu.dropout");
    }
  }
}

}  // namespace
}  // namespace tessera::kernels::cpu
