// The layers of a Transformer: attention and feed-forward, each with a residual connection and layer normalisation in
// front.
#pragma once

#include <string>

#include "tessera/nn/cell.h"
#include "tessera/nn/transformer/parallel.h"

namespace tessera::nn {

class FeedForward;
class MultiHeadAttention;
class RowNorm;

struct TransformerLayerOptions {
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;
  int64_t num_heads = 2;
  double attention_dropout_rate = 0.1;
  double hidden_dropout_rate = 0.1;
  std::string hidden_act = "gelu";
  // false: x + f(norm(x)). true: norm(x) + f(norm(x)).
  bool post_layernorm_residual = false;
  TransformerParallel parallel = std::nullopt;
};

// x [n,t,hidden_size] and, if given, a mask as MultiHeadAttention takes it -> [n,t,hidden_size].
// Parameters: layernorm1, layernorm2 .gamma and .beta; attention.*; output.* of the feed-forward.
class TransformerEncoderLayer : public Cell {
 public:
  using Options = TransformerLayerOptions;
  // Throws InvalidArgument as MultiHeadAttention and FeedForward do.
  explicit TransformerEncoderLayer(const TransformerLayerOptions& options);
  using Cell::construct;
  Value construct(std::span<const Value> inputs) override;

 private:
  TransformerLayerOptions options_;
  RowNorm& layernorm1_;
  RowNorm& layernorm2_;
  MultiHeadAttention& attention_;
  FeedForward& output_;
};

// {x [n,t,hidden_size], memory [n,s,hidden_size]} and, if given, mask [n,t,t] and memory_mask [n,t,s] ->
// [n,t,hidden_size]: attention to itself, then to the encoder's result, then feed-forward. Where there is no mask,
// token i sees the tokens 0 to i only. Parameters: those of the encoder layer, cross_attention.* and
// cross_attention_layernorm.*.
class TransformerDecoderLayer : public Cell {
 public:
  using Options = TransformerLayerOptions;
  explicit TransformerDecoderLayer(const TransformerLayerOptions& options);
  using Cell::construct;
  Value construct(std::span<const Value> inputs) override;

 private:
  TransformerLayerOptions options_;
  RowNorm& layernorm1_;
  RowNorm& layernorm2_;
  MultiHeadAttention& attention_;
  MultiHeadAttention& cross_attention_;
  RowNorm& cross_attention_layernorm_;
  FeedForward& output_;
};

}  // namespace tessera::nn
