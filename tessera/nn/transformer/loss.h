// This is the loss of token predictions.
#pragma once

#include "tessera/nn/losses.h"
#include "tessera/nn/transformer/parallel.h"

namespace tessera::nn {

// {logits [n,v], label i32 [n] or [rows,tokens] of n in all} and, if given, a mask like the label of the tokens that
// count -> f32[]:
// sum(mask * -log softmax(logits)[label]) / (sum(mask) + 1e-5), computed in f32; without a mask the mean. The
// vocabulary may be split.
class CrossEntropyLoss : public Loss {
 public:
  explicit CrossEntropyLoss(const TransformerParallel& parallel = std::nullopt) : parallel_(parallel) {}
  using Cell::construct;
  Value construct(std::span<const Value> inputs) override;

 private:
  TransformerParallel parallel_;
};

}  // namespace tessera::nn
