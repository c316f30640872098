#include "tessera/compiler/search/least_memory.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/passes/node_order.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::compiler {
namespace {

using ir::NodeId;
using ir::ValueId;

// What is left of a value that is read once, by an elementwise operator, which is read once, ...; nothing where it ends
// in an update or in place of a parameter or state: it may be written there as it is made.
int64_t least_bytes(const ir::Graph& graph, const ValueUses& uses, ValueId v) {
  if (uses.updates.contains(v)) return 0;
  int64_t least = graph.type(v).size_bytes();
  while (!uses.is_result[static_cast<size_t>(v)] && uses.users[static_cast<size_t>(v)].size() == 1) {
    const ir::Node& reader = graph.node(uses.users[static_cast<size_t>(v)][0]);
    const auto& def = ops::OpRegistry::instance().get(reader.op);
    if (def.update) return 0;
    if (!def.elementwise || reader.outputs.size() != 1) break;
    v = reader.outputs[0];
    if (uses.updates.contains(v)) return 0;
    least = std::min(least, graph.type(v).size_bytes());
  }
  return least;
}

int64_t share_of(int64_t bytes, int num_ranks) { return (bytes + num_ranks - 1) / num_ranks; }

}  // namespace

int64_t LeastMemory::on_a_rank(int num_ranks) const { return share_of(persistent_bytes + result_bytes, num_ranks); }

LeastMemory least_memory(const ir::Graph& graph) {
  LeastMemory least;
  for (const auto& input : graph.inputs()) {
    if (input.kind != ir::InputKind::kInput) least.persistent_bytes += graph.type(input.value).size_bytes();
  }
  const ValueUses uses = find_uses(graph);
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    if (ops::OpRegistry::instance().get(node.op).arithmetic == ops::Arithmetic::kVector) continue;
    int64_t bytes = 0;
    for (const ValueId v : node.outputs) bytes += least_bytes(graph, uses, v);
    if (bytes > least.result_bytes) {
      least.result_bytes = bytes;
      least.node = n;
    }
  }
  return least;
}

void require_memory(const ir::Graph& graph, int num_ranks, int64_t memory_limit_bytes) {
  const auto least = least_memory(graph);
  if (memory_limit_bytes == 0 || least.on_a_rank(num_ranks) <= memory_limit_bytes) return;
  const auto ranks = fmt::format("{} rank{}", num_ranks, num_ranks == 1 ? "" : "s");
  const auto begin =
      fmt::format("no plan fits into {} of memory on a rank: parameters and states", format_bytes(memory_limit_bytes));
  const int64_t persistent = share_of(least.persistent_bytes, num_ranks);
  if (persistent > memory_limit_bytes) {
    throw InvalidArgument("{} alone take {}, at least {} on each of {}; use more ranks or a higher memory limit", begin,
                          format_bytes(least.persistent_bytes), format_bytes(persistent), ranks);
  }
  throw InvalidArgument(
      "{} take {} and the result of {} takes {}, together at least {} on one of {}; use more ranks, a smaller batch or "
      "a "
      "higher memory limit",
      begin, format_bytes(least.persistent_bytes), graph.node_name(least.node), format_bytes(least.result_bytes),
      format_bytes(least.on_a_rank(num_ranks)), ranks);
}

}  // namespace tessera::compiler
