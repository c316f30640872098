#include "tessera/ops/localize.h"

#include "tessera/base/error.h"
#include "tessera/mesh/layout.h"

namespace tessera::ops {
namespace {

const std::vector<int>& axes_of(const LocalizeContext& context, const std::string& factor) {
  static const std::vector<int> none;
  check(context.placement != nullptr, "a split that reaches over to other ranks needs to know where they are");
  const auto it = context.placement->factor_axes.find(factor);
  return it == context.placement->factor_axes.end() ? none : it->second;
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
  std::vector<int> axes;
  for (const auto& factor : factors) {
    const auto& own = axes_of(context, factor);
    axes.insert(axes.end(), own.begin(), own.end());
  }
  if (axes.empty()) return context.inputs[input];
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

Value reduce_over(const LocalizeContext& context, const std::string& factor, Value value,
                  const std::string& reduction) {
  Attributes attributes = context.placement->group_over(axes_of(context, factor));
  attributes.set("reduction", reduction);
  return apply1("all_reduce", {value}, attributes);
}

Value gather_over(const LocalizeContext& context, const std::string& factor, Value value, int dim, const Ints& sizes) {
  Attributes attributes = context.placement->group_over(axes_of(context, factor));
  attributes.set("dim", static_cast<int64_t>(dim));
  attributes.set("sizes", sizes);
  return apply1("all_gather", {value}, attributes);
}

Ints part_sizes(const LocalizeContext& context, const std::string& factor, int64_t size) {
  return mesh::part_sizes(size, context.placement->mesh, axes_of(context, factor));
}

int64_t part_index(const LocalizeContext& context, const std::string& factor) {
  return context.placement->group_over(axes_of(context, factor)).get_int("rank_in_group");
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
