// FeedForward: two products with an activation between them, for each token by itself.
#pragma once

#include <string>

#include "tessera/nn/cell.h"
#include "tessera/nn/transformer/parallel.h"

namespace tessera::nn {

class Projection;
class RowDropout;

struct FeedForwardOptions {
  int64_t hidden_size = 0;
  int64_t ffn_hidden_size = 0;
  double dropout_rate = 0.1;
  std::string hidden_act = "gelu";  // a name that activate() knows
  TransformerParallel parallel = std::nullopt;
};

// x [n,t,hidden_size] -> dropout(act(x M + b) P + c), the same shape. Parameters: mapping.weight
// [hidden_size,ffn_hidden_size], mapping.bias, projection.weight [ffn_hidden_size,hidden_size], projection.bias.
class FeedForward : public Cell {
 public:
  using Options = FeedForwardOptions;
  // Throws InvalidArgument unless model_parallel divides both sizes, the rate is in [0,1) and the activation is known.
  explicit FeedForward(const FeedForwardOptions& options);
  using Cell::construct;
  Value construct(Value x) override;

 private:
  FeedForwardOptions options_;
  Projection& mapping_;
  Projection& projection_;
  RowDropout& dropout_;
};

}  // namespace tessera::nn
