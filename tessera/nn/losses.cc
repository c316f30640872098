#include "tessera/nn/losses.h"

#include "tessera/base/error.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/nn/number_checks.h"
#include "tessera/ops/functions/functions.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::nn {
namespace {

void check_reduction(const char* who, const std::string& reduction) {
  if (reduction != "none" && reduction != "mean" && reduction != "sum") {
    throw InvalidArgument("{}: reduction \"{}\" is not one of none, mean, sum", who, reduction);
  }
}

void check_class_labels(const char* who, bool sparse, Value logits, Value label) {
  if (logits.ndim() != 2) throw InvalidArgument("{}: logits must be [n,c], got {}", who, logits.type());
  const Shape wanted = sparse ? Shape{logits.shape()[0]} : logits.shape();
  if (!(label.shape() == wanted)) {
    throw InvalidArgument("{}: label must be {}{} for logits {}, got {}", who, wanted,
                          sparse ? ", class numbers," : ", a distribution,", logits.type(), label.type());
  }
  if (sparse && !is_integer(label.dtype())) {
    throw InvalidArgument("{}: with sparse, label must be class numbers of an integer dtype, got {}", who,
                          label.type());
  }
}

Value class_numbers(Value label) { return label.dtype() == DType::kI64 ? label : ops::cast(label, DType::kI32); }

Value widened(Value x) { return ops::cast(x, at_least_f32(x.dtype())); }

void check_equal_shapes(const char* who, Value logits, Value label) {
  if (!(logits.shape() == label.shape())) {
    throw InvalidArgument("{}: logits and label must have one shape, got {} and {}", who, logits.type(), label.type());
  }
}

}  // namespace

SoftmaxCrossEntropyWithLogits::SoftmaxCrossEntropyWithLogits(const SoftmaxCrossEntropyWithLogitsOptions& options)
    : sparse_(options.sparse), reduction_(options.reduction) {
  check_reduction("SoftmaxCrossEntropyWithLogits", reduction_);
}

Value SoftmaxCrossEntropyWithLogits::construct(Value logits, Value label) {
  check_class_labels("SoftmaxCrossEntropyWithLogits", sparse_, logits, label);
  logits = widened(logits);
  Value losses;
  if (sparse_) {
    losses = ops::softmax_cross_entropy(logits, class_numbers(label));
  } else {
    const Value log_probabilities = ops::log_softmax(logits);
    losses = -ops::reduce_sum(ops::mul(label, log_probabilities), {-1});
  }
  return reduce_loss(losses, reduction_);
}

SoftmaxCrossEntropyExpand::SoftmaxCrossEntropyExpand(const SoftmaxCrossEntropyExpandOptions& options)
    : sparse_(options.sparse), eps_(options.eps) {
  require_not_negative("SoftmaxCrossEntropyExpand", "eps", eps_);
}

Value SoftmaxCrossEntropyExpand::construct(Value logits, Value label) {
  check_class_labels("SoftmaxCrossEntropyExpand", sparse_, logits, label);
  // In half types 1e-24 would be 0.
  logits = widened(logits);
  const Value shifted = ops::sub(logits, ops::reduce_max(logits, {-1}, /*keep_dims=*/true));
  const Value exponentials = ops::exp(shifted);
  const Value softmax = ops::div(exponentials, ops::reduce_sum(exponentials, {-1}, /*keep_dims=*/true));
  if (sparse_) {
    const Value on = ops::fill(graph(), {}, 1, logits.dtype());
    const Value off = ops::fill(graph(), {}, 0, logits.dtype());
    const int64_t classes = logits.shape()[1];
    label = ops::apply1("one_hot", {class_numbers(label), on, off},
                        {{"depth", classes}, {"axis", int64_t{1}}, {"valid", Ints{0, classes}}});
  }
  const Value log_softmax = ops::log(eps_ > 0 ? ops::add(softmax, eps_) : softmax);
  const Value losses = ops::mul(ops::reduce_sum(ops::mul(log_softmax, label), {-1}), -1.0);
  return ops::reduce_mean(losses, {-1});
}

MSELoss::MSELoss(const ElementwiseLossOptions& options) : reduction_(options.reduction) {
  check_reduction("MSELoss", reduction_);
}

Value MSELoss::construct(Value logits, Value label) {
  check_equal_shapes("MSELoss", logits, label);
  return reduce_loss(ops::square(ops::sub(widened(logits), label)), reduction_);
}

L1Loss::L1Loss(const ElementwiseLossOptions& options) : reduction_(options.reduction) {
  check_reduction("L1Loss", reduction_);
}

Value L1Loss::construct(Value logits, Value label) {
  check_equal_shapes("L1Loss", logits, label);
  return reduce_loss(ops::abs(ops::sub(widened(logits), label)), reduction_);
}

}  // namespace tessera::nn
