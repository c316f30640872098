#include "tessera/ops/verify.h"

#include "tessera/base/error.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

std::vector<std::string> verify(const ir::Graph& graph) {
  std::vector<std::string> faults;
  std::vector<bool> defined(static_cast<size_t>(graph.num_values()));
  for (const auto& input : graph.inputs()) defined[static_cast<size_t>(input.value)] = true;
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    const auto fault = [&](const std::string& what) {
      const auto name = node.outputs.empty() ? "?" : graph.value_name(node.outputs[0]);
      faults.push_back(fmt::format("{} = {}: {}", name, graph.node_name(n), what));
    };
    std::vector<Type> inputs;
    for (const auto v : node.inputs) {
      if (!defined[static_cast<size_t>(v)]) fault(fmt::format("uses {} before its definition", graph.value_name(v)));
      inputs.push_back(graph.type(v));
    }
    for (const auto v : node.outputs) defined[static_cast<size_t>(v)] = true;
    try {
      const OpDef& def = OpRegistry::instance().get(node.op);
      if (def.is_variadic() ? inputs.size() + 1 < def.inputs.size() : inputs.size() != def.inputs.size()) {
        fault(fmt::format("takes {} inputs, has {}", def.inputs.size(), inputs.size()));
        continue;
      }
      const auto types = def.infer(complete_attributes(def, node.attributes), inputs);
      if (types.size() != node.outputs.size()) {
        fault(fmt::format("gives {} results, {} are written", types.size(), node.outputs.size()));
        continue;
      }
      for (size_t i = 0; i < types.size(); ++i) {
        if (!(types[i] == graph.type(node.outputs[i]))) {
          fault(fmt::format("result {} is {}, written is {}", i, types[i], graph.type(node.outputs[i])));
        }
      }
    } catch (const InvalidArgument& error) {
      fault(error.what());
    }
  }
  for (const auto& output : graph.outputs()) {
    const ir::Input* input = graph.find_input(output.name);
    if (input != nullptr && !(graph.type(input->value) == graph.type(output.value))) {
      faults.push_back(fmt::format("return {}: is {}, the {} of that name is {}", output.name, graph.type(output.value),
                                   ir::to_string(input->kind), graph.type(input->value)));
    }
  }
  return faults;
}

void verify_or_throw(const ir::Graph& graph) {
  const auto faults = verify(graph);
  if (faults.empty()) return;
  throw InvalidArgument("graph {} has {} fault{}:\n  {}", graph.name(), faults.size(), faults.size() == 1 ? "" : "s",
                        fmt::join(faults, "\n  "));
}

}  // namespace tessera::ops
