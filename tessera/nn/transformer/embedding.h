// VocabEmbedding: rows of a table for the numbers of tokens. TokenEmbedding: those and learned positions.
#pragma once

#include "tessera/nn/cell.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/transformer/parallel.h"

namespace tessera::nn {

struct VocabEmbeddingOptions {
  Init param_init = "normal";
  TransformerParallel parallel = std::nullopt;
};

// ids i32 or i64 [n,t] -> [n,t,embedding_size]; an id outside [0,vocab_size) is an error.
// Parameter: embedding_table [vocab_size,embedding_size], which replicas keep whole.
class VocabEmbedding : public Cell {
 public:
  using Options = VocabEmbeddingOptions;
  // Throws InvalidArgument unless model_parallel divides vocab_size where the table's rows are split.
  VocabEmbedding(int64_t vocab_size, int64_t embedding_size, const VocabEmbeddingOptions& options = {});
  using Cell::construct;
  Value construct(Value ids) override;

  // The table, which a head that shares it multiplies with as its weight.
  const Parameter& table() const { return table_; }

 private:
  TransformerParallel parallel_;
  Parameter& table_;
};

struct TokenEmbeddingOptions {
  int64_t vocab_size = 0;
  int64_t max_length = 0;  // tokens that there are positions for
  int64_t embedding_size = 0;
  double dropout_rate = 0;
  Init param_init = "normal";
  TransformerParallel parallel = std::nullopt;
};

// ids [n,t], t <= max_length -> dropout(word_embedding(ids) + position_embedding(0..t-1)), [n,t,embedding_size].
// Parameters: word_embedding.embedding_table, position_embedding.embedding_table.
class TokenEmbedding : public Cell {
 public:
  using Options = TokenEmbeddingOptions;
  explicit TokenEmbedding(const TokenEmbeddingOptions& options);
  using Cell::construct;
  Value construct(Value ids) override;

 private:
  TokenEmbeddingOptions options_;
  VocabEmbedding& words_;
  VocabEmbedding& positions_;
  Cell& dropout_;
};

}  // namespace tessera::nn
