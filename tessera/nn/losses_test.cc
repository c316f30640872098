#include "tessera/nn/losses.h"
#include "tessera/nn/cross_entropy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/testing/traced_cells.h"

namespace tessera::nn {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr DType kF32 = DType::kF32;

ir::Graph trace_loss(Cell& loss, const Type& logits, const Type& label) {
  ir::Graph graph("loss");
  const Value x = graph.add_input(ir::InputKind::kInput, "logits", logits);
  const Value y = graph.add_input(ir::InputKind::kInput, "label", label);
  graph.add_output("loss", loss(x, y));
  ops::verify_or_throw(graph);
  return graph;
}

std::string text_of_loss(Cell& loss, const Type& logits, const Type& label) {
  return ir::print(trace_loss(loss, logits, label));
}

Type type_of_loss(Cell& loss, const Type& logits, const Type& label) {
  const auto graph = trace_loss(loss, logits, label);
  return graph.type(graph.find_output("loss")->value);
}

TEST(SoftmaxCrossEntropyWithLogits, SparseMean) {
  SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  EXPECT_EQ(text_of_loss(loss, {kF32, {8, 10}}, {DType::kI32, {8}}), R"(graph loss
  input logits f32[8,10]
  input label i32[8]
  %1, %2 = softmax_cross_entropy logits, label : f32[8], f32[8,10] in f32 @ loss
  %3 = reduce_mean %1 {axes=[0], keep_dims=false} : f32[] in f32 @ loss
  return loss = %3
)");
}

TEST(SoftmaxCrossEntropyWithLogits, DenseLabelsAreDistributions) {
  SoftmaxCrossEntropyWithLogits loss;
  EXPECT_EQ(text_of_loss(loss, {kF32, {8, 10}}, {kF32, {8, 10}}), R"(graph loss
  input logits f32[8,10]
  input label f32[8,10]
  %1 = log_softmax logits {axis=1} : f32[8,10] in f32 @ loss
  %2 = mul label, %1 : f32[8,10] in f32 @ loss
  %3 = reduce_sum %2 {axes=[1], keep_dims=false} : f32[8] in f32 @ loss
  %4 = neg %3 : f32[8] in f32 @ loss
  return loss = %4
)");
}

TEST(SoftmaxCrossEntropyWithLogits, ReductionsGiveAVectorOrAScalar) {
  for (const bool sparse : {false, true}) {
    const Type label = sparse ? Type{DType::kI64, {8}} : Type{kF32, {8, 10}};
    SoftmaxCrossEntropyWithLogits none({.sparse = sparse});
    SoftmaxCrossEntropyWithLogits sum({.sparse = sparse, .reduction = "sum"});
    EXPECT_EQ(type_of_loss(none, {kF32, {8, 10}}, label), (Type{kF32, {8}}));
    EXPECT_EQ(type_of_loss(sum, {kF32, {8, 10}}, label), (Type{kF32, {}}));
  }
  EXPECT_THAT([] { SoftmaxCrossEntropyWithLogits({.reduction = "max"}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("reduction \"max\" is not one of none, mean, sum")));
}

TEST(SoftmaxCrossEntropyWithLogits, HalfLogitsGiveAnF32Loss) {
  SoftmaxCrossEntropyWithLogits loss({.sparse = true, .reduction = "mean"});
  EXPECT_EQ(type_of_loss(loss, {DType::kBF16, {8, 10}}, {DType::kI32, {8}}).dtype, kF32);
  EXPECT_EQ(type_of_loss(loss, {DType::kF64, {8, 10}}, {DType::kU8, {8}}).dtype, DType::kF64);
}

TEST(SoftmaxCrossEntropyWithLogits, LabelsThatDoNotFitAreRefused) {
  SoftmaxCrossEntropyWithLogits sparse({.sparse = true});
  EXPECT_THAT(
      [&] {
        trace_loss(sparse, {kF32, {8, 10}}, {DType::kI32, {4}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("label must be [8], class numbers, for logits f32[8,10], got i32[4]")));
  EXPECT_THROW(trace_loss(sparse, {kF32, {8, 10}}, {kF32, {8}}), InvalidArgument);
  EXPECT_THROW(trace_loss(sparse, {kF32, {8}}, {DType::kI32, {8}}), InvalidArgument);
  SoftmaxCrossEntropyWithLogits dense;
  EXPECT_THROW(trace_loss(dense, {kF32, {8, 10}}, {DType::kI32, {8}}), InvalidArgument);
}

TEST(SoftmaxCrossEntropyExpand, IsTheTutorialsSequenceOfSmallOperators) {
  SoftmaxCrossEntropyExpand loss({.sparse = true});
  EXPECT_EQ(text_of_loss(loss, {kF32, {8, 10}}, {DType::kI32, {8}}), R"(graph loss
  input logits f32[8,10]
  input label i32[8]
  %1 = reduce_max logits {axes=[1], keep_dims} : f32[8,1] in f32 @ loss
  %2 = sub logits, %1 : f32[8,10] in f32 @ loss
  %3 = exp %2 : f32[8,10] in f32 @ loss
  %4 = reduce_sum %3 {axes=[1], keep_dims} : f32[8,1] in f32 @ loss
  %5 = div %3, %4 : f32[8,10] in f32 @ loss
  %6 = fill {dtype=f32, shape=[], value=1.0} : f32[] in f32 @ loss
  %7 = fill {dtype=f32, shape=[], value=0.0} : f32[] in f32 @ loss
  %8 = one_hot label, %6, %7 {axis=1, depth=10, valid=[0,10]} : f32[8,10] in f32 @ loss
  %9 = fill {dtype=f32, shape=[], value=1e-24} : f32[] in f32 @ loss
  %10 = add %5, %9 : f32[8,10] in f32 @ loss
  %11 = log %10 : f32[8,10] in f32 @ loss
  %12 = mul %11, %8 : f32[8,10] in f32 @ loss
  %13 = reduce_sum %12 {axes=[1], keep_dims=false} : f32[8] in f32 @ loss
  %14 = fill {dtype=f32, shape=[], value=-1.0} : f32[] in f32 @ loss
  %15 = mul %13, %14 : f32[8] in f32 @ loss
  %16 = reduce_mean %15 {axes=[0], keep_dims=false} : f32[] in f32 @ loss
  return loss = %16
)");
}

TEST(SoftmaxCrossEntropyExpand, WithoutEpsTakesThePlainLogarithm) {
  SoftmaxCrossEntropyExpand loss({.eps = 0});
  const auto ops = ops_of(trace_loss(loss, {kF32, {8, 10}}, {kF32, {8, 10}}));
  EXPECT_THAT(ops, testing::ElementsAre("reduce_max", "sub", "exp", "reduce_sum", "div", "log", "mul", "reduce_sum",
                                        testing::_, "mul", "reduce_mean"));
  EXPECT_THROW(SoftmaxCrossEntropyExpand({.eps = -1}), InvalidArgument);
}

TEST(CrossEntropy, TakesClassesOrDistributionsOfAnyNumberOfDims) {
  CrossEntropy mean;
  CrossEntropy each({.weight = {1, 2, 3}, .reduction = "none", .label_smoothing = 0.1});
  EXPECT_EQ(type_of_loss(mean, {kF32, {8, 3}}, {DType::kI32, {8}}), (Type{kF32, {}}));
  EXPECT_EQ(type_of_loss(each, {DType::kF16, {8, 3}}, {DType::kI64, {8}}), (Type{kF32, {8}}));
  EXPECT_EQ(type_of_loss(each, {kF32, {8, 3, 4, 5}}, {DType::kI32, {8, 4, 5}}), (Type{kF32, {8, 4, 5}}));
  EXPECT_EQ(type_of_loss(each, {kF32, {8, 3, 4}}, {kF32, {8, 3, 4}}), (Type{kF32, {8, 4}}));
  EXPECT_EQ(type_of_loss(each, {kF32, {3}}, {DType::kI32, {}}), (Type{kF32, {}}));
}

TEST(CrossEntropy, WhatDoesNotFitIsRefused) {
  CrossEntropy loss({.weight = {1, 2}});
  EXPECT_THAT(
      [&] {
        trace_loss(loss, {kF32, {8, 3}}, {DType::kI32, {8}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("weight must have an entry for each of 3 classes, got 2")));
  EXPECT_THAT(
      [&] {
        trace_loss(loss, {kF32, {8, 2}}, {DType::kI32, {4}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("label must be [8], class numbers, for logits f32[8,2]")));
  EXPECT_THAT(
      [&] {
        trace_loss(loss, {kF32, {8, 2}}, {kF32, {8}});
      },
      ThrowsMessage<InvalidArgument>(
          HasSubstr("class numbers are i32[8] or i64[8] for logits f32[8,2], got f32[8]: convert them to integers")));
  EXPECT_THROW(CrossEntropy({.reduction = "average"}), InvalidArgument);
  EXPECT_THROW(CrossEntropy({.label_smoothing = 1.5}), InvalidArgument);
}

TEST(CrossEntropy, OfDistributionsHasNoIndexToIgnore) {
  CrossEntropy loss({.ignore_index = 0});
  EXPECT_THAT(
      [&] {
        trace_loss(loss, {kF32, {8, 2}}, {kF32, {8, 2}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("ignore_index = 0 has no effect on labels that are distributions")));
  EXPECT_NO_THROW(trace_loss(loss, {kF32, {8, 2}}, {DType::kI32, {8}}));
  CrossEntropy as_in_mindspore({.ignore_index = 0, .is_strict = false});
  EXPECT_NO_THROW(trace_loss(as_in_mindspore, {kF32, {8, 2}}, {kF32, {8, 2}}));
}

TEST(ElementwiseLosses, AverageOverAllElements) {
  MSELoss squared;
  L1Loss absolute({.reduction = "none"});
  EXPECT_EQ(type_of_loss(squared, {kF32, {8, 3}}, {kF32, {8, 3}}), (Type{kF32, {}}));
  EXPECT_EQ(type_of_loss(absolute, {kF32, {8, 3}}, {kF32, {8, 3}}), (Type{kF32, {8, 3}}));
  EXPECT_THROW(trace_loss(squared, {kF32, {8, 3}}, {kF32, {8}}), InvalidArgument);
  EXPECT_THROW(trace_loss(absolute, {kF32, {8, 3}}, {kF32, {3}}), InvalidArgument);
}

}  // namespace
}  // namespace tessera::nn
