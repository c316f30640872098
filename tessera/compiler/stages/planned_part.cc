#include "tessera/compiler/stages/planned_part.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/compiler/passes/rewrite.h"

namespace tessera::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;

PartBuilder::PartBuilder(const Graph& graph, const Plan& plan, const std::vector<int>& ranks, const std::string& name)
    : graph_(graph), plan_(plan), nodes_(static_cast<size_t>(graph.num_nodes()), ir::kNone) {
  part_.graph.set_name(name);
  for (const auto& mesh : plan.meshes) part_.plan.meshes.push_back(on_ranks(mesh, ranks));
}

void PartBuilder::add_input(ValueId v, ir::InputKind kind, const std::string& name) {
  const Value here = part_.graph.add_input(kind, name, graph_.type(v));
  const auto copy = plan_.copies.find(v);
  const auto& info = graph_.info(v);
  const bool is_itself = info.node == ir::kNone && graph_.inputs()[static_cast<size_t>(info.index)].name == name;
  if (copy == plan_.copies.end() || !is_itself) return set(v, here, plan_.source_layout(v).sharding);
  set(v, here, plan_.values[static_cast<size_t>(v)]);
  part_.plan.copies[here.id()] = copy->second;
}

void PartBuilder::add_node(NodeId n) {
  const Node& node = graph_.node(n);
  const auto at = static_cast<size_t>(n);
  std::vector<Value> inputs;
  for (const ValueId v : node.inputs) inputs.push_back(part_.graph.value(values_.at(v)));
  std::vector<Type> types;
  for (const ValueId v : node.outputs) types.push_back(graph_.type(v));
  const NodeId forward = node.forward == ir::kNone ? ir::kNone : nodes_[static_cast<size_t>(node.forward)];
  part_.graph.set_origin({node.source, forward, {}, node.stage, 0, node.line});
  const auto results = part_.graph.add_node(node.op, inputs, node.attributes, types);
  part_.graph.set_origin({});
  nodes_[at] = part_.graph.num_nodes() - 1;
  Node& made = part_.graph.mutable_node(nodes_[at]);
  copy_marks(node, made);
  made.again = node.again && forward != ir::kNone;
  part_.plan.operands.push_back(plan_.operands[at]);
  part_.plan.factors.push_back(plan_.factors[at]);
  part_.plan.node_mesh.push_back(plan_.node_mesh[at]);
  for (size_t i = 0; i < results.size(); ++i) {
    const ValueId v = node.outputs[i];
    set(v, results[i], plan_.values[static_cast<size_t>(v)]);
    if (const auto copy = plan_.copies.find(v); copy != plan_.copies.end()) {
      part_.plan.copies[results[i].id()] = copy->second;
    }
  }
}

void PartBuilder::add_output(const std::string& name, ValueId v, const mesh::Sharding& sharding) {
  part_.graph.add_output(name, part_.graph.value(values_.at(v)));
  part_.plan.outputs.push_back(sharding);
}

void PartBuilder::add_kept(const std::string& name, ValueId v) {
  const mesh::Sharding& sharding = plan_.source_layout(v).sharding;
  const Value place = part_.graph.add_input(ir::InputKind::kState, name, graph_.type(v));
  set_plan(place, sharding, plan_.value_mesh[static_cast<size_t>(v)]);
  add_output(name, v, sharding);
}

void PartBuilder::set(ValueId v, Value here, const mesh::Sharding& sharding) {
  values_[v] = here.id();
  set_plan(here, sharding, plan_.value_mesh[static_cast<size_t>(v)]);
}

void PartBuilder::set_plan(Value here, const mesh::Sharding& sharding, int mesh) {
  const auto at = static_cast<size_t>(here.id());
  Plan& plan = part_.plan;
  plan.values.resize(std::max(plan.values.size(), at + 1));
  plan.value_mesh.resize(plan.values.size());
  plan.values[at] = sharding;
  plan.value_mesh[at] = mesh;
}

mesh::Mesh with_ranks(const mesh::Mesh& mesh, std::vector<int> ranks) {
  std::vector<mesh::Axis> axes;
  for (int i = 0; i < mesh.num_axes(); ++i) axes.push_back(mesh.axis(i));
  return mesh::Mesh(std::move(axes), std::move(ranks));
}

mesh::Mesh on_ranks(const mesh::Mesh& mesh, const std::vector<int>& ranks) {
  check_equal(mesh.ranks().size(), ranks.size(), "ranks of a stage");
  std::vector<int> moved;
  for (const int rank : mesh.ranks()) moved.push_back(ranks.at(static_cast<size_t>(rank)));
  return with_ranks(mesh, std::move(moved));
}

}  // namespace tessera::compiler
