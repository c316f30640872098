#include "tessera/ops/kernel_catalogue.h"

#include "tessera/ops/registry/op_def.h"
#include "tessera/tensor/update_group.h"

namespace tessera::ops {

ChosenKernel FakeKernelCatalogue::choose(const KernelRequest& request) const {
  ChosenKernel choice{.name = "fake." + request.op};
  const OpDef* def = OpRegistry::instance().find(request.op);
  if (def == nullptr || request.outputs.empty()) return choice;
  if (def->update) {
    for (int i = 0; i < static_cast<int>(request.outputs.size()); ++i) choice.in_place.emplace_back(i, i);
  } else if (request.op == "update_group") {
    const UpdateGroup group(request.attributes, request.inputs.size());
    for (size_t m = 0; m < group.count; ++m) {
      for (size_t i = 0; i < group.num_results(); ++i) {
        choice.in_place.emplace_back(static_cast<int>(group.input(m, i)), static_cast<int>(group.output(m, i)));
      }
    }
  }
  if (!def->elementwise) return choice;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    for (size_t o = 0; o < request.outputs.size(); ++o) {
      if (request.inputs[i].type() == request.outputs[o].type()) {
        choice.in_place.emplace_back(static_cast<int>(i), static_cast<int>(o));
      }
    }
  }
  return choice;
}

}  // namespace tessera::ops
