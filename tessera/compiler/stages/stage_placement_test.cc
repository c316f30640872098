#include "tessera/compiler/stages/stage_placement.h"

#include <gtest/gtest.h>

#include "tessera/base/error.h"

namespace tessera::compiler {
namespace {

using pipeline::PhaseKind;

// Two layers, a loss, and their gradients; the stages of the layers are put in.
const char* const kTwoLayers = R"(graph train_step
  param a.w f32[4,4]
  param b.w f32[4,4]
  input x f32[2,4]
  state accu_grads.a.w f32[4,4]
  state accu_grads.b.w f32[4,4]
  %1 = matmul x, a.w : f32[2,4]STAGE_A @ a
  %2 = relu %1 : f32[2,4] @ .
  %3 = matmul %2, b.w : f32[2,4]STAGE_B @ b
  %4 = reduce_sum %3 {dims=[0,1]} : f32[] @ loss
  %5 = fill {dtype="f32", shape=[2,4], value=1} : f32[2,4] @ loss
  %6 = matmul %2, %5 {transpose_a} : f32[4,4] @ b (grad of %3)
  %7 = matmul %5, b.w {transpose_b} : f32[2,4] @ b (grad of %3)
  %8 = relu_grad %7, %2 : f32[2,4] @ . (grad of %2)
  %9 = matmul x, %8 {transpose_a} : f32[4,4] @ a (grad of %1)
  %10 = add accu_grads.a.w, %9 : f32[4,4] @ accumulate
  %11 = add accu_grads.b.w, %6 : f32[4,4] @ accumulate
  return loss = %4, accu_grads.a.w = %10, accu_grads.b.w = %11
)";

ir::Graph graph_of(std::string text, const std::string& first, const std::string& second) {
  for (const auto& [mark, stage] : {std::pair{"STAGE_A", first}, std::pair{"STAGE_B", second}}) {
    text.replace(text.find(mark), 7, stage);
  }
  return ir::parse(text);
}

StageOptions options(int stages) {
  return {.num_stages = stages, .accumulators = {{"accu_grads.a.w", "a.w"}, {"accu_grads.b.w", "b.w"}}};
}

std::string refusal(const std::string& first, const std::string& second, int stages) {
  try {
    place_on_stages(graph_of(kTwoLayers, first, second), options(stages));
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Placement, PutsGradientsWithTheirForwardNodesAndTheRestWithItsUsers) {
  const auto graph = graph_of(kTwoLayers, " stage 0", " stage 1");
  const auto placed = place_on_stages(graph, options(2));
  // relu has no stage: it joins what reads it. The fill is made wherever it is wanted.
  EXPECT_EQ(placed.nodes, (std::vector{0, 1, 1, 1, kEveryStage, 1, 1, 1, 0, 0, 1}));
  EXPECT_EQ(placed.values.at("a.w"), 0);
  EXPECT_EQ(placed.values.at("accu_grads.b.w"), 1);
  const auto messages = stage_messages(graph, placed);
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(graph.value_name(messages[0].value), "%1");
  EXPECT_EQ(messages[0].made, PhaseKind::kForward);
  EXPECT_EQ(graph.value_name(messages[1].value), "%8");
  EXPECT_EQ(messages[1].from, 1);
  EXPECT_EQ(messages[1].read, PhaseKind::kBackward);
}

TEST(Placement, SplitsOffWhatNoOtherStageWaitsFor) {
  auto split = options(2);
  split.split_backward = true;
  const auto placed = place_on_stages(graph_of(kTwoLayers, " stage 0", " stage 1"), split);
  EXPECT_EQ(placed.phase_of(6), PhaseKind::kBackward);        // the gradient of stage 1's input
  EXPECT_EQ(placed.phase_of(5), PhaseKind::kWeightGradient);  // of b.w
  EXPECT_EQ(placed.phase_of(8), PhaseKind::kWeightGradient);  // nobody waits for stage 0
}

TEST(Placement, RefusesAStageThatIsNotThere) {
  EXPECT_EQ(refusal(" stage 0", " stage 2", 2),
            "cell \"b\" is on stage 2, but the stages are 0 to 1: give it one of these by set_stage(), or make more "
            "stages");
}

TEST(Placement, RefusesToReadFromALaterStage) {
  EXPECT_EQ(refusal(" stage 1", " stage 0", 2),
            "cell \"b\" is on stage 0 and reads what the network itself computes on stage 1: a stage reads only what "
            "comes before it; set_stage(1) or later for the first, or an earlier stage for the second");
}

TEST(Placement, RefusesAStageWithoutParameters) {
  EXPECT_EQ(refusal(" stage 0", " stage 2", 3),
            "stage 1 of 3 has no parameters: call set_stage(1) on a cell that has some, or use fewer stages");
  EXPECT_EQ(
      refusal("", "", 2),
      "stage 1 of 2 has no parameters, because no cell names its stage: call set_stage(1) on a cell that has some, "
      "or use fewer stages");
}

TEST(Placement, RefusesAParameterOfTwoStages) {
  std::string text = kTwoLayers;
  text.replace(text.find("matmul %2, b.w"), 14, "matmul %2, a.w");
  try {
    place_on_stages(graph_of(text, " stage 0", " stage 1"), options(2));
    FAIL() << "nothing was thrown";
  } catch (const InvalidArgument& error) {
    EXPECT_STREQ(
        error.what(),
        "parameter \"a.w\" is read by cell \"a\" on stage 0 and by cell \"b\" on stage 1: a pipeline keeps it on "
        "one stage; give both cells one stage");
  }
}

}  // namespace
}  // namespace tessera::compiler
