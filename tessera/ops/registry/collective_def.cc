#include "tessera/ops/registry/collective_def.h"

#include <numeric>

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

CollectiveCall call_of(const ir::Graph& graph, const ir::Node& node) {
  CollectiveCall call{node.attributes, {}, {}};
  for (const auto v : node.inputs) call.inputs.push_back(graph.type(v));
  for (const auto v : node.outputs) call.outputs.push_back(graph.type(v));
  return call;
}

int64_t Traffic::received_bytes(int64_t own) const {
  if (by_sender.empty()) return bytes;
  return std::accumulate(by_sender.begin(), by_sender.end(), -by_sender[static_cast<size_t>(own)]);
}

const CollectiveDef* collective_of(const std::string& op) { return OpRegistry::instance().get(op).collective; }

}  // namespace tessera::ops
