#include <gtest/gtest.h>

#include "tessera/kernels/cpu/elementwise/fused_elementwise.h"
#include "tessera/testing/kernels/kernel_testing.h"

namespace tessera::kernels::cpu {
namespace {

const std::vector<Shape> kShapes = {{}, {1}, {7}, {3, 5}, {1030}, {0, 3}, {2, 3, 4, 5}, {2, 64, 7, 7}, {5, 2100}};
const std::vector<TestStrides> kLayouts = {TestStrides::kDense, TestStrides::kChannelsLast, TestStrides::kPadded,
                                           TestStrides::kReversed};

struct OpCase {
  const char* op;
  int arity;
  double low = -3;
  double atol = 1e-37;
  Attributes attributes = {};
};

const std::vector<OpCase> kFloatingOps = {
    {"neg", 1},
    {"abs", 1},
    {"sign", 1},
    {"floor", 1},
    {"sqrt", 1},
    {"rsqrt", 1},
    {"reciprocal", 1},
    {"exp", 1},
    {"log", 1},
    {"expm1", 1},
    {"log1p", 1},
    {"sinh", 1},
    {"cosh", 1},
    {"asinh", 1},
    {"atanh", 1},
    {"sin", 1, -3, 2e-7},
    {"cos", 1, -3, 2e-7},
    {"relu", 1},
    {"sigmoid", 1},
    {"tanh", 1},
    {"square", 1},
    {"add", 2},
    {"sub", 2},
    {"mul", 2},
    {"div", 2},
    {"maximum", 2},
    {"minimum", 2},
    {"pow", 2, 0},
    {"relu_grad", 2},
    {"sigmoid_grad", 2, -3, 1e-6},
    {"tanh_grad", 2, -3, 1e-6},
    {"gelu", 1, -3, 1e-6, {{"approximate", true}}},
    {"gelu", 1, -3, 1e-6, {{"approximate", false}}},
    {"gelu_grad", 2, -3, 2e-6, {{"approximate", true}}},
    {"gelu_grad", 2, -3, 2e-6, {{"approximate", false}}},
};

TestCase unary_or_binary(const OpCase& op, DType dtype, DType out, const Shape& shape, TestStrides layout) {
  TestCase test{.op = op.op, .attributes = op.attributes, .atol = op.atol};
  for (int i = 0; i < op.arity; ++i) {
    test.inputs.push_back({{dtype, shape}, layout, op.low, 3});
    // The shares of a gradient that are huge or infinite cancel differently from formula to formula.
    test.inputs.back().special = std::string_view(op.op).find("_grad") == std::string_view::npos;
  }
  test.outputs = {{{out, shape}, layout}};
  return test;
}

TEST(Elementwise, FloatingOperatorsAgreeWithReferenceOnShapesAndLayouts) {
  for (const OpCase& op : kFloatingOps) {
    for (const Shape& shape : kShapes) {
      for (const TestStrides layout : kLayouts) {
        EXPECT_TRUE(compare_with_reference(unary_or_binary(op, DType::kF32, DType::kF32, shape, layout)));
      }
    }
  }
}

TEST(Elementwise, HalfTypesRoundOnceFromF32) {
  for (const OpCase& op : kFloatingOps) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      for (const TestStrides layout : kLayouts) {
        EXPECT_TRUE(compare_with_reference(unary_or_binary(op, dtype, dtype, {2, 17, 5, 7}, layout)));
      }
    }
  }
}

TEST(Elementwise, ComparisonsAndLogicGiveTheReferencesBools) {
  for (const char* op : {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "is_finite"}) {
    const int arity = std::string_view(op) == "is_finite" ? 1 : 2;
    for (const TestStrides layout : kLayouts) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        EXPECT_TRUE(compare_with_reference(unary_or_binary({op, arity}, dtype, DType::kBool, {3, 5, 7, 11}, layout)));
      }
    }
  }
  for (const char* op : {"logical_and", "logical_or", "logical_xor", "logical_not"}) {
    const int arity = std::string_view(op) == "logical_not" ? 1 : 2;
    for (const TestStrides layout : kLayouts) {
      TestCase test = unary_or_binary({op, arity}, DType::kBool, DType::kBool, {3, 5, 7, 11}, layout);
      for (TestOperand& input : test.inputs) input = {input.type, layout, 0, 2};
      EXPECT_TRUE(compare_with_reference(test));
    }
  }
}

TEST(Elementwise, OperandsBroadcastAsNumPyDoes) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{2, 33, 5, 7}, {}},
      {{2, 33, 5, 7}, {1}},
      {{2, 33, 5, 7}, {33, 1, 1}},
      {{2, 33, 5, 7}, {2, 1, 5, 1}},
      {{2, 33, 5, 7}, {7}},
      {{2, 33, 5, 7}, {1, 1, 5, 7}},
      {{600, 3}, {3}},
      {{600, 3}, {600, 1}},
      {{2, 3000}, {2, 1}},
      {{2, 3000}, {3000}},
      {{1, 3000}, {2, 1}},
      {{5, 1}, {1, 2000}},
      {{4, 1, 6}, {1, 5, 1}},
      {{40, 1, 600}, {1, 5, 1}},
  };
  for (const auto& [a, b] : shapes) {
    for (const TestStrides layout : kLayouts) {
      for (const bool swapped : {false, true}) {
        TestCase test{.op = "sub", .num_threads = 3};
        test.inputs = {{{DType::kF32, a}, layout}, {{DType::kF32, b}}};
        if (swapped) std::swap(test.inputs[0], test.inputs[1]);
        test.outputs = {{{DType::kF32, broadcast_shapes(a, b)}, layout}};
        EXPECT_TRUE(compare_with_reference(test));
      }
    }
  }
}

TEST(Elementwise, SelectTakesABroadcastCondition) {
  for (const Shape& condition : {Shape{2, 3, 40, 50}, Shape{3, 1, 1}, Shape{}}) {
    for (const TestStrides layout : kLayouts) {
      const Shape shape{2, 3, 40, 50};
      TestCase test{.op = "select"};
      test.inputs = {{{DType::kBool, condition}, TestStrides::kDense, 0, 2},
                     {{DType::kF32, shape}, layout, -2, 2, true},
                     {{DType::kF32, shape}, layout, -2, 2, true}};
      test.outputs = {{{DType::kF32, shape}, layout}};
      EXPECT_TRUE(compare_with_reference(test));
    }
  }
}

TEST(Elementwise, CastRoundsSaturatesAndChangesLayoutLikeTheReference) {
  for (const DType from : {DType::kF32, DType::kBF16, DType::kF16, DType::kU8, DType::kBool}) {
    for (const DType to : {DType::kF32, DType::kBF16, DType::kF16, DType::kU8, DType::kBool}) {
      for (const TestStrides layout : kLayouts) {
        TestCase test{.op = "cast", .attributes = {{"dtype", to}}, .num_threads = 3};
        const bool small = from == DType::kBool;
        test.inputs = {{{from, {3, 19, 31, 7}}, layout, small ? 0.0 : -300.0, small ? 2.0 : 300.0, is_floating(from)}};
        test.outputs = {{{to, {3, 19, 31, 7}}, TestStrides::kChannelsLast}};
        EXPECT_TRUE(compare_with_reference(test));
      }
    }
  }
}

TEST(Elementwise, DeclinesWhatFloatsCannotHold) {
  TestCase test{.op = "add"};
  for (const DType dtype : {DType::kI32, DType::kI64, DType::kF64}) {
    test.inputs = {{{dtype, {4}}}, {{dtype, {4}}}};
    test.outputs = {{{dtype, {4}}}};
    EXPECT_EQ(fast_kernel_name(test), "declined");
  }
}

TestCase fused(const char* program, std::vector<TestOperand> inputs, std::vector<TestOperand> outputs) {
  const auto num_outputs = static_cast<int64_t>(outputs.size());
  return {.op = "fused_elementwise",
          .inputs = std::move(inputs),
          .outputs = std::move(outputs),
          .attributes = {{"program", std::string(program)}, {"num_outputs", num_outputs}},
          .num_threads = 3,
          .atol = 1e-6};
}

TEST(FusedElementwise, EveryOperatorAgreesWithTheReference) {
  for (const ElementOpInfo& info : kElementOps) {
    std::string program = "t0=" + std::string(info.name);
    for (int i = 0; i < info.arity; ++i) program += " a" + std::to_string(i);
    program += "; return t0";
    const bool special = info.name.find("_grad") == std::string_view::npos;
    for (const Shape& shape : kShapes) {
      const TestOperand operand{
          {DType::kF32, shape}, TestStrides::kChannelsLast, info.op == ElementOp::kPow ? 0.0 : -3.0, 3, special};
      EXPECT_TRUE(compare_with_reference(
          fused(program.c_str(), std::vector<TestOperand>(static_cast<size_t>(info.arity), operand), {operand})))
          << program;
    }
  }
}

TEST(FusedElementwise, BatchNormalisationWithResidualAndRelu) {
  for (const Shape& shape : {Shape{2, 64, 7, 7}, Shape{3, 3, 50, 41}, Shape{1, 700, 3, 3}, Shape{0, 8, 4, 4}}) {
    for (const TestStrides layout : kLayouts) {
      const TestOperand image{{DType::kF32, shape}, layout};
      const TestOperand channel{{DType::kF32, {shape[1], 1, 1}}};
      EXPECT_TRUE(
          compare_with_reference(fused("t0=sub a0 a1; t1=mul t0 a2; t2=add t1 a3; t3=add t2 a4; t4=relu t3; return t4",
                                       {image, channel, channel, channel, image}, {image})));
    }
  }
}

TEST(FusedElementwise, MixedDtypesAndSeveralResults) {
  for (const TestStrides layout : kLayouts) {
    const Shape shape{3, 5, 17, 31};
    EXPECT_TRUE(compare_with_reference(
        fused("x=mul a0 0.5; y=add x a1; m=greater y 0.25; z=select m y a2; return z m y x",
              {{{DType::kBF16, shape}, layout}, {{DType::kF32, {}}}, {{DType::kF16, shape}, layout}},
              {{{DType::kF32, shape}, layout},
               {{DType::kBool, shape}, layout},
               {{DType::kBF16, shape}, layout},
               {{DType::kF16, shape}}})));
  }
}

TEST(FusedElementwise, ResultsMayBeInputsConstantsOrTheSameValue) {
  const TestOperand operand{{DType::kF32, {3000}}};
  EXPECT_TRUE(
      compare_with_reference(fused("t=neg a0; return a0 t t 2.5", {operand}, {operand, operand, operand, operand})));
}

TEST(FusedElementwise, LongProgramsReuseTheirTiles) {
  std::string program = "t0=add a0 a1";
  for (int i = 1; i < 90; ++i) {
    program += fmt::format("; t{}={} t{} a{}", i, i % 3 == 0 ? "sub" : i % 3 == 1 ? "mul" : "maximum", i - 1, i % 2);
  }
  const TestOperand operand{{DType::kF32, {5, 2000}}, TestStrides::kPadded, -1, 1};
  EXPECT_TRUE(compare_with_reference(fused((program + "; return t89").c_str(), {operand, operand}, {operand})));
}

TEST(FusedElementwise, RefusesProgramsThatDoNotParse) {
  const auto message = [](const char* program, int inputs = 2, int outputs = 1) {
    try {
      parse_tile_program(program, inputs, outputs);
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("parsed");
  };
  EXPECT_EQ(message("t0=add a0 a1; return t0"), "parsed");
  EXPECT_EQ(message("t0=add a0 a1"), "fused_elementwise: program \"t0=add a0 a1\" must end with return");
  EXPECT_EQ(message("t0=add a0 t1; return t0"),
            "fused_elementwise: \"t0=add a0 t1\": operand \"t1\" is not defined before its use");
  EXPECT_EQ(message("t0=plus a0 a1; return t0"), "fused_elementwise: \"t0=plus a0 a1\": no operator \"plus\"");
  EXPECT_EQ(message("t0=add a0; return t0"), "fused_elementwise: \"t0=add a0\": add takes 2 operands, got 1");
  EXPECT_EQ(message("a0=neg a1; return a0"), "fused_elementwise: \"a0=neg a1\": \"a0\" is defined already");
  EXPECT_EQ(message("t0=neg a0; return t0", 1, 2),
            "fused_elementwise: program returns 1 values, the node has 2 outputs");
  EXPECT_EQ(message("neg a0; return a0"),
            "fused_elementwise: \"neg a0\" must be name=op operand... or return operand...");
}

}  // namespace
}  // namespace tessera::kernels::cpu
