// Parts that later Transformers use in place of the first one's: normalisation without a mean, positions as rotations,
// a gated feed-forward. Functions of values and cells, written in small operators.
#pragma once

#include "tessera/nn/cell.h"
#include "tessera/nn/initializers.h"

namespace tessera::nn {

// x [...,c] -> gamma * x / sqrt(mean of x^2 over the last dim + eps). Parameter: gamma [c], 1 at first.
// Zhang and Sennrich, "Root mean square layer normalization" (2019).
class RmsNorm : public Cell {
 public:
  // Throws InvalidArgument unless features >= 1 and eps > 0.
  explicit RmsNorm(int64_t features, double eps = 1e-6);
  using Cell::construct;
  Value construct(Value x) override;

 private:
  int64_t features_;
  double eps_;
  Parameter* gamma_;
};

// x [n,t,heads,d] with d even: the pair of features i and i + d/2 of token p is turned by the angle
// p * base^(-2i/d), so that products of queries and keys depend on the distance of their tokens only.
// Su et al., "RoFormer" (2021). Throws InvalidArgument for another ndim or an odd d.
Value rotary_positions(Value x, double base = 10000);

// x [n,c] -> (silu(x G) * (x U)) D with silu(a) = a * sigmoid(a): [n,c]. Parameters: gate.weight and up.weight
// [inner_features,c], down.weight [c,inner_features]. Shazeer, "GLU variants improve transformer" (2020).
class SwiGlu : public Cell {
 public:
  SwiGlu(int64_t features, int64_t inner_features, const Init& weight_init = "normal");
  using Cell::construct;
  Value construct(Value x) override;

 private:
  Cell& gate_;
  Cell& up_;
  Cell& down_;
};

}  // namespace tessera::nn
