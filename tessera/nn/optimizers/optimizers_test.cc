#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/nn/cell.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/optimizers/adagrad.h"
#include "tessera/nn/optimizers/adam.h"
#include "tessera/nn/optimizers/asgd.h"
#include "tessera/nn/optimizers/ftrl.h"
#include "tessera/nn/optimizers/lamb.h"
#include "tessera/nn/optimizers/momentum.h"
#include "tessera/nn/optimizers/rmsprop.h"
#include "tessera/nn/optimizers/rprop.h"
#include "tessera/nn/optimizers/sgd.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/verify.h"

namespace tessera::nn {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct Net : Cell {
  Parameter& weight = parameter("weight", {DType::kF32, {3, 4}}, zeros());
  Parameter& gamma = parameter("gamma", {DType::kF32, {4}}, ones());
};

// The graph in which the optimizer updates every parameter of the net by a gradient that is an input.
ir::Graph update_graph(Cell& net, Optimizer& optimizer, DType gradient_dtype = DType::kF32) {
  ir::Graph graph("update");
  std::vector<ParameterGradient> pairs;
  for (const Parameter* parameter : net.trainable_parameters()) {
    const Type type{gradient_dtype, parameter->type.shape};
    pairs.push_back({parameter, graph.add_input(ir::InputKind::kInput, "d_" + parameter->name, type)});
  }
  optimizer.update(graph, pairs);
  graph.finish_assignments();
  ops::verify_or_throw(graph);
  return graph;
}

std::string text_of(Optimizer& optimizer) {
  Net net;
  return ir::print(update_graph(net, optimizer));
}

std::vector<std::string> state_names(Optimizer& optimizer) {
  Net net;
  const auto parameters = net.trainable_parameters();
  std::vector<std::string> names;
  for (const auto& state : optimizer.states(parameters)) {
    EXPECT_EQ(state.kind, ir::InputKind::kState);
    names.push_back(fmt::format("{} {}", state.full_name(), state.type));
  }
  return names;
}

// The weight_decay of the node that updates `parameter`.
double decay_of(const ir::Graph& graph, const std::string& parameter) {
  const auto& node = graph.node(graph.info(graph.find_output(parameter)->value).node);
  return node.attributes.get_double("weight_decay");
}

TEST(Momentum, UpdateReadsRateAndMomentumAndCountsTheStep) {
  Momentum momentum({.learning_rate = 0.1, .momentum = 0.8, .weight_decay = 0.01, .loss_scale = 2});
  EXPECT_EQ(text_of(momentum), R"(graph update
  input d_weight f32[3,4]
  input d_gamma f32[4]
  state global_step i32[1]
  state learning_rate f32[]
  state momentum f32[]
  param weight f32[3,4]
  state moments.weight f32[3,4]
  param gamma f32[4]
  state moments.gamma f32[4]
  %1, %2 = momentum weight, moments.weight, d_weight, learning_rate, momentum {loss_scale=2.0, nesterov=false, weight_decay=0.01} : f32[3,4], f32[3,4] @ optimizer
  %3, %4 = momentum gamma, moments.gamma, d_gamma, learning_rate, momentum {loss_scale=2.0, nesterov=false, weight_decay=0.0} : f32[4], f32[4] @ optimizer
  %5 = fill {dtype=i32, shape=[], value=1.0} : i32[] @ optimizer
  %6 = add global_step, %5 : i32[1] @ optimizer
  return global_step = %6, weight = %1, moments.weight = %2, gamma = %3, moments.gamma = %4
)");
  EXPECT_THAT(state_names(momentum), ElementsAre("global_step i32[1]", "learning_rate f32[]", "momentum f32[]",
                                                 "moments.weight f32[3,4]", "moments.gamma f32[4]"));
}

TEST(Momentum, AScheduleIsATableReadByTheStep) {
  Momentum momentum({.learning_rate = std::vector{0.1, 0.01, 0.001}});
  EXPECT_EQ(text_of(momentum), R"(graph update
  input d_weight f32[3,4]
  input d_gamma f32[4]
  state global_step i32[1]
  state learning_rate f32[3]
  state momentum f32[]
  param weight f32[3,4]
  state moments.weight f32[3,4]
  param gamma f32[4]
  state moments.gamma f32[4]
  %1 = fill {dtype=i32, shape=[], value=2.0} : i32[] @ optimizer
  %2 = minimum global_step, %1 : i32[1] @ optimizer
  %3 = gather learning_rate, %2 {axis=0} : f32[1] @ optimizer
  %4 = reshape %3 {shape=[]} : f32[] @ optimizer
  %5, %6 = momentum weight, moments.weight, d_weight, %4, momentum {loss_scale=1.0, nesterov=false, weight_decay=0.0} : f32[3,4], f32[3,4] @ optimizer
  %7, %8 = momentum gamma, moments.gamma, d_gamma, %4, momentum {loss_scale=1.0, nesterov=false, weight_decay=0.0} : f32[4], f32[4] @ optimizer
  %9 = fill {dtype=i32, shape=[], value=1.0} : i32[] @ optimizer
  %10 = add global_step, %9 : i32[1] @ optimizer
  return global_step = %10, weight = %5, moments.weight = %6, gamma = %7, moments.gamma = %8
)");
  Net net;
  const auto parameters = net.trainable_parameters();
  const auto states = momentum.states(parameters);
  EXPECT_EQ(states[1].name, "learning_rate");
  EXPECT_TRUE(bit_equal(*states[1].data, Tensor::of<float>({3}, {0.1f, 0.01f, 0.001f})));
}

TEST(Momentum, AScheduleOfOperatorsIsAddedToTheGraphAndIsNoState) {
  const LearningRate::Schedule half_of_step = [](ir::Value step) { return ops::cast(step, DType::kF32) * 0.5; };
  Momentum momentum({.learning_rate = half_of_step});
  EXPECT_THAT(text_of(momentum), HasSubstr(R"(  %1 = reshape global_step {shape=[]} : i32[] @ optimizer
  %2 = cast %1 {dtype=f32} : f32[] @ optimizer
  %3 = fill {dtype=f32, shape=[], value=0.5} : f32[] @ optimizer
  %4 = mul %2, %3 : f32[] @ optimizer
  %5 = reshape %4 {shape=[]} : f32[] @ optimizer
  %6, %7 = momentum weight, moments.weight, d_weight, %5, momentum)"));
  EXPECT_THAT(state_names(momentum),
              ElementsAre("global_step i32[1]", "momentum f32[]", "moments.weight f32[3,4]", "moments.gamma f32[4]"));
  EXPECT_THROW(LearningRate(LearningRate::Schedule()), InvalidArgument);
}

TEST(Sgd, TellsItsFirstStepFromTheCounter) {
  SGD sgd({.learning_rate = 0.1, .momentum = 0.9, .nesterov = true});
  EXPECT_EQ(text_of(sgd), R"(graph update
  input d_weight f32[3,4]
  input d_gamma f32[4]
  state global_step i32[1]
  state learning_rate f32[]
  state momentum f32[]
  param weight f32[3,4]
  state accum.weight f32[3,4]
  param gamma f32[4]
  state accum.gamma f32[4]
  %1 = fill {dtype=i32, shape=[], value=0.0} : i32[] @ optimizer
  %2 = equal global_step, %1 : bool[1] @ optimizer
  %3 = reshape %2 {shape=[]} : bool[] @ optimizer
  %4 = cast %3 {dtype=f32} : f32[] @ optimizer
  %5, %6 = sgd weight, accum.weight, d_weight, learning_rate, momentum, %4 {dampening=0.0, loss_scale=1.0, nesterov, weight_decay=0.0} : f32[3,4], f32[3,4] @ optimizer
  %7, %8 = sgd gamma, accum.gamma, d_gamma, learning_rate, momentum, %4 {dampening=0.0, loss_scale=1.0, nesterov, weight_decay=0.0} : f32[4], f32[4] @ optimizer
  %9 = fill {dtype=i32, shape=[], value=1.0} : i32[] @ optimizer
  %10 = add global_step, %9 : i32[1] @ optimizer
  return global_step = %10, weight = %5, accum.weight = %6, gamma = %7, accum.gamma = %8
)");
  EXPECT_THAT(state_names(sgd), ElementsAre("global_step i32[1]", "learning_rate f32[]", "momentum f32[]",
                                            "accum.weight f32[3,4]", "accum.gamma f32[4]"));
}

TEST(Adam, UsesThePowersOfThisStep) {
  Adam adam;
  EXPECT_EQ(text_of(adam), R"(graph update
  input d_weight f32[3,4]
  input d_gamma f32[4]
  state global_step i32[1]
  state learning_rate f32[]
  state beta1_power f32[1]
  state beta2_power f32[1]
  param weight f32[3,4]
  state moment1.weight f32[3,4]
  state moment2.weight f32[3,4]
  param gamma f32[4]
  state moment1.gamma f32[4]
  state moment2.gamma f32[4]
  %1 = fill {dtype=f32, shape=[], value=0.9} : f32[] @ optimizer
  %2 = mul beta1_power, %1 : f32[1] @ optimizer
  %3 = reshape %2 {shape=[]} : f32[] @ optimizer
  %4 = fill {dtype=f32, shape=[], value=0.999} : f32[] @ optimizer
  %5 = mul beta2_power, %4 : f32[1] @ optimizer
  %6 = reshape %5 {shape=[]} : f32[] @ optimizer
  %7, %8, %9 = adam weight, moment1.weight, moment2.weight, d_weight, learning_rate, %3, %6 {beta1=0.9, beta2=0.999, eps=1e-08, loss_scale=1.0, nesterov=false, weight_decay=0.0} : f32[3,4], f32[3,4], f32[3,4] @ optimizer
  %10, %11, %12 = adam gamma, moment1.gamma, moment2.gamma, d_gamma, learning_rate, %3, %6 {beta1=0.9, beta2=0.999, eps=1e-08, loss_scale=1.0, nesterov=false, weight_decay=0.0} : f32[4], f32[4], f32[4] @ optimizer
  %13 = fill {dtype=i32, shape=[], value=1.0} : i32[] @ optimizer
  %14 = add global_step, %13 : i32[1] @ optimizer
  return global_step = %14, beta1_power = %2, beta2_power = %5, weight = %7, moment1.weight = %8, moment2.weight = %9, gamma = %10, moment1.gamma = %11, moment2.gamma = %12
)");
  EXPECT_THAT(state_names(adam), ElementsAre("global_step i32[1]", "learning_rate f32[]", "beta1_power f32[1]",
                                             "beta2_power f32[1]", "moment1.weight f32[3,4]", "moment1.gamma f32[4]",
                                             "moment2.weight f32[3,4]", "moment2.gamma f32[4]"));
}

TEST(AdamWeightDecay, DecaysWithoutBiasCorrection) {
  AdamWeightDecay adam({.weight_decay = 0.01});
  EXPECT_EQ(text_of(adam), R"(graph update
  input d_weight f32[3,4]
  input d_gamma f32[4]
  state global_step i32[1]
  state learning_rate f32[]
  param weight f32[3,4]
  state adam_m.weight f32[3,4]
  state adam_v.weight f32[3,4]
  param gamma f32[4]
  state adam_m.gamma f32[4]
  state adam_v.gamma f32[4]
  %1, %2, %3 = adam_weight_decay weight, adam_m.weight, adam_v.weight, d_weight, learning_rate {beta1=0.9, beta2=0.999, eps=1e-06, loss_scale=1.0, weight_decay=0.01} : f32[3,4], f32[3,4], f32[3,4] @ optimizer
  %4, %5, %6 = adam_weight_decay gamma, adam_m.gamma, adam_v.gamma, d_gamma, learning_rate {beta1=0.9, beta2=0.999, eps=1e-06, loss_scale=1.0, weight_decay=0.0} : f32[4], f32[4], f32[4] @ optimizer
  %7 = fill {dtype=i32, shape=[], value=1.0} : i32[] @ optimizer
  %8 = add global_step, %7 : i32[1] @ optimizer
  return global_step = %8, weight = %1, adam_m.weight = %2, adam_v.weight = %3, gamma = %4, adam_m.gamma = %5, adam_v.gamma = %6
)");
  EXPECT_THAT(state_names(adam), ElementsAre("global_step i32[1]", "learning_rate f32[]", "adam_m.weight f32[3,4]",
                                             "adam_m.gamma f32[4]", "adam_v.weight f32[3,4]", "adam_v.gamma f32[4]"));
}

TEST(Adagrad, KeepsItsSumsWhereSlotsAreNotUpdated) {
  const auto updates_slots = [](bool update_slots) {
    Net net;
    Adagrad adagrad({.update_slots = update_slots});
    const auto graph = update_graph(net, adagrad);
    const ir::ValueId sums = graph.find_output("accum.weight")->value;
    return graph.node(graph.info(sums).node).attributes.get_bool("update_slots");
  };
  EXPECT_FALSE(updates_slots(false));
  EXPECT_TRUE(updates_slots(true));
}

// The first value of a state.
double initial_value_of(Optimizer& optimizer, const std::string& name) {
  Net net;
  const auto parameters = net.trainable_parameters();
  for (const auto& state : optimizer.states(parameters)) {
    if (state.full_name() != name) continue;
    ir::Graph graph("initial");
    const InitContext context{.graph = graph, .type = state.type, .name = name, .seed = 0};
    const auto value = state.init(context);
    return graph.node(graph.info(value.id()).node).attributes.get_double("value");
  }
  throw InvalidArgument("no state {}", name);
}

TEST(Optimizers, SlotsStartAsTheirOptimizerSays) {
  Adagrad adagrad({.accum = 0.25});
  EXPECT_EQ(initial_value_of(adagrad, "accum.weight"), 0.25);
  RMSProp rmsprop({.centered = true});
  EXPECT_EQ(initial_value_of(rmsprop, "mean_square.weight"), 1);
  EXPECT_EQ(initial_value_of(rmsprop, "moment.weight"), 0);
  EXPECT_EQ(initial_value_of(rmsprop, "mean_grad.gamma"), 0);
  FTRL ftrl({.initial_accum = 0.5});
  EXPECT_EQ(initial_value_of(ftrl, "moments.gamma"), 0.5);
  EXPECT_EQ(initial_value_of(ftrl, "linear.gamma"), 0);
  ASGD asgd;
  EXPECT_EQ(initial_value_of(asgd, "mu_gamma"), 1);
  EXPECT_EQ(initial_value_of(asgd, "eta_gamma"), 0);
  EXPECT_EQ(initial_value_of(asgd, "ax_.gamma"), 0);
}

TEST(ParameterGroups, HaveRatesAndDecaysOfTheirOwn) {
  Net net;
  Momentum momentum(
      {.learning_rate = 0.1,
       .weight_decay = 0.5,
       .groups = {{.parameters = {&net.weight}, .weight_decay = 0.25},
                  {.matches = [](const std::string& name) { return name.ends_with("gamma"); }, .learning_rate = 0.2}}});
  const auto graph = update_graph(net, momentum);
  EXPECT_EQ(decay_of(graph, "weight"), 0.25);
  EXPECT_EQ(decay_of(graph, "gamma"), 0.5) << "a group's parameters are not exempt by name";
  const auto& gamma_node = graph.node(graph.info(graph.find_output("gamma")->value).node);
  EXPECT_EQ(graph.value_name(gamma_node.inputs[3]), "learning_rate_group_1");
  const auto parameters = net.trainable_parameters();
  const auto states = momentum.states(parameters);
  EXPECT_EQ(states[1].name, "learning_rate");
  EXPECT_EQ(states[2].name, "learning_rate_group_1");
}

TEST(ParameterGroups, ARateThatNoParameterReadsIsNoState) {
  Net net;
  Momentum momentum({.learning_rate = 0.1,
                     .groups = {{.parameters = {&net.weight, &net.gamma}, .learning_rate = std::vector{0.2, 0.3}}}});
  const auto parameters = net.trainable_parameters();
  const auto states = momentum.states(parameters);
  EXPECT_EQ(states[1].name, "learning_rate_group_0");
  EXPECT_EQ(states[1].type, (Type{DType::kF32, {2}}));
  EXPECT_EQ(update_graph(net, momentum).find_input("learning_rate"), nullptr);
}

TEST(ParameterGroups, WithoutThemBetaAndGammaDoNotDecay) {
  Net net;
  Momentum momentum({.learning_rate = 0.1, .weight_decay = 0.5});
  const auto graph = update_graph(net, momentum);
  EXPECT_EQ(decay_of(graph, "weight"), 0.5);
  EXPECT_EQ(decay_of(graph, "gamma"), 0.0);
}

TEST(ParameterGroups, CellsWhoseNamesContainBetaAndGammaDecay) {
  struct Cells : Cell {
    Net& gamma_net = child<Net>("gamma_net");
    Parameter& betamax = parameter("betamax", {DType::kF32, {4}}, ones());
  };
  Cells cells;
  Momentum momentum({.learning_rate = 0.1, .weight_decay = 0.5});
  const auto graph = update_graph(cells, momentum);
  EXPECT_EQ(decay_of(graph, "gamma_net.weight"), 0.5);
  EXPECT_EQ(decay_of(graph, "betamax"), 0.5);
  EXPECT_EQ(decay_of(graph, "gamma_net.gamma"), 0.0);
}

TEST(ParameterGroups, TwoGroupsForOneParameterAndNoneForAGroupAreRefused) {
  Net net;
  const auto parameters = net.trainable_parameters();
  const auto all = [](const std::string&) { return true; };
  Momentum twice({.learning_rate = 0.1, .groups = {{.parameters = {&net.weight}}, {.matches = all}}});
  EXPECT_THAT([&] { twice.states(parameters); },
              ThrowsMessage<InvalidArgument>("Momentum: parameter \"weight\" is in groups 0 and 1"));
  Momentum unused({.learning_rate = 0.1, .groups = {{.matches = [](const std::string&) { return false; }}}});
  EXPECT_THAT([&] { unused.states(parameters); },
              ThrowsMessage<InvalidArgument>("Momentum: parameter group 0 matches none of the parameters"));
  EXPECT_THROW(Momentum({.learning_rate = 0.1, .groups = {{}}}), InvalidArgument);
}

TEST(Optimizers, GradientsOfOtherDtypesAreCast) {
  Net net;
  Momentum momentum({.learning_rate = 0.1});
  EXPECT_THAT(ir::print(update_graph(net, momentum, DType::kBF16)), HasSubstr("cast d_weight {dtype=f32}"));
}

TEST(Optimizers, F64NetworksHaveF64Rates) {
  Net net;
  set_parameter_dtype(net, DType::kF64);
  Momentum momentum({.learning_rate = std::vector{0.1, 0.01}});
  const auto parameters = net.trainable_parameters();
  const auto states = momentum.states(parameters);
  EXPECT_EQ(states[1].type, (Type{DType::kF64, {2}}));
  EXPECT_EQ(states[1].data->to_doubles(), (std::vector{0.1, 0.01}));
  EXPECT_NO_THROW(update_graph(net, momentum, DType::kF64));
}

TEST(Optimizers, HalfParametersHaveF32Moments) {
  Net net;
  set_parameter_dtype(net, DType::kBF16);
  Adam adam;
  const auto parameters = net.trainable_parameters();
  const auto states = adam.states(parameters);
  EXPECT_EQ(states.back().type.dtype, DType::kF32);
  EXPECT_NO_THROW(update_graph(net, adam, DType::kBF16));
}

TEST(Optimizers, StatesListsWhatUpdateReads) {
  Net net;
  const auto parameters = net.trainable_parameters();
  Momentum momentum({.learning_rate = std::vector{0.1, 0.2}});
  SGD sgd;
  Adam adam;
  LazyAdam lazy_adam;
  AdamW adamw;
  AdamWeightDecay adam_weight_decay;
  Lamb lamb;
  Adagrad adagrad;
  RMSProp rmsprop;
  RMSProp centered({.centered = true});
  FTRL ftrl({.weight_decay = 0.1});
  AdaMax adamax;
  AMSGrad amsgrad;
  Adadelta adadelta;
  Rprop rprop;
  ASGD asgd;
  for (Optimizer* optimizer : std::initializer_list<Optimizer*>{
           &momentum, &sgd, &adam, &lazy_adam, &adamw, &adam_weight_decay, &lamb, &adagrad, &rmsprop, &centered, &ftrl,
           &adamax, &amsgrad, &adadelta, &rprop, &asgd}) {
    std::map<std::string, Type> listed;
    for (const auto& state : optimizer->states(parameters)) listed[state.full_name()] = state.type;
    std::map<std::string, Type> read;
    const auto graph = update_graph(net, *optimizer);
    for (const auto& input : graph.inputs()) {
      if (input.kind == ir::InputKind::kState) read[input.name] = graph.type(input.value);
    }
    EXPECT_EQ(listed, read);
  }
}

TEST(Optimizers, AMissingGradientCountsAsZero) {
  Net net;
  Momentum momentum({.learning_rate = 0.1});
  ir::Graph graph("update");
  const ParameterGradient pair{&net.weight, {}};
  momentum.update(graph, std::span(&pair, 1));
  EXPECT_THAT(ir::print(graph), HasSubstr("zeros_like weight"));
}

TEST(Optimizers, NumbersThatAreNoneOrWithoutEndAreRefusedByNameAndRange) {
  struct Case {
    std::function<void(double)> make;
    const char* message;
  };
  const std::vector<Case> cases = {
      {[](double x) { Momentum({.learning_rate = 0.1, .momentum = x}); }, "Momentum: momentum must be finite and not"},
      {[](double x) { Momentum({.learning_rate = 0.1, .weight_decay = x}); },
       "Momentum: weight_decay must be finite and"},
      {[](double x) { SGD({.momentum = x}); }, "SGD: momentum must be finite and not negative"},
      {[](double x) { SGD({.momentum = 0.9, .dampening = x}); }, "SGD: dampening must be finite and not negative"},
      {[](double x) { Adam({.beta1 = x}); }, "Adam: beta1 must be in (0,1)"},
      {[](double x) { Adam({.beta2 = x}); }, "Adam: beta2 must be in (0,1)"},
      {[](double x) { Adam({.eps = x}); }, "Adam: eps must be finite and positive"},
      {[](double x) { Lamb({.eps = x}); }, "Lamb: eps must be finite and positive"},
      {[](double x) { Adagrad({.accum = x}); }, "Adagrad: accum must be finite and not negative"},
      {[](double x) { Adadelta({.rho = x}); }, "Adadelta: rho must be in [0,1]"},
      {[](double x) { Adadelta({.epsilon = x}); }, "Adadelta: epsilon must be finite and not negative"},
      {[](double x) { RMSProp({.decay = x}); }, "RMSProp: decay must be finite and not negative"},
      {[](double x) { RMSProp({.momentum = x}); }, "RMSProp: momentum must be finite and not negative"},
      {[](double x) { RMSProp({.epsilon = x}); }, "RMSProp: epsilon must be finite and positive"},
      {[](double x) { FTRL({.initial_accum = x}); }, "FTRL: initial_accum must be finite and not negative"},
      {[](double x) { FTRL({.lr_power = -x}); }, "FTRL: lr_power must be finite"},
      {[](double x) { FTRL({.l1 = x}); }, "FTRL: l1 must be finite and not negative"},
      {[](double x) { FTRL({.l2 = x}); }, "FTRL: l2 must be finite and not negative"},
      {[](double x) { Rprop({.smaller = x}); }, "Rprop: smaller must be in (0,1)"},
      {[](double x) { Rprop({.larger = x}); }, "Rprop: larger must be finite"},
      {[](double x) { Rprop({.least_step = x}); }, "Rprop: least_step must be finite and not negative"},
      {[](double x) { ASGD({.lambd = x}); }, "ASGD: lambd must be finite"},
      {[](double x) { ASGD({.alpha = x}); }, "ASGD: alpha must be finite"},
      {[](double x) { ASGD({.t0 = x}); }, "ASGD: t0 must be finite"}};
  for (const Case& one : cases) {
    for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      EXPECT_THAT([&] { one.make(bad); }, ThrowsMessage<InvalidArgument>(HasSubstr(one.message)))
          << one.message << " " << bad;
    }
  }
  EXPECT_THROW(Rprop({.least_step = -1}), InvalidArgument);
}

TEST(Optimizers, SettingsWithoutEffectOrThatDivergeAreRefusedUnlessMindSporesAreTaken) {
  const auto refuses = [](const auto& make, const char* message) {
    EXPECT_THAT(make, ThrowsMessage<InvalidArgument>(HasSubstr(message)));
  };
  refuses([] { SGD({.dampening = 0.5}); }, "SGD: dampening = 0.5 has no effect without momentum");
  refuses([] { SGD({.momentum = 2}); }, "SGD: momentum must be in [0,1], got 2");
  refuses([] { Momentum({.learning_rate = 0.1, .momentum = 0, .use_nesterov = true}); },
          "Momentum: use_nesterov has no effect without momentum");
  refuses([] { Momentum({.learning_rate = 0.1, .momentum = 2}); }, "Momentum: momentum must be in [0,1], got 2");
  refuses([] { RMSProp({.decay = 3}); }, "RMSProp: decay must be in [0,1], got 3");
  refuses([] { RMSProp({.momentum = 1.5}); }, "RMSProp: momentum must be in [0,1], got 1.5");
  EXPECT_NO_THROW(SGD({.dampening = 0.5, .is_strict = false}));
  EXPECT_NO_THROW(Momentum({.learning_rate = 0.1, .momentum = 2, .is_strict = false}));
  EXPECT_NO_THROW(Momentum({.learning_rate = 0.1, .momentum = 0, .use_nesterov = true, .is_strict = false}));
  EXPECT_NO_THROW(RMSProp({.decay = 3, .momentum = 2, .is_strict = false}));
}

TEST(Optimizers, SettingsThatCannotWorkAreRefused) {
  EXPECT_THAT([] { Momentum({.learning_rate = 0.1, .momentum = -1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("momentum must be finite and not negative, got -1")));
  EXPECT_THROW(Momentum({.learning_rate = 0.1, .weight_decay = -1}), InvalidArgument);
  EXPECT_THROW(Momentum({.learning_rate = 0.1, .loss_scale = 0}), InvalidArgument);
  EXPECT_THROW(SGD({.nesterov = true}), InvalidArgument);
  EXPECT_THROW(SGD({.momentum = 0.9, .dampening = 0.1, .nesterov = true}), InvalidArgument);
  EXPECT_THROW(Adam({.beta1 = 1}), InvalidArgument);
  EXPECT_THROW(LazyAdam({.eps = 0}), InvalidArgument);
  EXPECT_THROW(AdamWeightDecay({.eps = 0}), InvalidArgument);
  EXPECT_THROW(AdamW({.beta1 = 1}), InvalidArgument);
  EXPECT_THROW(Lamb({.beta2 = 0}), InvalidArgument);
  EXPECT_THROW(Lamb({.eps = 0}), InvalidArgument);
  EXPECT_THROW(Adagrad({.accum = -1}), InvalidArgument);
  EXPECT_THROW(RMSProp({.decay = -1}), InvalidArgument);
  EXPECT_THROW(RMSProp({.epsilon = 0}), InvalidArgument);
  EXPECT_THROW(FTRL({.lr_power = 0.5}), InvalidArgument);
  EXPECT_THROW(FTRL({.l1 = -1}), InvalidArgument);
  EXPECT_THROW(AdaMax({.beta1 = 1}), InvalidArgument);
  EXPECT_THROW(AMSGrad({.beta2 = 1}), InvalidArgument);
  EXPECT_THROW(Adadelta({.rho = 1.5}), InvalidArgument);
  EXPECT_THROW(Adadelta({.epsilon = -1}), InvalidArgument);
  EXPECT_THROW(Rprop({.smaller = 1}), InvalidArgument);
  EXPECT_THROW(Rprop({.larger = 1}), InvalidArgument);
  EXPECT_THROW(Rprop({.least_step = 2, .longest_step = 1}), InvalidArgument);
  EXPECT_THROW(ASGD({.t0 = std::numeric_limits<double>::infinity()}), InvalidArgument);
}

}  // namespace
}  // namespace tessera::nn
