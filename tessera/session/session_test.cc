#include "tessera/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ops/op_def.h"

namespace tessera::session {
namespace {

using testing::ElementsAre;

TEST(Evaluate, RunsAGraphOnce) {
  ir::Graph graph("g");
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {2, 2}});
  const auto y = ops::apply1("matmul", {x, x});
  graph.add_output("y", ops::apply1("relu", {ops::apply1("neg", {y})}));
  const auto results = evaluate(graph, {{"x", Tensor::of<float>({2, 2}, {1, -2, 3, 4})}});
  EXPECT_THAT(results.at("y").to_doubles(), ElementsAre(5, 10, 0, 0));
}

TEST(Evaluate, UpdatesAParameterInPlace) {
  ir::Graph graph("g");
  const auto p = graph.add_input(ir::InputKind::kParameter, "p", {DType::kF64, {2}});
  graph.assign("p", ops::apply1("mul", {p, p}));
  graph.finish_assignments();
  const auto results = evaluate(graph, {{"p", Tensor::of<double>({2}, {3, 4})}});
  EXPECT_THAT(results.at("p").to_doubles(), ElementsAre(9, 16));
}

}  // namespace
}  // namespace tessera::session
