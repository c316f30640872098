// A Transformer that translates: token numbers of a sentence and of its translation so far -> scores of each next token
// (Vaswani et al., "Attention is all you need", 2017; layer normalisation in front, learned positions).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "tessera/nn/transformer/transformer.h"

namespace tessera::nn {

struct TranslatorOptions {
  int64_t source_vocabulary = 20000;
  int64_t target_vocabulary = 20000;
  int64_t max_length = 64;  // tokens of a sentence
  // The token that stands for none: no token looks at it, and where a target is one, its label does not count.
  std::optional<int32_t> padding = std::nullopt;
  // They also say how the embeddings and the head are split, and with `stage_of` on which stages these are: the
  // embeddings where they are read first, the head and the loss with the last layer. With `parallel_of` each is split
  // as the layer that it is with.
  TransformerOptions transformer = {
      .hidden_size = 512, .ffn_hidden_size = 2048, .encoder_layers = 6, .decoder_layers = 6, .num_heads = 8};
};

// {source i32[n,s], target i32[n,t]} -> logits f32[n*t,target_vocabulary], for CrossEntropyLoss with a label [n,t].
// {source, target, label i32[n,t]} -> f32[], the mean of the labels' cross entropies: a network that is its own loss,
// trained by a Model without one.
// Parameters: src_embedding, tgt_embedding .word_embedding and .position_embedding .embedding_table; base1.encoder.*,
// base1.decoder.*; head.weight [target_vocabulary,hidden_size].
std::unique_ptr<Cell> translator(const TranslatorOptions& options = {});

}  // namespace tessera::nn
