#include "tessera/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/parameter.h"
#include "tessera/ops/functions/collective_functions.h"
#include "tessera/ops/registry/op_def.h"

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

TEST(Session, OneRankOnItsOwnIsNotSplitAsStrategiesSay) {
  const auto context = cluster::single_context(1);
  ir::Graph graph("g");
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {2, 2}});
  const auto y = ops::shard(ops::apply1("matmul", {x, x}), {{2, 1}, {1, 4}});
  graph.add_output("y", y);
  Session session(*context);
  const auto executable = session.compile_local(graph);
  copy_elements(Tensor::of<float>({2, 2}, {1, 2, 3, 4}).view(), executable->input("x"));
  executable->run();
  EXPECT_THAT(Tensor::copy_of(executable->output("y")).to_doubles(), ElementsAre(7, 10, 15, 22));
}

TEST(Session, WhoeverWaitsForInitialValuesHearsOfEachPiece) {
  const auto context = cluster::single_context(2);
  constexpr int64_t kPieces = 3;  // of a million draws, as the kernel has them
  std::vector<nn::Parameter> values(2);
  values[0] = {.name = "drawn", .type = {DType::kF32, {kPieces << 20}}, .init = nn::normal()};
  values[1] = {.name = "given", .type = {DType::kF32, {2}}, .init = nn::normal()};
  values[1].data = Tensor::of<float>({2}, {3, 4});
  Session session(*context);
  for (const auto& value : values) session.declare(value.full_name(), value.type);
  int64_t calls = 0;
  session.initialize(std::span(values).first(1), /*seed=*/1, [&] { ++calls; });
  EXPECT_GE(calls, kPieces);
  calls = 0;
  session.initialize(std::span(values).last(1), /*seed=*/1, [&] { ++calls; });
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(session.value("given").to_doubles(), ElementsAre(3, 4));
  EXPECT_NE(session.value("drawn").values<float>()[0], session.value("drawn").values<float>()[kPieces << 19]);
}

TEST(Session, AGroupThatCannotBeMadeIsAnErrorAndNoMore) {
  const auto context = cluster::single_context(1);
  ir::Graph graph("g");
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {2}});
  graph.add_output("y", ops::all_reduce(x, {.name = "pair", .ranks = {0, 1}, .own = 0}));
  Session session(*context);
  EXPECT_THROW(session.compile_local(graph), InvalidArgument);
}

}  // namespace
}  // namespace tessera::session
