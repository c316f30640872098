#include "tessera/compiler/plan/strategy_propagation.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/mesh/redistribution/redistribution.h"
#include "tessera/mesh/strategy_error.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;
using mesh::Sharding;

// One operand of a consumer that is a result of a producer, both forward operators.
struct Edge {
  NodeId producer = 0;
  size_t result = 0;
  NodeId consumer = 0;
  size_t operand = 0;
};

struct Split {
  StrategyFactors factors;
  NodeId origin = 0;  // the operator whose strategy it comes from
};

class StrategyPropagation {
 public:
  StrategyPropagation(const Graph& graph, const MeshChoice& mesh_choice) : graph_(graph), mesh_choice_(mesh_choice) {
    edges_of_.resize(static_cast<size_t>(graph.num_nodes()));
    for (NodeId n = 0; n < graph.num_nodes(); ++n) {
      if (graph.node(n).forward != ir::kNone) continue;
      const auto& inputs = graph.node(n).inputs;
      for (size_t i = 0; i < inputs.size(); ++i) add_edge(n, i);
    }
  }

  std::map<NodeId, StrategyFactors> run() {
    std::deque<NodeId> queue;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (graph_.node(n).strategy.empty()) continue;
      splits_[n] = {factors_of_strategy(graph_, n, mesh_choice_), n};
      queue.push_back(n);
    }
    std::map<NodeId, StrategyFactors> result;
    while (!queue.empty()) {
      const NodeId reached = queue.front();
      queue.pop_front();
      for (const Edge& edge : edges_of_[static_cast<size_t>(reached)]) {
        const NodeId next = edge.producer == reached ? edge.consumer : edge.producer;
        if (splits_.contains(next)) continue;
        splits_[next] = choose(next);
        result[next] = splits_[next].factors;
        queue.push_back(next);
      }
    }
    for (const auto& [n, split] : splits_) check_agreement(n);
    return result;
  }

 private:
  void add_edge(NodeId consumer, size_t operand) {
    const auto& info = graph_.info(graph_.node(consumer).inputs[operand]);
    if (info.node == ir::kNone) return;
    const Edge edge{info.node, static_cast<size_t>(info.index), consumer, operand};
    edges_of_[static_cast<size_t>(info.node)].push_back(edge);
    edges_of_[static_cast<size_t>(consumer)].push_back(edge);
  }

  ValueId value_of(const Edge& edge) const { return graph_.node(edge.producer).outputs[edge.result]; }

  // How the value of an edge leaves its producer, sums completed, or is read by its consumer.
  mesh::Layout layout_at(const Edge& edge, NodeId node, const StrategyFactors& factors) const {
    const auto rule = ops::rule_of(graph_, node);
    auto sharding = node == edge.producer ? result_shardings(rule, factors.factors)[edge.result]
                                          : operand_shardings(rule, factors.factors)[edge.operand];
    sharding.partial.clear();
    return {mesh_choice_.mesh(factors.mesh), std::move(sharding)};
  }

  // The split of `node` under which the value of the edge has this layout at its end, as far as the rule allows.
  StrategyFactors follow(NodeId node, const Edge& edge, int mesh, const Sharding& sharding) const {
    const auto rule = ops::rule_of(graph_, node);
    const auto& dims = node == edge.producer ? rule.outputs[edge.result] : rule.inputs[edge.operand];
    StrategyFactors factors{mesh, {}};
    for (size_t dim = 0; dim < dims.size(); ++dim) {
      if (!dims[dim].empty() && !sharding.dims[dim].empty()) factors.factors.try_emplace(dims[dim], sharding.dims[dim]);
    }
    return factors;
  }

  int64_t bytes_between(const Edge& edge, const mesh::Layout& from, const mesh::Layout& to) const {
    const Type& type = graph_.type(value_of(edge));
    return mesh::redistribute(type.shape, static_cast<int64_t>(size_bytes(type.dtype)), from, to).bytes;
  }

  Split choose(NodeId node) const {
    std::optional<Split> best;
    int64_t fewest = 0;
    for (const Edge& offered : edges_of_[static_cast<size_t>(node)]) {
      const auto neighbour = splits_.find(other_end(offered, node));
      if (neighbour == splits_.end()) continue;
      const auto& split = neighbour->second;
      const auto layout = layout_at(offered, neighbour->first, split.factors);
      const Split candidate{follow(node, offered, split.factors.mesh, layout.sharding), split.origin};
      int64_t bytes = 0;
      for (const Edge& edge : edges_of_[static_cast<size_t>(node)]) {
        const auto it = splits_.find(other_end(edge, node));
        if (it == splits_.end()) continue;
        const auto here = layout_at(edge, node, candidate.factors);
        const auto there = layout_at(edge, it->first, it->second.factors);
        bytes += node == edge.producer ? bytes_between(edge, here, there) : bytes_between(edge, there, here);
      }
      if (best && bytes >= fewest) continue;
      best = candidate;
      fewest = bytes;
    }
    return *best;
  }

  static NodeId other_end(const Edge& edge, NodeId node) {
    return node == edge.producer ? edge.consumer : edge.producer;
  }

  bool could_follow_anyone(NodeId node) const {
    const Node& n = graph_.node(node);
    return n.strategy.empty() && n.op != "cast" && ops::OpRegistry::instance().get(n.op).elementwise;
  }

  bool is_cast(NodeId node) const { return graph_.node(node).op == "cast"; }

  // Of an operator that took over its split: what it reads and makes lies as its neighbours have it.
  void check_agreement(NodeId node) const {
    if (!could_follow_anyone(node)) return;
    const Split& own = splits_.at(node);
    for (const Edge& edge : edges_of_[static_cast<size_t>(node)]) {
      const auto it = splits_.find(other_end(edge, node));
      if (it == splits_.end() || it->second.origin == own.origin || is_cast(it->first)) continue;
      if (is_cast(own.origin) || is_cast(it->second.origin)) continue;
      const auto here = layout_at(edge, node, own.factors);
      const auto there = layout_at(edge, it->first, it->second.factors);
      const Type& type = graph_.type(value_of(edge));
      if (mesh::all_slices(type.shape, here.mesh, here.sharding) ==
          mesh::all_slices(type.shape, there.mesh, there.sharding)) {
        continue;
      }
      throw mesh::StrategyError(
          "{} cannot follow both {} {}, which splits {} as {}, and {} {}, which splits it as {}: give {} a strategy of "
          "its own, or put a cast between them",
          graph_.node_name(node), graph_.node_name(own.origin), mesh::to_string(graph_.node(own.origin).strategy), type,
          here.sharding.to_string(here.mesh), graph_.node_name(it->second.origin),
          mesh::to_string(graph_.node(it->second.origin).strategy), there.sharding.to_string(there.mesh),
          graph_.node_name(node));
    }
  }

  const Graph& graph_;
  const MeshChoice& mesh_choice_;
  std::vector<std::vector<Edge>> edges_of_;  // by node
  std::map<NodeId, Split> splits_;
};

}  // namespace

std::map<NodeId, StrategyFactors> propagate_strategies(const Graph& graph, const MeshChoice& mesh_choice) {
  return StrategyPropagation(graph, mesh_choice).run();
}

}  // namespace tessera::compiler
