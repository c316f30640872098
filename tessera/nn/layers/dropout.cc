#include "tessera/nn/layers/dropout.h"

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/ops/functions/creation_functions.h"

namespace tessera::nn {
namespace {

// Operators of the cell at `path` so far: the graph itself remembers, so a new trace counts from 0.
int calls_before(const ir::Graph& graph, const std::string& op, const std::string& path) {
  int calls = 0;
  for (ir::NodeId id = 0; id < graph.num_nodes(); ++id) {
    const auto& node = graph.node(id);
    if (node.op == op && node.source == path && node.forward == ir::kNone) ++calls;
  }
  return calls;
}

}  // namespace

Value random_step(ir::Graph& graph) {
  // The input, not the latest binding: all random operators of a step see the same number.
  return graph.add_input(ir::InputKind::kState, kRandomStep, {DType::kI64, {}});
}

uint64_t random_stream(const ir::Graph& graph, const std::string& op) {
  const auto& source = graph.origin().source;
  return hash_name(fmt::format("{}#{}", source, calls_before(graph, op, source)));
}

Dropout::Dropout(double keep_prob) : keep_prob_(keep_prob) {
  if (!(keep_prob > 0 && keep_prob <= 1))
    throw InvalidArgument("Dropout: keep_prob must be in (0,1], got {}", keep_prob);
}

Value Dropout::construct(Value x) {
  if (!settings().training || keep_prob_ == 1) return x;
  const auto stream = random_stream(graph(), "dropout");
  return ops::dropout(x, random_step(graph()), keep_prob_, {.seed = settings().seed, .stream = stream});
}

}  // namespace tessera::nn
