#include "tessera/ops/rules/batch_norm_operands.h"

#include <algorithm>
#include <numeric>

#include "tessera/ops/rules/localize.h"

namespace tessera::ops {
namespace {

// The rows of groups [groups.offset, + size).
mesh::Range rows_of(const LocalizeContext& context, const mesh::Range& groups) {
  const auto first = context.attributes.get_ints("counts").begin() + groups.offset;
  const int64_t pixels = pixels_of(context.global_inputs[0].shape);
  return {std::accumulate(context.attributes.get_ints("counts").begin(), first, int64_t{0}) / pixels,
          std::accumulate(first, first + groups.size, int64_t{0}) / pixels};
}

// Whether some rank does not hold all elements of the groups that it has, or others' too.
bool cuts_groups(const LocalizeContext& context) {
  for (const char* pixels : {"d2", "d3", "d4"}) {
    if (context.is_split(pixels)) return true;
  }
  if (!context.is_split("n")) return false;
  const Ints row_parts = part_sizes(context, "n", context.global_inputs[0].shape[0]);
  const Ints group_parts = part_sizes(context, "n", static_cast<int64_t>(context.attributes.get_ints("counts").size()));
  mesh::Range groups;
  for (size_t part = 0; part < row_parts.size(); ++part) {
    groups.size = group_parts[part];
    if (rows_of(context, groups).size != row_parts[part]) return true;
    groups.offset += groups.size;
  }
  return false;
}

// A rank that holds some of the groups counts only those.
std::vector<Value> localize_whole_groups(const LocalizeContext& context, const mesh::Range& groups) {
  const auto first = context.attributes.get_ints("counts").begin() + groups.offset;
  Attributes attributes = context.attributes;
  attributes.set("counts", Ints(first, first + groups.size));
  return apply(context.graph, context.op, context.inputs, attributes);
}

// The groups to which the rows of an image's slice belong, with the elements of each that lie in the slice.
struct HeldGroups {
  mesh::Range groups;
  Ints counts;
  Doubles shares;  // of all elements of each group
};
HeldGroups held_groups(const LocalizeContext& context, const Box& slice) {
  HeldGroups held;
  if (num_elements(slice) == 0) return held;
  const Ints& counts = context.attributes.get_ints("counts");
  int64_t pixels = 1;
  for (size_t dim = 2; dim < slice.size(); ++dim) pixels *= slice[dim].size;
  for (int64_t group = 0; group < static_cast<int64_t>(counts.size()); ++group) {
    const auto rows = rows_of(context, {group, 1});
    const int64_t begin = std::max(rows.offset, slice[0].offset);
    const int64_t end = std::min(rows.offset + rows.size, slice[0].offset + slice[0].size);
    if (end <= begin) continue;
    if (held.groups.size == 0) held.groups.offset = group;
    held.groups.size = group + 1 - held.groups.offset;
    // Groups without rows that lie between.
    held.counts.resize(static_cast<size_t>(held.groups.size) - 1);
    held.shares.resize(held.counts.size());
    held.counts.push_back((end - begin) * pixels);
    held.shares.push_back(static_cast<double>(held.counts.back()) /
                          static_cast<double>(counts[static_cast<size_t>(group)]));
  }
  return held;
}

Value weighted(Value statistics, const Doubles& shares) {
  const Value column = apply(
      statistics.graph(), "constant", {},
      {{"dtype", statistics.dtype()}, {"shape", Ints{static_cast<int64_t>(shares.size()), 1}}, {"values", shares}})[0];
  return apply1("mul", {statistics, column});
}

// A rank computes on the groups that its rows belong to as if what it holds of them were all. What is averaged is then
// weighted by the share that this is; statistics are added up between the ranks.
std::vector<Value> localize_cut_groups(const LocalizeContext& context, const BatchNormOperands& operands) {
  const auto held = held_groups(context, context.input_slices[0]);
  std::vector<Value> inputs;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    inputs.push_back(context.inputs[i]);
    if (!operands.is_statistic(i)) continue;
    inputs[i] = fetch(context, i, {"n"}, [&](const RankSlices& slices) {
      Box box = slices.inputs[i];
      box[0] = held_groups(context, slices.inputs[0]).groups;
      return box;
    });
    if (operands.is_sum(i)) inputs[i] = weighted(inputs[i], held.shares);
  }
  const bool is_empty = held.groups.size == 0;
  if (is_empty && operands.image_results > 0) return {zeros(context.graph, context.local_outputs[0])};
  std::vector<Value> results;
  if (!is_empty) {
    Attributes attributes = context.attributes;
    attributes.set("counts", held.counts);
    results = apply(context.graph, context.op, inputs, attributes);
  }
  if (operands.image_results > 0) return results;
  const auto num_groups = static_cast<int64_t>(context.attributes.get_ints("counts").size());
  std::vector<Value> statistics;
  for (size_t o = 0; o < context.local_outputs.size(); ++o) {
    const Type& type = context.local_outputs[o];
    Value all;
    if (is_empty) {
      all = zeros(context.graph, {type.dtype, {num_groups, type.shape[1]}});
    } else {
      const Value own = operands.averages ? weighted(results[o], held.shares) : results[o];
      all = pad_along(own, 0, held.groups.offset, num_groups - held.groups.offset - held.groups.size);
    }
    statistics.push_back(context.is_split("n") ? scatter_over(context, "n", all, 0) : all);
  }
  return statistics;
}

}  // namespace

int64_t pixels_of(const Shape& x) {
  int64_t pixels = 1;
  for (int dim = 2; dim < x.ndim(); ++dim) pixels *= x[dim];
  return pixels;
}

std::vector<Value> localize_batch_norm(const LocalizeContext& context, const BatchNormOperands& operands) {
  if (!context.attributes.get_bool("grouped")) {
    return apply(context.graph, context.op, context.inputs, context.attributes);
  }
  if (cuts_groups(context)) return localize_cut_groups(context, operands);
  const Box& statistics = operands.statistics_results > 0 ? context.output_slices[0]
                                                          : context.input_slices[static_cast<size_t>(operands.images)];
  return localize_whole_groups(context, statistics[0]);
}

}  // namespace tessera::ops
