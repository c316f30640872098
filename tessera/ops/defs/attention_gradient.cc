// The gradient of attention. By its result it is the operator attention_grad. By the log-sum-exp L_i of the scores of
// query i it is dL_i/dq_i = scale * sum_j w_ij k_j and dL_i/dk_j = scale * w_ij q_i, w being the weights without
// dropout: attention over the keys themselves, and its gradient by them.
#include <set>

#include "tessera/base/error.h"
#include "tessera/ops/defs/attention_operands.h"
#include "tessera/ops/registry/gradient_helpers.h"

namespace tessera::ops {
namespace {

// The name of a parameter that the value is computed from; empty if there is none.
std::string parameter_behind(const ir::Graph& graph, ir::ValueId value) {
  std::set<ir::ValueId> seen;
  std::vector<ir::ValueId> open = {value};
  while (!open.empty()) {
    const ir::ValueId next = open.back();
    open.pop_back();
    if (!seen.insert(next).second) continue;
    const ir::ValueInfo& info = graph.info(next);
    if (info.node == ir::kNone) {
      const ir::Input& input = graph.inputs()[static_cast<size_t>(info.index)];
      if (input.kind == ir::InputKind::kParameter) return input.name;
      continue;
    }
    const auto& operands = graph.node(info.node).inputs;
    open.insert(open.end(), operands.begin(), operands.end());
  }
  return {};
}

void require_constant_mask(Value mask) {
  const auto parameter = parameter_behind(mask.graph(), mask.id());
  if (parameter.empty()) return;
  throw InvalidArgument(
      "attention: no gradient flows through the mask, which is made of the parameter \"{}\"; write the scores with "
      "batch_matmul and softmax where a mask is learned",
      parameter);
}

// What flows back from the log-sum-exp into query and key.
std::pair<Value, Value> by_log_sum_exp(const GradientContext& context, const AttentionExtras& extras) {
  const Value query = context.inputs[0];
  const Value key = context.inputs[1];
  Attributes plain = context.attributes;
  plain.set("keep_prob", 1.0);
  const double scale = plain.get_double("scale");
  std::vector<Value> operands = {query, key, key};
  if (extras.mask) operands.push_back(context.inputs[*extras.mask]);
  const Value mean_key = apply(context.graph, "attention", operands, plain)[0];
  const Value rows = apply1("transpose", {context.cotangents[1]}, {{"perm", Ints{0, 2, 1}}});
  const Value weight = cast_to(apply1("expand_dims", {rows}, {{"axes", Ints{3}}}), query.dtype());
  operands.insert(operands.begin(), apply1("mul", {query, weight}));
  operands.insert(operands.begin() + 4, {mean_key, context.outputs[1]});
  const Value dkey = apply(context.graph, "attention_grad", operands, plain)[2];
  return {scale_by(apply1("mul", {mean_key, weight}), scale), scale_by(dkey, scale)};
}

}  // namespace

std::vector<Value> attention_gradient(const GradientContext& context) {
  const auto extras = attention_extras(context.attributes, context.inputs.size(), 3);
  if (extras.mask && is_floating(context.inputs[*extras.mask].dtype())) {
    require_constant_mask(context.inputs[*extras.mask]);
  }
  std::vector<Value> operands = {context.cotangent(0), context.inputs[0],  context.inputs[1],
                                 context.inputs[2],    context.outputs[0], context.outputs[1]};
  operands.insert(operands.end(), context.inputs.begin() + 3, context.inputs.end());
  std::vector<Value> gradients = apply(context.graph, "attention_grad", operands, context.attributes);
  if (context.cotangents[1]) {
    const auto [dquery, dkey] = by_log_sum_exp(context, extras);
    gradients[0] = apply1("add", {gradients[0], dquery});
    gradients[1] = apply1("add", {gradients[1], dkey});
  }
  gradients.resize(context.inputs.size());
  return gradients;
}

}  // namespace tessera::ops
