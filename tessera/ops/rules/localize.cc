#include "tessera/ops/rules/localize.h"

#include "tessera/base/error.h"
#include "tessera/mesh/layout.h"
#include "tessera/ops/functions/elementwise_functions.h"

namespace tessera::ops {
namespace {

const std::vector<int>& axes_of(const LocalizeContext& context, const std::string& factor) {
  static const std::vector<int> none;
  check(context.placement != nullptr, "a split that reaches over to other ranks needs to know where they are");
  const auto it = context.placement->factor_axes.find(factor);
  return it == context.placement->factor_axes.end() ? none : it->second;
}

std::vector<int> axes_of(const LocalizeContext& context, const std::vector<std::string>& factors) {
  std::vector<int> axes;
  for (const auto& factor : factors) {
    const auto& own = axes_of(context, factor);
    axes.insert(axes.end(), own.begin(), own.end());
  }
  return axes;
}

}  // namespace

RankSlices slices_of(const LocalizeContext& context, int rank) {
  const Placement& placement = *context.placement;
  RankSlices slices;
  for (size_t i = 0; i < placement.inputs.size(); ++i) {
    slices.inputs.push_back(mesh::slice_of(context.global_inputs[i].shape, placement.inputs[i], placement.mesh, rank));
  }
  for (size_t o = 0; o < placement.outputs.size(); ++o) {
    slices.outputs.push_back(
        mesh::slice_of(context.global_outputs[o].shape, placement.outputs[o], placement.mesh, rank));
  }
  return slices;
}

Value fetch(const LocalizeContext& context, size_t input, const std::vector<std::string>& factors,
            const std::function<Box(const RankSlices&)>& needed) {
  const auto axes = axes_of(context, factors);
  if (axes.empty()) {
    // All of it is here; an operator may need less than that.
    const Box& held = context.input_slices[input];
    const Box box = needed({context.input_slices, context.output_slices});
    Value x = context.inputs[input];
    for (size_t dim = 0; dim < box.size(); ++dim) {
      const int64_t begin = box[dim].size == 0 ? 0 : box[dim].offset - held[dim].offset;
      x = slice_along(x, static_cast<int>(dim), begin, begin + box[dim].size);
    }
    return x;
  }
  const Attributes group = context.placement->group_over(axes);
  std::vector<Box> held;
  std::vector<Box> wanted;
  for (const int64_t rank : group.get_ints("ranks")) {
    const auto slices = slices_of(context, static_cast<int>(rank));
    held.push_back(slices.inputs[input]);
    wanted.push_back(needed(slices));
  }
  return exchange(context.inputs[input], group, held, wanted);
}

Value reduce_over(const LocalizeContext& context, const std::vector<std::string>& factors, Value value,
                  const std::string& reduction) {
  Attributes attributes = context.placement->group_over(axes_of(context, factors));
  attributes.set("reduction", reduction);
  return apply1("all_reduce", {value}, attributes);
}

Value scatter_over(const LocalizeContext& context, const std::string& factor, Value value, int dim) {
  Attributes attributes = context.placement->group_over(axes_of(context, factor));
  attributes.set("dim", static_cast<int64_t>(dim));
  attributes.set("sizes", part_sizes(context, factor, value.shape()[dim]));
  attributes.set("reduction", "sum");
  return apply1("reduce_scatter", {value}, attributes);
}

Value gather_over(const LocalizeContext& context, const std::string& factor, Value value, int dim, const Ints& sizes) {
  Attributes attributes = context.placement->group_over(axes_of(context, factor));
  attributes.set("dim", static_cast<int64_t>(dim));
  attributes.set("sizes", sizes);
  return apply1("all_gather", {value}, attributes);
}

Ints part_sizes(const LocalizeContext& context, const std::string& factor, int64_t size) {
  const auto it = context.blocks.find(factor);
  const int64_t block = it != context.blocks.end() && it->second.size == size ? it->second.block : 1;
  return mesh::part_sizes(size, context.placement->mesh, axes_of(context, factor), block);
}

int64_t part_index(const LocalizeContext& context, const std::string& factor) {
  return context.placement->group_over(axes_of(context, factor)).get_int("rank_in_group");
}

Value shift_indices(Value indices, int64_t offset) {
  if (offset == 0) return indices;
  // u8 would wrap around.
  if (indices.dtype() == DType::kU8) indices = apply1("cast", {indices}, {{"dtype", DType::kI32}});
  return indices - static_cast<double>(offset);
}

bool shifts_indices(const ir::Graph& graph, const ir::Node& node) {
  if (node.op != "sub") return false;
  const auto producer = graph.info(node.inputs[1]).node;
  return producer != ir::kNone && graph.node(producer).op == "fill";
}

Value slice_along(Value x, int dim, int64_t begin, int64_t end) {
  if (begin == 0 && end == x.shape()[dim]) return x;
  Ints begins(static_cast<size_t>(x.ndim()), 0);
  Ints ends = x.shape().to_vector();
  begins[static_cast<size_t>(dim)] = begin;
  ends[static_cast<size_t>(dim)] = end;
  return apply1("strided_slice", {x}, {{"begin", begins}, {"end", ends}, {"strides", Ints(begins.size(), 1)}});
}

Value zeros(ir::Graph& graph, const Type& type) {
  return apply(graph, "fill", {}, {{"shape", type.shape.to_vector()}, {"value", 0.0}, {"dtype", type.dtype}})[0];
}

Value pad_along(Value x, int dim, int64_t before, int64_t after) {
  if (before == 0 && after == 0) return x;
  Ints befores(static_cast<size_t>(x.ndim()), 0);
  Ints afters = befores;
  befores[static_cast<size_t>(dim)] = before;
  afters[static_cast<size_t>(dim)] = after;
  return apply1("pad", {x}, {{"before", befores}, {"after", afters}});
}

}  // namespace tessera::ops
