// What the cells of a Transformer compute, by hand or against the formulas written in small operators.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tessera/base/random.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/nn/transformer/all_parts.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/session/session.h"

namespace tessera::nn {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;
using testing::Pointwise;

Tensor normal(const Shape& shape, const std::string& name, double scale = 1) {
  Tensor tensor(DType::kF64, shape);
  const auto values = tensor.values<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * random_normal({.seed = 11, .stream = hash_name(name)}, i);
  }
  return tensor;
}

// The cell on these inputs in float64, with parameters given by name.
Tensor value_of(Cell& cell, const std::vector<Tensor>& inputs, const std::map<std::string, Tensor>& parameters) {
  set_parameter_dtype(cell, DType::kF64);
  ir::Graph graph("cell");
  std::vector<Value> values;
  std::map<std::string, Tensor> given = parameters;
  for (const Tensor& input : inputs) {
    const auto name = fmt::format("x{}", values.size());
    values.push_back(graph.add_input(ir::InputKind::kInput, name, input.type()));
    given[name] = input;
  }
  graph.add_output("y", cell(values));
  return session::evaluate(graph, given, {.reference_kernels = true}).at("y");
}

std::map<std::string, Tensor> random_parameters(Cell& cell) {
  std::map<std::string, Tensor> parameters;
  for (const Parameter* parameter : cell.parameters()) {
    parameters[parameter->full_name()] = normal(parameter->type.shape, parameter->full_name());
  }
  return parameters;
}

// The same from a function of the inputs, by name.
using Inputs = std::map<std::string, Tensor>;
Tensor value_of(const Inputs& inputs, const std::function<Value(const std::function<Value(const std::string&)>&)>& f) {
  ir::Graph graph("formula");
  for (const auto& [name, tensor] : inputs) graph.add_input(ir::InputKind::kInput, name, tensor.type());
  const auto at = [&](const std::string& name) { return graph.value(graph.find_input(name)->value); };
  graph.add_output("y", f(at));
  return session::evaluate(graph, inputs, {.reference_kernels = true}).at("y");
}

TEST(MultiHeadAttention, IsTheFormulaWrittenInSmallOperators) {
  MultiHeadAttention attention({.hidden_size = 6, .num_heads = 2});
  auto parameters = random_parameters(attention);
  const Tensor x = normal({2, 3, 6}, "x");
  const Tensor memory = normal({2, 4, 6}, "memory");
  Tensor mask = Tensor::full({DType::kF64, {2, 3, 4}}, 1);
  for (const size_t hidden : {1, 6, 7, 14}) mask.values<double>()[hidden] = 0;
  const Tensor actual = value_of(attention, {x, memory, memory, mask}, parameters);

  Inputs inputs = parameters;
  inputs["x"] = x;
  inputs["memory"] = memory;
  inputs["mask"] = mask;
  const Tensor expected = value_of(inputs, [](const auto& at) {
    const auto heads = [&](const std::string& from, const std::string& dense, int64_t tokens) {
      const Value rows = ops::matmul(ops::reshape(at(from), {-1, 6}), at(dense + ".weight"), false, true);
      return ops::transpose(ops::reshape(rows + at(dense + ".bias"), {2, tokens, 2, 3}), {0, 2, 1, 3});
    };
    const Value scores = ops::batch_matmul(heads("x", "dense1", 3), heads("memory", "dense2", 4), false, true);
    const Value hidden = (1.0 - ops::expand_dims(at("mask"), {1})) * -10000.0;
    const Value weights = ops::softmax(scores / std::sqrt(3.0) + hidden);
    const Value mixed = ops::transpose(ops::batch_matmul(weights, heads("memory", "dense3", 4)), {0, 2, 1, 3});
    const Value rows = ops::matmul(ops::reshape(mixed, {-1, 6}), at("projection.weight"));
    return ops::reshape(rows + at("projection.bias"), {2, 3, 6});
  });
  EXPECT_THAT(actual.to_doubles(), Pointwise(DoubleNear(1e-12), expected.to_doubles()));
}

TEST(TransformerEncoderLayer, AddsAttentionThenFeedForward) {
  TransformerEncoderLayer layer({.hidden_size = 4, .ffn_hidden_size = 6, .num_heads = 2});
  const auto parameters = random_parameters(layer);
  const Tensor x = normal({2, 3, 4}, "x");
  const auto part = [&](Cell& cell, const std::string& prefix, const std::vector<Tensor>& inputs) {
    std::map<std::string, Tensor> own;
    for (const Parameter* parameter : cell.parameters()) {
      own[parameter->full_name()] = parameters.at(prefix + parameter->full_name());
    }
    return value_of(cell, inputs, own);
  };
  const auto normed = [&](const Tensor& of, const std::string& norm) {
    return value_of({{"x", of}, {"gamma", parameters.at(norm + ".gamma")}, {"beta", parameters.at(norm + ".beta")}},
                    [](const auto& at) { return ops::layer_norm(at("x"), at("gamma"), at("beta")); });
  };
  const auto sum = [&](const Tensor& a, const Tensor& b) {
    return value_of({{"a", a}, {"b", b}}, [](const auto& at) { return at("a") + at("b"); });
  };
  MultiHeadAttention attention({.hidden_size = 4, .num_heads = 2});
  FeedForward feed_forward({.hidden_size = 4, .ffn_hidden_size = 6});
  const Tensor y = normed(x, "layernorm1");
  const Tensor middle = sum(x, part(attention, "attention.", {y, y, y}));
  const Tensor expected = sum(middle, part(feed_forward, "output.", {normed(middle, "layernorm2")}));
  EXPECT_THAT(value_of(layer, {x}, parameters).to_doubles(), Pointwise(DoubleNear(1e-12), expected.to_doubles()));
}

TEST(AttentionMask, LetsATokenSeeThoseBeforeItThatAreThere) {
  AttentionMask mask(4);
  const Tensor given = Tensor::of<int32_t>({1, 4}, {1, 1, 1, 0});
  EXPECT_THAT(value_of(mask, {given}, {}).to_doubles(), ElementsAre(1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0));
}

TEST(CrossEntropyLoss, CountsTheTokensOfTheMask) {
  CrossEntropyLoss loss;
  // Probabilities 1/4, 1/2 and 1/8 of the labels.
  const Tensor logits = Tensor::of<double>({3, 2}, {0, std::log(3), 0, 0, 0, std::log(7)});
  const Tensor labels = Tensor::of<int32_t>({3}, {0, 1, 0});
  const Tensor mask = Tensor::of<double>({3}, {1, 0, 1});
  const double log2 = std::log(2.0);
  EXPECT_NEAR(value_of(loss, {logits, labels}, {}).item(), 2 * log2, 1e-12);
  EXPECT_NEAR(value_of(loss, {logits, labels.reshaped({1, 3}), mask.reshaped({1, 3})}, {}).item(),
              5 * log2 / (2 + 1e-5), 1e-12);
  EXPECT_NEAR(value_of(loss, {logits, labels, mask}, {}).item(), 5 * log2 / (2 + 1e-5), 1e-12);
}

TEST(RmsNorm, DividesByTheRootOfTheMeanSquare) {
  RmsNorm norm(2, 1e-30);
  const Tensor x = Tensor::of<double>({2, 2}, {1, 7, -3, 3});
  EXPECT_THAT(value_of(norm, {x}, {{"gamma", Tensor::of<double>({2}, {1, 2})}}).to_doubles(),
              Pointwise(DoubleNear(1e-12), {0.2, 2.8, -1.0, 2.0}));
}

TEST(RotaryPositions, TurnPairsOfFeaturesByTheirPosition) {
  // Four features: angles p and p / 100.
  const Tensor x = Tensor::of<double>({1, 2, 1, 4}, {1, 2, 3, 4, 1, 0, 0, 1});
  const Tensor y = value_of({{"x", x}}, [](const auto& at) { return rotary_positions(at("x")); });
  EXPECT_THAT(y.to_doubles(), Pointwise(DoubleNear(1e-12), {1.0, 2.0, 3.0, 4.0, std::cos(1), -std::sin(0.01),
                                                            std::sin(1), std::cos(0.01)}));
}

TEST(RotaryPositions, MakeProductsDependOnTheDistanceOnly) {
  // The same query and key at all of five tokens.
  const Tensor query = normal({1, 1, 1, 6}, "query");
  const Tensor key = normal({1, 1, 1, 6}, "key");
  const Tensor products = value_of({{"query", query}, {"key", key}}, [](const auto& at) {
    const auto turned = [&](const std::string& name) {
      return ops::reshape(rotary_positions(ops::tile(at(name), {1, 5, 1, 1})), {5, 6});
    };
    return ops::matmul(turned("query"), turned("key"), false, true);
  });
  const auto at = [&](size_t i, size_t j) { return products.values<double>()[5 * i + j]; };
  EXPECT_NEAR(at(1, 0), at(4, 3), 1e-12);
  EXPECT_NEAR(at(0, 2), at(2, 4), 1e-12);
  EXPECT_GT(std::abs(at(1, 0) - at(0, 1)), 1e-3);
}

TEST(SwiGlu, MultipliesTheGateIn) {
  SwiGlu cell(1, 2);
  const std::map<std::string, Tensor> parameters = {{"gate.weight", Tensor::of<double>({2, 1}, {1, -1})},
                                                    {"up.weight", Tensor::of<double>({2, 1}, {2, 3})},
                                                    {"down.weight", Tensor::of<double>({1, 2}, {1, 1})}};
  const double x = std::log(3.0);
  // sigmoid(log 3) = 3/4.
  const double expected = x * 0.75 * 2 * x - x * 0.25 * 3 * x;
  EXPECT_NEAR(value_of(cell, {Tensor::of<double>({1, 1}, {x})}, parameters).item(), expected, 1e-12);
}

}  // namespace
}  // namespace tessera::nn
