#include "benchmarks/transformer.h"

#include <cmath>

#include "tessera/nn/layers/linear.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::benchmarks {
namespace {

using ir::Value;

class Attention : public nn::Cell {
 public:
  explicit Attention(const TransformerOptions& options)
      : options_(options),
        query_(child<nn::Dense>("query", options.width, options.width)),
        key_(child<nn::Dense>("key", options.width, options.width)),
        value_(child<nn::Dense>("value", options.width, options.width)),
        output_(child<nn::Dense>("output", options.width, options.width)) {
    if (!options.strategies) return;
    for (nn::Dense* dense : {&query_, &key_, &value_}) {
      dense->shard("matmul", {{options.data, 1}, {options.model, 1}});
    }
    output_.shard("matmul", {{options.data, options.model}, {1, options.model}});
  }
  using Cell::construct;
  Value construct(Value x) override {
    const Value scores = ops::batch_matmul(heads(query_(x)), heads(key_(x)), false, true);
    const double scale = 1 / std::sqrt(static_cast<double>(options_.width) / static_cast<double>(options_.num_heads));
    const Value mixed = ops::batch_matmul(ops::softmax(scores * scale, -1), heads(value_(x)));
    return output_(ops::reshape(ops::transpose(mixed, {0, 2, 1, 3}), {-1, options_.width}));
  }

 private:
  // [n*t,w] -> [n,heads,t,w/heads]
  Value heads(Value x) const {
    const Ints shape{-1, options_.num_tokens, options_.num_heads, options_.width / options_.num_heads};
    return ops::transpose(ops::reshape(x, shape), {0, 2, 1, 3});
  }

  TransformerOptions options_;
  nn::Dense& query_;
  nn::Dense& key_;
  nn::Dense& value_;
  nn::Dense& output_;
};

class Layer : public nn::Cell {
 public:
  explicit Layer(const TransformerOptions& options)
      : norm1_(child<nn::LayerNorm>("norm1", Shape{options.width})),
        attention_(child<Attention>("attention", options)),
        norm2_(child<nn::LayerNorm>("norm2", Shape{options.width})),
        up_(child<nn::Dense>("up", options.width, 4 * options.width)),
        down_(child<nn::Dense>("down", 4 * options.width, options.width)) {
    if (!options.strategies) return;
    up_.shard("matmul", {{options.data, 1}, {options.model, 1}});
    down_.shard("matmul", {{options.data, options.model}, {1, options.model}});
  }
  using Cell::construct;
  Value construct(Value x) override {
    x = x + attention_(norm1_(x));
    return x + down_(ops::gelu(up_(norm2_(x))));
  }

 private:
  nn::LayerNorm& norm1_;
  Attention& attention_;
  nn::LayerNorm& norm2_;
  nn::Dense& up_;
  nn::Dense& down_;
};

class Transformer : public nn::Cell {
 public:
  explicit Transformer(const TransformerOptions& options)
      : options_(options), embedding_(child<nn::Embedding>("embedding", options.vocab_size, options.width)) {
    embedding_.set_stage(0);
    for (int64_t i = 0; i < options.num_layers; ++i) {
      layers_.push_back(&child<Layer>(fmt::format("layer{}", i), options));
      layers_.back()->set_stage(static_cast<int>(i * options.stages / options.num_layers));
    }
    norm_ = &child<nn::LayerNorm>("norm", Shape{options.width});
    head_ = &child<nn::Dense>("head", options.width, options.vocab_size);
    for (Cell* last : {static_cast<Cell*>(norm_), static_cast<Cell*>(head_)}) last->set_stage(options.stages - 1);
  }
  using Cell::construct;
  Value construct(Value ids) override {
    Value x = ops::reshape(embedding_(ids), {-1, options_.width});
    for (Layer* layer : layers_) x = (*layer)(x);
    return (*head_)((*norm_)(x));
  }

 private:
  TransformerOptions options_;
  nn::Embedding& embedding_;
  std::vector<Layer*> layers_;
  nn::LayerNorm* norm_;
  nn::Dense* head_;
};

}  // namespace

std::unique_ptr<nn::Cell> make_transformer(const TransformerOptions& options) {
  return std::make_unique<Transformer>(options);
}

}  // namespace tessera::benchmarks
