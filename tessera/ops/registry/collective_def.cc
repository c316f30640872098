#include "tessera/ops/registry/collective_def.h"

#include <cstring>
#include <numeric>

#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {
namespace {

class WorkOfHost final : public OwnWork {
 public:
  std::function<void()> copies(const std::vector<TensorView>& from, const std::vector<TensorView>& to) const override {
    return [from, to] {
      for (size_t i = 0; i < from.size(); ++i) copy_elements(from[i], to[i]);
    };
  }
  std::function<void()> zeros(const TensorView& to) const override {
    return [to] { std::memset(to.data, 0, static_cast<size_t>(to.size_bytes())); };
  }
};

}  // namespace

const OwnWork& work_of_host() {
  static const WorkOfHost work;
  return work;
}

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
