#include "tessera/nn/cell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.h"
#include "tessera/nn/container.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/losses.h"
#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/testing/traced_cells.h"

namespace tessera::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Two : Cell {
  Parameter& scale = parameter("scale", {DType::kF32, {4}}, ones());
  Dense& up = child<Dense>("up", 4, 8);
  Dense& down = child<Dense>("down", 8, 2, DenseOptions{.has_bias = false});
  Value construct(Value x) override { return down(up(x * scale)); }
};

struct Outer : Cell {
  Two& inner = child<Two>("inner");
  Sequential& rest = child<Sequential>("rest");
  Outer() { rest.append<Dense>(2, 2); }
};

TEST(Cell, APrefixStandsInFrontOfThePathFromTheCellOn) {
  Outer net;
  net.prefix_parameters("teacher.");
  EXPECT_EQ(names_of(net.parameters())[1], "teacher.inner.up.weight");
  EXPECT_EQ(&net.find_parameter("teacher.inner.up.weight"), net.parameters()[1]);
  net.inner.prefix_parameters("z.", false);
  EXPECT_EQ(names_of(net.parameters())[0], "z.scale");
  EXPECT_EQ(names_of(net.parameters())[1], "teacher.inner.up.weight");
  net.name_parameters();
  EXPECT_EQ(names_of(net.parameters())[1], "inner.up.weight");
}

// One cell at two places of two others.
struct Shares : Cell {
  std::shared_ptr<Dense> shared = std::make_shared<Dense>(2, 2, DenseOptions{.has_bias = false});
  Sequential& first = child<Sequential>("first");
  Sequential& second = child<Sequential>("second");
  Shares() {
    first.append(shared);
    second.append<Dense>(2, 2, DenseOptions{.has_bias = false});
    second.append(shared);
    second.append(shared);
  }
};

TEST(Cell, ACellAtSeveralPlacesHasThePathOfTheFirstUntilAnotherIsLedTo) {
  Shares net;
  EXPECT_EQ(net.shared->path(), "first.0");
  net.lead_to("second");
  EXPECT_EQ(net.shared->path(), "second.1");
  net.name_parameters();
  EXPECT_THAT(names_of(net.parameters()), ElementsAre("second.1.weight", "second.0.weight"));
  net.lead_to("first");
  EXPECT_EQ(net.shared->path(), "first.0");
}

TEST(Cell, NodesHaveStageAndSegmentOfTheNearestCellThatNamesThem) {
  Two net;
  net.set_stage(1, 2);
  net.up.set_stage(3);
  ir::Graph graph;
  const auto x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {2, 4}});
  net(x);
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    const bool is_inner = node.source == "up";
    EXPECT_EQ(std::pair(node.stage, node.segment), is_inner ? std::pair(3, 0) : std::pair(1, 2)) << node.source;
  }
  EXPECT_THAT([&] { net.set_stage(0, -1); },
              ThrowsMessage<InvalidArgument>(HasSubstr("a segment must not be negative, got -1")));
}

TEST(Cell, ParametersAreNamedByAttributePathParentsFirst) {
  Outer net;
  EXPECT_THAT(names_of(net.parameters()), ElementsAre("inner.scale", "inner.up.weight", "inner.up.bias",
                                                      "inner.down.weight", "rest.0.weight", "rest.0.bias"));
}

TEST(Cell, IsCalledInErrorsAsInGraphsTheRootADot) {
  Two net;
  EXPECT_THAT([&] { net.set_stage(-1); },
              ThrowsMessage<InvalidArgument>("cell \".\": a stage must not be negative, got -1"));
  EXPECT_THAT([&] { net.up.set_stage(-1); },
              ThrowsMessage<InvalidArgument>("cell \"up\": a stage must not be negative, got -1"));
}

TEST(Cell, NodesComeFromThePathOfTheCellThatAddedThem) {
  Two net;
  const auto graph = trace(net, {DType::kF32, {3, 4}});
  std::vector<std::string> sources;
  for (ir::NodeId id = 0; id < graph.num_nodes(); ++id) sources.push_back(graph.node(id).source);
  EXPECT_THAT(sources, ElementsAre(".", "up", "up", "down"));
}

TEST(Cell, AnUnknownParameterIsAnsweredWithTheClosestName) {
  Outer net;
  EXPECT_EQ(&net.find_parameter("inner.scale"), &net.inner.scale);
  EXPECT_THAT([&] { net.find_parameter("inner.up.wieght"); },
              ThrowsMessage<InvalidArgument>(HasSubstr("did you mean inner.up.weight?")));
}

TEST(Cell, NamesThatAreTakenOrWouldNotParseAreRefused) {
  struct Twice : Cell {
    Twice() {
      parameter("a", {DType::kF32, {}}, zeros());
      child<ReLU>("a");
    }
  };
  struct Dash : Cell {
    Dash() { parameter("my-weight", {DType::kF32, {}}, zeros()); }
  };
  EXPECT_THAT([] { Twice(); }, ThrowsMessage<InvalidArgument>(HasSubstr("already has a parameter \"a\"")));
  EXPECT_THAT([] { Dash(); }, ThrowsMessage<InvalidArgument>(HasSubstr("\"my-weight\" cannot name")));
}

TEST(Cell, ACallWithAnotherNumberOfInputsIsRefused) {
  Two net;
  ir::Graph graph;
  const Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {3, 4}});
  EXPECT_THAT([&] { net(x, x); }, ThrowsMessage<InvalidArgument>(HasSubstr("no construct() for 2 inputs")));
  const std::vector<Value> three = {x, x, x};
  EXPECT_THAT([&] { net(three); }, ThrowsMessage<InvalidArgument>(HasSubstr("no construct() for 3 inputs")));
}

TEST(Cell, SettingsReachEveryCellBelow) {
  Outer net;
  net.apply_settings({.training = true, .seed = 7});
  EXPECT_TRUE(net.rest[0].settings().training);
  EXPECT_EQ(net.inner.up.settings().seed, 7u);
}

// Calls a cell that is no part of it.
struct Caller : Cell {
  explicit Caller(Cell& called) : called(called) {}
  Value construct(Value x) override {
    const Value result = called(x);
    seen = called.settings();
    return result;
  }
  Cell& called;
  Settings seen;
};

TEST(Cell, ThatIsPartOfNoOtherHasTheSettingsOfItsCaller) {
  Sequential block;  // as one in a list: its parts have its settings
  block.append<Dropout>(0.5);
  Caller middle(block);
  Caller net(static_cast<Cell&>(middle));
  for (const bool training : {true, false, true}) {
    net.apply_settings({.training = training, .seed = 7});
    const auto graph = trace(net, {DType::kF32, {3, 4}});
    ASSERT_EQ(ops_of(graph).size(), training ? 1U : 0U);
    EXPECT_EQ(net.seen, net.settings());
    if (training) {
      EXPECT_EQ(graph.node(0).attributes.get_int("seed"), 7);
    }
  }
  EXPECT_FALSE(block.has_settings());
  EXPECT_EQ(block.settings(), Settings{}) << "outside of the call";
  EXPECT_TRUE(ops_of(trace(block, {DType::kF32, {3, 4}})).empty()) << "it was told nothing";
}

TEST(Cell, ThatWasToldSettingsKeepsThemWhoeverCallsIt) {
  Dropout drop(0.5);
  Caller net(drop);
  net.apply_settings({.training = true});
  drop.apply_settings({});
  EXPECT_TRUE(ops_of(trace(net, {DType::kF32, {3, 4}})).empty());
  net.apply_settings({});
  drop.apply_settings({.training = true});
  EXPECT_THAT(ops_of(trace(net, {DType::kF32, {3, 4}})), ElementsAre("dropout"));
}

TEST(Cell, SettingsOfACallerThatFailsHoldNoLonger) {
  struct Fails : Cell {
    Value construct(Value) override { throw InvalidArgument("on purpose"); }
  };
  Fails fails;
  Caller net(fails);
  net.apply_settings({.training = true});
  EXPECT_THROW(trace(net, {DType::kF32, {3, 4}}), InvalidArgument);
  Dropout drop(0.5);
  EXPECT_FALSE(drop.settings().training);
  EXPECT_FALSE(fails.settings().training);
}

TEST(Cell, TakesOverSettingsOnlyOfACellThatHasSome) {
  Dropout drop(0.5), copy(0.5);
  copy.configure_as(drop);
  EXPECT_FALSE(copy.has_settings());
  drop.apply_settings({.training = true});
  copy.configure_as(drop);
  EXPECT_TRUE(copy.settings().training);
}

TEST(Cell, ParametersBecomeF64ExceptWholeNumbers) {
  struct Mixed : Cell {
    Parameter& weight = parameter("weight", {DType::kF32, {4}}, ones());
    Parameter& count = parameter("count", {DType::kI32, {1}}, zeros(), /*requires_grad=*/false);
    Mixed() { weight.data = Tensor::full({DType::kF32, {4}}, 0.5); }
  };
  Mixed net;
  set_parameter_dtype(net, DType::kF64);
  EXPECT_EQ(net.weight.type.dtype, DType::kF64);
  EXPECT_EQ(net.weight.data->dtype(), DType::kF64);
  EXPECT_EQ(net.count.type.dtype, DType::kI32);
  EXPECT_THROW(set_parameter_dtype(net, DType::kI32), InvalidArgument);
}

TEST(CellList, HoldsCellsByPositionAndIsNotCalled) {
  CellList list;
  list.append<Dense>(2, 2);
  list.append(std::make_unique<ReLU>());
  EXPECT_EQ(list.size(), 2);
  EXPECT_EQ(list[1].path(), "1");
  EXPECT_THROW(list[2], InvalidArgument);
  EXPECT_THROW(list[-1], InvalidArgument);
  EXPECT_THROW(list.append(nullptr), InvalidArgument);
  ir::Graph graph;
  EXPECT_THROW(list(graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {2, 2}})), InvalidArgument);
}

TEST(Sequential, CallsItsChildrenInOrder) {
  Sequential net;
  net.append<Flatten>();
  net.append<Dense>(12, 5);
  net.append<ReLU>();
  EXPECT_THAT(ops_of(trace(net, {DType::kF32, {7, 3, 4}})), ElementsAre("reshape", "matmul", "bias_add", "relu"));
  EXPECT_THAT(names_of(net.parameters()), ElementsAre("1.weight", "1.bias"));
}

TEST(Flatten, KeepsTheBatchEvenIfEmpty) {
  Flatten flatten;
  EXPECT_EQ(result_of(flatten, {DType::kF32, {0, 3, 4}}).shape, (Shape{0, 12}));
  EXPECT_EQ(result_of(flatten, {DType::kF32, {5}}).shape, (Shape{5, 1}));
  EXPECT_THROW(result_of(flatten, {DType::kF32, {}}), InvalidArgument);
}

TEST(Loss, NodesComeFromLoss) {
  MSELoss loss;
  ir::Graph graph;
  const Value x = graph.add_input(ir::InputKind::kInput, "x", {DType::kF32, {3}});
  loss(x, x);
  EXPECT_EQ(graph.node(0).source, "loss");
}

}  // namespace
}  // namespace tessera::nn
