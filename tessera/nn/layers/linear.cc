#include "tessera/nn/layers/linear.h"

#include "tessera/base/error.h"
#include "tessera/ir/cell_name.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

void check_sizes(const char* who, int64_t a, int64_t b) {
  if (a < 1 || b < 1) throw InvalidArgument("{}: sizes must be at least 1, got {} and {}", who, a, b);
}

}  // namespace

Dense::Dense(int64_t in_channels, int64_t out_channels, const DenseOptions& options)
    : in_channels_(in_channels), out_channels_(out_channels), activation_(options.activation) {
  check_sizes("Dense", in_channels, out_channels);
  check_activation("Dense", activation_);
  check_bias_init("Dense", options.has_bias, options.bias_init.has_value());
  weight_ = &parameter("weight", {DType::kF32, {out_channels, in_channels}}, options.weight_init);
  if (options.has_bias) bias_ = &parameter("bias", {DType::kF32, {out_channels}}, options.bias_init.value_or("zeros"));
}

Value Dense::construct(Value x) {
  if (x.ndim() < 1 || x.shape().back() != in_channels_) {
    throw InvalidArgument("Dense \"{}\": takes [...,{}], got {}; its weight is {}", ir::cell_name(path()), in_channels_,
                          x.type(), weight_->type);
  }
  const bool is_matrix = x.ndim() == 2;
  const Value rows = is_matrix ? x : ops::reshape(x, {-1, in_channels_});
  Value result = ops::matmul(rows, *weight_, /*transpose_a=*/false, /*transpose_b=*/true);
  if (bias_ != nullptr) result = ops::bias_add(result, *bias_);
  if (!is_matrix) {
    Shape shape = x.shape();
    shape[x.ndim() - 1] = out_channels_;
    result = ops::reshape(result, shape.to_vector());
  }
  return activate(result, activation_);
}

Embedding::Embedding(int64_t vocab_size, int64_t embedding_size, const EmbeddingOptions& options) {
  check_sizes("Embedding", vocab_size, embedding_size);
  table_ = &parameter("embedding_table", {DType::kF32, {vocab_size, embedding_size}}, options.embedding_table);
}

Value Embedding::construct(Value ids) {
  if (ids.dtype() != DType::kI32 && ids.dtype() != DType::kI64) {
    throw InvalidArgument("Embedding \"{}\": ids must be i32 or i64, got {}", ir::cell_name(path()), ids.type());
  }
  return ops::gather(*table_, ids);
}

}  // namespace tessera::nn
