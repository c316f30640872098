#include "tessera/ir/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera::ir {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr const char* kText = R"(graph step
  param fc.weight f32[10,64]
  state learning_rate f32[]
  input x f32[32,64]
  %1 = matmul x, fc.weight {transpose_b} : f32[32,10] @ fc
  %2, %3 = top_k %1 {k=2} : f32[32,2], i32[32,2]
  %4 = range {delta=1, limit=3, start=0} : i32[3] @ .
  %5 = relu_grad %1, %1 : f32[32,10] @ fc (grad of %1)
  %6 = relu %1 : f32[32,10] stage 1 @ fc
  %7 = relu %1 : f32[32,10] stage 1 segment 2 @ fc
  return loss = %2, fc.weight = %1
)";

TEST(Graph, TextRoundTrips) { EXPECT_EQ(print(parse(kText)), kText); }

TEST(Graph, ParserNamesTheLineOfAnUndefinedValue) {
  EXPECT_THAT([] { parse("graph g\n  %1 = relu %7 : f32[]\n  return\n"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("line 2: expected a value defined above, got %7")));
}

TEST(Graph, ParserRefusesASecondDefinition) {
  EXPECT_THROW(parse("graph g\n  input x f32[]\n  %1 = relu x : f32[]\n  %1 = relu x : f32[]\n  return\n"),
               InvalidArgument);
  EXPECT_THROW(parse("graph g\n  input x f32[]\n  input x f32[]\n  return\n"), InvalidArgument);
  EXPECT_THROW(parse("graph g\n  input %1 f32[]\n  %2 = relu %1 : f32[]\n  return\n"), InvalidArgument);
}

TEST(Graph, WhatIsReboundIsReadAndBecomesNoOutput) {
  Graph graph("step");
  const Type type{DType::kF32, {4}};
  const Value weight = graph.add_input(InputKind::kParameter, "weight", type);
  const Value other = graph.add_node("relu", std::vector{weight}, {}, std::vector{type})[0];
  graph.rebind("weight", other);
  EXPECT_EQ(graph.find_binding("weight")->id(), other.id());
  graph.rebind("weight", weight);
  EXPECT_EQ(graph.find_binding("weight")->id(), weight.id());
  graph.finish_assignments();
  EXPECT_TRUE(graph.outputs().empty());
  EXPECT_THROW(graph.rebind("other", weight), InvalidArgument);
}

TEST(Graph, AssignmentIsWhatLaterReadsSeeAndBecomesAnOutput) {
  Graph graph;
  const auto mean = graph.add_input(InputKind::kParameter, "mean", {DType::kF32, {4}});
  const Type type{DType::kF32, {4}};
  const auto next = graph.add_node("neg", std::vector{mean}, {}, std::vector{type})[0];
  graph.assign("mean", next);
  EXPECT_EQ(*graph.find_binding("mean"), next);
  graph.finish_assignments();
  EXPECT_EQ(graph.find_output("mean")->value, next.id());
  EXPECT_THROW(graph.assign("other", next), InvalidArgument);
}

TEST(Graph, AnInputOfAnotherTypeIsRefused) {
  Graph graph;
  graph.add_input(InputKind::kInput, "x", {DType::kF32, {4}});
  EXPECT_THAT(
      [&] {
        graph.add_input(InputKind::kInput, "x", {DType::kF32, {5}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("input \"x\" f32[5] is already input f32[4]")));
}

}  // namespace
}  // namespace tessera::ir
