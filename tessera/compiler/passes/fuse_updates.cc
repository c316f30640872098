#include <algorithm>
#include <map>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/compiler/passes/node_order.h"
#include "tessera/compiler/passes/passes.h"
#include "tessera/compiler/passes/rewrite.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;

class UpdateFusion {
 public:
  UpdateFusion(const Graph& graph, int64_t max_bytes) : graph_(graph), uses_(find_uses(graph)), max_bytes_(max_bytes) {}

  Graph run() {
    std::map<Key, std::vector<NodeId>> groups;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (joins(n)) groups[key_of(n)].push_back(n);
    }
    std::vector<const std::vector<NodeId>*> group_of(static_cast<size_t>(graph_.num_nodes()), nullptr);
    for (const auto& [key, members] : groups) {
      if (members.size() < 2) continue;
      for (const NodeId n : members) group_of[static_cast<size_t>(n)] = &members;
    }
    Rewriter rewriter(graph_);
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const auto* members = group_of[static_cast<size_t>(n)];
      if (members == nullptr) {
        rewriter.copy(n);
      } else if (members->back() == n) {
        emit(rewriter, *members);
      }
    }
    return rewriter.finish();
  }

 private:
  // Operator, attributes, the shared scalars, and the bucket in which the gradient comes: a group waits for one
  // collective at most.
  using Key = std::tuple<std::string, std::string, std::vector<ValueId>, int64_t>;

  size_t num_tensors(const Node& node) const { return node.outputs.size() + 1; }

  bool joins(NodeId n) const {
    const Node& node = graph_.node(n);
    if (!ops::OpRegistry::instance().get(node.op).update || !uses_.is_update(node)) return false;
    if (node.op == "update_rows") return false;  // no operand is a gradient of the parameter's shape
    if (graph_.type(node.inputs[0]).size_bytes() > max_bytes_) return false;
    return std::all_of(node.outputs.begin(), node.outputs.end(),
                       [&](ValueId v) { return uses_.users[static_cast<size_t>(v)].empty(); });
  }

  Key key_of(NodeId n) const {
    const Node& node = graph_.node(n);
    const size_t tensors = num_tensors(node);
    const NodeId gradient = graph_.info(node.inputs[tensors - 1]).node;
    const std::vector<ValueId> scalars(node.inputs.begin() + static_cast<std::ptrdiff_t>(tensors), node.inputs.end());
    return {node.op, node.attributes.to_string(), scalars,
            gradient == ir::kNone ? -1 : bucket_of(graph_.node(gradient))};
  }

  void emit(Rewriter& rewriter, const std::vector<NodeId>& members) {
    const Node& first = graph_.node(members[0]);
    const size_t tensors = num_tensors(first);
    std::vector<Value> inputs;
    for (const NodeId n : members) {
      for (size_t i = 0; i < tensors; ++i) inputs.push_back(rewriter.at(graph_.node(n).inputs[i]));
    }
    for (size_t i = tensors; i < first.inputs.size(); ++i) inputs.push_back(rewriter.at(first.inputs[i]));
    const std::string settings = first.attributes.to_string();
    rewriter.set_origin(members);
    const auto made = ops::apply(rewriter.graph(), "update_group", inputs,
                                 {{"optimizer", first.op},
                                  {"settings", settings.empty() ? "{}" : settings},
                                  {"count", static_cast<int64_t>(members.size())},
                                  {"scalars", static_cast<int64_t>(first.inputs.size() - tensors)}});
    size_t next = 0;
    for (const NodeId n : members) {
      rewriter.stands_for(n, rewriter.graph().num_nodes() - 1);
      for (const ValueId v : graph_.node(n).outputs) rewriter.set(v, made[next++]);
    }
  }

  const Graph& graph_;
  const ValueUses uses_;
  int64_t max_bytes_;
};

}  // namespace

Graph fuse_updates(const Graph& local, int64_t max_bytes) { return UpdateFusion(local, max_bytes).run(); }

}  // namespace tessera::compiler
