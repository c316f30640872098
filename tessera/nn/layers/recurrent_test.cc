#include "tessera/nn/layers/recurrent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/testing/traced_cells.h"

namespace tessera::nn {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

// The types of what a layer gives for x and a state of zeros.
struct ResultTypes {
  Type output;
  Type hidden;
};
ResultTypes results_of(RecurrentLayer& layer, const Shape& x) {
  ir::Graph graph("forward");
  const auto results = layer.run({.x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, x})});
  return {results.output.type(), results.state.hidden.type()};
}

TEST(RecurrentLayer, NamesItsParametersByKindThenLayerAndDirection) {
  RecurrentLayer layer(3, 4, {.recurrence = Recurrence::kGru, .num_layers = 2, .bidirectional = true});
  EXPECT_THAT(names_of(layer.parameters()),
              ElementsAre("weight_ih_l0", "weight_ih_l0_reverse", "weight_ih_l1", "weight_ih_l1_reverse",
                          "weight_hh_l0", "weight_hh_l0_reverse", "weight_hh_l1", "weight_hh_l1_reverse", "bias_ih_l0",
                          "bias_ih_l0_reverse", "bias_ih_l1", "bias_ih_l1_reverse", "bias_hh_l0", "bias_hh_l0_reverse",
                          "bias_hh_l1", "bias_hh_l1_reverse"));
  EXPECT_EQ(layer.find_parameter("weight_ih_l0").type.shape, (Shape{12, 3}));
  EXPECT_EQ(layer.find_parameter("weight_ih_l1").type.shape, (Shape{12, 8}));
  EXPECT_THAT(names_of(layer.parameters_of("bias_ih")),
              ElementsAre("bias_ih_l0", "bias_ih_l0_reverse", "bias_ih_l1", "bias_ih_l1_reverse"));
}

TEST(RecurrentLayer, GivesAResultForEachStepAndAStateForEachCell) {
  RecurrentLayer layer(3, 4, {.recurrence = Recurrence::kLstm, .num_layers = 2, .bidirectional = true});
  const auto time_first = results_of(layer, {5, 2, 3});
  EXPECT_EQ(time_first.output.shape, (Shape{5, 2, 8}));
  EXPECT_EQ(time_first.hidden.shape, (Shape{4, 2, 4}));
  RecurrentLayer rows(3, 4, {.recurrence = Recurrence::kLstm, .batch_first = true});
  EXPECT_EQ(results_of(rows, {2, 5, 3}).output.shape, (Shape{2, 5, 4}));
}

TEST(RecurrentLayer, MultipliesTheInputOfAllStepsAtOnce) {
  RecurrentLayer layer(3, 4, {.batch_first = true});
  const auto graph = trace(layer, {DType::kF32, {2, 5, 3}});
  const auto ops = ops_of(graph);
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "matmul"), 1 + 5);
}

TEST(RecurrentLayer, DropsBetweenLayersAndInTrainingOnly) {
  RecurrentLayer layer(3, 4, {.num_layers = 3, .dropout = 0.5});
  EXPECT_THAT(ops_of(trace(layer, {DType::kF32, {5, 2, 3}})), Not(Contains("dropout")));
  layer.apply_settings({.training = true});
  const auto ops = ops_of(trace(layer, {DType::kF32, {5, 2, 3}}));
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "dropout"), 2);
}

TEST(RecurrentLayer, RefusesWhatDoesNotFit) {
  EXPECT_THAT([] { RecurrentLayer layer(0, 4); },
              ThrowsMessage<InvalidArgument>(HasSubstr("input_size and hidden_size must be at least 1, got 0 and 4")));
  EXPECT_THAT([] { RecurrentLayer layer(3, 4, {.dropout = 1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("dropout must be in [0,1), got 1")));
  EXPECT_THAT([] { RecurrentLayer layer(3, 4, {.dropout = 0.5}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("dropout = 0.5 has no effect on one layer")));
  RecurrentLayer layer(3, 4);
  EXPECT_THAT(
      [&] {
        results_of(layer, {5, 2, 7});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("takes [t,n,3], got f32[5,2,7]")));
  ir::Graph graph("forward");
  const auto input = [&](const char* name, DType dtype, const Shape& shape) {
    return graph.add_input(ir::InputKind::kInput, name, {dtype, shape});
  };
  const Value x = input("x", DType::kF32, {5, 2, 3});
  EXPECT_THAT(
      [&] {
        layer.run({.x = x, .state = {input("h", DType::kF32, {1, 3, 4})}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("the hidden state must be [1,2,4], got f32[1,3,4]")));
  const Value hidden = input("hidden", DType::kF32, {1, 2, 4});
  EXPECT_THAT(
      [&] {
        layer.run({.x = x, .state = {hidden, hidden}});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("only an LSTM has a memory")));
  EXPECT_THAT([&] { layer.run({.x = x, .lengths = input("lengths", DType::kF32, {2})}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("lengths must be i32 or i64 [2], got f32[2]")));
  EXPECT_THAT([] { recurrence_of("elman"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("\"elman\" is not one of tanh, relu, gru, lstm")));
}

TEST(RecurrentCell, OfAnLstmHasAMemory) {
  RecurrentCell cell(3, 4, {.recurrence = Recurrence::kLstm});
  EXPECT_THAT(names_of(cell.parameters()), ElementsAre("weight_ih", "weight_hh", "bias_ih", "bias_hh"));
  ir::Graph graph("forward");
  const auto input = [&](const char* name, const Shape& shape) {
    return graph.add_input(ir::InputKind::kInput, name, {DType::kF32, shape});
  };
  const Value x = input("x", {2, 3});
  const Value h = input("h", {2, 4});
  const auto state = cell.step(x, {h, input("c", {2, 4})});
  EXPECT_EQ(state.hidden.shape(), (Shape{2, 4}));
  EXPECT_EQ(state.memory.shape(), (Shape{2, 4}));
  EXPECT_THAT([&] { cell.step(x, {h}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("the state of an LSTM is (hidden, memory)")));
}

}  // namespace
}  // namespace tessera::nn
