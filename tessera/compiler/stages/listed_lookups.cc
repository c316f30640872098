#include "tessera/compiler/stages/listed_lookups.h"

#include <algorithm>
#include <vector>

#include "tessera/compiler/passes/rewrite.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;

bool is_output(const Graph& graph, ValueId v) {
  return std::ranges::any_of(graph.outputs(), [v](const ir::Output& output) { return output.value == v; });
}

class LookupLister {
 public:
  LookupLister(const Graph& graph, const ListedLookups& lookups)
      : graph_(graph), lookups_(lookups), rewriter_(graph), rows_of_batch_(rows_of_batch(graph)) {}

  Graph run() {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (is_worth_it(n)) {
        list(n);
      } else {
        rewriter_.copy(n);
      }
    }
    return rewriter_.finish();
  }

 private:
  bool is_worth_it(NodeId n) const {
    const Node& node = graph_.node(n);
    if (node.op != "gather" || node.stage != 0 || node.forward != ir::kNone || node.recompute.block != 0) return false;
    if (node.attributes.get_int("axis") != 0 || graph_.type(node.inputs[0]).shape.ndim() != 2) return false;
    const Type& rows = graph_.type(node.outputs[0]);
    const Type& ids = graph_.type(node.inputs[1]);
    return is_shared_lookup(rows, ids, rows_of_batch_, lookups_.small_row_bytes) && is_of_workers(node.outputs[0]);
  }

  // A gradient is where its forward node is.
  bool is_of_workers(ValueId v) const {
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      const Node& reader = graph_.node(n);
      const NodeId placed = reader.forward == ir::kNone ? n : reader.forward;
      if (graph_.node(placed).stage == 0 && std::ranges::find(reader.inputs, v) != reader.inputs.end()) return false;
    }
    return !is_output(graph_, v);
  }

  // All of it is the servers', and has the lookup's origin.
  void list(NodeId n) {
    const Node& node = graph_.node(n);
    Graph& graph = rewriter_.graph();
    const Ints bounds = bounds_of_workers(graph_.type(node.inputs[1]), rows_of_batch_, lookups_.num_workers);
    rewriter_.set_origin(n);
    const Value ids[] = {rewriter_.at(node.inputs[1])};
    const auto listed =
        ops::apply(graph, "list_rows", ids, {{"bounds", bounds}, {"num_rows", graph_.type(node.inputs[0]).shape[0]}});
    rewriter_.copy(n);
    Node& lookup = graph.mutable_node(rewriter_.new_node(n));
    lookup.inputs[1] = listed[0].id();
    lookup.attributes.set("skipped", int64_t{-1});
    rewriter_.set_origin(n);
    const Value operands[] = {rewriter_.at(node.outputs[0]), listed[1]};
    rewriter_.set(node.outputs[0], ops::apply(graph, "spread_rows", operands, {{"bounds", bounds}})[0]);
    graph.set_origin({});
  }

  const Graph& graph_;
  const ListedLookups& lookups_;
  Rewriter rewriter_;
  int64_t rows_of_batch_;
};

}  // namespace

Graph list_lookups(const Graph& micro, const ListedLookups& lookups) { return LookupLister(micro, lookups).run(); }

bool is_spread_on_arrival(const Graph& micro, const Plan& plan, const StagePlacement& placement, NodeId n) {
  const Node& node = micro.node(n);
  const int stage = placement.stage_of(n);
  if (node.op != "spread_rows" || stage == kEveryStage || is_output(micro, node.outputs[0])) return false;
  if (placement.phase_of(n) != pipeline::PhaseKind::kForward) return false;
  for (const ValueId v : {node.inputs[0], node.inputs[1], node.outputs[0]}) {
    if (!plan.source_layout(v).sharding.is_replicated()) return false;
  }
  for (NodeId reader = 0; reader < micro.num_nodes(); ++reader) {
    const int at = placement.stage_of(reader);
    const auto& inputs = micro.node(reader).inputs;
    if ((at == stage || at == kEveryStage) && std::ranges::find(inputs, node.outputs[0]) != inputs.end()) return false;
  }
  return true;
}

NodeId find_lookup_in_place(const Graph& micro, const Plan& plan, const StagePlacement& placement, NodeId spread) {
  if (!placement.reads_rows_in_place || !is_spread_on_arrival(micro, plan, placement, spread)) return ir::kNone;
  const ValueId rows = micro.node(spread).inputs[0];
  const NodeId n = micro.info(rows).node;
  if (n == ir::kNone || micro.node(n).op != "gather" || is_output(micro, rows)) return ir::kNone;
  const Node& lookup = micro.node(n);
  const NodeId list = micro.info(lookup.inputs[1]).node;
  if (list == ir::kNone || micro.node(list).op != "list_rows") return ir::kNone;
  // A parameter itself, of which a server has whole rows.
  const ValueId table = lookup.inputs[0];
  if (micro.info(table).node != ir::kNone || lookup.attributes.get_int("axis") != 0) return ir::kNone;
  const auto input = std::ranges::find(micro.inputs(), table, &ir::Input::value);
  if (input != micro.inputs().end() && placement.gathered.contains(input->name)) return ir::kNone;
  const auto& sharding = plan.source_layout(table).sharding;
  if (micro.type(table).shape.ndim() != 2 || !sharding.dims[1].empty() || sharding.is_partial()) return ir::kNone;
  if (sharding.block(0) != 1 || !plan.source_layout(lookup.inputs[1]).sharding.is_replicated()) return ir::kNone;
  for (NodeId reader = 0; reader < micro.num_nodes(); ++reader) {
    const auto& inputs = micro.node(reader).inputs;
    if (reader != spread && std::ranges::find(inputs, rows) != inputs.end()) return ir::kNone;
  }
  return n;
}

}  // namespace tessera::compiler
