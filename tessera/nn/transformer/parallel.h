// How the operators of a Transformer are split when a plan heeds strategies: rows of the batch into `data_parallel`
// parts, heads and inner features into `model_parallel` parts (Shoeybi et al., "Megatron-LM", 2019).
#pragma once

#include <optional>

#include "tessera/ops/registry/op_def.h"

namespace tessera::nn {

struct TransformerOpParallelConfig {
  int64_t data_parallel = 1;
  int64_t model_parallel = 1;
  // The embedding's table is whole on each rank; else its rows are split into model_parallel parts.
  bool vocab_emb_dp = true;
  // Layers are cut into about so many groups whose gradients travel together: 5 layers and 2 groups give 2, 2 and 1.
  int64_t gradient_aggregation_group = 4;
};

// What the cells take: none, and the plan decides.
using TransformerParallel = std::optional<TransformerOpParallelConfig>;

// Throws InvalidArgument naming `who` and `what` unless each part gets as many.
void check_divisible(const char* who, const char* what, int64_t size, const char* by, int64_t parts);
// Returns model_parallel, or 1 without a configuration.
int64_t model_parts(const TransformerParallel& parallel);

// The value with its operator split as `strategy` says of (data_parallel, model_parallel), if there is a configuration.
template <typename Strategy>
ir::Value split(const TransformerParallel& parallel, ir::Value value, Strategy strategy) {
  return parallel ? ops::shard(value, strategy(parallel->data_parallel, parallel->model_parallel)) : value;
}

}  // namespace tessera::nn
