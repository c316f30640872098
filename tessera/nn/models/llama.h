// A decoder-only Transformer as LLaMA is (Touvron et al., "LLaMA", 2023; Grattafiori et al., "The Llama 3 herd of
// models", 2024): root-mean-square normalisation in front (Zhang and Sennrich, 2019), rotary positions (Su et al.,
// "RoFormer", 2021), queries that share keys and values in groups (Ainslie et al., "GQA", 2023), a gated feed-forward
// (Shazeer, "GLU variants improve Transformer", 2020), no biases.
#pragma once

#include <memory>

#include "tessera/nn/cell.h"

namespace tessera::nn {

// The defaults are those of Llama 3 with 8 billion parameters: 8,030,261,248.
struct LlamaOptions {
  int64_t vocabulary = 128256;
  int64_t hidden_size = 4096;
  int64_t ffn_hidden_size = 14336;
  int64_t num_layers = 32;
  int64_t num_heads = 32;
  int64_t num_key_value_heads = 8;
  double rotary_base = 500000;
  double eps = 1e-5;
};

// ids i32 or i64 [n,t] -> logits f32[n*t,vocabulary], of the token after each.
// Parameters: embedding.embedding_table; blocks.I.norm1, norm2 .gamma; blocks.I.attention.query, key, value, result
// .weight; blocks.I.feed_forward.gate, up, down .weight; norm.gamma; head.weight. All weights [out,in].
// Throws InvalidArgument unless num_key_value_heads divides num_heads, num_heads divides hidden_size into heads of an
// even size, and there is at least one layer.
std::unique_ptr<Cell> llama(const LlamaOptions& options = {});

}  // namespace tessera::nn
