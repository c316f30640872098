// A decoder-only Transformer as GPT-2 and GPT-3 are (Radford et al., "Language models are unsupervised multitask
// learners", 2019; Brown et al., "Language models are few-shot learners", 2020): layer normalisation in front, learned
// positions, a head that shares the embedding's table; no dropout.
#pragma once

#include <memory>

#include "tessera/nn/cell.h"

namespace tessera::nn {

// The defaults are those of GPT-2 small: 124,439,808 parameters.
struct GptOptions {
  int64_t vocabulary = 50257;
  int64_t max_length = 1024;  // tokens that there are positions for
  int64_t hidden_size = 768;
  int64_t num_layers = 12;
  int64_t num_heads = 12;
};

// ids i32 or i64 [n,t] -> logits f32[n*t,vocabulary], of the token after each.
// Parameters: word_embedding and position_embedding .embedding_table; blocks.I.norm1, norm2 .gamma and .beta;
// blocks.I.attention.*; blocks.I.feed_forward.*, four times as wide; norm.gamma and .beta.
// Throws InvalidArgument unless num_heads divides hidden_size and there is at least one layer.
std::unique_ptr<Cell> gpt(const GptOptions& options = {});

}  // namespace tessera::nn
