// How an operator of Python is split that may be several nodes of the graph, one, or none.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>

#include "python/src/bind.h"
#include "python/src/helped_module.h"

namespace tessera::python {
namespace {

using Counts = std::vector<int64_t>;
using Axes = std::vector<std::vector<int64_t>>;

// Into how many parts each dim of a value is split and, where there is a grid, along which of its axes, outer first.
struct Split {
  Counts counts;
  Axes axes;
};

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
  bool shard(const std::vector<Counts>& strategy, const mesh::StrategyGrid& grid) {
    if (!grid.empty() && grid.axes.size() != strategy.size()) {
      throw InvalidArgument("ShardedCall: {} tuples of counts, but axes for {} operands", strategy.size(),
                            grid.axes.size());
    }
    ir::Graph& graph = *current_graph();
    known_.clear();
    for (size_t i = 0; i < operands_.size() && i < strategy.size(); ++i) {
      known_.try_emplace(operands_[i].id(), Split{strategy[i], grid.empty() ? Axes{} : grid.axes[i]});
    }
    const auto is_operand = [&](ir::ValueId value) {
      return std::ranges::any_of(operands_, [&](const ir::Value& operand) { return operand.id() == value; });
    };
    bool any = false;
    for (ir::NodeId n = first_; n < graph.num_nodes(); ++n) {
      const bool reads_operand = std::ranges::any_of(graph.node(n).inputs, is_operand);
      any |= reads_operand;
      if (!graph.node(n).strategy.empty()) continue;  // an operator within it has one of its own
      if (std::ranges::none_of(graph.node(n).inputs, [&](ir::ValueId value) { return known_.contains(value); }))
        continue;
      give(graph, n, grid.sizes, reads_operand);
      // A value that is an operand twice may be wanted in two ways.
      if (reads_all(graph.node(n))) {
        graph.mutable_node(n).strategy = strategy;
        graph.mutable_node(n).grid = grid;
      }
    }
    return any;
  }

  // (counts, axes) of a value that shard() has split, sums completed; None of any other.
  nb::object split_of(const ir::Value& value) const {
    const auto known = known_.find(value.id());
    if (known == known_.end()) return nb::none();
    return nb::make_tuple(known->second.counts, known->second.axes);
  }

 private:
  bool reads_all(const ir::Node& node) const {
    return std::ranges::equal(node.inputs, operands_, {}, {}, [](const ir::Value& operand) { return operand.id(); });
  }
  // must_hold: what the node's rule cannot say is given as it is, for the plan to refuse by name.
  void give(ir::Graph& graph, ir::NodeId n, const std::vector<int64_t>& sizes, bool must_hold) {
    const ir::Node& node = graph.node(n);
    const auto rule = ops::rule_of(graph, n);
    struct FactorSplit {
      int64_t parts = 1;
      std::vector<int64_t> axes;
      bool operator==(const FactorSplit&) const = default;
    };
    std::map<std::string, FactorSplit> splits;  // by factor
    bool fits = true;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto known = known_.find(node.inputs[i]);
      if (known == known_.end()) continue;
      const auto& [counts, axes] = known->second;
      for (size_t dim = 0; dim < counts.size() && dim < rule.inputs[i].size(); ++dim) {
        const FactorSplit split{counts[dim], dim < axes.size() ? axes[dim] : std::vector<int64_t>{}};
        const auto& factor = rule.inputs[i][dim];
        fits &= factor.empty() ? split.parts == 1 : splits.try_emplace(factor, split).first->second == split;
      }
    }
    if (!fits && !must_hold) return;
    const auto split_of_dims = [&](const ops::IndexRule::Dims& dims) {
      Split result;
      for (const auto& factor : dims) {
        const auto split = factor.empty() ? splits.end() : splits.find(factor);
        result.counts.push_back(split == splits.end() ? 1 : split->second.parts);
        result.axes.push_back(split == splits.end() ? std::vector<int64_t>{} : split->second.axes);
      }
      return result;
    };
    mesh::Strategy strategy;
    mesh::StrategyGrid grid{.sizes = sizes};
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto known = known_.find(node.inputs[i]);
      Split split = known == known_.end() ? split_of_dims(rule.inputs[i]) : known->second;
      strategy.push_back(std::move(split.counts));
      if (!grid.empty()) grid.axes.push_back(std::move(split.axes));
    }
    const auto outputs = node.outputs;
    graph.mutable_node(n).strategy = std::move(strategy);
    graph.mutable_node(n).grid = std::move(grid);
    if (!fits) return;
    for (size_t i = 0; i < outputs.size(); ++i) known_[outputs[i]] = split_of_dims(rule.outputs[i]);
  }

  std::vector<ir::Value> operands_;
  ir::NodeId first_ = 0;
  std::map<ir::ValueId, Split> known_;  // what shard() has split
};

}  // namespace

void bind_sharded_call(nb::module_& ops_module) {
  nb::class_<ShardedCall>(ops_module, "ShardedCall", R"(A call, inside construct(), of what is one operator to its user.

ShardedCall(operands), then whatever it computes of `operands`, then shard(strategy).)")
      .def(nb::init<nb::handle>(), "operands"_a)
      .def_prop_ro("operands", &ShardedCall::operands, "As values of the graph.")
      .def(
          "shard",
          [](ShardedCall& self, const std::vector<Counts>& strategy, const Counts& grid,
             const std::vector<Axes>& axes) { return self.shard(strategy, {.sizes = grid, .axes = axes}); },
          "strategy"_a, "grid"_a = Counts(), "axes"_a = std::vector<Axes>(),
          R"(Fixes how what was computed since is split: one tuple of counts per operand, one count per dim.

It goes to the operators that read one of them and to those that follow, as far as they can be split so. False where nothing
that was computed reads an operand. grid: the ranks as a grid whose last axis varies fastest; axes: for each operand and dim
the axes of the grid that split it, outer first. Without a grid the parts lie in the order of the counts.)")
      .def(
          "split_of", &ShardedCall::split_of, "value"_a,
          "(counts, axes) of what shard() has split: an operand, or what follows from them. None for any other value.");
  helped(ops_module)
      .def(
          "lay_out",
          [](nb::handle x, const Counts& counts, const Counts& grid, const Axes& axes) {
            if (current_graph() == nullptr) throw InvalidArgument("lay_out: no graph is being traced");
            Operation operation;
            mesh::StrategyGrid lies{.sizes = grid};
            if (!grid.empty()) lies.axes.push_back(axes);
            return operation.finish(ops::lay_out(operation.value(x), counts, std::move(lies)));
          },
          "x"_a, "counts"_a, "grid"_a = Counts(), "axes"_a = Axes(),
          R"(Inside construct(): the same elements, split into so many parts per dim, whatever makes and reads x.

grid: the ranks as a grid whose last axis varies fastest; axes: for each dim the axes of the grid that split it, outer first.)");
}

}  // namespace tessera::python
