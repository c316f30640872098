#include "tessera/nn/transformer/loss.h"

#include "tessera/base/error.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/ops/functions.h"

namespace tessera::nn {

Value CrossEntropyLoss::construct(std::span<const Value> inputs) {
  if (inputs.size() != 2 && inputs.size() != 3) {
    throw InvalidArgument("CrossEntropyLoss takes logits, label and, if wanted, a mask; got {} inputs", inputs.size());
  }
  const Value logits = ops::cast(inputs[0], at_least_f32(inputs[0].dtype()));
  const Value losses = split(parallel_, ops::softmax_cross_entropy(logits, inputs[1]), [](int64_t data, int64_t model) {
    return mesh::Strategy{{data, model}, {data}};
  });
  if (inputs.size() == 2) return reduce_loss(losses, "mean");
  const Value mask = ops::cast(inputs[2], losses.dtype());
  return ops::reduce_sum(losses * mask) / (ops::reduce_sum(mask) + 1e-5);
}

}  // namespace tessera::nn
