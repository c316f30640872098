#include "tessera/nn/models/gpt.h"

#include "tessera/base/error.h"
#include "tessera/nn/container.h"
#include "tessera/nn/layers/normalization.h"
#include "tessera/nn/transformer/attention.h"
#include "tessera/nn/transformer/embedding.h"
#include "tessera/nn/transformer/feed_forward.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

class GptBlock : public Cell {
 public:
  explicit GptBlock(const GptOptions& options)
      : norm1_(child<LayerNorm>("norm1", Shape{options.hidden_size})),
        attention_(child<MultiHeadAttention>("attention", MultiHeadAttentionOptions{.hidden_size = options.hidden_size,
                                                                                    .num_heads = options.num_heads,
                                                                                    .hidden_dropout_rate = 0,
                                                                                    .attention_dropout_rate = 0,
                                                                                    .causal = true})),
        norm2_(child<LayerNorm>("norm2", Shape{options.hidden_size})),
        feed_forward_(child<FeedForward>("feed_forward", FeedForwardOptions{.hidden_size = options.hidden_size,
                                                                            .ffn_hidden_size = 4 * options.hidden_size,
                                                                            .dropout_rate = 0})) {}
  using Cell::construct;
  Value construct(Value x) override {
    const Value normed = norm1_(x);
    const Value operands[] = {normed, normed, normed};
    x = x + attention_(operands);
    return x + feed_forward_(norm2_(x));
  }

 private:
  LayerNorm& norm1_;
  MultiHeadAttention& attention_;
  LayerNorm& norm2_;
  FeedForward& feed_forward_;
};

class Gpt : public Cell {
 public:
  explicit Gpt(const GptOptions& options)
      : options_(options),
        words_(child<VocabEmbedding>("word_embedding", options.vocabulary, options.hidden_size)),
        positions_(child<VocabEmbedding>("position_embedding", options.max_length, options.hidden_size)),
        blocks_(child<Sequential>("blocks")),
        norm_(child<LayerNorm>("norm", Shape{options.hidden_size})) {
    if (options.num_layers < 1) throw InvalidArgument("gpt: needs at least one layer, got {}", options.num_layers);
    for (int64_t i = 0; i < options.num_layers; ++i) blocks_.append<GptBlock>(options);
  }
  using Cell::construct;
  Value construct(Value ids) override {
    const Value words = words_(ids);
    const int64_t tokens = ids.shape()[1];
    if (tokens > options_.max_length) {
      throw InvalidArgument("gpt: ids {} have more tokens than the {} that there are positions for", ids.type(),
                            options_.max_length);
    }
    const Value numbers = ops::reshape(ops::range(graph(), 0, static_cast<double>(tokens)), {1, tokens});
    const Value x = norm_(blocks_(words + positions_(numbers)));
    return ops::matmul(ops::reshape(x, {-1, options_.hidden_size}), words_.table().in(graph()), /*transpose_a=*/false,
                       /*transpose_b=*/true);
  }

 private:
  GptOptions options_;
  VocabEmbedding& words_;
  VocabEmbedding& positions_;
  Sequential& blocks_;
  LayerNorm& norm_;
};

}  // namespace

std::unique_ptr<Cell> gpt(const GptOptions& options) { return std::make_unique<Gpt>(options); }

}  // namespace tessera::nn
