#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/compiler/passes/fused_program.h"
#include "tessera/compiler/passes/node_order.h"
#include "tessera/compiler/passes/passes.h"
#include "tessera/compiler/passes/rewrite.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/tensor/element_op.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;

// Programs compute in f32: a result of a half type is rounded before it is used, unless it cannot be anything else.
bool must_round(const Graph& graph, const Node& node) {
  return is_half(graph.type(node.outputs[0]).dtype) && !info_of(*find_element_op(*program_op(graph, node))).is_exact;
}

bool is_readable(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kU8 ||
         dtype == DType::kBool;
}

class Fusion {
 public:
  Fusion(const Graph& graph, int max_nodes) : graph_(graph), uses_(find_uses(graph)), max_nodes_(max_nodes) {}

  Graph run() {
    group_of_.assign(static_cast<size_t>(graph_.num_nodes()), -1);
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) visit(n);
    Rewriter rewriter(graph_);
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const int group = group_of_[static_cast<size_t>(n)];
      if (group < 0 || groups_[static_cast<size_t>(group)].nodes.size() < 2) {
        rewriter.copy(n);
      } else if (groups_[static_cast<size_t>(group)].nodes.back() == n) {
        emit(rewriter, groups_[static_cast<size_t>(group)]);
      }
    }
    return rewriter.finish();
  }

 private:
  struct Group {
    Shape shape;
    std::vector<NodeId> nodes;
    bool open = true;  // nobody outside has read a result yet: the next node may still join
  };

  bool is_fusible(NodeId n) const {
    const Node& node = graph_.node(n);
    if (!program_op(graph_, node) || node.outputs.size() != 1) return false;
    const DType dtype = graph_.type(node.outputs[0]).dtype;
    if (dtype != DType::kF32 && !is_half(dtype)) return false;
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId v) { return is_readable(graph_.type(v).dtype); });
  }

  // A node joins the group of the last of its producers that is still open and has its shape. It stands where the
  // group's last node stands, so the other groups that it reads from must not be joined any more.
  void visit(NodeId n) {
    const Node& node = graph_.node(n);
    const bool fusible = is_fusible(n);
    int best = -1;
    if (fusible) {
      const Shape& shape = graph_.type(node.outputs[0]).shape;
      for (const ValueId v : node.inputs) {
        const NodeId from = graph_.info(v).node;
        const int group = from == ir::kNone ? -1 : group_of_[static_cast<size_t>(from)];
        if (group < 0) continue;
        const Group& g = groups_[static_cast<size_t>(group)];
        if (g.open && g.shape == shape && static_cast<int>(g.nodes.size()) < max_nodes_) {
          best = std::max(best, group);
        }
      }
    }
    for (const ValueId v : node.inputs) {
      const NodeId from = graph_.info(v).node;
      const int group = from == ir::kNone ? -1 : group_of_[static_cast<size_t>(from)];
      if (group >= 0 && group != best) groups_[static_cast<size_t>(group)].open = false;
    }
    if (!fusible) return;
    if (best < 0) {
      best = static_cast<int>(groups_.size());
      groups_.push_back({graph_.type(node.outputs[0]).shape, {}, true});
    }
    groups_[static_cast<size_t>(best)].nodes.push_back(n);
    group_of_[static_cast<size_t>(n)] = best;
  }

  bool is_read_outside(ValueId v, int group) const {
    if (uses_.is_result[static_cast<size_t>(v)]) return true;
    const auto& users = uses_.users[static_cast<size_t>(v)];
    return std::any_of(users.begin(), users.end(),
                       [&](NodeId n) { return group_of_[static_cast<size_t>(n)] != group; });
  }

  bool is_read_inside(ValueId v, const Group& group) const {
    return std::any_of(group.nodes.begin(), group.nodes.end(), [&](NodeId n) {
      const auto& inputs = graph_.node(n).inputs;
      return std::find(inputs.begin(), inputs.end(), v) != inputs.end();
    });
  }

  void emit(Rewriter& rewriter, const Group& group) {
    const int index = group_of_[static_cast<size_t>(group.nodes[0])];
    std::map<ValueId, std::string> names;
    std::vector<Value> inputs;
    std::vector<ValueId> results;
    std::string program;
    std::string dtypes;
    for (const NodeId n : group.nodes) {
      const Node& node = graph_.node(n);
      std::string line = fmt::format("t{}={}", names.size(), *program_op(graph_, node));
      for (const ValueId v : node.inputs) {
        if (const auto literal = literal_of(graph_, v)) {
          line += " " + *literal;
          continue;
        }
        auto it = names.find(v);
        if (it == names.end()) {
          it = names.emplace(v, fmt::format("a{}", inputs.size())).first;
          inputs.push_back(rewriter.at(v));
        }
        line += " " + it->second;
      }
      auto name = line.substr(0, line.find('='));
      program += line + "; ";
      const DType dtype = graph_.type(node.outputs[0]).dtype;
      if (must_round(graph_, node) && is_read_inside(node.outputs[0], group)) {
        const auto rounded = "r" + name.substr(1);
        program += fmt::format("{}=round_{} {}; ", rounded, dtype, name);
        name = rounded;
      }
      names.emplace(node.outputs[0], name);
      if (is_read_outside(node.outputs[0], index)) {
        dtypes += fmt::format("{}{}", results.empty() ? "" : " ", dtype);
        results.push_back(node.outputs[0]);
      }
    }
    program += "return";
    for (const ValueId v : results) program += " " + names.at(v);
    if (inputs.empty()) {  // constants only
      for (const NodeId n : group.nodes) rewriter.copy(n);
      return;
    }
    rewriter.set_origin(group.nodes);
    Attributes attributes = {{"program", program}, {"num_outputs", static_cast<int64_t>(results.size())}};
    if (dtypes.find("f16") != std::string::npos) {  // bf16, too
      attributes.set("dtypes", dtypes);
    }
    const auto made = ops::apply(rewriter.graph(), "fused_elementwise", inputs, attributes);
    for (const NodeId n : group.nodes) rewriter.stands_for(n, rewriter.graph().num_nodes() - 1);
    for (size_t i = 0; i < results.size(); ++i) {
      check_equal(made[i].type(), graph_.type(results[i]), "type of a fused result");
      rewriter.set(results[i], made[i]);
    }
  }

  const Graph& graph_;
  const ValueUses uses_;
  int max_nodes_;
  std::vector<Group> groups_;
  std::vector<int> group_of_;
};

}  // namespace

Graph fuse_elementwise(const Graph& local, int max_nodes) { return remove_dead_code(Fusion(local, max_nodes).run()); }

}  // namespace tessera::compiler
