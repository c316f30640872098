#include "tessera/compiler/partition/lowering.h"

#include <algorithm>
#include <numeric>

#include "tessera/mesh/exchange_plan.h"
#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/ops/rules/exchange.h"
#include "tessera/ops/rules/localize.h"

namespace tessera::compiler {

using ir::Value;
using mesh::Mesh;

namespace {

std::vector<mesh::Range> slice_of(const Shape& shape, const mesh::Layout& layout, int rank) {
  return mesh::slice_of(shape, layout.sharding, layout.mesh, rank);
}

// The axes that `to` is partial over where `from` is not, and `to` without them.
std::pair<std::vector<int>, mesh::Layout> partial_only_in(const mesh::Layout& to, const mesh::Layout& from) {
  std::vector<int> axes;
  mesh::Layout completed = to;
  std::erase_if(completed.sharding.partial, [&](const mesh::Partial& partial) {
    const auto& have = from.sharding.partial;
    if (from.mesh == to.mesh && std::find(have.begin(), have.end(), partial) != have.end()) return false;
    axes.push_back(partial.axis);
    return true;
  });
  return {axes, completed};
}

bool is_first_along(const Mesh& mesh, int rank, const std::vector<int>& axes) {
  const auto at = mesh.coordinates(rank);
  return std::all_of(axes.begin(), axes.end(), [&](int axis) { return at[static_cast<size_t>(axis)] == 0; });
}

}  // namespace

Value RedistributionLowering::redistribute(Value value, const Type& type, const mesh::Layout& from,
                                           const mesh::Layout& to) {
  // A whole value is a sum that one rank contributes and the others nothing to.
  auto [axes, completed] = partial_only_in(to, from);
  if (!axes.empty()) {
    value = redistribute(value, type, from, completed);
    return is_first_along(to.mesh, rank_, axes) ? value : ops::zeros(local_, value.type());
  }
  const auto& way = find_way(type, from, to);
  mesh::Layout at = from;
  for (const auto& step : way.steps) {
    const mesh::Layout after{way.meshes[static_cast<size_t>(step.mesh)], step.after};
    value = lower(step, type.shape, value, at, after);
    at = after;
    // The parts of a sum of half types are f32; what is whole is rounded before it travels on.
    if (!at.sharding.is_partial()) value = ops::cast(value, type.dtype);
  }
  return value;
}

std::set<std::vector<int>> RedistributionLowering::groups() const {
  std::set<std::vector<int>> lists;
  for (const auto& [mesh, axes] : used_groups_) {
    std::set<int> met;
    for (const int rank : mesh.ranks()) {
      if (met.contains(rank)) continue;
      const auto group = mesh::ordered_group(mesh, rank, axes);
      met.insert(group.begin(), group.end());
      lists.insert(group);
    }
  }
  return lists;
}

const mesh::Redistribution& RedistributionLowering::find_way(const Type& type, const mesh::Layout& from,
                                                             const mesh::Layout& to) {
  const auto key = fmt::format("{} {} {}", type, from.to_string(), to.to_string());
  auto [it, is_new] = ways_.try_emplace(key);
  if (is_new) {
    it->second = mesh::redistribute(type.shape, static_cast<int64_t>(size_bytes(type.dtype)), from, to, options_);
  }
  return it->second;
}

Value RedistributionLowering::lower(const mesh::RedistributionStep& step, const Shape& shape, Value value,
                                    const mesh::Layout& before, const mesh::Layout& after) {
  switch (step.kind) {
    case mesh::MoveKind::kRelabel: return value;
    case mesh::MoveKind::kSlice: return slice(shape, value, before, after);
    case mesh::MoveKind::kAllToAll:
    case mesh::MoveKind::kExchange: return ops::apply1("exchange", {value}, exchange_for(step, shape, before, after));
    case mesh::MoveKind::kAllReduce:
    case mesh::MoveKind::kAllGather:
    case mesh::MoveKind::kReduceScatter: break;
  }
  Attributes attributes = group_over(before.mesh, step.axes);
  if (attributes.get_ints("ranks").size() == 1) return value;
  const bool gathers = step.kind == mesh::MoveKind::kAllGather;
  const auto& whole = gathers ? after : before;
  // The first rank of a mesh has the largest parts.
  const Shape largest = mesh::local_shape(shape, whole.sharding, whole.mesh, whole.mesh.ranks()[0]);
  collective_bytes_[local_.num_nodes()] = Type{value.dtype(), largest}.size_bytes();
  if (step.kind == mesh::MoveKind::kAllReduce) {
    attributes.set("reduction", std::string(mesh::to_string(step.reduction)));
    return ops::apply1("all_reduce", {value}, attributes);
  }
  const int64_t size = mesh::local_shape(shape, whole.sharding, whole.mesh, rank_)[step.dim];
  const int64_t block = (gathers ? before : after).sharding.block(step.dim);
  attributes.set("dim", static_cast<int64_t>(step.dim));
  attributes.set("sizes", mesh::part_sizes(size, before.mesh, step.axes, block));
  if (!gathers) attributes.set("reduction", std::string(mesh::to_string(step.reduction)));
  return ops::apply1(gathers ? "all_gather" : "reduce_scatter", {value}, attributes);
}

const Attributes& RedistributionLowering::exchange_for(const mesh::RedistributionStep& step, const Shape& shape,
                                                       const mesh::Layout& before, const mesh::Layout& after) {
  const bool among_all = step.kind == mesh::MoveKind::kExchange;
  auto& known = exchanges_[fmt::format("{} {} {} {}", among_all, shape, before.to_string(), after.to_string())];
  // Texts do not name ranks.
  const auto it = std::find_if(known.begin(), known.end(), [&](const Exchange& exchange) {
    return exchange.before == before && exchange.after == after;
  });
  if (it != known.end()) return it->attributes;
  known.push_back(
      {before, after, among_all ? exchange(shape, before, after) : swap_slices(step, shape, before, after)});
  return known.back().attributes;
}

Value RedistributionLowering::slice(const Shape& shape, Value value, const mesh::Layout& before,
                                    const mesh::Layout& after) const {
  const auto held = slice_of(shape, before, rank_);
  const auto wanted = slice_of(shape, after, rank_);
  Ints begin;
  Ints end;
  for (size_t dim = 0; dim < held.size(); ++dim) {
    begin.push_back(wanted[dim].size == 0 ? 0 : wanted[dim].offset - held[dim].offset);
    end.push_back(begin.back() + wanted[dim].size);
  }
  return ops::apply1("strided_slice", {value}, {{"begin", begin}, {"end", end}, {"strides", Ints(held.size(), 1)}});
}

// Along some axes, between the ranks that differ along them only.
Attributes RedistributionLowering::swap_slices(const mesh::RedistributionStep& step, const Shape& shape,
                                               const mesh::Layout& before, const mesh::Layout& after) {
  const Attributes group = group_over(before.mesh, step.axes);
  std::vector<mesh::Box> held;
  std::vector<mesh::Box> wanted;
  for (const int64_t rank : group.get_ints("ranks")) {
    held.push_back(slice_of(shape, before, static_cast<int>(rank)));
    wanted.push_back(slice_of(shape, after, static_cast<int>(rank)));
  }
  return ops::exchange_attributes(group, held, wanted);
}

// Between all ranks, from any layout to any other.
Attributes RedistributionLowering::exchange(const Shape& shape, const mesh::Layout& before, const mesh::Layout& after) {
  std::vector<int> all(static_cast<size_t>(before.mesh.num_axes()));
  std::iota(all.begin(), all.end(), 0);
  Attributes attributes = group_over(before.mesh, all);
  const auto plan = mesh::exchange_plan(shape, before, after, rank_);
  ops::ExchangeBoxes boxes = ops::no_boxes(attributes.get_ints("ranks").size(), shape.ndim());
  const auto place = [&](int rank) {
    const Ints& ranks = attributes.get_ints("ranks");
    return static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  };
  for (const auto& piece : plan.sends) boxes.send[place(piece.rank)] = piece.box;
  for (const auto& piece : plan.receives) boxes.receive[place(piece.rank)] = piece.box;
  if (plan.kept) {
    boxes.send[place(rank_)] = plan.kept->from_box;
    boxes.receive[place(rank_)] = plan.kept->to_box;
  }
  ops::set_exchange(attributes, boxes, mesh::local_shape(shape, after.sharding, after.mesh, rank_));
  return attributes;
}

Attributes RedistributionLowering::group_over(const Mesh& mesh, const std::vector<int>& axes) {
  const auto ranks = mesh::ordered_group(mesh, rank_, axes);
  std::string name;
  for (const int axis : axes) name += (name.empty() ? "" : "*") + mesh.axis(axis).name;
  Attributes attributes;
  attributes.set("group", name);
  attributes.set("ranks", Ints(ranks.begin(), ranks.end()));
  attributes.set("rank_in_group", static_cast<int64_t>(std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin()));
  if (ranks.size() > 1) {
    const bool known = std::any_of(used_groups_.begin(), used_groups_.end(),
                                   [&](const auto& used) { return used.second == axes && used.first == mesh; });
    if (!known) used_groups_.emplace_back(mesh, axes);
  }
  return attributes;
}

}  // namespace tessera::compiler
