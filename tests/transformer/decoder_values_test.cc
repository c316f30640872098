// What the decoder-only language models compute: a small Llama against its formulas in plain loops, and that no token
// sees a later one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tessera/base/random.h"
#include "tessera/nn/models/gpt.h"
#include "tessera/nn/models/llama.h"
#include "tessera/session/session.h"

namespace tessera::nn {
namespace {

using testing::DoubleNear;
using testing::Pointwise;

constexpr int64_t kVocabulary = 7;

std::map<std::string, Tensor> decoder_parameters(Cell& cell) {
  std::map<std::string, Tensor> parameters;
  for (const Parameter* parameter : cell.parameters()) {
    Tensor tensor(DType::kF64, parameter->type.shape);
    const auto values = tensor.values<double>();
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.5 * random_normal({.seed = 5, .stream = hash_name(parameter->full_name())}, i);
    }
    parameters[parameter->full_name()] = tensor;
  }
  return parameters;
}

// The logits of a sequence of tokens, in float64.
std::vector<double> logits_of(Cell& cell, const std::map<std::string, Tensor>& parameters,
                              const std::vector<int32_t>& tokens) {
  set_parameter_dtype(cell, DType::kF64);
  Tensor ids(DType::kI32, {1, static_cast<int64_t>(tokens.size())});
  std::copy(tokens.begin(), tokens.end(), ids.values<int32_t>().begin());
  ir::Graph graph("logits");
  graph.add_output("y", cell(graph.add_input(ir::InputKind::kInput, "ids", ids.type())));
  auto given = parameters;
  given["ids"] = ids;
  const auto result = session::evaluate(graph, given, {.reference_kernels = true}).at("y");
  const auto values = result.values<double>();
  return {values.begin(), values.end()};
}

using Row = std::vector<double>;

// weight [out,in] of that name, times x.
Row product(const std::map<std::string, Tensor>& parameters, const std::string& name, const Row& x) {
  const auto weight = parameters.at(name).values<double>();
  Row result(weight.size() / x.size());
  for (size_t i = 0; i < weight.size(); ++i) result[i / x.size()] += weight[i] * x[i % x.size()];
  return result;
}

Row normed(const std::map<std::string, Tensor>& parameters, const std::string& name, const Row& x, double eps) {
  double mean = 0;
  for (const double v : x) mean += v * v / static_cast<double>(x.size());
  const auto gamma = parameters.at(name).values<double>();
  Row result;
  for (size_t i = 0; i < x.size(); ++i) result.push_back(x[i] / std::sqrt(mean + eps) * gamma[i]);
  return result;
}

// The head number `head` of a row, turned by its position.
Row turned(const Row& row, int64_t head, int64_t depth, int64_t position, double base) {
  Row result(static_cast<size_t>(depth));
  const int64_t half = depth / 2;
  for (int64_t i = 0; i < half; ++i) {
    const double angle =
        static_cast<double>(position) * std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(depth));
    const double a = row[static_cast<size_t>(head * depth + i)];
    const double b = row[static_cast<size_t>(head * depth + i + half)];
    result[static_cast<size_t>(i)] = a * std::cos(angle) - b * std::sin(angle);
    result[static_cast<size_t>(i + half)] = b * std::cos(angle) + a * std::sin(angle);
  }
  return result;
}

double dot(const Row& a, const Row& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

TEST(Llama, ComputesItsFormulas) {
  const LlamaOptions options{.vocabulary = kVocabulary,
                             .hidden_size = 16,
                             .ffn_hidden_size = 12,
                             .num_layers = 1,
                             .num_heads = 4,
                             .num_key_value_heads = 2,
                             .rotary_base = 100};
  const auto net = llama(options);
  const auto p = decoder_parameters(*net);
  const std::vector<int32_t> tokens = {3, 0, 6, 3};
  constexpr int64_t kDepth = 4;

  std::vector<Row> x;
  for (const int32_t token : tokens) {
    const auto table = p.at("embedding.embedding_table").values<double>();
    x.emplace_back(table.begin() + token * 16, table.begin() + (token + 1) * 16);
  }
  std::vector<Row> keys;
  std::vector<Row> values;
  std::vector<double> expected;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const Row in = normed(p, "blocks.0.norm1.gamma", x[t], options.eps);
    const Row query = product(p, "blocks.0.attention.query.weight", in);
    keys.push_back(product(p, "blocks.0.attention.key.weight", in));
    values.push_back(product(p, "blocks.0.attention.value.weight", in));
    Row mixed(16);
    for (int64_t head = 0; head < 4; ++head) {
      const int64_t group = head / 2;
      const Row q = turned(query, head, kDepth, static_cast<int64_t>(t), options.rotary_base);
      Row weights;
      double sum = 0;
      for (size_t s = 0; s <= t; ++s) {
        const Row k = turned(keys[s], group, kDepth, static_cast<int64_t>(s), options.rotary_base);
        weights.push_back(std::exp(dot(q, k) / std::sqrt(static_cast<double>(kDepth))));
        sum += weights.back();
      }
      for (size_t s = 0; s <= t; ++s) {
        for (int64_t i = 0; i < kDepth; ++i) {
          mixed[static_cast<size_t>(head * kDepth + i)] +=
              weights[s] / sum * values[s][static_cast<size_t>(group * kDepth + i)];
        }
      }
    }
    Row row = x[t];
    const Row attended = product(p, "blocks.0.attention.result.weight", mixed);
    for (size_t i = 0; i < row.size(); ++i) row[i] += attended[i];
    const Row inner = normed(p, "blocks.0.norm2.gamma", row, options.eps);
    const Row gate = product(p, "blocks.0.feed_forward.gate.weight", inner);
    Row up = product(p, "blocks.0.feed_forward.up.weight", inner);
    for (size_t i = 0; i < up.size(); ++i) up[i] *= gate[i] / (1 + std::exp(-gate[i]));
    const Row down = product(p, "blocks.0.feed_forward.down.weight", up);
    for (size_t i = 0; i < row.size(); ++i) row[i] += down[i];
    for (const double logit : product(p, "head.weight", normed(p, "norm.gamma", row, options.eps))) {
      expected.push_back(logit);
    }
  }
  // Positions' sines are f32.
  EXPECT_THAT(logits_of(*net, p, tokens), Pointwise(DoubleNear(1e-5), expected));
}

TEST(LanguageModels, NoTokenSeesALaterOne) {
  const auto first_of = [](std::vector<double> logits) {
    logits.resize(2 * kVocabulary);
    return logits;
  };
  const auto check = [&](Cell& net) {
    const auto p = decoder_parameters(net);
    const auto logits = logits_of(net, p, {4, 1, 2, 6});
    const auto others = logits_of(net, p, {4, 1, 5, 0});
    EXPECT_EQ(logits.size(), static_cast<size_t>(4 * kVocabulary));
    EXPECT_THAT(first_of(others), Pointwise(DoubleNear(1e-12), first_of(logits)));
    EXPECT_GT(std::abs(logits[2 * kVocabulary] - others[2 * kVocabulary]), 1e-6);
  };
  check(*gpt({.vocabulary = kVocabulary, .max_length = 5, .hidden_size = 8, .num_layers = 2, .num_heads = 2}));
  check(*llama({.vocabulary = kVocabulary,
                .hidden_size = 8,
                .ffn_hidden_size = 6,
                .num_layers = 2,
                .num_heads = 2,
                .num_key_value_heads = 1}));
}

// Order matters: a token's logits differ where those before it change places.
TEST(LanguageModels, KnowWhereATokenStands) {
  const auto check = [](Cell& net) {
    const auto p = decoder_parameters(net);
    const auto logits = logits_of(net, p, {4, 1, 2});
    const auto others = logits_of(net, p, {1, 4, 2});
    EXPECT_GT(std::abs(logits.back() - others.back()), 1e-6);
  };
  check(*gpt({.vocabulary = kVocabulary, .max_length = 3, .hidden_size = 8, .num_layers = 1, .num_heads = 1}));
  check(*llama({.vocabulary = kVocabulary,
                .hidden_size = 8,
                .ffn_hidden_size = 6,
                .num_layers = 1,
                .num_heads = 1,
                .num_key_value_heads = 1}));
}

}  // namespace
}  // namespace tessera::nn
