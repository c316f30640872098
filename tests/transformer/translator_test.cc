// What padding does in a translator: nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/nn/models/translator.h"
#include "tessera/session/session.h"

namespace tessera::nn {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pointwise;
using testing::ThrowsMessage;

constexpr int32_t kPadding = 1;
constexpr int64_t kWords = 7;

std::unique_ptr<Cell> small_translator(const std::optional<int32_t>& padding) {
  auto made = translator({.source_vocabulary = kWords,
                          .target_vocabulary = kWords,
                          .max_length = 6,
                          .padding = padding,
                          .transformer = {.hidden_size = 8,
                                          .ffn_hidden_size = 8,
                                          .encoder_layers = 2,
                                          .decoder_layers = 2,
                                          .num_heads = 2,
                                          .attention_dropout_rate = 0,
                                          .hidden_dropout_rate = 0}});
  set_parameter_dtype(*made, DType::kF64);
  return made;
}

Tensor ids(const Shape& shape, const std::vector<int32_t>& values) {
  Tensor tensor(DType::kI32, shape);
  std::copy(values.begin(), values.end(), tensor.values<int32_t>().begin());
  return tensor;
}

std::vector<double> value_of(Cell& cell, const std::vector<Tensor>& inputs) {
  ir::Graph graph("cell");
  std::vector<Value> values;
  std::map<std::string, Tensor> given;
  for (const Parameter* parameter : cell.parameters()) {
    Tensor tensor(DType::kF64, parameter->type.shape);
    const auto elements = tensor.values<double>();
    for (size_t i = 0; i < elements.size(); ++i) {
      elements[i] = 0.3 * random_normal({.seed = 5, .stream = hash_name(parameter->full_name())}, i);
    }
    given[parameter->full_name()] = tensor;
  }
  for (const Tensor& input : inputs) {
    const auto name = fmt::format("x{}", values.size());
    values.push_back(graph.add_input(ir::InputKind::kInput, name, input.type()));
    given[name] = input;
  }
  graph.add_output("y", values.size() == 2 ? cell(values[0], values[1]) : cell(values));
  return session::evaluate(graph, given, {.reference_kernels = true}).at("y").to_doubles();
}

const Tensor kSource = ids({2, 4}, {3, 4, 5, 2, 6, 2, 1, 1});
const Tensor kTarget = ids({2, 3}, {3, 5, 4, 3, 6, 1});
const Tensor kLabel = ids({2, 3}, {5, 4, 2, 6, 2, 1});

TEST(Translator, MorePaddingChangesNoScoreOfAToken) {
  const auto cell = small_translator(kPadding);
  const auto scores = value_of(*cell, {kSource, kTarget});
  const auto longer =
      value_of(*cell, {ids({2, 6}, {3, 4, 5, 2, 1, 1, 6, 2, 1, 1, 1, 1}), ids({2, 5}, {3, 5, 4, 1, 1, 3, 6, 1, 1, 1})});
  const auto rows = [](const std::vector<double>& all, int64_t first, int64_t count) {
    return std::vector<double>(all.begin() + first * kWords, all.begin() + (first + count) * kWords);
  };
  EXPECT_THAT(rows(longer, 0, 3), Pointwise(DoubleNear(1e-12), rows(scores, 0, 3)));
  EXPECT_THAT(rows(longer, 5, 2), Pointwise(DoubleNear(1e-12), rows(scores, 3, 2)));
}

TEST(Translator, WithoutPaddingGivesTheScoresOfOneThatSeesNone) {
  const Tensor source = ids({2, 3}, {3, 4, 5, 6, 3, 2});
  const Tensor target = ids({2, 3}, {3, 5, 4, 3, 6, 5});
  EXPECT_THAT(value_of(*small_translator(std::nullopt), {source, target}),
              Pointwise(DoubleNear(1e-12), value_of(*small_translator(kPadding), {source, target})));
}

TEST(Translator, NoTokenSeesALaterOne) {
  const auto cell = small_translator(kPadding);
  const auto scores = value_of(*cell, {kSource, kTarget});
  const auto other = value_of(*cell, {kSource, ids({2, 3}, {3, 5, 6, 3, 4, 1})});
  for (const size_t row : {size_t{0}, size_t{1}, size_t{3}}) {
    for (size_t i = row * kWords; i < (row + 1) * kWords; ++i) EXPECT_EQ(other[i], scores[i]) << i;
  }
  EXPECT_NE(other[2 * kWords], scores[2 * kWords]);
}

TEST(Translator, ItsLossIsTheMeanOverTheTokensThatThereAre) {
  const auto cell = small_translator(kPadding);
  const auto scores = value_of(*cell, {kSource, kTarget});
  double sum = 0;
  const std::vector<std::pair<size_t, size_t>> counted{{0, 5}, {1, 4}, {2, 2}, {3, 6}, {4, 2}};  // row, label
  for (const auto& [row, label] : counted) {
    double total = 0;
    for (size_t i = 0; i < kWords; ++i) total += std::exp(scores[row * kWords + i]);
    sum += std::log(total) - scores[row * kWords + label];
  }
  EXPECT_NEAR(value_of(*cell, {kSource, kTarget, kLabel})[0], sum / (5 + 1e-5), 1e-6);
}

TEST(Translator, RefusesAnotherNumberOfInputs) {
  EXPECT_THAT(
      [] {
        value_of(*small_translator(kPadding), {kSource, kTarget, kLabel, kLabel});
      },
      ThrowsMessage<InvalidArgument>(HasSubstr("takes source, target and, for its loss, label; got 4 inputs")));
}

}  // namespace
}  // namespace tessera::nn
