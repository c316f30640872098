#include "tessera/train/modes/stages/worker_graphs.h"

#include <map>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/compiler/passes/rewrite.h"
#include "tessera/compiler/stages/shared_parameters.h"
#include "tessera/nn/gradients/pushed_gradients.h"
#include "tessera/nn/layers/dropout.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::train {
namespace {

using ir::Graph;
using ir::InputKind;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;

const ir::Input* input_of(const Graph& graph, ValueId v) {
  const auto& info = graph.info(v);
  return info.node == ir::kNone ? &graph.inputs()[static_cast<size_t>(info.index)] : nullptr;
}

// Where values are replaced by inputs: what is left of a graph.
class Cutter {
 public:
  Cutter(const Graph& from, std::string name) : from_(from), to_(std::move(name)) {}

  Graph& graph() { return to_; }
  // The value comes in, as an input of this name and type, cast to the value's own dtype.
  void replace(ValueId v, const std::string& name, const Type& type) {
    const Value input = to_.add_input(InputKind::kInput, name, type);
    values_[v] = ops::cast(input, from_.type(v).dtype);
  }
  void add_input(const ir::Input& input, InputKind kind) {
    values_[input.value] = to_.add_input(kind, input.name, from_.type(input.value));
  }
  // Copies all that these values are made of and that is not there yet. Inputs come as `kind_of` says.
  template <typename KindOf>
  void copy_behind(const std::vector<ValueId>& wanted, const KindOf& kind_of) {
    std::vector<bool> is_wanted(static_cast<size_t>(from_.num_values()));
    for (const ValueId v : wanted) is_wanted[static_cast<size_t>(v)] = true;
    const auto any_wanted = [&](const Node& node) {
      for (const ValueId v : node.outputs) {
        if (is_wanted[static_cast<size_t>(v)] && !values_.contains(v)) return true;
      }
      return false;
    };
    std::vector<NodeId> nodes;
    for (NodeId n = from_.num_nodes(); n-- > 0;) {
      if (!any_wanted(from_.node(n))) continue;
      nodes.push_back(n);
      for (const ValueId v : from_.node(n).inputs) is_wanted[static_cast<size_t>(v)] = true;
    }
    for (const auto& input : from_.inputs()) {
      if (is_wanted[static_cast<size_t>(input.value)] && !values_.contains(input.value)) {
        add_input(input, kind_of(input));
      }
    }
    for (auto n = nodes.rbegin(); n != nodes.rend(); ++n) copy(*n);
  }
  Value at(ValueId v) const { return values_.at(v); }
  bool has(ValueId v) const { return values_.contains(v); }

 private:
  void copy(NodeId n) {
    const Node& old = from_.node(n);
    std::vector<Value> inputs;
    for (const ValueId v : old.inputs) inputs.push_back(values_.at(v));
    std::vector<Type> types;
    for (const ValueId v : old.outputs) types.push_back(from_.type(v));
    // A lookup that servers do has no node here that gradients could belong to.
    const auto forward = nodes_.find(old.forward);
    to_.set_origin({old.source, forward == nodes_.end() ? ir::kNone : forward->second, {}, ir::kNone, 0, old.line});
    const auto results = to_.add_node(old.op, inputs, old.attributes, types);
    nodes_[n] = to_.num_nodes() - 1;
    Node& made = to_.mutable_node(to_.num_nodes() - 1);
    compiler::copy_marks(old, made);
    made.stage = ir::kNone;
    made.strategy = {};
    made.grid = {};
    for (size_t i = 0; i < results.size(); ++i) values_[old.outputs[i]] = results[i];
    to_.set_origin({});
  }

  const Graph& from_;
  Graph to_;
  std::map<ValueId, Value> values_;
  std::map<NodeId, NodeId> nodes_;
};

// The parameter that is looked up in, also where the lookup reads a cast of it.
const ir::Input& table_of(const Graph& graph, ValueId v) {
  while (input_of(graph, v) == nullptr) v = graph.node(graph.info(v).node).inputs[0];
  return *input_of(graph, v);
}

}  // namespace

WorkerGraphs cut_for_worker(const Graph& graph, const std::set<std::string>& served) {
  Graph placed = graph;
  compiler::place_for_servers(placed, served);
  WorkerGraphs cut;
  Cutter step(placed, "push");
  // The batch, whether it is read or not: whoever trains writes all of it.
  for (const auto& input : placed.inputs()) {
    if (input.kind == InputKind::kInput) step.add_input(input, InputKind::kInput);
  }
  std::vector<std::pair<std::string, ValueId>> numbers;
  for (NodeId n = 0; n < placed.num_nodes(); ++n) {
    const Node& node = placed.node(n);
    if (node.op != "gather" || node.stage != 0) continue;
    const auto& table = table_of(placed, node.inputs[0]);
    const Type rows{placed.type(table.value).dtype, placed.type(node.outputs[0]).shape};
    const auto name = fmt::format("looked_up.{}.{}", cut.lookups.size(), table.name);
    step.replace(node.outputs[0], name, rows);
    cut.lookups.push_back({name, table.name});
    numbers.emplace_back(name, node.inputs[1]);
  }
  std::vector<ValueId> wanted;
  for (const auto& output : placed.outputs()) {
    if (output.name == nn::kRandomStep) continue;
    const bool is_pushed = nn::parse_pushed_name(output.name).has_value();
    if (!is_pushed && output.name != "loss") {
      throw InvalidArgument(
          "server_staleness: the network assigns \"{}\" when it computes forward, as the statistics of batch "
          "normalization are, which workers that do not wait for each other have no common value of: use layers "
          "without, or train with servers that wait for all workers",
          output.name);
    }
    if (is_pushed) cut.pushed.push_back(output.name);
    wanted.push_back(output.value);
  }
  step.copy_behind(wanted, [&](const ir::Input& input) {
    const bool comes_in = input.name == nn::kRandomStep || served.contains(input.name);
    return comes_in ? InputKind::kInput : input.kind;
  });
  for (const auto& output : placed.outputs()) {
    if (output.name != nn::kRandomStep) step.graph().add_output(output.name, step.at(output.value));
  }
  for (const auto& input : placed.inputs()) {
    if (!step.has(input.value)) continue;
    if (input.name == nn::kRandomStep) cut.draws_noise = true;
    if (served.contains(input.name)) cut.whole.push_back(input.name);
  }
  cut.step = std::move(step.graph());
  cut.step.close();

  Cutter named(placed, "numbers of rows");
  wanted.clear();
  for (const auto& [name, v] : numbers) wanted.push_back(v);
  named.copy_behind(wanted, [](const ir::Input& input) { return input.kind; });
  for (const auto& [name, v] : numbers) named.graph().add_output(name, ops::cast(named.at(v), DType::kI64));
  cut.numbers = std::move(named.graph());
  cut.numbers.close();
  return cut;
}

}  // namespace tessera::train
