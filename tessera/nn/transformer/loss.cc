#include "tessera/nn/transformer/loss.h"

#include "tessera/base/error.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {

namespace {

// One number for each row of the logits.
Value flat(Value x, const TransformerParallel& parallel) {
  if (x.ndim() != 2) return x;
  return split(parallel, ops::reshape(x, {-1}), [](int64_t data, int64_t) { return mesh::Strategy{{data, 1}}; });
}

}  // namespace

Value CrossEntropyLoss::construct(std::span<const Value> inputs) {
  if (inputs.size() != 2 && inputs.size() != 3) {
    throw InvalidArgument("CrossEntropyLoss takes logits, label and, if wanted, a mask; got {} inputs", inputs.size());
  }
  const Value logits = ops::cast(inputs[0], at_least_f32(inputs[0].dtype()));
  const Value losses =
      split(parallel_, ops::softmax_cross_entropy(logits, flat(inputs[1], parallel_)), [](int64_t data, int64_t model) {
        return mesh::Strategy{{data, model}, {data}};
      });
  if (inputs.size() == 2) return reduce_loss(losses, "mean");
  const Value mask = ops::cast(flat(inputs[2], parallel_), losses.dtype());
  return ops::reduce_sum(losses * mask) / (ops::reduce_sum(mask) + 1e-5);
}

}  // namespace tessera::nn
