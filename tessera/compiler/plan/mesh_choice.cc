#include "tessera/compiler/plan/mesh_choice.h"

#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/mesh/rank_limits.h"
#include "tessera/mesh/strategy_error.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using mesh::Mesh;

std::vector<int64_t> sizes_of(const Mesh& mesh) {
  std::vector<int64_t> sizes;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) sizes.push_back(mesh.axis(axis).size);
  return sizes;
}

// `fine` over the axes of `base`, in order: axis "data" cut in two becomes "data.0" and "data.1".
Mesh cut(const Mesh& base, const std::vector<int64_t>& fine) {
  std::vector<mesh::Axis> axes;
  size_t next = 0;
  for (int i = 0; i < base.num_axes(); ++i) {
    const size_t first = next;
    for (int64_t product = 1; product < base.axis(i).size; ++next) product *= fine[next];
    for (size_t j = first; j < next; ++j) {
      const auto& name = base.axis(i).name;
      axes.push_back({next - first == 1 ? name : fmt::format("{}.{}", name, j - first), static_cast<int>(fine[j])});
    }
  }
  return Mesh(axes, base.ranks());
}

bool is_of_operand(const ops::IndexRule& rule, const std::string& factor) {
  return std::any_of(rule.inputs.begin(), rule.inputs.end(),
                     [&](const auto& dims) { return std::find(dims.begin(), dims.end(), factor) != dims.end(); });
}

// The factors that the counts of operand `index` are of. What only the result has (the depth of a one_hot) may stand at
// the end of the first tuple.
ops::IndexRule::Dims counted_dims(const ops::IndexRule& rule, size_t index, size_t num_counts) {
  ops::IndexRule::Dims dims = rule.inputs[index];
  if (index > 0 || num_counts <= dims.size()) return dims;
  for (const auto& factor : rule.outputs[0]) {
    if (!factor.empty() && !is_of_operand(rule, factor)) dims.push_back(factor);
  }
  return dims;
}

// The axes of more than one rank among these of a strategy's grid.
std::vector<size_t> splitting_axes(const mesh::StrategyGrid& grid, const std::vector<int64_t>& axes) {
  std::vector<size_t> splitting;
  for (const int64_t axis : axes) {
    if (grid.sizes[static_cast<size_t>(axis)] > 1) splitting.push_back(static_cast<size_t>(axis));
  }
  return splitting;
}

// What is wrong with a grid by itself and beside its strategy, to follow its text; "" where nothing is.
std::string fault_of_grid(const mesh::StrategyGrid& grid, const mesh::Strategy& strategy, int num_ranks) {
  int64_t ranks = 1;
  for (const int64_t size : grid.sizes) {
    if (size < 1) return fmt::format("has an axis of {} ranks", size);
    if (ranks <= num_ranks) ranks *= std::min<int64_t>(size, int64_t{num_ranks} + 1);
  }
  if (ranks != num_ranks) return fmt::format("must be of {} ranks, as many as there are", num_ranks);
  if (grid.axes.size() != strategy.size()) {
    return fmt::format("has axes for {} operands, the strategy has {} tuples", grid.axes.size(), strategy.size());
  }
  for (size_t i = 0; i < strategy.size(); ++i) {
    if (grid.axes[i].size() != strategy[i].size()) {
      return fmt::format("has axes for {} dims of operand {}, the strategy has {} counts", grid.axes[i].size(), i,
                         strategy[i].size());
    }
    for (size_t dim = 0; dim < strategy[i].size(); ++dim) {
      int64_t parts = 1;
      for (const int64_t axis : grid.axes[i][dim]) {
        if (axis < 0 || axis >= static_cast<int64_t>(grid.sizes.size())) {
          return fmt::format("has {} axes, dim {} of operand {} names axis {}", grid.sizes.size(), dim, i, axis);
        }
        if (parts <= num_ranks) parts *= grid.sizes[static_cast<size_t>(axis)];
      }
      if (parts != strategy[i][dim]) {
        return fmt::format("splits dim {} of operand {} in {}, the strategy in {}", dim, i, parts, strategy[i][dim]);
      }
    }
  }
  return "";
}

// A further grid of the ranks of `base`: the second of a choice has the axes "b0", "b1", ...
Mesh additional(const Mesh& base, const std::vector<int64_t>& sizes, int number) {
  std::vector<mesh::Axis> axes;
  for (const int64_t size : sizes) {
    axes.push_back({fmt::format("{}{}", static_cast<char>('a' + number % 26), axes.size()), static_cast<int>(size)});
  }
  return Mesh(axes, base.ranks());
}

}  // namespace

std::vector<FactorSplit> factor_splits(const std::string& node_name, const ops::IndexRule& rule,
                                       std::span<const Type> inputs, const mesh::Strategy& strategy, int num_ranks) {
  const auto fail = [&](const std::string& why) {
    throw mesh::StrategyError("{}: strategy {} {}", node_name, mesh::to_string(strategy), why);
  };
  if (const auto fault = mesh::fault_of_counts(strategy, num_ranks); !fault.empty()) fail(fault);
  if (strategy.size() != inputs.size()) {
    fail(fmt::format("has {} tuples, the operator has {} operands", strategy.size(), inputs.size()));
  }
  std::vector<FactorSplit> splits;
  const auto add = [&](const std::string& factor, int64_t parts, const std::string& where) {
    const auto it = std::find_if(splits.begin(), splits.end(), [&](const auto& s) { return s.factor == factor; });
    if (it == splits.end()) {
      splits.push_back({factor, parts});
    } else if (it->parts != parts) {
      fail(fmt::format("splits {} in {} where the same index of another operand is split in {}", where, parts,
                       it->parts));
    }
  };
  for (size_t i = 0; i < strategy.size(); ++i) {
    const auto& dims = rule.inputs[i];
    const ops::IndexRule::Dims all = counted_dims(rule, i, strategy[i].size());
    if (strategy[i].size() != dims.size() && strategy[i].size() != all.size()) {
      fail(fmt::format("has {} counts for operand {}, {}, which has {} dims", strategy[i].size(), i, inputs[i],
                       dims.size()));
    }
    for (size_t dim = 0; dim < strategy[i].size(); ++dim) {
      const int64_t parts = strategy[i][dim];
      const auto where = fmt::format("dim {} of operand {} {}", dim, i, inputs[i]);
      if (!all[dim].empty()) {
        add(all[dim], parts, where);
      } else if (parts > 1) {
        fail(fmt::format("splits {}, which {} cannot be split in", where, node_name));
      }
    }
  }
  int64_t product = 1;
  for (const auto& split : splits) {
    if (product <= num_ranks) product *= split.parts;  // else it has been found out, and might overflow
  }
  if (num_ranks % product != 0) {
    fail(fmt::format("makes {} parts, which {} ranks cannot share equally", product, num_ranks));
  }
  return splits;
}

StrategyPlacement strategy_placement(const Graph& graph, NodeId id, int num_ranks) {
  const Node& node = graph.node(id);
  const auto rule = ops::rule_of(graph, id);
  std::vector<Type> inputs;
  for (const auto v : node.inputs) inputs.push_back(graph.type(v));
  const auto splits = factor_splits(graph.node_name(id), rule, inputs, node.strategy, num_ranks);
  StrategyPlacement placement;
  if (node.grid.empty()) {
    for (size_t i = 0; i < splits.size(); ++i) {
      placement.matrix.push_back(splits[i].parts);
      if (splits[i].parts > 1) placement.factors.push_back({splits[i].factor, {i}});
    }
    return placement;
  }
  const auto fail = [&](const std::string& why) {
    throw mesh::StrategyError("{}: strategy {}: the grid {} {}", graph.node_name(id), mesh::to_string(node.strategy),
                              mesh::to_string(node.grid), why);
  };
  if (const auto fault = fault_of_grid(node.grid, node.strategy, num_ranks); !fault.empty()) fail(fault);
  placement.matrix = node.grid.sizes;
  std::vector<std::string> taken(node.grid.sizes.size());  // by axis: the factor that it splits
  for (size_t i = 0; i < node.strategy.size(); ++i) {
    const auto dims = counted_dims(rule, i, node.strategy[i].size());
    for (size_t dim = 0; dim < node.strategy[i].size(); ++dim) {
      const auto axes = splitting_axes(node.grid, node.grid.axes[i][dim]);
      const auto known = std::find_if(placement.factors.begin(), placement.factors.end(),
                                      [&](const auto& factor) { return factor.first == dims[dim]; });
      if (known != placement.factors.end()) {
        if (known->second == axes) continue;
        fail(fmt::format("splits dim {} of operand {} {} along other axes than the same index of another operand", dim,
                         i, inputs[i]));
      }
      for (const size_t axis : axes) {
        if (!taken[axis].empty()) {
          fail(fmt::format("splits dim {} of operand {} {} along axis {}, which splits another index already", dim, i,
                           inputs[i], axis));
        }
        taken[axis] = dims[dim];
      }
      if (!axes.empty()) placement.factors.push_back({dims[dim], axes});
    }
  }
  return placement;
}

MeshChoice::MeshChoice(const Mesh& base, const Graph* strategies, std::span<const mesh::Layout> present) {
  // Each entry: the device matrices of one mesh.
  std::vector<std::vector<std::vector<int64_t>>> families = {{sizes_of(base)}};
  const auto add = [&](const std::vector<int64_t>& matrix) {
    for (auto& family : families) {
      family.push_back(matrix);
      if (mesh::common_refinement(family, base.size())) return;
      family.pop_back();
    }
    families.push_back({matrix});
  };
  for (const auto& layout : present) {
    if (layout.mesh.ranks() != base.ranks()) {
      throw InvalidArgument("a value lies on the mesh {}, whose ranks are not those of {}", layout.mesh.to_string(),
                            base.to_string());
    }
    add(sizes_of(layout.mesh));
  }
  for (NodeId n = 0; strategies != nullptr && n < strategies->num_nodes(); ++n) {
    if (!strategies->node(n).strategy.empty()) add(strategy_placement(*strategies, n, base.size()).matrix);
  }
  for (const auto& family : families) {
    const auto fine = mesh::common_refinement(family, base.size());
    auto own = sizes_of(base);
    std::erase(own, 1);
    if (meshes_.empty()) {
      meshes_.push_back(*fine == own ? base : cut(base, *fine));
    } else {
      meshes_.push_back(additional(base, *fine, static_cast<int>(meshes_.size())));
    }
  }
}

int MeshChoice::mesh_for(std::span<const int64_t> matrix) const {
  for (size_t index = 0; index < meshes_.size(); ++index) {
    const std::vector<std::vector<int64_t>> pair = {sizes_of(meshes_[index]), {matrix.begin(), matrix.end()}};
    auto own = pair[0];
    std::erase(own, 1);
    if (mesh::common_refinement(pair, meshes_[index].size()) == own) return static_cast<int>(index);
  }
  throw InternalError(fmt::format("no mesh holds the device matrix [{}]", fmt::join(matrix, ",")));
}

std::vector<int> MeshChoice::axes_of(int mesh_index, std::span<const int64_t> matrix, size_t index) const {
  const Mesh& grid = mesh(mesh_index);
  int64_t before = 1;  // ranks along what stands left of the entry
  for (size_t i = 0; i < index; ++i) before *= matrix[i];
  const int64_t until = before * matrix[index];
  std::vector<int> axes;
  int64_t at = 1;
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    if (at >= before && at * grid.axis(axis).size <= until && grid.axis(axis).size > 1) axes.push_back(axis);
    at *= grid.axis(axis).size;
  }
  return axes;
}

Placed MeshChoice::restate(const mesh::Layout& layout) const {
  for (size_t index = 0; index < meshes_.size(); ++index) {
    if (meshes_[index] == layout.mesh) return {static_cast<int>(index), layout.sharding};
  }
  const int index = mesh_for(sizes_of(layout.mesh));
  return {index, *restate(layout, index)};
}

std::optional<mesh::Sharding> MeshChoice::restate(const Placed& placed, int to) const {
  if (placed.mesh == to) return placed.sharding;
  return restate(mesh::Layout{mesh(placed.mesh), placed.sharding}, to);
}

std::optional<mesh::Sharding> MeshChoice::restate(const mesh::Layout& layout, int to) const {
  const auto matrix = sizes_of(layout.mesh);
  const auto find = [&](int axis) -> std::optional<std::vector<int>> {
    auto axes = axes_of(to, matrix, static_cast<size_t>(axis));
    int64_t product = 1;
    for (const int fine : axes) product *= mesh(to).axis(fine).size;
    if (product != layout.mesh.axis(axis).size) return std::nullopt;
    return axes;
  };
  mesh::Sharding result;
  result.blocks = layout.sharding.blocks;
  for (const auto& axes : layout.sharding.dims) {
    auto& mine = result.dims.emplace_back();
    for (const int axis : axes) {
      const auto fine = find(axis);
      if (!fine) return std::nullopt;
      mine.insert(mine.end(), fine->begin(), fine->end());
    }
  }
  for (const auto& partial : layout.sharding.partial) {
    const auto fine = find(partial.axis);
    if (!fine) return std::nullopt;
    for (const int axis : *fine) result.partial.push_back({axis, partial.reduction});
  }
  std::sort(result.partial.begin(), result.partial.end(), [](const auto& a, const auto& b) { return a.axis < b.axis; });
  return result;
}

}  // namespace tessera::compiler
