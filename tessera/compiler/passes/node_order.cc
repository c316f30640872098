#include "tessera/compiler/passes/node_order.h"

#include <algorithm>

namespace tessera::compiler {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

bool ValueUses::is_update(const Node& node) const {
  return std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return updates.contains(v); });
}

ValueUses find_uses(const Graph& graph) {
  ValueUses uses;
  uses.users.resize(static_cast<size_t>(graph.num_values()));
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    for (const ValueId v : graph.node(n).inputs) uses.users[static_cast<size_t>(v)].push_back(n);
  }
  uses.is_result.resize(static_cast<size_t>(graph.num_values()));
  for (const auto& output : graph.outputs()) {
    uses.is_result[static_cast<size_t>(output.value)] = true;
    const ir::Input* input = graph.find_input(output.name);
    if (input != nullptr && input->kind != ir::InputKind::kInput) uses.updates[output.value].push_back(input->value);
  }
  return uses;
}

int64_t bucket_of(const Node& node) { return node.attributes.has("bucket") ? node.attributes.get_int("bucket") : -1; }

NodeOrder order_nodes(const Graph& graph, const ValueUses& uses) {
  NodeOrder order;
  std::vector<NodeId> late;
  order.reads_at.resize(static_cast<size_t>(graph.num_nodes()));
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const Node& node = graph.node(n);
    const bool read = std::any_of(node.outputs.begin(), node.outputs.end(),
                                  [&](ValueId v) { return !uses.users[static_cast<size_t>(v)].empty(); });
    if (uses.is_update(node) && !read) {
      late.push_back(n);
    } else {
      order.reads_at[static_cast<size_t>(n)] = static_cast<int>(order.nodes.size());
      order.nodes.push_back(n);
    }
  }
  const auto ready = [&](NodeId n) {
    int latest = -1;
    for (const ValueId v : graph.node(n).inputs) {
      if (const NodeId from = graph.info(v).node; from != ir::kNone) {
        latest = std::max(latest, order.reads_at[static_cast<size_t>(from)]);
      }
    }
    return latest;
  };
  std::stable_sort(late.begin(), late.end(), [&](NodeId a, NodeId b) { return ready(a) < ready(b); });
  order.first_update = static_cast<int>(order.nodes.size());
  for (const NodeId n : late) {
    order.reads_at[static_cast<size_t>(n)] = static_cast<int>(order.nodes.size());
    order.nodes.push_back(n);
  }
  std::map<int64_t, int> last_member;
  for (const bool reads : {false, true}) {
    for (NodeId n = 0; n < graph.num_nodes(); ++n) {
      const int64_t bucket = bucket_of(graph.node(n));
      if (bucket < 0) continue;
      int& last = last_member[bucket];
      int& own = order.reads_at[static_cast<size_t>(n)];
      if (reads) own = last;
      last = std::max(last, own);
    }
  }
  return order;
}

}  // namespace tessera::compiler
