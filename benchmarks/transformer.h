// A Transformer (Vaswani et al., 2017; layer norm in front, as in GPT-2), to be compiled, not trained.
#pragma once

#include <cstdint>
#include <memory>

#include "tessera/nn/cell.h"

namespace tessera::benchmarks {

struct TransformerOptions {
  int64_t num_layers = 48;
  int64_t width = 2048;  // of a token
  int64_t num_heads = 16;
  int64_t num_tokens = 256;  // per row of the batch
  int64_t vocab_size = 50257;
  // The matrix products with strategies: the batch in `data` parts; heads and hidden features in `model` parts, as
  // Megatron-LM has them (Shoeybi et al., 2019).
  bool strategies = false;
  int64_t data = 1;
  int64_t model = 1;
  int stages = 1;  // of a pipeline, to which the layers are dealt in order
};
// ids i32[n,num_tokens] -> logits f32[n*num_tokens,vocab_size].
std::unique_ptr<nn::Cell> make_transformer(const TransformerOptions& options);

}  // namespace tessera::benchmarks
