#include "tessera/nn/transformer/embedding.h"

#include "tessera/base/error.h"
#include "tessera/ir/cell_name.h"
#include "tessera/nn/transformer/layer_parts.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

// Positions are few: their table is whole everywhere.
TransformerParallel whole_table(TransformerParallel parallel) {
  if (parallel) *parallel = {};
  return parallel;
}

}  // namespace

VocabEmbedding::VocabEmbedding(int64_t vocab_size, int64_t embedding_size, const VocabEmbeddingOptions& options)
    : parallel_(options.parallel),
      table_(parameter("embedding_table", {DType::kF32, {vocab_size, embedding_size}}, options.param_init)) {
  if (vocab_size < 1 || embedding_size < 1) {
    throw InvalidArgument("VocabEmbedding: sizes must be at least 1, got {} and {}", vocab_size, embedding_size);
  }
  if (parallel_ && !parallel_->vocab_emb_dp) {
    check_divisible("VocabEmbedding", "vocab_size", vocab_size, "model_parallel", parallel_->model_parallel);
  }
  table_.parallel_optimizer = false;
}

Value VocabEmbedding::construct(Value ids) {
  if (ids.ndim() != 2 || (ids.dtype() != DType::kI32 && ids.dtype() != DType::kI64)) {
    throw InvalidArgument("VocabEmbedding \"{}\": ids must be i32 or i64 [n,t], are {}", ir::cell_name(path()),
                          ids.type());
  }
  return split(parallel_, ops::gather(table_, ids), [&](int64_t data, int64_t model) {
    const int64_t rows = parallel_->vocab_emb_dp ? 1 : model;
    return mesh::Strategy{{rows, 1}, {data, 1}};
  });
}

TokenEmbedding::TokenEmbedding(const TokenEmbeddingOptions& options)
    : options_(options),
      words_(child<VocabEmbedding>("word_embedding", options.vocab_size, options.embedding_size,
                                   VocabEmbeddingOptions{options.param_init, options.parallel})),
      positions_(child<VocabEmbedding>("position_embedding", options.max_length, options.embedding_size,
                                       VocabEmbeddingOptions{options.param_init, whole_table(options.parallel)})),
      dropout_(child<RowDropout>("dropout", options.dropout_rate, options.parallel)) {
  check_rate("TokenEmbedding", "dropout_rate", options.dropout_rate);
}

Value TokenEmbedding::construct(Value ids) {
  const auto& parallel = options_.parallel;
  const Value words = words_(ids);
  const int64_t tokens = ids.shape()[1];
  if (tokens > options_.max_length) {
    throw InvalidArgument("TokenEmbedding \"{}\": ids {} have more tokens than the {} that there are positions for",
                          ir::cell_name(path()), ids.type(), options_.max_length);
  }
  const Value numbers = ops::reshape(ops::range(graph(), 0, static_cast<double>(tokens)), {1, tokens});
  const Value sum = split(parallel, ops::add(words, positions_(numbers)), [](int64_t data, int64_t) {
    return mesh::Strategy{{data, 1, 1}, {1, 1, 1}};
  });
  if (!settings().training || options_.dropout_rate == 0) return sum;
  return tokens_of(dropout_(rows_of(sum, parallel)), sum.shape(), parallel);
}

}  // namespace tessera::nn
