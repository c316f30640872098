// MultiHeadAttention: queries look at keys and mix values, several times side by side (Vaswani et al., 2017).
// AttentionMask: which tokens see which, from which tokens there are.
#pragma once

#include "tessera/nn/cell.h"
#include "tessera/nn/transformer/parallel.h"

namespace tessera::nn {

class Projection;
class RowDropout;

struct MultiHeadAttentionOptions {
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  double hidden_dropout_rate = 0.1;     // the part of the result that is dropped
  double attention_dropout_rate = 0.1;  // the part of the weights that is dropped
  bool causal = false;                  // without a mask, query i sees the keys 0 to i only
  TransformerParallel parallel = std::nullopt;
};

// query [n,t,hidden_size], key and value [n,s,hidden_size] and, if given, a mask [n,t,s] or [n,1,t,s] that is 1 where a
// query sees a key and 0 where not -> [n,t,hidden_size]. A key that is not seen gets -10000 added to its score.
// Parameters: dense1, dense2, dense3 (queries, keys, values) .weight [hidden_size,hidden_size] (out, in) and .bias;
// projection.weight (in, out) and .bias.
class MultiHeadAttention : public Cell {
 public:
  using Options = MultiHeadAttentionOptions;
  // Throws InvalidArgument unless num_heads divides hidden_size, model_parallel divides both, and the rates are in
  // [0,1).
  explicit MultiHeadAttention(const MultiHeadAttentionOptions& options);
  using Cell::construct;
  // {query, key, value} or {query, key, value, mask}.
  Value construct(std::span<const Value> inputs) override;

 private:
  // [n*t,hidden_size] -> [n,t,num_heads,hidden_size/num_heads]
  Value heads(Value rows, const Shape& tokens) const;

  MultiHeadAttentionOptions options_;
  Projection& query_;
  Projection& key_;
  Projection& value_;
  Projection& projection_;
  RowDropout& dropout_;
};

// f32[1,t,t] of t = `length` tokens, 1 where the column is not after the row: each sees those up to itself.
Value up_to_each(ir::Graph& graph, int64_t length);

// mask [n,t], not 0 where there is a token -> f32[n,t,t], 1 where both are and the column is not after the row:
// [1,1,1,0] gives [1,0,0,0], [1,1,0,0], [1,1,1,0], [0,0,0,0].
class AttentionMask : public Cell {
 public:
  explicit AttentionMask(int64_t seq_length, const TransformerParallel& parallel = std::nullopt);
  using Cell::construct;
  Value construct(Value mask) override;

 private:
  int64_t seq_length_;
  TransformerParallel parallel_;
};

}  // namespace tessera::nn
