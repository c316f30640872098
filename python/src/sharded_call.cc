// How an operator of Python is split that may be several nodes of the graph, one, or none.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>

#include "python/src/bind.h"

namespace tessera::python {
namespace {

using Counts = std::vector<int64_t>;

// A call of such an operator in the graph that is being traced: made before it runs, finished after it.
class ShardedCall {
 public:
  explicit ShardedCall(nb::handle operands) {
    if (current_graph() == nullptr) throw InvalidArgument("ShardedCall: no graph is being traced");
    Operation operation;
    operands_ = operation.values(operands);
    first_ = current_graph()->num_nodes();
  }

  const std::vector<ir::Value>& operands() const { return operands_; }

  // Gives the nodes that were added since and depend on the operands the strategy, a tuple of counts per operand: those
  // that read one of them, and, as far as their rules carry it on, those that read their results. False where no node
  // reads an operand.
  bool shard(const std::vector<Counts>& strategy) {
    ir::Graph& graph = *current_graph();
    std::map<ir::ValueId, Counts> known;
    for (size_t i = 0; i < operands_.size() && i < strategy.size(); ++i) {
      known.try_emplace(operands_[i].id(), strategy[i]);
    }
    const auto is_operand = [&](ir::ValueId value) {
      return std::ranges::any_of(operands_, [&](const ir::Value& operand) { return operand.id() == value; });
    };
    bool any = false;
    for (ir::NodeId n = first_; n < graph.num_nodes(); ++n) {
      const bool reads_operand = std::ranges::any_of(graph.node(n).inputs, is_operand);
      any |= reads_operand;
      if (!graph.node(n).strategy.empty()) continue;  // an operator within it has one of its own
      if (std::ranges::none_of(graph.node(n).inputs, [&](ir::ValueId value) { return known.contains(value); }))
        continue;
      give(graph, n, known, reads_operand);
      // A value that is an operand twice may be wanted in two ways.
      if (reads_all(graph.node(n))) graph.mutable_node(n).strategy = strategy;
    }
    return any;
  }

 private:
  bool reads_all(const ir::Node& node) const {
    return std::ranges::equal(node.inputs, operands_, {}, {}, [](const ir::Value& operand) { return operand.id(); });
  }
  // must_hold: what the node's rule cannot say is given as it is, for the plan to refuse by name.
  static void give(ir::Graph& graph, ir::NodeId n, std::map<ir::ValueId, Counts>& known, bool must_hold) {
    const ir::Node& node = graph.node(n);
    const auto rule = ops::rule_of(graph, n);
    std::map<std::string, int64_t> parts;  // by factor
    bool fits = true;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto counts = known.find(node.inputs[i]);
      if (counts == known.end()) continue;
      for (size_t dim = 0; dim < counts->second.size() && dim < rule.inputs[i].size(); ++dim) {
        const int64_t count = counts->second[dim];
        const auto& factor = rule.inputs[i][dim];
        fits &= factor.empty() ? count == 1 : parts.try_emplace(factor, count).first->second == count;
      }
    }
    if (!fits && !must_hold) return;
    const auto counts_of = [&](const ops::IndexRule::Dims& dims) {
      Counts counts;
      for (const auto& factor : dims)
        counts.push_back(factor.empty() || !parts.contains(factor) ? 1 : parts.at(factor));
      return counts;
    };
    mesh::Strategy strategy;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto counts = known.find(node.inputs[i]);
      strategy.push_back(counts == known.end() ? counts_of(rule.inputs[i]) : counts->second);
    }
    const auto outputs = node.outputs;
    graph.mutable_node(n).strategy = std::move(strategy);
    if (!fits) return;
    for (size_t i = 0; i < outputs.size(); ++i) known[outputs[i]] = counts_of(rule.outputs[i]);
  }

  std::vector<ir::Value> operands_;
  ir::NodeId first_ = 0;
};

}  // namespace

void bind_sharded_call(nb::module_& ops_module) {
  nb::class_<ShardedCall>(ops_module, "ShardedCall", R"(A call, inside construct(), of what is one operator to its user.

ShardedCall(operands), then whatever it computes of `operands`, then shard(strategy).)")
      .def(nb::init<nb::handle>(), "operands"_a)
      .def_prop_ro("operands", &ShardedCall::operands, "As values of the graph.")
      .def("shard", &ShardedCall::shard, "strategy"_a,
           R"(Fixes how what was computed since is split: one tuple of counts per operand, one count per dim.

It goes to the operators that read one of them and to those that follow, as far as they can be split so. False where nothing
that was computed reads an operand.)");
}

}  // namespace tessera::python
