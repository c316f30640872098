#include "tessera/compiler/passes/repeat.h"

#include <utility>

#include "tessera/base/error.h"
#include "tessera/compiler/passes/rewrite.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;

class Repeater {
 public:
  Repeater(const Graph& graph, const std::vector<bool>& dropped)
      : graph_(graph), dropped_(dropped), rewriter_(graph), copies_(static_cast<size_t>(graph.num_values())) {}

  Repeated run() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (graph_.node(n).forward == ir::kNone) {
        rewriter_.copy(n);
        origin_.push_back(n);
      } else {
        copy_reading_copies(n);
      }
    }
    return {rewriter_.finish(), std::move(origin_)};
  }

 private:
  bool is_dropped(ValueId v) const { return dropped_[static_cast<size_t>(v)]; }

  void copy_reading_copies(NodeId n) {
    const auto& inputs = graph_.node(n).inputs;
    for (const ValueId v : inputs) {
      if (is_dropped(v)) repeat(graph_.info(v).node);
    }
    std::vector<std::pair<ValueId, Value>> kept;
    for (const ValueId v : inputs) {
      if (!is_dropped(v)) continue;
      kept.emplace_back(v, rewriter_.at(v));
      rewriter_.set(v, copies_[static_cast<size_t>(v)]);
    }
    rewriter_.copy(n);
    origin_.push_back(n);
    // In reverse: one that is read twice was replaced by its copy when it was seen again.
    for (auto it = kept.rbegin(); it != kept.rend(); ++it) rewriter_.set(it->first, it->second);
  }

  // Makes the copies of the node's results, unless they are there.
  void repeat(NodeId n) {
    const Node& node = graph_.node(n);
    check(node.forward == ir::kNone, "only what the forward pass computes is repeated");
    if (copies_[static_cast<size_t>(node.outputs[0])]) return;
    const NodeId first = rewriter_.new_node(n);
    std::vector<Value> results;
    for (const ValueId v : node.outputs) results.push_back(rewriter_.at(v));
    copy_reading_copies(n);
    Node& copy = rewriter_.graph().mutable_node(rewriter_.new_node(n));
    copy.forward = first;
    copy.again = true;
    copy.recompute = {};
    rewriter_.stands_for(n, first);
    for (size_t i = 0; i < results.size(); ++i) {
      copies_[static_cast<size_t>(node.outputs[i])] = rewriter_.at(node.outputs[i]);
      rewriter_.set(node.outputs[i], results[i]);
    }
  }

  const Graph& graph_;
  const std::vector<bool>& dropped_;
  Rewriter rewriter_;
  std::vector<Value> copies_;  // by value that is dropped, once they are made
  std::vector<NodeId> origin_;
};

}  // namespace

Repeated repeat_for_gradients(const Graph& graph, const std::vector<bool>& dropped) {
  return Repeater(graph, dropped).run();
}

}  // namespace tessera::compiler
