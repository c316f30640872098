#include <algorithm>
#include <functional>
#include <map>
#include <set>

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

// The fused kernels walk rows of channels; other layouts keep their nodes.
class ChannelsLast {
 public:
  ChannelsLast(const Graph& graph, bool channels_last)
      : graph_(graph), strides_(assign_layouts(graph, channels_last)) {}
  bool operator()(ValueId v) const {
    return graph_.type(v).shape.ndim() >= 2 && is_channels_last(graph_.type(v).shape, strides_[static_cast<size_t>(v)]);
  }

 private:
  const Graph& graph_;
  std::vector<Strides> strides_;
};

// The attributes that say which elements share a statistic.
bool equal_groups(const Node& a, const Node& b) {
  return a.attributes.get_ints("counts") == b.attributes.get_ints("counts") &&
         a.attributes.get_bool("grouped") == b.attributes.get_bool("grouped");
}

Attributes groups_of(const Node& node) {
  return {{"counts", node.attributes.get_ints("counts")}, {"grouped", node.attributes.get_bool("grouped")}};
}

// Collects what becomes of each node, then writes the new graph: a node is copied, dropped, or replaced.
class Replacement {
 public:
  explicit Replacement(const Graph& graph) : graph_(graph) {}

  bool is_taken(NodeId n) const { return dropped_.contains(n) || makers_.contains(n); }
  void drop(NodeId n) { dropped_.insert(n); }
  // `make` adds the new node and returns its results, which take the place of `old` values; `stands_for` are the nodes
  // that it replaces.
  void replace(NodeId at, std::vector<NodeId> stands_for, std::vector<ValueId> old,
               std::function<std::vector<Value>(Rewriter&)> make) {
    makers_[at] = {std::move(stands_for), std::move(old), std::move(make)};
  }
  Graph run() const {
    Rewriter rewriter(graph_);
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const auto maker = makers_.find(n);
      if (maker == makers_.end()) {
        if (!dropped_.contains(n)) rewriter.copy(n);
        continue;
      }
      const Maker& made_by = maker->second;
      rewriter.set_origin(n);
      const auto made = made_by.make(rewriter);
      check_equal(made.size(), made_by.old.size(), "results of a fused batch_norm");
      for (size_t i = 0; i < made.size(); ++i) {
        check_equal(made[i].type(), graph_.type(made_by.old[i]), "type of a fused batch_norm's result");
        rewriter.set(made_by.old[i], made[i]);
      }
      for (const NodeId old : made_by.stands_for) rewriter.stands_for(old, rewriter.graph().num_nodes() - 1);
    }
    return rewriter.finish();
  }

 private:
  struct Maker {
    std::vector<NodeId> stands_for;
    std::vector<ValueId> old;
    std::function<std::vector<Value>(Rewriter&)> make;
  };
  const Graph& graph_;
  std::set<NodeId> dropped_;
  std::map<NodeId, Maker> makers_;
};

std::vector<Value> at(const Rewriter& rewriter, const std::vector<ValueId>& old) {
  std::vector<Value> values;
  for (const ValueId v : old) values.push_back(rewriter.at(v));
  return values;
}

class BatchNormFusion {
 public:
  BatchNormFusion(const Graph& graph, bool channels_last)
      : graph_(graph), uses_(find_uses(graph)), is_rows_(graph, channels_last), replacement_(graph) {}

  Graph run() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const std::string& op = graph_.node(n).op;
      if (op == "add") fuse_sum(n);
      if (op == "relu") fuse_relu(n);
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (graph_.node(n).op == "relu_grad" && !fuse_relu_grad(n)) fuse_masked(n);
    }
    return replacement_.run();
  }

 private:
  const Node* maker_of(ValueId v, const char* op) const {
    const NodeId n = graph_.info(v).node;
    return n != ir::kNone && graph_.node(n).op == op ? &graph_.node(n) : nullptr;
  }
  // The one node that reads a value, as one operand; ir::kNone where that is not so.
  NodeId only_reader(ValueId v) const {
    const auto& users = uses_.users[static_cast<size_t>(v)];
    return users.size() == 1 && !uses_.is_result[static_cast<size_t>(v)] ? users[0] : ir::kNone;
  }
  ValueId result_of(NodeId n) const { return graph_.node(n).outputs[0]; }

  // The batch_norm that makes `v` for node `reader` alone.
  const Node* norm_for(ValueId v, NodeId reader) const {
    const Node* norm = maker_of(v, "batch_norm");
    return norm != nullptr && only_reader(v) == reader && is_rows_(v) && is_rows_(norm->inputs[0]) ? norm : nullptr;
  }

  // relu of the result of node `n`, where nobody else reads that; or n itself.
  NodeId with_relu(NodeId n) const {
    const NodeId reader = only_reader(result_of(n));
    return reader != ir::kNone && graph_.node(reader).op == "relu" ? reader : n;
  }

  // y = relu?(batch_norm(x) + residual), where the residual may be a batch_norm too.
  void fuse_sum(NodeId n) {
    const Node& sum = graph_.node(n);
    ValueId normalised = sum.inputs[0];
    ValueId residual = sum.inputs[1];
    if (norm_for(normalised, n) == nullptr) std::swap(normalised, residual);
    const Node* norm = norm_for(normalised, n);
    if (norm == nullptr || !(graph_.type(residual) == graph_.type(normalised)) || !is_rows_(residual)) return;
    const NodeId last = with_relu(n);
    const Node* other = norm_for(residual, n);
    if (other != nullptr && !equal_groups(*norm, *other)) other = nullptr;
    std::vector<ValueId> operands = norm->inputs;
    Attributes attributes = groups_of(*norm);
    attributes.set("eps", norm->attributes.get_double("eps"));
    attributes.set("relu", last != n);
    attributes.set("residual", std::string(other != nullptr ? "batch_norm" : "value"));
    std::vector<NodeId> nodes = {graph_.info(normalised).node, n, last};
    if (other == nullptr) {
      operands.push_back(residual);
    } else {
      operands.insert(operands.end(), other->inputs.begin(), other->inputs.end());
      attributes.set("residual_eps", other->attributes.get_double("eps"));
      nodes.push_back(graph_.info(residual).node);
    }
    replace_norm(last, nodes, operands, attributes);
  }

  // y = relu(batch_norm(x))
  void fuse_relu(NodeId n) {
    const Node* norm = norm_for(graph_.node(n).inputs[0], n);
    if (norm == nullptr) return;
    Attributes attributes = groups_of(*norm);
    attributes.set("eps", norm->attributes.get_double("eps"));
    attributes.set("relu", true);
    replace_norm(n, {graph_.info(graph_.node(n).inputs[0]).node, n}, norm->inputs, attributes);
  }

  void replace_norm(NodeId last, const std::vector<NodeId>& nodes, const std::vector<ValueId>& operands,
                    const Attributes& attributes) {
    for (const NodeId n : nodes) {
      if (n != last) replacement_.drop(n);
    }
    replacement_.replace(last, nodes, {result_of(last)}, [=](Rewriter& rewriter) {
      return ops::apply(rewriter.graph(), "fused_batch_norm", at(rewriter, operands), attributes);
    });
  }

  // Whether node `n` makes of `dy` a sum or cotangent of what the batch_norm of x makes.
  bool is_gradient_of(NodeId n, ValueId dy, const Node& norm) const {
    const Node& node = graph_.node(n);
    const bool input = node.op == "batch_norm_grad_input";
    if (!input && node.op != "batch_norm_grad_reduce") return false;
    // dy, then x, mean, variance and gamma; it may be dy as no other operand.
    if (node.inputs[0] != dy || std::count(node.inputs.begin(), node.inputs.end(), dy) != 1) return false;
    return std::equal(node.inputs.begin() + 1, node.inputs.begin() + (input ? 5 : 4), norm.inputs.begin()) &&
           equal_groups(node, norm) && node.attributes.get_double("eps") == norm.attributes.get_double("eps");
  }

  // The gradient of relu(batch_norm(x)): the mask is made of x, which is read anyway, and what it masks is not stored.
  bool fuse_relu_grad(NodeId n) {
    const Node& mask = graph_.node(n);
    const ValueId dy = mask.inputs[0];
    const Node* relu = maker_of(mask.inputs[1], "relu");
    const Node* norm = relu == nullptr ? nullptr : maker_of(relu->inputs[0], "batch_norm");
    if (norm == nullptr || !is_rows_(dy) || !is_rows_(norm->inputs[0])) return false;
    const ValueId masked = result_of(n);
    const auto& gradients = uses_.users[static_cast<size_t>(masked)];
    if (uses_.is_result[static_cast<size_t>(masked)]) return false;
    if (!std::all_of(gradients.begin(), gradients.end(),
                     [&](NodeId reader) { return is_gradient_of(reader, masked, *norm); })) {
      return false;
    }
    replacement_.drop(n);
    for (const NodeId reader : gradients) {
      const Node& node = graph_.node(reader);
      const bool input = node.op == "batch_norm_grad_input";
      std::vector<ValueId> operands = {dy};
      operands.insert(operands.end(), norm->inputs.begin(), norm->inputs.end());
      if (input) operands.insert(operands.end(), node.inputs.end() - 2, node.inputs.end());
      const std::string op = input ? "batch_norm_relu_grad_input" : "batch_norm_relu_grad_reduce";
      replacement_.replace(reader, {reader}, node.outputs, [=, attributes = node.attributes](Rewriter& rewriter) {
        return ops::apply(rewriter.graph(), op, at(rewriter, operands), attributes);
      });
    }
    return true;
  }

  // The gradient of relu(batch_norm(x) + residual): the masked cotangent goes both ways, so it is stored, and summed
  // while it is made. Where the result feeds two branches, their cotangents are added on the way.
  void fuse_masked(NodeId n) {
    const Node& mask = graph_.node(n);
    const ValueId y = mask.inputs[1];
    const ValueId masked = result_of(n);
    const auto is_sum_of_it = [&](NodeId reader) {
      if (graph_.node(reader).op != "batch_norm_grad_reduce") return false;
      const auto& inputs = graph_.node(reader).inputs;
      // The sums stand where the mask stood: what else they read must be there.
      return inputs[0] == masked &&
             std::all_of(inputs.begin() + 1, inputs.end(), [&](ValueId v) { return graph_.info(v).node < n; }) &&
             is_rows_(inputs[1]);
    };
    const auto& found = uses_.users[static_cast<size_t>(masked)];
    const auto reader = std::find_if(found.begin(), found.end(), is_sum_of_it);
    if (reader == found.end() || !is_rows_(y) || !is_rows_(masked)) return;
    const Node& sums = graph_.node(*reader);
    std::vector<ValueId> operands = {y, sums.inputs[1], sums.inputs[2], sums.inputs[3]};
    std::vector<NodeId> nodes = {n, *reader};
    const NodeId sum = graph_.info(mask.inputs[0]).node;
    if (is_sum_of_two(mask.inputs[0], n)) {
      operands.insert(operands.end(), graph_.node(sum).inputs.begin(), graph_.node(sum).inputs.end());
      nodes.push_back(sum);
      replacement_.drop(sum);
    } else {
      if (!is_rows_(mask.inputs[0])) return;
      operands.push_back(mask.inputs[0]);
    }
    replacement_.drop(*reader);
    replacement_.replace(
        n, nodes, {masked, sums.outputs[0], sums.outputs[1]}, [=, attributes = sums.attributes](Rewriter& rewriter) {
          return ops::apply(rewriter.graph(), "masked_batch_norm_grad_reduce", at(rewriter, operands), attributes);
        });
  }

  // Whether `v` is made by an add of two values like it, for node `reader` alone.
  bool is_sum_of_two(ValueId v, NodeId reader) const {
    const Node* sum = maker_of(v, "add");
    if (sum == nullptr || only_reader(v) != reader || replacement_.is_taken(graph_.info(v).node)) return false;
    return std::all_of(sum->inputs.begin(), sum->inputs.end(),
                       [&](ValueId operand) { return graph_.type(operand) == graph_.type(v) && is_rows_(operand); });
  }

  const Graph& graph_;
  ValueUses uses_;
  ChannelsLast is_rows_;
  Replacement replacement_;
};

// Mean and variance of the same images in one read, where no collective completes the mean in between.
void fuse_statistics(const Graph& graph, const ChannelsLast& is_rows, NodeId n, Replacement& replacement) {
  const Node& variance = graph.node(n);
  const ValueId x = variance.inputs[0];
  const NodeId m = graph.info(variance.inputs[1]).node;
  if (m == ir::kNone || replacement.is_taken(m)) return;
  const Node& mean = graph.node(m);
  if (mean.op != "batch_norm_mean" || mean.inputs[0] != x || !equal_groups(mean, variance) || !is_rows(x)) return;
  const Shape& shape = graph.type(x).shape;
  const bool grouped = mean.attributes.get_bool("grouped");
  // A rank that holds a part of what is averaged makes a sum of its own, without knowing the mean.
  if (!grouped && mean.attributes.get_ints("counts")[0] * shape[1] != shape.num_elements()) return;
  replacement.drop(n);
  replacement.replace(m, {m, n}, {mean.outputs[0], variance.outputs[0]},
                      [x, attributes = groups_of(mean)](Rewriter& rewriter) {
                        return ops::apply(rewriter.graph(), "batch_norm_statistics", at(rewriter, {x}), attributes);
                      });
}

}  // namespace

Graph fuse_batch_norm(const Graph& local, bool channels_last) { return BatchNormFusion(local, channels_last).run(); }

Graph fuse_batch_norm_statistics(const Graph& local, bool channels_last) {
  const ChannelsLast is_rows(local, channels_last);
  Replacement replacement(local);
  for (NodeId n = 0; n < local.num_nodes(); ++n) {
    if (local.node(n).op == "batch_norm_variance") fuse_statistics(local, is_rows, n, replacement);
  }
  return replacement.run();
}

}  // namespace tessera::compiler
