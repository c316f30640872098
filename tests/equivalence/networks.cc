#include "tests/equivalence/networks.h"

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/nn/layers/activation.h"
#include "tessera/nn/layers/convolution.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/layers/recurrent.h"
#include "tessera/nn/models/gpt.h"
#include "tessera/nn/models/resnet.h"
#include "tessera/nn/models/translator.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::equivalence {
namespace {

using ir::Value;

struct Mlp : nn::Cell {
  explicit Mlp(int64_t scale)
      : up(child<nn::Dense>("up", 12 * scale, 16 * scale)), down(child<nn::Dense>("down", 16 * scale, 10)) {}
  nn::Dense& up;
  nn::Dense& down;
  using Cell::construct;
  Value construct(Value x) override { return down(ops::relu(up(x))); }
};

struct SmallResNet : nn::Cell {
  explicit SmallResNet(int64_t scale) : channels(8 * scale) {}
  int64_t channels;
  nn::Conv2d& stem = child<nn::Conv2d>("stem", 3, channels, nn::Conv2dOptions{.kernel = 3});
  nn::BatchNorm2d& bn = child<nn::BatchNorm2d>("bn", channels);
  nn::Conv2d& conv1 = child<nn::Conv2d>("conv1", channels, channels, nn::Conv2dOptions{.kernel = 3, .stride = 2});
  nn::BatchNorm2d& bn1 = child<nn::BatchNorm2d>("bn1", channels);
  nn::Conv2d& down = child<nn::Conv2d>("down", channels, channels, nn::Conv2dOptions{.kernel = 1, .stride = 2});
  nn::Dense& fc = child<nn::Dense>("fc", channels, 10);
  using Cell::construct;
  Value construct(Value x) override {
    x = ops::relu(bn(stem(x)));
    x = ops::relu(bn1(conv1(x)) + down(x));
    return fc(ops::reduce_mean(x, {2, 3}));
  }
};

struct Transformer : nn::Cell {
  explicit Transformer(int64_t scale) : width(8 * scale), head_width(width / kHeads) {}
  static constexpr int64_t kHeads = 2;
  int64_t width;
  int64_t head_width;
  nn::Embedding& embedding = child<nn::Embedding>("embedding", 13, width);
  nn::LayerNorm& norm1 = child<nn::LayerNorm>("norm1", Shape{width});
  nn::Dense& query = child<nn::Dense>("query", width, width);
  // A bias of the keys changes nothing: its gradient would be rounding only.
  nn::Dense& key = child<nn::Dense>("key", width, width, nn::DenseOptions{.has_bias = false});
  nn::Dense& value = child<nn::Dense>("value", width, width);
  nn::Dense& output = child<nn::Dense>("output", width, width);
  nn::LayerNorm& norm2 = child<nn::LayerNorm>("norm2", Shape{width});
  nn::Dense& up = child<nn::Dense>("up", width, 2 * width);
  nn::Dense& down = child<nn::Dense>("down", 2 * width, width);
  nn::Dense& head = child<nn::Dense>("head", width, 10);
  using Cell::construct;

  // [n*t,w] -> [n,heads,t,w/heads]
  Value heads(Value x, int64_t rows, int64_t steps) const {
    return ops::transpose(ops::reshape(x, {rows, steps, kHeads, head_width}), {0, 2, 1, 3});
  }
  Value construct(Value ids) override {
    const int64_t rows = ids.shape()[0];
    const int64_t steps = ids.shape()[1];
    Value x = ops::reshape(embedding(ids), {rows * steps, width});
    Value y = norm1(x);
    const Value q = heads(query(y), rows, steps);
    const Value k = heads(key(y), rows, steps);
    const Value v = heads(value(y), rows, steps);
    const Value scores = ops::batch_matmul(q, k, false, true) * (1 / std::sqrt(static_cast<double>(head_width)));
    Value mixed = ops::batch_matmul(ops::softmax(scores, -1), v);
    mixed = ops::reshape(ops::transpose(mixed, {0, 2, 1, 3}), {rows * steps, width});
    x = x + output(mixed);
    y = norm2(x);
    x = x + down(ops::gelu(up(y)));
    return head(ops::reduce_mean(ops::reshape(x, {rows, steps, width}), {1}));
  }
};

// Filters over sequences, then layers with a memory, the first over a part of each sequence.
struct Recurrent : nn::Cell {
  nn::Conv1d& filters = child<nn::Conv1d>("filters", 5, 6, nn::Conv1dOptions{.kernel = 3, .has_bias = true});
  nn::RecurrentLayer& lstm = child<nn::RecurrentLayer>(
      "lstm", 6, 7, nn::RecurrentLayerOptions{.recurrence = nn::Recurrence::kLstm, .bidirectional = true});
  nn::RecurrentLayer& gru =
      child<nn::RecurrentLayer>("gru", 14, 8, nn::RecurrentLayerOptions{.recurrence = nn::Recurrence::kGru});
  nn::Conv1dTranspose& spread = child<nn::Conv1dTranspose>("spread", 8, 4, nn::Conv1dOptions{.kernel = 3, .stride = 2});
  nn::Dense& head = child<nn::Dense>("head", 4, 10);
  using Cell::construct;
  Value construct(Value x) override {
    // [n,5,6] -> [6,n,channels]
    const Value steps = ops::transpose(ops::relu(filters(x)), {2, 0, 1});
    // 0 to 6: how many elements of the first channel are positive.
    const Value first = ops::squeeze(ops::slice(x, {0, 0, 0}, {ops::kToEnd, 1, ops::kToEnd}), {1});
    const Value lengths = ops::reduce_sum(ops::cast(first > 0.0, DType::kI32), {1});
    const auto results = gru.run({.x = lstm.run({.x = steps, .lengths = lengths}).output});
    return head(ops::reduce_mean(spread(ops::transpose(results.output, {1, 2, 0})), {2}));
  }
};

// A bias of the keys changes nothing: its gradient would be rounding only.
void freeze_key_biases(nn::Cell& network) {
  for (nn::Parameter* parameter : network.parameters()) {
    if (parameter->full_name().ends_with("attention.dense2.bias")) parameter->requires_grad = false;
  }
}

// [n,6,10] -> [n,10]
Value mean_over_time(Value logits, Value ids) {
  return ops::reduce_mean(ops::reshape(logits, {ids.shape()[0], ids.shape()[1], 10}), {1});
}

struct Gpt : nn::Cell {
  Gpt() {
    auto made = nn::gpt({.vocabulary = 10, .max_length = 6, .hidden_size = 8, .num_layers = 2, .num_heads = 2});
    gpt = made.get();
    adopt("net", std::move(made));
    freeze_key_biases(*gpt);
  }
  using Cell::construct;
  Value construct(Value ids) override { return mean_over_time((*gpt)(ids), ids); }
  nn::Cell* gpt;
};

struct Translator : nn::Cell {
  explicit Translator(const nn::TransformerParallel& parallel) {
    nn::TranslatorOptions options{.source_vocabulary = 13, .target_vocabulary = 10, .max_length = 6};
    options.transformer = {.hidden_size = 8,
                           .ffn_hidden_size = 16,
                           .encoder_layers = 1,
                           .decoder_layers = 1,
                           .num_heads = 4,
                           .parallel = parallel};
    auto made = nn::translator(options);
    translator = made.get();
    adopt("net", std::move(made));
    freeze_key_biases(*translator);
  }
  using Cell::construct;
  Value construct(Value ids) override { return mean_over_time((*translator)(ids, ids), ids); }
  nn::Cell* translator;
};

// "Wide" are logits of each number, "deep" is what a layer makes of the numbers' rows.
struct Clicks : nn::Cell {
  static constexpr int64_t kNumbers = 97;
  static constexpr int64_t kFields = 3;
  nn::Embedding& wide = child<nn::Embedding>("wide", kNumbers, 10);
  nn::Embedding& deep = child<nn::Embedding>("deep", kNumbers, 5);
  nn::Dense& hidden = child<nn::Dense>("hidden", 5 * kFields, 8);
  nn::Dense& head = child<nn::Dense>("head", 8, 10);
  using Cell::construct;
  Value construct(Value ids) override {
    const int64_t rows = ids.shape()[0];
    const Value first = ops::slice(ids, {0, 0}, {ops::kToEnd, 1});
    const Value pairs = ops::reshape(deep(ids) * deep(first), {rows, 5 * kFields});
    return ops::reduce_sum(wide(ids), {1}) + head(ops::relu(hidden(pairs)));
  }
};

}  // namespace

std::unique_ptr<nn::Cell> make_network(const std::string& name, DType dtype, const nn::TransformerParallel& parallel,
                                       int64_t scale) {
  std::unique_ptr<nn::Cell> network;
  if (name == "mlp") network = std::make_unique<Mlp>(scale);
  if (name == "resnet") network = std::make_unique<SmallResNet>(scale);
  if (name == "transformer") network = std::make_unique<Transformer>(scale);
  if (name == "recurrent") network = std::make_unique<Recurrent>();
  if (name == "translator") network = std::make_unique<Translator>(parallel);
  if (name == "gpt") network = std::make_unique<Gpt>();
  if (name == "clicks") network = std::make_unique<Clicks>();
  if (name == "resnet50") network = nn::resnet50(10, {.initial_values = nn::InitialValues::kUsual});
  check(network != nullptr, "an unknown network");
  nn::set_parameter_dtype(*network, dtype);
  return network;
}

std::vector<Tensor> make_batch(const std::string& network, int64_t rows, int64_t step, DType dtype, int64_t scale) {
  const auto at = [&](uint64_t stream) {
    return RandomStream{.seed = 11, .stream = stream, .step = static_cast<uint64_t>(step)};
  };
  Tensor labels(DType::kI32, Shape{rows});
  auto label = labels.values<int32_t>();
  for (size_t i = 0; i < label.size(); ++i) label[i] = static_cast<int32_t>(random_below(at(2), i, 10));
  if (network == "clicks") {
    // Small numbers come often.
    Tensor ids(DType::kI32, Shape{rows, Clicks::kFields});
    auto id = ids.values<int32_t>();
    for (size_t i = 0; i < id.size(); ++i) {
      id[i] = static_cast<int32_t>(random_below(at(1), i, 1 + random_below(at(3), i, Clicks::kNumbers)));
    }
    return {ids, labels};
  }
  if (network == "transformer" || network == "translator" || network == "gpt") {
    Tensor ids(DType::kI32, Shape{rows, 6});
    auto id = ids.values<int32_t>();
    for (size_t i = 0; i < id.size(); ++i) id[i] = static_cast<int32_t>(random_below(at(1), i, 10));
    return {ids, labels};
  }
  const Shape sample = network == "mlp" ? Shape{12 * scale} : network == "recurrent" ? Shape{5, 6} : Shape{3, 8, 8};
  Shape shape{rows};
  for (const int64_t size : sample) shape.push_back(size);
  Tensor x(DType::kF64, shape);
  auto values = x.values<double>();
  for (size_t i = 0; i < values.size(); ++i) values[i] = random_normal(at(1), i);
  return {x.cast(dtype), labels};
}

}  // namespace tessera::equivalence
