#include "tessera/ops/rules/moved_slices.h"

#include <algorithm>
#include <cstdlib>

#include "tessera/mesh/layout.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/rules/localize.h"
#include "tessera/ops/rules/windows.h"

namespace tessera::ops {
namespace {

std::string factor_of(int dim) { return fmt::format("d{}", dim); }

// The factors of the split dims along which elements move: those that the operator changes.
template <typename IsMoved>
std::vector<std::string> moving_factors(const LocalizeContext& context, int ndim, IsMoved&& is_moved) {
  std::vector<std::string> factors;
  for (int dim = 0; dim < ndim; ++dim) {
    if (context.is_split(factor_of(dim)) && is_moved(dim)) factors.push_back(factor_of(dim));
  }
  return factors;
}

// One dim of a slice.
struct DimSlice {
  int64_t begin;
  int64_t stride;  // negative: from `begin` down
  int64_t count;   // of the result

  int64_t place(int64_t index) const { return begin + index * stride; }

  bool is_whole(int64_t size) const { return begin == 0 && stride == 1 && count == size; }

  // The operand's elements between the first and the last that this part of the result is made of.
  mesh::Range operand_of(const mesh::Range& result) const {
    if (result.size == 0) return {0, 0};
    const int64_t first = place(result.offset);
    const int64_t last = place(result.offset + result.size - 1);
    return {std::min(first, last), std::abs(last - first) + 1};
  }
  // The part of the result that lies in this part of the operand.
  mesh::Range result_of(const mesh::Range& operand) const {
    if (operand.size == 0) return {0, 0};
    const int64_t end = operand.offset + operand.size;
    // How many of an endless slice stand before `limit` on its way, at most on it where it goes down.
    const auto num_before = [&](int64_t limit) {
      if (stride > 0) return limit <= begin ? int64_t{0} : (limit - begin + stride - 1) / stride;
      return limit > begin ? int64_t{0} : (begin - limit) / -stride + 1;
    };
    return stride > 0 ? clamped(num_before(operand.offset), num_before(end), count)
                      : clamped(num_before(end), num_before(operand.offset), count);
  }
};

DimSlice dim_slice(const Attributes& attributes, int dim, int64_t count) {
  const auto at = static_cast<size_t>(dim);
  return {attributes.get_ints("begin")[at], attributes.get_ints("strides")[at], count};
}

void set_at(Attributes& attributes, const char* name, int dim, int64_t value) {
  Ints values = attributes.get_ints(name);
  values[static_cast<size_t>(dim)] = value;
  attributes.set(name, values);
}

}  // namespace

std::vector<Value> localize_strided_slice(const LocalizeContext& context) {
  const Shape& in = context.global_inputs[0].shape;
  const Shape& out = context.global_outputs[0].shape;
  const auto factors = moving_factors(
      context, in.ndim(), [&](int dim) { return !dim_slice(context.attributes, dim, out[dim]).is_whole(in[dim]); });
  const auto needed = [&](const RankSlices& slices) {
    Box box = slices.inputs[0];
    for (int dim = 0; dim < in.ndim(); ++dim) {
      if (!context.is_split(factor_of(dim))) continue;
      const auto at = static_cast<size_t>(dim);
      box[at] = dim_slice(context.attributes, dim, out[dim]).operand_of(slices.outputs[0][at]);
    }
    return box;
  };
  const Value x = factors.empty() ? context.inputs[0] : fetch(context, 0, factors, needed);
  Attributes attributes = context.attributes;
  for (int dim = 0; dim < in.ndim(); ++dim) {
    if (!context.is_split(factor_of(dim))) continue;
    const bool is_down = context.attributes.get_ints("strides")[static_cast<size_t>(dim)] < 0;
    set_at(attributes, "begin", dim, is_down ? x.shape()[dim] - 1 : 0);
    set_at(attributes, "end", dim, is_down ? -1 : x.shape()[dim]);
  }
  return apply(context.graph, context.op, std::vector<Value>{x}, attributes);
}

std::vector<Value> localize_strided_slice_grad(const LocalizeContext& context) {
  const Shape& sliced = context.global_inputs[0].shape;
  const Shape& local = context.local_outputs[0].shape;
  const Shape& whole = context.global_outputs[0].shape;
  const auto factors = moving_factors(context, sliced.ndim(), [&](int dim) {
    return !dim_slice(context.attributes, dim, sliced[dim]).is_whole(whole[dim]);
  });
  Attributes attributes = context.attributes;
  attributes.set("shape", local.to_vector());
  const auto part_of = [&](int dim, const Box& x) {
    return dim_slice(context.attributes, dim, sliced[dim]).result_of(x[static_cast<size_t>(dim)]);
  };
  const auto needed = [&](const RankSlices& slices) {
    Box box = slices.inputs[0];
    for (int dim = 0; dim < sliced.ndim(); ++dim) {
      if (context.is_split(factor_of(dim))) box[static_cast<size_t>(dim)] = part_of(dim, slices.outputs[0]);
    }
    return box;
  };
  const Value dy = factors.empty() ? context.inputs[0] : fetch(context, 0, factors, needed);
  for (int dim = 0; dim < sliced.ndim(); ++dim) {
    if (!context.is_split(factor_of(dim))) continue;
    const auto slice = dim_slice(context.attributes, dim, sliced[dim]);
    const auto part = part_of(dim, context.output_slices[0]);
    const int64_t step = slice.stride > 0 ? 1 : -1;
    const int64_t origin = context.output_slices[0][static_cast<size_t>(dim)].offset;
    // An empty slice begins where one of its direction may end.
    const int64_t first = part.size == 0 ? std::min<int64_t>(step, 0) : slice.place(part.offset) - origin;
    const int64_t end = part.size == 0 ? first : slice.place(part.offset + part.size - 1) - origin + step;
    set_at(attributes, "begin", dim, first);
    set_at(attributes, "end", dim, end);
  }
  return apply(context.graph, context.op, std::vector<Value>{dy}, attributes);
}

std::vector<Value> localize_pad(const LocalizeContext& context) {
  const Shape& in = context.global_inputs[0].shape;
  const auto factors =
      moving_factors(context, in.ndim(), [&](int dim) { return in[dim] != context.global_outputs[0].shape[dim]; });
  if (factors.empty()) return apply(context.graph, context.op, context.inputs, context.attributes);
  const Ints& before = context.attributes.get_ints("before");
  const auto kept = [&](int dim, const Box& result) {
    const auto& range = result[static_cast<size_t>(dim)];
    const int64_t shift = before[static_cast<size_t>(dim)];
    if (range.size == 0) return mesh::Range{0, 0};
    return clamped(range.offset - shift, range.offset + range.size - shift, in[dim]);
  };
  const Value x = fetch(context, 0, factors, [&](const RankSlices& slices) {
    Box box = slices.inputs[0];
    for (int dim = 0; dim < in.ndim(); ++dim) {
      if (context.is_split(factor_of(dim))) box[static_cast<size_t>(dim)] = kept(dim, slices.outputs[0]);
    }
    return box;
  });
  Attributes attributes = context.attributes;
  for (int dim = 0; dim < in.ndim(); ++dim) {
    if (!context.is_split(factor_of(dim))) continue;
    const auto& range = context.output_slices[0][static_cast<size_t>(dim)];
    const int64_t added = range.size - kept(dim, context.output_slices[0]).size;
    const int64_t left = std::clamp<int64_t>(before[static_cast<size_t>(dim)] - range.offset, 0, added);
    set_at(attributes, "before", dim, left);
    set_at(attributes, "after", dim, added - left);
  }
  return apply(context.graph, context.op, std::vector<Value>{x}, attributes);
}

std::vector<Value> localize_tile(const LocalizeContext& context) {
  const Shape& in = context.global_inputs[0].shape;
  const Ints& multiples = context.attributes.get_ints("multiples");
  const auto is_repeated = [&](int dim) { return multiples[static_cast<size_t>(dim)] != 1; };
  const auto factors = moving_factors(context, in.ndim(), is_repeated);
  if (factors.empty()) return apply(context.graph, context.op, context.inputs, context.attributes);
  // A part of the result that reaches over from one copy to the next needs all of the dim.
  const auto copied = [&](int dim, const Box& result) {
    const auto& range = result[static_cast<size_t>(dim)];
    if (range.size == 0) return mesh::Range{0, 0};
    const int64_t first = range.offset % in[dim];
    return first + range.size <= in[dim] ? mesh::Range{first, range.size} : mesh::Range{0, in[dim]};
  };
  Value x = fetch(context, 0, factors, [&](const RankSlices& slices) {
    Box box = slices.inputs[0];
    for (int dim = 0; dim < in.ndim(); ++dim) {
      if (context.is_split(factor_of(dim)) && is_repeated(dim)) {
        box[static_cast<size_t>(dim)] = copied(dim, slices.outputs[0]);
      }
    }
    return box;
  });
  Attributes attributes = context.attributes;
  Box own(static_cast<size_t>(in.ndim()));  // the rank's part, in what its copies make
  for (int dim = 0; dim < in.ndim(); ++dim) {
    const auto at = static_cast<size_t>(dim);
    const auto& range = context.output_slices[0][at];
    own[at] = {0, range.size};
    if (!context.is_split(factor_of(dim)) || !is_repeated(dim)) continue;
    const auto held = copied(dim, context.output_slices[0]);
    if (held.size > 0) own[at].offset = range.offset % in[dim] - held.offset;
    const int64_t end = own[at].offset + own[at].size;
    set_at(attributes, "multiples", dim, held.size == 0 ? 1 : (end + held.size - 1) / held.size);
  }
  x = apply1("tile", {x}, attributes);
  for (int dim = 0; dim < in.ndim(); ++dim) {
    const auto& range = own[static_cast<size_t>(dim)];
    x = slice_along(x, dim, range.offset, range.offset + range.size);
  }
  return {x};
}

std::vector<Value> localize_concat(const LocalizeContext& context) {
  const int axis = axis_of(context.attributes, context.global_outputs[0]);
  if (!context.is_split(factor_of(axis))) return apply(context.graph, context.op, context.inputs, context.attributes);
  const auto at = static_cast<size_t>(axis);
  std::vector<Value> pieces;
  int64_t begin = 0;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    const int64_t size = context.global_inputs[i].shape[axis];
    pieces.push_back(fetch(context, i, {factor_of(axis)}, [&](const RankSlices& slices) {
      Box box = slices.inputs[i];
      const auto& range = slices.outputs[0][at];
      box[at] =
          range.size == 0 ? mesh::Range{0, 0} : clamped(range.offset - begin, range.offset + range.size - begin, size);
      return box;
    }));
    begin += size;
  }
  return apply(context.graph, context.op, pieces, context.attributes);
}

std::vector<Value> localize_split(const LocalizeContext& context) {
  const int axis = axis_of(context.attributes, context.global_inputs[0]);
  if (!context.is_split(factor_of(axis))) return apply(context.graph, context.op, context.inputs, context.attributes);
  const auto at = static_cast<size_t>(axis);
  std::vector<Value> pieces;
  int64_t begin = 0;
  for (size_t o = 0; o < context.global_outputs.size(); ++o) {
    pieces.push_back(fetch(context, 0, {factor_of(axis)}, [&](const RankSlices& slices) {
      Box box = slices.inputs[0];
      const auto& range = slices.outputs[o][at];
      box[at] = range.size == 0 ? mesh::Range{0, 0} : mesh::Range{range.offset + begin, range.size};
      return box;
    }));
    begin += context.global_outputs[o].shape[axis];
  }
  return pieces;
}

std::vector<ReshapeGroup> reshape_groups(const Shape& in, const Shape& out) {
  std::vector<ReshapeGroup> groups;
  if (in.num_elements() == 0) {
    // Products say nothing; equal leading dims still are the same.
    for (int d = 0; d < in.ndim() && d < out.ndim() && in[d] == out[d]; ++d)
      groups.push_back({d, d + 1, d, d + 1, d, d});
    return groups;
  }
  int i = 0;
  int j = 0;
  while (i < in.ndim() || j < out.ndim()) {
    ReshapeGroup group{.in_begin = i, .out_begin = j};
    int64_t in_product = 1;
    int64_t out_product = 1;
    do {
      if (j == out.ndim() || (i < in.ndim() && in_product <= out_product)) {
        if (in[i] > 1 && group.in_dim < 0) group.in_dim = i;
        in_product *= in[i++];
      } else {
        if (out[j] > 1 && group.out_dim < 0) group.out_dim = j;
        out_product *= out[j++];
      }
    } while (in_product != out_product);
    group.in_end = i;
    group.out_end = j;
    groups.push_back(group);
  }
  return groups;
}

int64_t reshaped_block(const Shape& in, const Shape& out, const ReshapeGroup& group, int64_t block) {
  int64_t elements = block;
  for (int d = group.in_dim + 1; d < group.in_end; ++d) elements *= in[d];
  int64_t inner = 1;
  for (int d = group.out_dim + 1; d < group.out_end; ++d) inner *= out[d];
  return inner > 0 && elements % inner == 0 ? std::max<int64_t>(elements / inner, 1) : 1;
}

// In terms of one dim per group a rank holds a box before and after; where they differ, ranks exchange.
std::vector<Value> localize_reshape(const LocalizeContext& context) {
  const Ints result = context.local_outputs[0].shape.to_vector();
  const Shape& in = context.global_inputs[0].shape;
  const Shape& out = context.global_outputs[0].shape;
  const auto groups = reshape_groups(in, out);
  // Those whose parts do not fall on the same elements before and after, on some rank.
  std::vector<std::string> factors;
  for (const auto& group : groups) {
    if (group.in_dim < 0 || group.out_dim < 0) continue;
    const auto it = context.parts.find(factor_of(group.in_dim));
    if (it == context.parts.end()) continue;
    if (in[group.in_dim] % it->second == 0 && out[group.out_dim] % it->second == 0 && context.blocks.empty()) continue;
    const auto& placement = *context.placement;
    const auto parts_of = [&](const Shape& shape, const mesh::Sharding& sharding, int dim, int end) {
      mesh::Sharding one = mesh::Sharding::replicated(1);
      one.dims[0] = sharding.dims[static_cast<size_t>(dim)];
      if (sharding.block(dim) > 1) one.blocks = {sharding.block(dim)};
      auto parts = mesh::all_slices(Shape{shape[dim]}, placement.mesh, one);
      int64_t inner = 1;
      for (int d = dim + 1; d < end; ++d) inner *= shape[d];
      for (auto& part : parts) part = {part.offset * inner, part.size * inner};
      return parts;
    };
    if (parts_of(in, placement.inputs[0], group.in_dim, group.in_end) !=
        parts_of(out, placement.outputs[0], group.out_dim, group.out_end)) {
      factors.push_back(factor_of(group.in_dim));
    }
  }
  const auto flat = [&](const Box& slice, const Shape& shape, bool is_result) {
    Box box;
    for (const auto& group : groups) {
      const int dim = is_result ? group.out_dim : group.in_dim;
      const int end = is_result ? group.out_end : group.in_end;
      if (dim < 0) {
        box.push_back({0, 1});
        continue;
      }
      int64_t inner = 1;
      for (int d = dim + 1; d < end; ++d) inner *= shape[d];
      const auto& range = slice[static_cast<size_t>(dim)];
      box.push_back({range.offset * inner, range.size * inner});
    }
    return box;
  };
  Value x = context.inputs[0];
  if (!factors.empty()) {
    std::vector<int> axes;
    for (const auto& factor : factors) {
      const auto& own = context.placement->factor_axes.at(factor);
      axes.insert(axes.end(), own.begin(), own.end());
    }
    const Attributes group = context.placement->group_over(axes);
    std::vector<Box> held;
    std::vector<Box> wanted;
    for (const int64_t rank : group.get_ints("ranks")) {
      const auto slices = slices_of(context, static_cast<int>(rank));
      held.push_back(flat(slices.inputs[0], in, false));
      wanted.push_back(flat(slices.outputs[0], out, true));
    }
    const auto own = static_cast<size_t>(group.get_int("rank_in_group"));
    x = exchange(reshape_to(x, shape_of(held[own])), group, held, wanted);
  }
  return apply(context.graph, "reshape", std::vector<Value>{x}, {{"shape", result}});
}

}  // namespace tessera::ops
