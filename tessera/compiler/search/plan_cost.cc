#include "tessera/compiler/search/plan_cost.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tessera/base/strings.h"
#include "tessera/compiler/cost/collective_time.h"
#include "tessera/compiler/cost/operator_time.h"
#include "tessera/compiler/plan/node_planner.h"
#include "tessera/compiler/search/choices.h"
#include "tessera/compiler/search/prices.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

// The share of what is received above which it is worth a warning.
constexpr double kMuch = 0.1;

using ir::Graph;
using ir::NodeId;
using ir::ValueId;

class PlanCounter {
 public:
  PlanCounter(const Graph& graph, const Plan& plan, const MachineProfile& profile, const PartitionOptions& options)
      : graph_(graph), plan_(plan), profile_(profile), options_(options) {}

  PlanCost run() {
    cost_.nodes.resize(static_cast<size_t>(graph_.num_nodes()));
    born_.resize(cost_.nodes.size() + 2);
    for (const auto& input : graph_.inputs())
      cost_.persistent_bytes += bytes_of(input.value, plan_.layout(input.value));
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) count_node(n);
    count_outputs();
    count_unused_copies();
    count_lives();
    for (const NodeCost& node : cost_.nodes) {
      cost_.compute_seconds += node.compute_seconds;
      cost_.communication_seconds += node.own_seconds + node.way_seconds;
      cost_.received_bytes += node.received_bytes;
    }
    cost_.communication_seconds += cost_.output_seconds;
    cost_.received_bytes += cost_.output_bytes;
    return std::move(cost_);
  }

 private:
  // A copy of a value, moved to where some of its readers want it.
  struct Copy {
    mesh::Layout layout;
    NodeId first;
    NodeId last;
    double repeated_seconds;  // another reader's own way to it; 0 for what all of them take
  };

  int64_t bytes_of(ValueId v, const mesh::Layout& layout) const {
    return largest_part(graph_.type(v), layout.mesh, layout.sharding).size_bytes();
  }

  void count_node(NodeId n) {
    const ir::Node& node = graph_.node(n);
    NodeCost& cost = cost_.nodes[static_cast<size_t>(n)];
    const mesh::Mesh& mesh = plan_.mesh_of_node(n);
    std::vector<Type> inputs;
    std::vector<Type> outputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const auto wanted = plan_.operand_layout(n, i);
      inputs.push_back(largest_part(graph_.type(node.inputs[i]), mesh, wanted.sharding));
      read(node.inputs[i], wanted, n, cost);
    }
    for (const ValueId v : node.outputs) {
      outputs.push_back(largest_part(graph_.type(v), mesh, plan_.layout(v).sharding));
      cost.result_bytes += outputs.back().size_bytes();
    }
    cost.compute_seconds = operator_seconds(node.op, node.attributes, inputs, outputs, profile_);
    count_own_communication(n, cost);
  }

  void read(ValueId v, const mesh::Layout& wanted, NodeId reader, NodeCost& cost) {
    const auto produced = plan_.layout(v);
    if (produced == wanted) {
      last_reader_[v] = reader;
      repeat_way_back(v, wanted);
      return;
    }
    for (Copy& copy : copies_[v]) {
      if (!(copy.layout == wanted)) continue;
      copy.last = reader;
      cost_.repeated_seconds += copy.repeated_seconds;
      return;
    }
    const auto source = plan_.source_layout(v);
    const bool from_copy = !(source == produced) && !(source == wanted);
    if (from_copy) {
      read(v, source, reader, cost);
    } else {
      last_reader_[v] = reader;
    }
    const auto price = price_of(v, from_copy ? source : produced, wanted);
    copies_[v].push_back({wanted, reader, reader, source == wanted ? 0 : price.seconds});
    cost.way_seconds += price.seconds;
    cost.received_bytes += price.received_bytes;
  }

  WayPrice price_of(ValueId v, const mesh::Layout& from, const mesh::Layout& to) const {
    return price_of_way(graph_.type(v), from, to, profile_, options_.redistribution);
  }

  // A search lets a reader that wants the value as it is made take it from the copy nevertheless.
  void repeat_way_back(ValueId v, const mesh::Layout& produced) {
    const auto source = plan_.source_layout(v);
    if (!(source == produced)) cost_.repeated_seconds += price_of(v, source, produced).seconds;
  }

  // And pays for a copy that nobody takes.
  void count_unused_copies() {
    for (const auto& [v, sharding] : plan_.copies) {
      const auto produced = plan_.layout(v);
      const auto source = plan_.source_layout(v);
      if (source == produced) continue;
      const auto& copies = copies_[v];
      const bool is_used =
          std::any_of(copies.begin(), copies.end(), [&](const Copy& copy) { return copy.layout == source; });
      if (!is_used) cost_.repeated_seconds += price_of(v, produced, source).seconds;
    }
  }

  void count_own_communication(NodeId n, NodeCost& cost) {
    const auto& factors = plan_.factors[static_cast<size_t>(n)];
    if (factors.empty() || !ops::OpRegistry::instance().get(graph_.node(n).op).localize) return;
    const mesh::Mesh& mesh = plan_.mesh_of_node(n);
    const auto blocks = blocks_of(graph_, n, factors, plan_.operands[static_cast<size_t>(n)]);
    const NodeChoice choice{.factors = factors, .blocks = blocks};
    for (const auto& collective : work_of_choice(graph_, n, mesh, choice, options_).collectives) {
      const GroupMembers group(collective.ranks, mesh.ranks()[0], profile_);
      cost.own_seconds += group.seconds_of(group.from_all(collective.received_bytes, collective.rounds));
      cost.received_bytes += collective.received_bytes;
      if (graph_.node(n).op == "reshape") cost_.reshape_bytes += collective.received_bytes;
    }
  }

  void lives(NodeId first, NodeId last, int64_t bytes) {
    born_[static_cast<size_t>(first)] += bytes;
    born_[static_cast<size_t>(last) + 1] -= bytes;
  }

  void count_lives() {
    for (const auto& [v, copies] : copies_) {
      for (const Copy& copy : copies) lives(copy.first, copy.last, bytes_of(v, copy.layout));
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      // New values take the place of the old ones.
      if (ops::OpRegistry::instance().get(graph_.node(n).op).update) continue;
      for (const ValueId v : graph_.node(n).outputs) {
        const auto it = last_reader_.find(v);
        lives(n, it == last_reader_.end() ? n : it->second, bytes_of(v, plan_.layout(v)));
      }
    }
    int64_t live = cost_.persistent_bytes;
    cost_.peak_bytes = live;
    for (size_t n = 0; n <= cost_.nodes.size(); ++n) {
      live += born_[n];
      if (n < cost_.nodes.size()) cost_.nodes[n].live_bytes = live;
      cost_.peak_bytes = std::max(cost_.peak_bytes, live);
    }
  }

  // As if a node behind the last one read them. A new value that lies where its parameter or state does is written
  // there.
  void count_outputs() {
    NodeCost cost;
    std::vector<std::pair<ValueId, mesh::Layout>> results;
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const ir::Output& output = graph_.outputs()[i];
      const auto wanted = plan_.output_layout(graph_, i);
      const ir::Input* replaced = graph_.find_input(output.name);
      if (replaced != nullptr && plan_.layout(output.value) == wanted) {
        // An input that is returned as it is stays where it lies, in a search as well.
        if (replaced->value != output.value) repeat_way_back(output.value, wanted);
        continue;
      }
      if (replaced == nullptr) {
        // One result by several names is returned once.
        const std::pair<ValueId, mesh::Layout> result(output.value, wanted);
        if (std::find(results.begin(), results.end(), result) != results.end()) continue;
        results.push_back(result);
      }
      read(output.value, wanted, graph_.num_nodes(), cost);
    }
    cost_.output_seconds = cost.way_seconds;
    cost_.output_bytes = cost.received_bytes;
  }

  const Graph& graph_;
  const Plan& plan_;
  const MachineProfile& profile_;
  const PartitionOptions& options_;
  PlanCost cost_;
  std::map<ValueId, std::vector<Copy>> copies_;
  std::map<ValueId, NodeId> last_reader_;  // of the value where it is produced; the number of nodes: the graph's end
  std::vector<int64_t> born_;              // bytes more than before, by node and at the end
};

}  // namespace

std::string uneven_warning(const PlanCost& cost, int num_ranks) {
  if (static_cast<double>(cost.reshape_bytes) <= kMuch * static_cast<double>(cost.received_bytes)) return "";
  return fmt::format(
      "{} of the {} that a rank receives a step are rows that reshapes exchange, because {} ranks do not divide what "
      "they split; with a batch that is a multiple of {} they stay where they are",
      format_bytes(cost.reshape_bytes), format_bytes(cost.received_bytes), num_ranks, num_ranks);
}

PlanCost cost_of_plan(const Graph& graph, const Plan& plan, const MachineProfile& profile,
                      const PartitionOptions& options) {
  return PlanCounter(graph, plan, profile, options).run();
}

}  // namespace tessera::compiler
