#include "tessera/nn/cross_entropy.h"

#include "tessera/base/error.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

constexpr const char* kWho = "CrossEntropy";

int class_dim(Value logits) { return logits.ndim() == 1 ? 0 : 1; }

// [n,c,d...] or [c] as rows [n * d..., c].
Value as_rows(Value x) {
  const int dim = class_dim(x);
  Ints perm;
  for (int i = 0; i < x.ndim(); ++i) {
    if (i != dim) perm.push_back(i);
  }
  perm.push_back(dim);
  return ops::reshape(ops::transpose(x, perm), {-1, x.shape()[dim]});
}

// What a loss for each row has as shape: that of the logits without the classes.
Shape row_shape(Value logits) {
  Ints sizes;
  for (int i = 0; i < logits.ndim(); ++i) {
    if (i != class_dim(logits)) sizes.push_back(logits.shape()[i]);
  }
  return Shape(sizes);
}

}  // namespace

CrossEntropy::CrossEntropy(const CrossEntropyOptions& options) : options_(options) {
  if (options.reduction != "none" && options.reduction != "mean" && options.reduction != "sum") {
    throw InvalidArgument("{}: reduction \"{}\" is not one of none, mean, sum", kWho, options.reduction);
  }
  if (!(options.label_smoothing >= 0 && options.label_smoothing <= 1)) {
    throw InvalidArgument("{}: label_smoothing must be in [0,1], got {}", kWho, options.label_smoothing);
  }
}

Value CrossEntropy::weights(Value logits) {
  const auto classes = static_cast<size_t>(logits.shape()[1]);
  if (options_.weight.size() != classes) {
    throw InvalidArgument("{}: weight must have an entry for each of {} classes, got {}", kWho, classes,
                          options_.weight.size());
  }
  return ops::cast(
      ops::constant(graph(), Tensor::of(Shape{logits.shape()[1]}, std::span<const double>(options_.weight))),
      logits.dtype());
}

Value CrossEntropy::of_classes(Value logits, Value label) {
  const double smoothing = options_.label_smoothing;
  const Value counts = ops::not_equal(label, static_cast<double>(options_.ignore_index.value_or(-100)));
  // A class that exists takes the place of those that do not count, whose losses are left out below.
  const Value classes = ops::select(counts, label, 0);
  Value weight = ops::cast(counts, logits.dtype());
  if (!options_.weight.empty()) weight = weight * ops::gather(weights(logits), classes);
  Value losses = ops::softmax_cross_entropy(logits, classes) * weight;
  if (smoothing > 0) {
    Value all = -ops::log_softmax(logits);
    if (!options_.weight.empty()) all = all * weights(logits);
    const Value mean = ops::reduce_mean(all, {-1}) * ops::cast(counts, logits.dtype());
    losses = losses * (1 - smoothing) + mean * smoothing;
  }
  if (options_.reduction != "mean") return reduce_loss(losses, options_.reduction);
  return ops::reduce_sum(losses) / ops::reduce_sum(weight);
}

Value CrossEntropy::of_distributions(Value logits, Value label) {
  const double smoothing = options_.label_smoothing;
  const auto classes = static_cast<double>(logits.shape()[1]);
  if (smoothing > 0) label = label * (1 - smoothing) + smoothing / classes;
  Value products = label * ops::log_softmax(logits);
  if (!options_.weight.empty()) products = products * weights(logits);
  return reduce_loss(-ops::reduce_sum(products, {-1}), options_.reduction);
}

Value CrossEntropy::construct(Value logits, Value label) {
  if (logits.ndim() < 1) throw InvalidArgument("{}: logits must be [c] or [n,c,...], got {}", kWho, logits.type());
  const Shape rows = row_shape(logits);
  const bool is_classes = is_integer(label.dtype());
  if (!is_classes && label.shape() == rows && !(rows == logits.shape())) {
    throw InvalidArgument("{}: class numbers are i32{} or i64{} for logits {}, got {}: convert them to integers", kWho,
                          rows, rows, logits.type(), label.type());
  }
  const Shape wanted = is_classes ? rows : logits.shape();
  if (!(label.shape() == wanted)) {
    throw InvalidArgument("{}: label must be {}{} for logits {}, got {}", kWho, wanted,
                          is_classes ? ", class numbers," : ", a distribution,", logits.type(), label.type());
  }
  if (!is_classes && options_.is_strict && options_.ignore_index) {
    throw InvalidArgument(
        "{}: ignore_index = {} has no effect on labels that are distributions, {}: leave it out, or give class numbers",
        kWho, *options_.ignore_index, label.type());
  }
  const Value wide = ops::cast(as_rows(logits), at_least_f32(logits.dtype()));
  Value loss;
  if (is_classes) {
    if (label.dtype() != DType::kI64) label = ops::cast(label, DType::kI32);
    loss = of_classes(wide, ops::reshape(label, {-1}));
  } else {
    loss = of_distributions(wide, ops::cast(as_rows(label), wide.dtype()));
  }
  return options_.reduction == "none" ? ops::reshape(loss, rows.to_vector()) : loss;
}

}  // namespace tessera::nn
