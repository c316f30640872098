#include "tessera/train/modes/strategy_record.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/base/strings.h"
#include "tessera/mesh/device_layout.h"

namespace tessera::train {
namespace {

using checkpoint::NodeStrategy;
using checkpoint::ParameterLayout;
using checkpoint::StrategyFile;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using mesh::Layout;

// "batch_norm" is BatchNorm; those that are written otherwise are listed.
std::string operator_name(const std::string& op) {
  static const std::map<std::string, std::string> others = {
      {"matmul", "MatMul"}, {"batch_matmul", "BatchMatMul"}, {"conv2d", "Conv2D"}};
  if (const auto it = others.find(op); it != others.end()) return it->second;
  std::string name;
  bool at_start = true;
  for (const char c : op) {
    if (c != '_') name += at_start ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    at_start = c == '_';
  }
  return name;
}

// The input of the graph that a value is, or is a cast of.
const ir::Input* input_behind(const Graph& graph, ValueId v) {
  while (graph.info(v).node != ir::kNone) {
    const Node& producer = graph.node(graph.info(v).node);
    if (producer.op != "cast") return nullptr;
    v = producer.inputs[0];
  }
  return &graph.inputs()[static_cast<size_t>(graph.info(v).index)];
}

const ir::Input* parameter_behind(const Graph& graph, ValueId v) {
  const ir::Input* input = input_behind(graph, v);
  return input != nullptr && input->kind == ir::InputKind::kParameter ? input : nullptr;
}

std::vector<int64_t> counts_of(const Layout& layout) {
  std::vector<int64_t> counts;
  for (const auto& axes : layout.sharding.dims) {
    counts.push_back(1);
    for (const int axis : axes) counts.back() *= layout.mesh.axis(axis).size;
  }
  return counts;
}

NodeStrategy strategy_of(const compiler::Plan& plan, NodeId n, const std::string& name) {
  NodeStrategy strategy{.node = name};
  for (size_t i = 0; i < plan.operands[static_cast<size_t>(n)].size(); ++i) {
    strategy.inputs.push_back(counts_of(plan.operand_layout(n, i)));
  }
  return strategy;
}

// How the operators read each parameter: without the cut that optimizer shards add.
std::map<std::string, Layout> read_layouts(const Graph& graph, const compiler::Plan& plan) {
  std::map<std::string, Layout> layouts;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    if (strategy_node_name(graph, n).empty()) continue;
    const Node& node = graph.node(n);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ir::Input* parameter = parameter_behind(graph, node.inputs[i]);
      if (parameter != nullptr) layouts.emplace(parameter->name, plan.operand_layout(n, i));
    }
  }
  return layouts;
}

int64_t ranks_apart(const mesh::Mesh& mesh, int axis) {
  int64_t stride = 1;
  for (int a = axis + 1; a < mesh.num_axes(); ++a) stride *= mesh.axis(a).size;
  return stride;
}

// Optimizer shards: the axes that cut dim 0 further than the operators read it, as so many ranks so far apart. Absent
// where the axes do not lie regularly, or cut the rows otherwise than one axis of their size would.
struct Shards {
  int64_t step = 0;
  int64_t size = 0;
};
std::optional<Shards> shards_of(const Layout& held, const Layout& read, int64_t rows) {
  const mesh::Mesh& mesh = held.mesh;
  const auto& dims = held.sharding.dims;
  const auto& read_dims = read.sharding.dims;
  if (!(mesh == read.mesh) || dims.size() != read_dims.size() || dims == read_dims) return std::nullopt;
  if (!std::equal(dims.begin() + 1, dims.end(), read_dims.begin() + 1)) return std::nullopt;
  const auto& outer = read_dims[0];
  const auto& all = dims[0];
  if (all.size() <= outer.size() || !std::equal(outer.begin(), outer.end(), all.begin())) return std::nullopt;
  Shards shards{.step = ranks_apart(mesh, all.back()), .size = 1};
  int64_t parts = 1;
  for (const int axis : outer) parts *= mesh.axis(axis).size;
  for (auto axis = all.rbegin(); axis != all.rend() - static_cast<std::ptrdiff_t>(outer.size()); ++axis) {
    if (ranks_apart(mesh, *axis) != shards.step * shards.size) return std::nullopt;
    shards.size *= mesh.axis(*axis).size;
  }
  const bool is_one_axis = all.size() == outer.size() + 1;
  if (!is_one_axis && rows % (parts * shards.size) != 0) return std::nullopt;
  return shards;
}

ParameterLayout layout_of(const std::string& name, const Type& type, const Layout& held, const Layout& read) {
  ParameterLayout layout{.name = name};
  const auto shards = type.shape.ndim() == 0 ? std::nullopt : shards_of(held, read, type.shape[0]);
  // What is still partial is a sum of whole pieces.
  const Layout& stated = shards ? read : held;
  const auto standard = mesh::device_layout({stated.sharding.dims, {}}, stated.mesh, type.shape);
  layout.device_matrix = standard.device_matrix;
  for (const auto& axes : standard.tensor_map) layout.tensor_map.emplace_back(axes.begin(), axes.end());
  layout.tensor_shape = type.shape.to_vector();
  if (shards) {
    layout.opt_weight_shard_step = shards->step;
    layout.opt_weight_shard_size = shards->size;
  }
  return layout;
}

// The parameter that a state belongs to: moments.fc.weight to fc.weight.
std::string owner_of(const std::string& state) {
  const auto dot = state.find('.');
  return dot == std::string::npos ? "" : state.substr(dot + 1);
}

const NodeStrategy* find(const StrategyFile& file, const std::string& node) {
  const auto it = std::find_if(file.strategies.begin(), file.strategies.end(),
                               [&](const NodeStrategy& strategy) { return strategy.node == node; });
  return it == file.strategies.end() ? nullptr : &*it;
}

std::string describe(const ParameterLayout& layout) {
  mesh::DeviceLayout plain{.device_matrix = layout.device_matrix};
  for (const auto& axes : layout.tensor_map) plain.tensor_map.emplace_back(axes.begin(), axes.end());
  const auto shards = layout.num_optimizer_shards();
  return mesh::to_string(plain) + (shards > 1 ? fmt::format(" in {} optimizer shards", shards) : "");
}

void check_layout(const Graph& graph, const ParameterLayout& layout, const std::string& path) {
  const ir::Input* input = graph.find_input(layout.name);
  if (input == nullptr || input->kind == ir::InputKind::kInput) {
    std::vector<std::string> names;
    for (const auto& known : graph.inputs()) names.push_back(known.name);
    const auto near = closest(layout.name, names);
    throw InvalidArgument("strategy file {}: the network has no parameter or state \"{}\"{}", path, layout.name,
                          near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }
  const Type& type = graph.type(input->value);
  const bool has_shape = !layout.tensor_shape.empty();
  if (static_cast<int>(layout.tensor_map.size()) != type.shape.ndim() ||
      (has_shape && layout.tensor_shape != type.shape.to_vector())) {
    throw InvalidArgument("strategy file {}: \"{}\" has {} there, the network's is {}", path, layout.name,
                          has_shape ? fmt::format("shape [{}]", fmt::join(layout.tensor_shape, ","))
                                    : fmt::format("{} dims", layout.tensor_map.size()),
                          type);
  }
}

}  // namespace

std::string strategy_node_name(const Graph& graph, NodeId n) {
  const Node& node = graph.node(n);
  if (node.forward != ir::kNone || node.op == "cast" || node.source.starts_with("optimizer")) return "";
  for (const ValueId v : node.inputs) {
    if (const ir::Input* parameter = parameter_behind(graph, v)) return operator_name(node.op) + "_" + parameter->name;
  }
  return "";
}

StrategyFile record_strategies(const Graph& graph, const compiler::Plan& plan) {
  StrategyFile file;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const auto name = strategy_node_name(graph, n);
    if (name.empty()) continue;
    auto strategy = strategy_of(plan, n, name);
    const NodeStrategy* known = find(file, name);
    if (known == nullptr) {
      file.strategies.push_back(std::move(strategy));
    } else if (!(*known == strategy)) {
      throw InvalidArgument(
          "two operators are {} in a strategy file, which holds one: {} is split by {}, another by {}", name,
          graph.node_name(n), mesh::to_string(strategy.inputs), mesh::to_string(known->inputs));
    }
  }
  file.layouts = record_layouts(graph, plan);
  return file;
}

std::vector<ParameterLayout> record_layouts(const Graph& graph, const compiler::Plan& plan) {
  return record_layouts_of_update(graph, plan, graph, plan);
}

std::vector<ParameterLayout> record_layouts_of_update(const Graph& graph, const compiler::Plan& plan,
                                                      const Graph& readers, const compiler::Plan& plan_of_readers) {
  std::vector<ParameterLayout> layouts;
  const auto read = read_layouts(readers, plan_of_readers);
  for (const auto& input : graph.inputs()) {
    if (input.kind == ir::InputKind::kInput) continue;
    const bool is_state = input.kind == ir::InputKind::kState;
    const auto it = read.find(is_state ? owner_of(input.name) : input.name);
    if (it == read.end()) continue;
    layouts.push_back(layout_of(input.name, graph.type(input.value), plan.layout(input.value), it->second));
  }
  return layouts;
}

void apply_known_strategies(Graph& graph, const StrategyFile& file) {
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const auto name = strategy_node_name(graph, n);
    const NodeStrategy* strategy = name.empty() ? nullptr : find(file, name);
    if (strategy == nullptr) continue;
    auto& node = graph.mutable_node(n);
    // A file holds counts alone: where they are those of the network, its grid holds, too.
    if (node.strategy != strategy->inputs) node.grid = {};
    node.strategy = strategy->inputs;
  }
}

void apply_strategies(Graph& graph, const StrategyFile& file, const std::string& path) {
  std::map<std::string, size_t> operands;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const auto name = strategy_node_name(graph, n);
    if (!name.empty()) operands.emplace(name, graph.node(n).inputs.size());
  }
  for (const auto& strategy : file.strategies) {
    const auto it = operands.find(strategy.node);
    if (it == operands.end()) {
      std::vector<std::string> names;
      for (const auto& [name, count] : operands) names.push_back(name);
      const auto near = closest(strategy.node, names);
      throw InvalidArgument("strategy file {}: the network has no operator {}{}", path, strategy.node,
                            near.empty() ? "" : fmt::format("; did you mean {}?", near));
    }
    if (it->second != strategy.inputs.size()) {
      throw InvalidArgument("strategy file {}: {} has {} operands there, {} in the network", path, strategy.node,
                            strategy.inputs.size(), it->second);
    }
  }
  for (const auto& layout : file.layouts) check_layout(graph, layout, path);
  apply_known_strategies(graph, file);
}

std::set<std::string> optimizer_shards_of(const StrategyFile& file) {
  std::set<std::string> names;
  for (const auto& layout : file.layouts) {
    if (layout.num_optimizer_shards() > 1) names.insert(layout.name);
  }
  return names;
}

void require_recorded(const StrategyFile& file, const Graph& graph, const compiler::Plan& plan,
                      const std::string& path) {
  const auto found = record_strategies(graph, plan);
  for (const auto& strategy : file.strategies) {
    const NodeStrategy* planned = find(found, strategy.node);
    if (planned != nullptr && planned->inputs == strategy.inputs) continue;
    throw InvalidArgument("strategy file {}: {} is split by {} there, which this network cannot keep", path,
                          strategy.node, mesh::to_string(strategy.inputs));
  }
  for (const auto& layout : file.layouts) {
    const auto planned = std::find_if(found.layouts.begin(), found.layouts.end(),
                                      [&](const ParameterLayout& other) { return other.name == layout.name; });
    if (planned == found.layouts.end()) continue;
    ParameterLayout expected = layout;
    expected.tensor_shape = planned->tensor_shape;  // one of the two forms does not have it
    if (expected == *planned) continue;
    throw InvalidArgument("strategy file {}: \"{}\" lies as {} there, in this network as {}", path, layout.name,
                          describe(layout), describe(*planned));
  }
}

checkpoint::GroupFile record_groups(const Graph& graph, const compiler::Plan& plan, const compiler::GroupLists& groups,
                                    int rank) {
  checkpoint::GroupFile file;
  for (const auto& ranks : groups) {
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
    file.groups.push_back({fmt::format("{}-{:016x}", ranks.size(), hash_name(fmt::format("{}", fmt::join(ranks, "-")))),
                           {ranks.begin(), ranks.end()}});
  }
  const auto holds_the_same = [&](int other) {
    return std::all_of(graph.inputs().begin(), graph.inputs().end(), [&](const ir::Input& input) {
      if (input.kind == ir::InputKind::kInput) return true;
      const auto& shape = graph.type(input.value).shape;
      const auto& [mesh, sharding] = plan.layout(input.value);
      return mesh::slice_of(shape, sharding, mesh, rank) == mesh::slice_of(shape, sharding, mesh, other);
    });
  };
  for (const int other : plan.ranks()) {
    if (holds_the_same(other)) file.restore_ranks.push_back(other);
  }
  return file;
}

}  // namespace tessera::train
