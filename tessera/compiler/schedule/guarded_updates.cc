#include "tessera/compiler/schedule/guarded_updates.h"

#include <algorithm>
#include <map>

#include "tessera/compiler/passes/node_order.h"
#include "tessera/compiler/passes/passes.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::Output;
using ir::ValueId;

// What the output is where the guard holds; kNone unless it keeps its old value otherwise.
ValueId guarded_value(const Graph& graph, const Output& output, ValueId guard, const ValueUses& uses) {
  const ir::Input* input = graph.find_input(output.name);
  const ir::NodeId n = graph.info(output.value).node;
  if (input == nullptr || n == ir::kNone || !uses.users[static_cast<size_t>(output.value)].empty()) return ir::kNone;
  const Node& node = graph.node(n);
  const bool keeps_old = node.op == "select" && node.inputs[0] == guard && node.inputs[2] == input->value;
  if (!keeps_old || !(graph.type(node.inputs[1]) == graph.type(output.value))) return ir::kNone;
  return node.inputs[1];
}

}  // namespace

GuardedUpdates find_guarded_updates(const Graph& local) {
  const Output* guard = local.find_output(ir::kUpdateGuard);
  if (guard == nullptr) return {local, {}};
  const ValueUses uses = find_uses(local);
  std::map<std::string, ValueId> found;
  std::map<ir::NodeId, int> results;  // of the nodes that make them: how many are written under the guard
  for (const auto& output : local.outputs()) {
    const ValueId value = guarded_value(local, output, guard->value, uses);
    if (value == ir::kNone) continue;
    found[output.name] = value;
    ++results[local.info(value).node];
  }
  // A node is left out as a whole or not at all.
  std::erase_if(found, [&](const auto& update) {
    const ir::NodeId n = local.info(update.second).node;
    return n != ir::kNone && results[n] != static_cast<int>(local.node(n).outputs.size());
  });
  GuardedUpdates updates{local, {}};
  updates.graph.clear_outputs();
  for (const auto& output : local.outputs()) {
    const auto update = found.find(output.name);
    const ValueId value = update == found.end() ? output.value : update->second;
    if (update != found.end()) updates.names.insert(output.name);
    updates.graph.add_output(output.name, updates.graph.value(value));
  }
  updates.graph = remove_dead_code(updates.graph);
  return updates;
}

}  // namespace tessera::compiler
