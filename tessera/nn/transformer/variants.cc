#include "tessera/nn/transformer/variants.h"

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/ir/cell_name.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/nn/number_checks.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {

RmsNorm::RmsNorm(int64_t features, double eps) : features_(features), eps_(eps) {
  if (features < 1) throw InvalidArgument("RmsNorm: features must be at least 1, got {}", features);
  require_positive("RmsNorm", "eps", eps);
  gamma_ = &parameter("gamma", {DType::kF32, {features}}, Init("ones"));
}

Value RmsNorm::construct(Value x) {
  if (x.ndim() < 1 || x.shape().back() != features_) {
    throw InvalidArgument("RmsNorm \"{}\": takes [...,{}], got {}", ir::cell_name(path()), features_, x.type());
  }
  const Value mean = ops::reduce_mean(ops::square(x), {-1}, /*keep_dims=*/true);
  return x * ops::rsqrt(mean + eps_) * *gamma_;
}

Value rotary_positions(Value x, double base) {
  if (x.ndim() != 4 || x.shape()[3] % 2 != 0) {
    throw InvalidArgument("rotary_positions: x must be [n,t,heads,d] with d even, is {}", x.type());
  }
  const int64_t tokens = x.shape()[1];
  const int64_t half = x.shape()[3] / 2;
  const DType dtype = x.dtype() == DType::kF64 ? DType::kF64 : DType::kF32;
  const Value position = ops::reshape(ops::range(x.graph(), 0, static_cast<double>(tokens), 1, dtype), {tokens, 1, 1});
  const Value feature = ops::range(x.graph(), 0, static_cast<double>(half), 1, dtype);
  const Value angle = position * ops::exp(feature * (-std::log(base) / static_cast<double>(half)));
  const Value cosine = ops::cast(ops::cos(angle), x.dtype());
  const Value sine = ops::cast(ops::sin(angle), x.dtype());
  const auto parts = ops::split(x, 2, 3);
  return ops::concat({parts[0] * cosine - parts[1] * sine, parts[0] * sine + parts[1] * cosine}, 3);
}

SwiGlu::SwiGlu(int64_t features, int64_t inner_features, const Init& weight_init)
    : gate_(
          child<Dense>("gate", features, inner_features, DenseOptions{.weight_init = weight_init, .has_bias = false})),
      up_(child<Dense>("up", features, inner_features, DenseOptions{.weight_init = weight_init, .has_bias = false})),
      down_(child<Dense>("down", inner_features, features,
                         DenseOptions{.weight_init = weight_init, .has_bias = false})) {}

Value SwiGlu::construct(Value x) {
  const Value gate = gate_(x);
  return down_(gate * ops::sigmoid(gate) * up_(x));
}

}  // namespace tessera::nn
