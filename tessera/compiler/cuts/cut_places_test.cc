#include "tessera/compiler/cuts/cut_places.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Two cells, the second of which has a part; a relu of the network itself; a loss; their gradients.
const char* const kStep = R"(graph train_step
  param a.w f32[4,4]
  param b.in.w f32[4,4]
  param b.w f32[4,4]
  input x f32[2,4]
  state accu_grads.a.w f32[4,4]
  state accu_grads.b.in.w f32[4,4]
  state accu_grads.b.w f32[4,4]
  %1 = matmul x, a.w : f32[2,4] @ a
  %2 = relu %1 : f32[2,4] @ .
  %3 = relu %2 : f32[2,4] @ b
  %4 = matmul %3, b.in.w : f32[2,4] @ b.in
  %5 = matmul %4, b.w : f32[2,4] @ b
  %6 = reduce_sum %5 {axes=[0,1]} : f32[] @ loss
  %7 = fill {dtype=f32, shape=[2,4], value=1} : f32[2,4] @ loss
  %8 = matmul %4, %7 {transpose_a} : f32[4,4] @ b (grad of %5)
  %9 = matmul %7, b.w {transpose_b} : f32[2,4] @ b (grad of %5)
  %10 = matmul %3, %9 {transpose_a} : f32[4,4] @ b.in (grad of %4)
  %11 = matmul %9, b.in.w {transpose_b} : f32[2,4] @ b.in (grad of %4)
  %12 = relu_grad %11, %3 : f32[2,4] @ b (grad of %3)
  %13 = relu_grad %12, %2 : f32[2,4] @ . (grad of %2)
  %14 = matmul x, %13 {transpose_a} : f32[4,4] @ a (grad of %1)
  %15 = add accu_grads.a.w, %14 : f32[4,4] @ accumulate
  %16 = add accu_grads.b.in.w, %10 : f32[4,4] @ accumulate
  %17 = add accu_grads.b.w, %8 : f32[4,4] @ accumulate
  return loss = %6, accu_grads.a.w = %15, accu_grads.b.in.w = %16, accu_grads.b.w = %17
)";

// The optimizer has a state as large as each parameter.
const char* const kUpdate = R"(graph update
  param a.w f32[4,4]
  param b.in.w f32[4,4]
  param b.w f32[4,4]
  state moments.a.w f32[4,4]
  state moments.b.in.w f32[4,4]
  state moments.b.w f32[4,4]
  state accu_grads.a.w f32[4,4]
  state accu_grads.b.in.w f32[4,4]
  state accu_grads.b.w f32[4,4]
  %1 = add moments.a.w, accu_grads.a.w : f32[4,4] @ optimizer
  %2 = add moments.b.in.w, accu_grads.b.in.w : f32[4,4] @ optimizer
  %3 = add moments.b.w, accu_grads.b.w : f32[4,4] @ optimizer
  %4 = sub a.w, %1 : f32[4,4] @ optimizer
  %5 = sub b.in.w, %2 : f32[4,4] @ optimizer
  %6 = sub b.w, %3 : f32[4,4] @ optimizer
  return a.w = %4, b.in.w = %5, b.w = %6, moments.a.w = %1, moments.b.in.w = %2, moments.b.w = %3
)";

ir::Graph complete(const char* text) {
  auto graph = ir::parse(text);
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    ir::Node& node = graph.mutable_node(n);
    node.attributes = ops::complete_attributes(ops::OpRegistry::instance().get(node.op), node.attributes);
  }
  return graph;
}

constexpr int64_t kMatrix = 4 * 4 * 4;
constexpr int64_t kRows = 2 * 4 * 4;

CutPlaces places_for(int num_stages) {
  const StageOptions options{
      .num_stages = 1,
      .accumulators = {{"accu_grads.a.w", "a.w"}, {"accu_grads.b.in.w", "b.in.w"}, {"accu_grads.b.w", "b.w"}}};
  const auto update = complete(kUpdate);
  const auto plan = plan_stages(complete(kStep), &update, mesh::Mesh({{"data", 1}}), {}, options, {});
  const auto profile = example_profile();
  return find_cut_places(plan, num_stages, profile, profile.intra_host);
}

TEST(CutPlaces, AreBetweenCellsNoneOfWhichIsCut) {
  const auto places = places_for(2);
  const auto& pieces = places.problem.pieces;
  ASSERT_EQ(pieces.size(), 3U);
  // The relu between them goes with the second.
  EXPECT_EQ(pieces[0].last, "a");
  EXPECT_EQ(pieces[1].first, "b");
  EXPECT_EQ(pieces[1].last, "b");
  EXPECT_THAT(places.cells[1], ElementsAre("b", "b.in"));
  EXPECT_THAT(places.cells[2], ElementsAre("loss"));
  EXPECT_TRUE(pieces[0].has_parameters && pieces[1].has_parameters && !pieces[2].has_parameters);
  for (const auto& piece : pieces) EXPECT_GT(piece.seconds, 0);
}

TEST(CutPlaces, WhereTheseAreTooFewCellsAroundOthersAreCut) {
  const auto places = places_for(3);
  ASSERT_EQ(places.problem.pieces.size(), 5U);
  EXPECT_THAT(places.cells[1], IsEmpty());  // the relu of b, which has a product elsewhere
  EXPECT_THAT(places.cells[2], ElementsAre("b.in"));
  // A stage each, as far as there are parameters.
  EXPECT_EQ(choose_cuts(places.problem, {.stages = 3, .micro_batches = 3}).ends.size(), 3U);
}

TEST(CutPlaces, CountWhatStaysWhatIsKeptAndWhatCrosses) {
  const auto problem = places_for(2).problem;
  // A parameter, its accumulator and its moment.
  EXPECT_EQ(problem.pieces[0].persistent_bytes, 3 * kMatrix);
  EXPECT_EQ(problem.pieces[1].persistent_bytes, 6 * kMatrix);
  EXPECT_EQ(problem.pieces[0].kept_bytes, kRows);      // the batch
  EXPECT_EQ(problem.pieces[1].kept_bytes, 3 * kRows);  // both relus and the product
  EXPECT_EQ(problem.places[0].forward_bytes, kRows);
  EXPECT_EQ(problem.places[0].backward_bytes, kRows);
  EXPECT_GT(problem.places[0].forward_seconds, example_profile().intra_host.latency_seconds);
}

TEST(CutPlaces, GiveEachNodeTheStageOfItsCell) {
  const auto places = places_for(2);
  const auto cuts = choose_cuts(places.problem, {.stages = 2, .micro_batches = 2});
  const auto cells = cell_stages(places, cuts, {{0, 0}, {1, 0}});
  EXPECT_EQ(cells.at("a"), (CellStage{0, 0}));
  EXPECT_EQ(cells.at("b.in"), (CellStage{1, 0}));
  auto graph = ir::parse(kStep);
  set_stages(graph, cells);
  EXPECT_EQ(graph.node(0).stage, 0);
  EXPECT_EQ(graph.node(1).stage, ir::kNone);
  EXPECT_EQ(graph.node(3).stage, 1);
}

}  // namespace
}  // namespace tessera::compiler
