#include "tessera/session/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

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

// The calls of `after_piece` while a session takes the initial value of a parameter, and the value.
std::pair<int64_t, Tensor> initialize(const nn::Parameter& parameter) {
  const auto context = cluster::single_context(2);
  Session session(*context);
  session.declare(parameter.full_name(), parameter.type);
  int64_t calls = 0;
  session.initialize({&parameter, 1}, /*seed=*/1, [&] { ++calls; });
  return {calls, session.value(parameter.full_name())};
}

TEST(Session, WhoeverWaitsForInitialValuesHearsOfEachPieceThatIsDrawn) {
  constexpr int64_t kPieces = 3;  // of a million draws, as the kernel has them
  nn::Parameter drawn{.name = "drawn", .type = {DType::kF32, {kPieces << 20}}, .init = nn::normal()};
  const auto [calls, value] = initialize(drawn);
  EXPECT_GE(calls, kPieces);
  EXPECT_NE(value.values<float>()[0], value.values<float>()[kPieces << 19]);
}

TEST(Session, WhoeverWaitsForInitialValuesHearsOfEachPieceThatIsCopied) {
  constexpr int64_t kRows = 5;  // of 16 MiB: four are a piece
  nn::Parameter given{.name = "given", .type = {DType::kU8, {kRows, int64_t{16} << 20}}, .init = nn::normal()};
  given.data = Tensor::full(given.type, 7);
  given.data->view().as<uint8_t>()[given.type.shape[1] * kRows - 1] = 8;
  const auto [calls, value] = initialize(given);
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(std::ranges::equal(value.bytes(), given.data->bytes()));
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
