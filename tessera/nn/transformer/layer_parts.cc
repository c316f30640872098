#include "tessera/nn/transformer/layer_parts.h"

#include "tessera/base/error.h"
#include "tessera/ir/cell_name.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {

Projection::Projection(int64_t in_features, int64_t out_features, bool transposed, SplitSide side,
                       const TransformerParallel& parallel, const Init& weight_init)
    : in_features_(in_features),
      transposed_(transposed),
      side_(side),
      parallel_(parallel),
      weight_(parameter("weight",
                        {DType::kF32, transposed ? Shape{out_features, in_features} : Shape{in_features, out_features}},
                        weight_init)),
      bias_(parameter("bias", {DType::kF32, {out_features}}, Init("zeros"))) {
  // Added to the sum of all parts, it is whole everywhere.
  bias_.parallel_optimizer = side != SplitSide::kIn;
}

Value Projection::construct(Value x) {
  if (x.ndim() != 2 || x.shape()[1] != in_features_) {
    throw InvalidArgument("cell \"{}\" takes [n,{}], got {}", ir::cell_name(path()), in_features_, x.type());
  }
  const bool splits_out = side_ == SplitSide::kOut;
  const Value product = split(parallel_, ops::matmul(x, weight_, false, transposed_), [&](int64_t data, int64_t model) {
    const int64_t in = splits_out ? 1 : model;
    const int64_t out = splits_out ? model : 1;
    const std::vector<int64_t> weight = transposed_ ? std::vector{out, in} : std::vector{in, out};
    return mesh::Strategy{{data, in}, weight};
  });
  return split(parallel_, ops::bias_add(product, bias_), [&](int64_t data, int64_t model) {
    const int64_t out = splits_out ? model : 1;
    return mesh::Strategy{{data, out}, {out}};
  });
}

RowNorm::RowNorm(int64_t features, const TransformerParallel& parallel)
    : parallel_(parallel),
      gamma_(parameter("gamma", {DType::kF32, {features}}, Init("ones"))),
      beta_(parameter("beta", {DType::kF32, {features}}, Init("zeros"))) {
  gamma_.parallel_optimizer = false;
  beta_.parallel_optimizer = false;
}

Value RowNorm::construct(Value x) {
  return split(parallel_, ops::layer_norm(x, gamma_, beta_), [](int64_t data, int64_t) {
    return mesh::Strategy{{data, 1}, {1}, {1}};
  });
}

RowDropout::RowDropout(double rate, const TransformerParallel& parallel)
    : parallel_(parallel), dropout_(child<Dropout>("dropout", 1 - rate)) {}

Value RowDropout::construct(Value x) {
  const Value result = dropout_(x);
  if (result == x) return x;
  return split(parallel_, result, [](int64_t data, int64_t) { return mesh::Strategy{{data, 1}, {}}; });
}

Value rows_of(Value x, const TransformerParallel& parallel) {
  return split(parallel, ops::reshape(x, {-1, x.shape().back()}), [](int64_t data, int64_t) {
    return mesh::Strategy{{data, 1, 1}};
  });
}

Value tokens_of(Value rows, const Shape& like, const TransformerParallel& parallel) {
  return split(parallel, ops::reshape(rows, {like[0], like[1], rows.shape()[1]}), [](int64_t data, int64_t) {
    return mesh::Strategy{{data, 1}};
  });
}

Value add_rows(Value x, Value y, const TransformerParallel& parallel) {
  return split(parallel, ops::add(x, y), [](int64_t data, int64_t) { return mesh::Strategy{{data, 1}, {data, 1}}; });
}

void check_rate(const char* who, const char* what, double rate) {
  if (!(rate >= 0 && rate < 1)) throw InvalidArgument("{}: {} must be in [0,1), got {}", who, what, rate);
}

void check_tokens(const Cell& cell, const char* what, Value x, int64_t features) {
  if (x.ndim() == 3 && x.shape()[2] == features) return;
  throw InvalidArgument("cell \"{}\": {} must be [n,t,{}], is {}", ir::cell_name(cell.path()), what, features,
                        x.type());
}

}  // namespace tessera::nn
