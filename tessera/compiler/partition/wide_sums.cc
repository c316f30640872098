#include "tessera/compiler/partition/wide_sums.h"

#include <algorithm>

#include "tessera/ops/functions/elementwise_functions.h"

namespace tessera::compiler {
namespace {

using ir::Value;
using mesh::Reduction;

bool is_half(DType dtype) { return dtype_of_parts(dtype) != dtype; }

// Whether its parts round when they are combined; a maximum or minimum is one of them.
bool is_part_of_sum(const mesh::Sharding& sharding) {
  return std::any_of(sharding.partial.begin(), sharding.partial.end(), [](const mesh::Partial& partial) {
    return partial.reduction == Reduction::kSum || partial.reduction == Reduction::kProd;
  });
}

std::vector<Value> localize_as_defined(const ops::OpDef& def, const ops::LocalizeContext& context) {
  if (def.localize) return def.localize(context);
  return ops::apply(context.graph, context.op, context.inputs, context.attributes);
}

}  // namespace

DType dtype_of_parts(DType dtype) { return dtype == DType::kBF16 || dtype == DType::kF16 ? DType::kF32 : dtype; }

std::vector<Value> localize_node(const ops::OpDef& def, const ops::LocalizeContext& context) {
  std::vector<bool> is_part;
  for (size_t o = 0; o < context.local_outputs.size(); ++o) {
    is_part.push_back(is_half(context.local_outputs[o].dtype) && is_part_of_sum(context.placement->outputs[o]));
  }
  bool reads_parts = false;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    reads_parts = reads_parts || context.inputs[i].dtype() != context.global_inputs[i].dtype;
  }
  const bool makes_parts = std::find(is_part.begin(), is_part.end(), true) != is_part.end();
  if (!makes_parts || (def.disjoint_parts && !reads_parts)) return localize_as_defined(def, context);

  Attributes attributes = context.attributes;
  ops::LocalizeContext wide{.graph = context.graph,
                            .op = context.op,
                            .attributes = attributes,
                            .inputs = context.inputs,
                            .global_inputs = context.global_inputs,
                            .global_outputs = context.global_outputs,
                            .local_outputs = context.local_outputs,
                            .input_slices = context.input_slices,
                            .output_slices = context.output_slices,
                            .parts = context.parts,
                            .placement = context.placement};
  for (auto* types : {&wide.global_outputs, &wide.local_outputs}) {
    for (Type& type : *types) type.dtype = dtype_of_parts(type.dtype);
  }
  const bool has_own_way = std::any_of(def.attributes.begin(), def.attributes.end(),
                                       [](const auto& attribute) { return attribute.name == "result_dtype"; });
  if (has_own_way && !reads_parts) {
    attributes.set("result_dtype", DType::kF32);
  } else {
    for (size_t i = 0; i < wide.inputs.size(); ++i) {
      Type& type = wide.global_inputs[i];
      if (!is_half(type.dtype)) continue;
      type.dtype = dtype_of_parts(type.dtype);
      wide.inputs[i] = ops::cast(wide.inputs[i], type.dtype);
    }
  }
  auto results = localize_as_defined(def, wide);
  for (size_t o = 0; o < results.size(); ++o) {
    if (!is_part[o]) results[o] = ops::cast(results[o], context.local_outputs[o].dtype);
  }
  return results;
}

}  // namespace tessera::compiler
