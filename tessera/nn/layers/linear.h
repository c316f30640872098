// Dense: a matrix product with learned weights. Embedding: rows of a learned table.
#pragma once

#include <optional>

#include "tessera/nn/cell.h"
#include "tessera/nn/initializers.h"
#include "tessera/nn/layers/activation.h"

namespace tessera::nn {

struct DenseOptions {
  Init weight_init = "normal";
  std::optional<Init> bias_init = std::nullopt;  // absent: zeros; refused where there is no bias
  bool has_bias = true;
  std::string activation = "";  // none, or a name that activate() knows
};

// x [..., in_channels] -> x W^T + b [..., out_channels].
// Parameters: weight [out_channels, in_channels], and bias [out_channels] if has_bias.
class Dense : public Cell {
 public:
  using Options = DenseOptions;
  // Throws InvalidArgument for sizes below 1, an unknown activation, and a bias_init without a bias.
  Dense(int64_t in_channels, int64_t out_channels, const DenseOptions& options = {});
  using Cell::construct;
  Value construct(Value x) override;

 private:
  int64_t in_channels_;
  int64_t out_channels_;
  std::string activation_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

struct EmbeddingOptions {
  Init embedding_table = "normal";
};

// ids i32 or i64 [...] -> rows of the table [..., embedding_size]; an id outside [0, vocab_size) is an error.
// Parameter: embedding_table [vocab_size, embedding_size].
class Embedding : public Cell {
 public:
  using Options = EmbeddingOptions;
  Embedding(int64_t vocab_size, int64_t embedding_size, const EmbeddingOptions& options = {});
  using Cell::construct;
  Value construct(Value ids) override;
  // The table, which a head that shares it multiplies with as its weight.
  const Parameter& table() const { return *table_; }

 private:
  Parameter* table_;
};

}  // namespace tessera::nn
