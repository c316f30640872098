// Claims about matmul, convolution, pooling, normalisation, softmax and the optimizers: shapes, refusals, sharding
// rules, the graphs of their gradients and what localize writes. Their numbers are tested with the kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Call {
  std::string op;
  std::vector<Type> inputs;
  Attributes attributes = {};
};

std::vector<Value> call(ir::Graph& graph, const Call& c) {
  std::vector<Value> values;
  for (const Type& type : c.inputs) {
    values.push_back(graph.add_input(ir::InputKind::kInput, "in" + std::to_string(values.size()), type));
  }
  return apply(graph, c.op, values, c.attributes);
}

std::vector<Type> result_types(const Call& c) {
  ir::Graph graph;
  std::vector<Type> types;
  for (const Value& value : call(graph, c)) types.push_back(value.type());
  return types;
}

std::string rule_text(const Call& c) {
  const OpDef& def = OpRegistry::instance().get(c.op);
  return rule_of(def, complete_attributes(def, c.attributes), c.inputs, result_types(c)).to_string();
}

// The nodes that the gradient adds, as "op(inputs) op(inputs) -> cotangents".
std::string gradient_text(const Call& c) {
  ir::Graph graph;
  const auto outputs = call(graph, c);
  std::vector<Value> inputs;
  for (const auto& input : graph.inputs()) inputs.push_back(graph.value(input.value));
  std::vector<Value> cotangents;
  for (const Value& output : outputs) {
    cotangents.push_back(
        graph.add_input(ir::InputKind::kInput, "d" + std::to_string(cotangents.size()), output.type()));
  }
  const int first = graph.num_nodes();
  const Attributes attributes = graph.node(0).attributes;
  const auto result = OpRegistry::instance().get(c.op).gradient({graph, attributes, inputs, outputs, cotangents});
  std::string text;
  for (int id = first; id < graph.num_nodes(); ++id) {
    const auto& node = graph.node(id);
    std::vector<std::string> names;
    for (const auto input : node.inputs) names.push_back(graph.value_name(input));
    text += fmt::format("{} = {}({}) ", graph.value_name(node.outputs[0]), node.op, fmt::join(names, ", "));
  }
  std::vector<std::string> names;
  for (const Value& value : result) names.push_back(value ? graph.value_name(value.id()) : "none");
  return text + fmt::format("-> {}", fmt::join(names, ", "));
}

void expect_refused(const Call& c, const std::string& message) {
  EXPECT_THAT([&] { result_types(c); }, ThrowsMessage<InvalidArgument>(HasSubstr(message))) << c.op;
}

Type f32(Shape shape) { return {DType::kF32, shape}; }
Type bf16(Shape shape) { return {DType::kBF16, shape}; }

Attributes convolution(Ints strides, Ints padding, int64_t groups = 1) {
  return {{"strides", std::move(strides)}, {"padding", std::move(padding)}, {"groups", groups}};
}
Attributes flags(bool transpose_a, bool transpose_b) {
  return {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}};
}
Attributes batch_norm(Ints counts, bool grouped) { return {{"counts", std::move(counts)}, {"grouped", grouped}}; }

TEST(Matmul, RefusesWhatDoesNotFitWithBothOperands) {
  expect_refused({"matmul", {f32({8, 16}), f32({32, 4})}},
                 "matmul: contracted dims differ (16 and 32): lhs f32[8,16], rhs f32[32,4]");
  expect_refused({"matmul", {f32({8, 16}), {DType::kF64, {16, 4}}}}, "rhs must be f32, is f64; cast it");
  expect_refused({"matmul", {{DType::kI8, {2, 2}}, {DType::kI8, {2, 2}}}},
                 "operands must be f32, f64, bf16, f16, i32, i64 or u8, are i8; cast them");
  expect_refused({"matmul", {f32({2, 8, 16}), f32({2, 16, 4})}}, "lhs must have 2 dims, has 3");
  expect_refused({"batch_matmul", {f32({2, 8, 16}), f32({3, 16, 4})}}, "leading dims differ");
  expect_refused({"bias_add", {f32({2, 3, 4}), f32({4})}}, "bias must be of shape [3], is [4]");
}

TEST(Matmul, RulesFollowTheFlags) {
  EXPECT_EQ(rule_text({"matmul", {f32({2, 3}), f32({3, 4})}}), "m k, k n -> m n");
  EXPECT_EQ(rule_text({"matmul", {f32({3, 2}), f32({4, 3})}, flags(true, true)}), "k m, n k -> m n");
  EXPECT_EQ(rule_text({"batch_matmul", {f32({5, 6, 2, 3}), f32({5, 6, 4, 3})}, flags(false, true)}),
            "b0 b1 m k, b0 b1 n k -> b0 b1 m n");
  EXPECT_EQ(rule_text({"bias_add", {f32({2, 3, 4}), f32({3})}}), "n c d2, c -> n c d2");
}

TEST(Matmul, GradientsAreProductsWithTheCotangent) {
  EXPECT_EQ(gradient_text({"matmul", {f32({2, 3}), f32({3, 4})}}),
            "%2 = matmul(d0, in1) %3 = matmul(in0, d0) -> %2, %3");
  EXPECT_EQ(gradient_text({"matmul", {f32({3, 2}), f32({4, 3})}, flags(true, true)}),
            "%2 = matmul(in1, d0) %3 = matmul(d0, in0) -> %2, %3");
}

TEST(Matmul, CountsTwoOperationsPerProduct) {
  const OpDef& def = OpRegistry::instance().get("matmul");
  const std::vector<Type> inputs{f32({3, 2}), f32({3, 4})};
  const std::vector<Type> outputs{f32({2, 4})};
  const Cost cost = cost_of(def, flags(true, false), inputs, outputs);
  EXPECT_EQ(cost.flops, 2 * 2 * 4 * 3);
  EXPECT_EQ(cost.bytes, 4 * (6 + 12 + 8));
}

TEST(Conv2d, InfersTheSizesOfResNet) {
  EXPECT_THAT(result_types({"conv2d", {f32({4, 3, 224, 224}), f32({64, 3, 7, 7})}, convolution({2, 2}, {3, 3, 3, 3})}),
              ElementsAre(f32({4, 64, 112, 112})));
  // `same` padding of an even image at stride 2 is one-sided.
  EXPECT_THAT(result_types({"conv2d", {f32({4, 3, 8, 8}), f32({6, 3, 3, 3})}, convolution({2, 2}, {0, 1, 0, 1})}),
              ElementsAre(f32({4, 6, 4, 4})));
  EXPECT_THAT(result_types({"conv2d", {f32({0, 4, 5, 5}), f32({6, 2, 1, 1})}, convolution({1, 1}, {0, 0, 0, 0}, 2)}),
              ElementsAre(f32({0, 6, 5, 5})));
}

TEST(Conv2d, RefusesWhatDoesNotFit) {
  const auto plain = convolution({1, 1}, {0, 0, 0, 0});
  expect_refused({"conv2d", {f32({1, 3, 8, 8}), f32({4, 2, 3, 3})}, plain},
                 "conv2d: weight reads 2 input channels in 1 group(s), the image has 3: x f32[1,3,8,8], weight "
                 "f32[4,2,3,3]");
  expect_refused({"conv2d", {f32({1, 8, 8, 3}), f32({4, 3, 5, 5})}, plain},
                 "weight reads 3 input channels in 1 group(s), the image has 8; images are [n,c,h,w], these look like "
                 "[n,h,w,c]: x f32[1,8,8,3]");
  expect_refused({"conv2d", {f32({1, 3, 2, 8}), f32({4, 3, 3, 3})}, plain},
                 "a kernel that reaches over 3 pixels does not fit an image of 2 with its padding");
  expect_refused({"conv2d", {f32({1, 4, 8, 8}), f32({3, 2, 3, 3})}, convolution({1, 1}, {0, 0, 0, 0}, 2)},
                 "3 output channels do not divide into 2 groups");
  expect_refused({"conv2d", {f32({1, 3, 8, 8}), f32({4, 3, 3, 3})}, convolution({0, 1}, {0, 0, 0, 0})},
                 "attribute strides must be at least 1, is 0");
  expect_refused({"conv2d", {f32({1, 3, 8, 8}), f32({4, 3, 3, 3})}, convolution({1, 1}, {0, 0})},
                 "attribute padding must be 4 numbers, has 2");
  expect_refused({"conv2d", {{DType::kI32, {1, 3, 8, 8}}, {DType::kI32, {4, 3, 3, 3}}}, plain},
                 "x must be floating, is i32");
  expect_refused({"conv2d_grad_input", {f32({1, 4, 6, 6}), f32({4, 3, 3, 3})}, {{"input_size", Ints{9, 8}}}},
                 "the convolution's result must be [1,4,7,6], is [1,4,6,6]");
}

TEST(Conv2d, RulesSplitPixelsAndChannelsOrGroups) {
  const std::vector<Type> images{f32({2, 4, 5, 5}), f32({6, 4, 3, 3})};
  EXPECT_EQ(rule_text({"conv2d", images}), "n ci h w, co ci _ _ -> n co h w");
  EXPECT_EQ(rule_text({"conv2d_grad_input", {f32({2, 6, 3, 3}), images[1]}, {{"input_size", Ints{5, 5}}}}),
            "n co h w, co ci _ _ -> n ci h w");
  EXPECT_EQ(rule_text({"conv2d_grad_weight", {f32({2, 6, 3, 3}), images[0]}, {{"kernel_size", Ints{3, 3}}}}),
            "n co h w, n ci h w -> co ci _ _");
  EXPECT_EQ(rule_text({"conv2d", {images[0], f32({6, 2, 3, 3})}, {{"groups", int64_t{2}}}}),
            "n g h w, g _ _ _ -> n g h w");
  EXPECT_EQ(rule_text({"conv2d_grad_weight",
                       {f32({2, 6, 3, 3}), images[0]},
                       {{"kernel_size", Ints{3, 3}}, {"groups", int64_t{2}}}}),
            "n g h w, n g h w -> g _ _ _");
}

TEST(Conv2d, TheThreeOperatorsAreClosedUnderDifferentiation) {
  const auto x = f32({2, 4, 5, 5});
  const auto weight = f32({6, 4, 3, 3});
  const auto y = f32({2, 6, 3, 3});
  EXPECT_EQ(gradient_text({"conv2d", {x, weight}}),
            "%2 = conv2d_grad_input(d0, in1) %3 = conv2d_grad_weight(d0, in0) -> %2, %3");
  EXPECT_EQ(gradient_text({"conv2d_grad_input", {y, weight}, {{"input_size", Ints{5, 5}}}}),
            "%2 = conv2d(d0, in1) %3 = conv2d_grad_weight(in0, d0) -> %2, %3");
  EXPECT_EQ(gradient_text({"conv2d_grad_weight", {y, x}, {{"kernel_size", Ints{3, 3}}}}),
            "%2 = conv2d(in1, d0) %3 = conv2d_grad_input(in0, d0) -> %2, %3");
}

TEST(Pooling, InfersSizesAndTheIndexType) {
  const Attributes window{{"kernel", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"padding", Ints{1, 1, 1, 1}}};
  EXPECT_THAT(result_types({"max_pool2d", {f32({2, 64, 112, 112})}, window}),
              ElementsAre(f32({2, 64, 56, 56}), Type{DType::kU8, {2, 64, 56, 56}}));
  EXPECT_THAT(result_types({"max_pool2d", {f32({1, 1, 16, 16})}, {{"kernel", Ints{16, 16}}}}),
              ElementsAre(f32({1, 1, 1, 1}), Type{DType::kI32, {1, 1, 1, 1}}));
  EXPECT_EQ(rule_text({"max_pool2d", {f32({2, 4, 8, 8})}, window}), "n c h w -> n c h w, n c h w");
  EXPECT_EQ(rule_text({"avg_pool2d", {f32({2, 4, 8, 8})}, window}), "n c h w -> n c h w");
}

TEST(Pooling, RefusesWindowsWithoutPixels) {
  expect_refused({"max_pool2d", {f32({1, 1, 8, 8})}, {{"kernel", Ints{2, 2}}, {"padding", Ints{0, 2, 0, 0}}}},
                 "padding 2 must be less than the kernel's size 2");
  expect_refused({"avg_pool2d", {f32({1, 1, 0, 8})}, {{"kernel", Ints{2, 2}}, {"padding", Ints{1, 1, 0, 0}}}},
                 "an image without pixels cannot be pooled");
  expect_refused({"avg_pool2d", {f32({1, 1, 2, 8})}, {{"kernel", Ints{3, 2}}}},
                 "a window of 3 does not fit an image of 2 with its padding");
  expect_refused({"max_pool2d_grad",
                  {f32({1, 1, 2, 2}), {DType::kI32, {1, 1, 2, 2}}},
                  {{"kernel", Ints{2, 2}}, {"strides", Ints{2, 2}}, {"input_size", Ints{4, 4}}}},
                 "index must be u8, is i32");
}

TEST(Pooling, EachGradientHasATranspose) {
  const Attributes window{{"kernel", Ints{2, 2}}, {"strides", Ints{2, 2}}};
  Attributes backward = window;
  backward.set("input_size", Ints{4, 4});
  const Type index{DType::kU8, {1, 1, 2, 2}};
  EXPECT_EQ(gradient_text({"avg_pool2d_grad", {f32({1, 1, 2, 2})}, backward}), "%2 = avg_pool2d(d0) -> %2");
  EXPECT_EQ(gradient_text({"max_pool2d_grad", {f32({1, 1, 2, 2}), index}, backward}),
            "%2 = max_pool2d_take(d0, in1) -> %2, none");
  EXPECT_EQ(gradient_text({"max_pool2d_take", {f32({1, 1, 4, 4}), index}, window}),
            "%2 = max_pool2d_grad(d0, in1) -> %2, none");
}

TEST(BatchNorm, StatisticsAreF32ForHalfImages) {
  EXPECT_THAT(result_types({"batch_norm_mean", {bf16({4, 3, 2, 2})}, batch_norm({16}, false)}), ElementsAre(f32({3})));
  EXPECT_THAT(result_types({"batch_norm_mean", {f32({5, 3, 2, 2})}, batch_norm({12, 8}, true)}),
              ElementsAre(f32({2, 3})));
}

TEST(BatchNorm, RefusesCountsThatDoNotFit) {
  expect_refused({"batch_norm_mean", {f32({4, 3, 2, 2})}, batch_norm({15}, false)},
                 "counts is 15, x alone has 16 elements per channel");
  expect_refused({"batch_norm_mean", {f32({4, 3, 2, 2})}, batch_norm({8, 8}, false)},
                 "counts must be one number unless grouped, has 2");
  expect_refused({"batch_norm_mean", {f32({4, 3, 2, 2})}, batch_norm({10, 6}, true)},
                 "a group of 10 elements is no whole number of rows of 4");
  expect_refused({"batch_norm_mean", {f32({4, 3, 2, 2})}, batch_norm({8, 4}, true)}, "the groups have 3 rows, x has 4");
  expect_refused({"batch_norm_variance", {bf16({4, 3}), bf16({3})}, batch_norm({4}, false)},
                 "mean must be f32, is bf16");
}

TEST(BatchNorm, RulesSumOverThePixelsButKeepGroups) {
  const Type x = f32({4, 3, 2, 2});
  EXPECT_EQ(rule_text({"batch_norm_mean", {x}, batch_norm({16}, false)}), "n c d2 d3 -> c");
  EXPECT_EQ(rule_text({"batch_norm_variance", {x, f32({3})}, batch_norm({16}, false)}), "n c d2 d3, c -> c");
  EXPECT_EQ(rule_text({"batch_norm_mean", {x}, batch_norm({8, 8}, true)}), "n c d2 d3 -> n c");
  EXPECT_EQ(rule_text({"batch_norm", {x, f32({3}), f32({3}), f32({3}), f32({3})}, batch_norm({16}, false)}),
            "n c d2 d3, c, c, c, c -> n c d2 d3");
  EXPECT_EQ(rule_text({"batch_norm_grad_reduce", {x, x, f32({2, 3}), f32({2, 3})}, batch_norm({8, 8}, true)}),
            "n c d2 d3, n c d2 d3, n c, n c -> n c, n c");
  EXPECT_EQ(
      rule_text(
          {"batch_norm_grad_input", {x, x, f32({3}), f32({3}), f32({3}), f32({3}), f32({3})}, batch_norm({16}, false)}),
      "n c d2 d3, n c d2 d3, c, c, c, c, c -> n c d2 d3");
}

TEST(BatchNorm, GradientCompletesTheSumsOnce) {
  Attributes training = batch_norm({16}, false);
  training.set("batch_stats", true);
  const Type c = f32({3});
  EXPECT_EQ(gradient_text({"batch_norm", {f32({4, 3, 2, 2}), c, c, c, c}, training}),
            "%2 = batch_norm_grad_reduce(d0, in0, in1, in2) "
            "%4 = batch_norm_grad_input(d0, in0, in1, in2, in3, %2, %3) -> %4, none, none, %3, %2");
  Attributes grouped = batch_norm({8, 8}, true);
  grouped.set("batch_stats", true);
  const Type g = f32({2, 3});
  EXPECT_EQ(gradient_text({"batch_norm", {f32({4, 3, 2, 2}), g, g, c, c}, grouped}),
            "%2 = batch_norm_grad_reduce(d0, in0, in1, in2) %4 = reduce_sum(%3) %5 = reduce_sum(%2) "
            "%6 = batch_norm_grad_input(d0, in0, in1, in2, in3, %2, %3) -> %6, none, none, %4, %5");
}

TEST(BatchNorm, SecondDerivativesAreRefusedByName) {
  const Type x = f32({4, 3});
  EXPECT_THAT(
      [&] {
        gradient_text({"batch_norm_grad_reduce", {x, x, f32({3}), f32({3})}, batch_norm({4}, false)});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("second derivatives of batch_norm")));
}

// What rank 1 of two writes, which has these rows of a batch of five and these groups.
std::vector<Value> localize_mean(ir::Graph& graph, const Ints& counts, mesh::Range rows, mesh::Range groups) {
  const mesh::Mesh mesh({{"data", 2}});
  const auto group_over = [](const std::vector<int>&) {
    return Attributes{{"ranks", Ints{0, 1}}, {"group", "data"}, {"rank_in_group", int64_t{1}}};
  };
  const Placement placement{.mesh = mesh, .rank = 1, .factor_axes = {{"n", {0}}}, .group_over = group_over};
  const std::string op = "batch_norm_mean";
  const Attributes attributes = batch_norm(counts, true);
  const Value x = graph.add_input(ir::InputKind::kInput, "x", f32({rows.size, 3, 2, 2}));
  return OpRegistry::instance().get(op).localize({.graph = graph,
                                                  .op = op,
                                                  .attributes = attributes,
                                                  .inputs = {x},
                                                  .global_inputs = {f32({5, 3, 2, 2})},
                                                  .global_outputs = {f32({static_cast<int64_t>(counts.size()), 3})},
                                                  .local_outputs = {f32({groups.size, 3})},
                                                  .input_slices = {{rows, {0, 3}, {0, 2}, {0, 2}}},
                                                  .output_slices = {{groups, {0, 3}}},
                                                  .parts = {{"n", 2}},
                                                  .placement = &placement});
}

TEST(BatchNorm, ARankCountsItsOwnGroups) {
  ir::Graph graph;
  const Value mean = localize_mean(graph, {12, 8}, {3, 2}, {1, 1})[0];
  EXPECT_EQ(mean.type(), f32({1, 3}));
  EXPECT_THAT(graph.node(0).attributes.get_ints("counts"), ElementsAre(8));
}

TEST(BatchNorm, WhereASplitCutsThroughAGroupItsMeanIsThatOfThePartsByTheirShares) {
  ir::Graph graph;
  const Value mean = localize_mean(graph, {4, 16}, {3, 2}, {1, 1})[0];
  EXPECT_EQ(mean.type(), f32({1, 3}));
  EXPECT_THAT(graph.node(0).attributes.get_ints("counts"), ElementsAre(8));
  EXPECT_EQ(graph.node(1).op, "constant");
  EXPECT_THAT(graph.node(1).attributes.get_doubles("values"), ElementsAre(0.5));
  EXPECT_EQ(graph.node(graph.num_nodes() - 1).op, "reduce_scatter");
}

TEST(MovingAverage, ARankKeepsTheScalesOfItsGroups) {
  ir::Graph graph;
  const std::string op = "moving_average";
  const Attributes attributes{{"momentum", 0.9}, {"scales", Doubles{1.5, 2.5, 3.5}}};
  const Value moving = graph.add_input(ir::InputKind::kState, "moving", f32({2, 4}));
  OpRegistry::instance().get(op).localize({.graph = graph,
                                           .op = op,
                                           .attributes = attributes,
                                           .inputs = {moving, moving},
                                           .global_inputs = {f32({3, 4}), f32({3, 4})},
                                           .global_outputs = {f32({3, 4})},
                                           .local_outputs = {f32({2, 4})},
                                           .input_slices = {{{0, 2}, {0, 4}}, {{0, 2}, {0, 4}}},
                                           .output_slices = {{{0, 2}, {0, 4}}},
                                           .parts = {{"d0", 2}}});
  EXPECT_THAT(graph.node(0).attributes.get_doubles("scales"), ElementsAre(1.5, 2.5));
  expect_refused({"moving_average", {f32({3}), f32({3})}, {{"momentum", 0.9}, {"scales", Doubles{1, 2}}}},
                 "scales must be one number or one per index of dim 0, has 2");
}

TEST(LayerNorm, AllDimsSplitAndStatisticsAreWhole) {
  const Type x = f32({2, 3, 4});
  const Attributes attributes{{"begin_axis", int64_t{2}}};
  EXPECT_EQ(rule_text({"layer_norm", {x, f32({4}), f32({4})}, attributes}),
            "d0 d1 d2, d2, d2 -> d0 d1 d2, d0 d1, d0 d1 : d2=whole");
  EXPECT_EQ(rule_text({"layer_norm_grad", {x, x, f32({4}), f32({2, 3}), f32({2, 3})}, attributes}),
            "d0 d1 d2, d0 d1 d2, d2, d0 d1, d0 d1 -> d0 d1 d2, d2, d2");
  expect_refused({"layer_norm", {x, f32({3}), f32({3})}, attributes}, "gamma must be of shape [4], is [3]");
  expect_refused({"layer_norm", {x, f32({4}), f32({4})}, {{"begin_axis", int64_t{4}}}}, "begin_axis must be in [0, 3]");
}

TEST(Softmax, AllDimsSplitTheAxisToo) {
  EXPECT_EQ(rule_text({"softmax", {f32({2, 3, 4})}, {{"axis", int64_t{1}}}}), "d0 s d2 -> d0 s d2");
  EXPECT_EQ(rule_text({"log_softmax_grad", {f32({2, 3}), f32({2, 3})}}), "d0 s, d0 s -> d0 s");
  EXPECT_EQ(rule_text({"softmax_cross_entropy", {f32({2, 3}), {DType::kI32, {2}}}}), "n c, n -> n, n c");
  expect_refused({"softmax", {f32({2, 3})}, {{"axis", int64_t{2}}}}, "axis 2 is outside [-2, 2)");
  expect_refused({"softmax_cross_entropy", {f32({2, 3}), {DType::kI32, {3}}}}, "labels must be of shape [2], is [3]");
  expect_refused({"softmax_cross_entropy", {f32({2, 3}), f32({2})}}, "labels must be i32 or i64, are f32");
}

TEST(Optimizers, EveryDimOfTheParameterSplits) {
  const Type p = f32({2, 3});
  const Type scalar = f32({});
  EXPECT_EQ(rule_text({"momentum", {p, p, p, scalar, scalar}}), "d0 d1, d0 d1, d0 d1, ., . -> d0 d1, d0 d1");
  EXPECT_EQ(rule_text({"adam", {p, p, p, p, scalar, scalar, scalar}}),
            "d0 d1, d0 d1, d0 d1, d0 d1, ., ., . -> d0 d1, d0 d1, d0 d1");
}

TEST(Optimizers, ResultsHaveTheTypesOfParameterAndStates) {
  EXPECT_THAT(result_types({"momentum", {bf16({4}), f32({4}), bf16({4}), f32({}), f32({})}}),
              ElementsAre(bf16({4}), f32({4})));
  expect_refused({"momentum", {f32({4}), f32({3}), f32({4}), f32({}), f32({})}}, "moment must be of shape [4], is [3]");
  expect_refused({"momentum", {f32({4}), f32({4}), f32({4}), f32({1}), f32({})}},
                 "learning_rate must be of shape [], is [1]");
  expect_refused({"adam_weight_decay", {f32({4}), f32({4}), f32({4}), f32({4}), f32({})}, {{"loss_scale", 0.0}}},
                 "attribute loss_scale must not be 0");
}

}  // namespace
}  // namespace tessera::ops
