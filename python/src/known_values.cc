#include "python/src/known_values.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "python/src/threads.h"

namespace tessera::python {
namespace {

// What is made of more nodes is left to the run.
constexpr size_t kMaxNodes = 10'000;
// Larger ones are computed again: what a loop counts with is small.
constexpr int64_t kMaxKeptElements = 64;

struct Known {
  ir::Value value;  // of its graph: another one may have the same number in another graph
  Tensor tensor;
};

// By the value's number.
std::multimap<ir::ValueId, Known>& known() {
  static thread_local std::multimap<ir::ValueId, Known> all;
  return all;
}

const Tensor* find_known(const ir::Value& value) {
  const auto [begin, end] = known().equal_range(value.id());
  const auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second.value == value; });
  return found == end ? nullptr : &found->second.tensor;
}

// The nodes that make the value of what is known, in their order; nothing where something is not.
std::optional<std::set<ir::NodeId>> makers_of(const ir::Value& value) {
  ir::Graph& graph = value.graph();
  std::set<ir::NodeId> nodes;
  std::vector<ir::ValueId> open{value.id()};
  while (!open.empty()) {
    const ir::ValueId next = open.back();
    open.pop_back();
    if (find_known(graph.value(next)) != nullptr) continue;
    const ir::NodeId node = graph.info(next).node;
    if (node == ir::kNone || ops::OpRegistry::instance().get(graph.node(node).op).collective) return std::nullopt;
    if (!nodes.insert(node).second) continue;
    if (nodes.size() > kMaxNodes) return std::nullopt;
    const auto& inputs = graph.node(node).inputs;
    open.insert(open.end(), inputs.begin(), inputs.end());
  }
  return nodes;
}

}  // namespace

std::optional<Tensor> known_value(const ir::Value& value) {
  if (&value.graph() != current_graph()) return std::nullopt;
  if (const Tensor* tensor = find_known(value)) return *tensor;
  const auto nodes = makers_of(value);
  if (!nodes) return std::nullopt;
  ir::Graph& graph = value.graph();
  ir::Graph own("known");
  std::map<ir::ValueId, ir::Value> made;
  const auto here = [&](ir::ValueId id) {
    if (const auto found = made.find(id); found != made.end()) return found->second;
    return made[id] = ops::constant(own, *find_known(graph.value(id)));
  };
  std::map<std::string, ir::ValueId> kept;
  for (const ir::NodeId n : *nodes) {
    const ir::Node& node = graph.node(n);
    std::vector<ir::Value> inputs;
    std::vector<Type> types;
    for (const ir::ValueId input : node.inputs) inputs.push_back(here(input));
    for (const ir::ValueId output : node.outputs) types.push_back(graph.type(output));
    const auto outputs = own.add_node(node.op, inputs, node.attributes, types);
    for (size_t i = 0; i < outputs.size(); ++i) {
      const ir::ValueId id = node.outputs[i];
      made[id] = outputs[i];
      if (id != value.id() && outputs[i].shape().num_elements() > kMaxKeptElements) continue;
      const auto name = fmt::format("{}", id);
      own.add_output(name, outputs[i]);
      kept[name] = id;
    }
  }
  std::map<std::string, Tensor> results;
  {
    const WithoutGil computing;
    results = session::evaluate(own, {});
  }
  for (auto& [name, id] : kept) known().emplace(id, Known{graph.value(id), results.at(name)});
  return results.at(fmt::format("{}", value.id()));
}

void forget_known_values() { known().clear(); }

}  // namespace tessera::python
