#include "tessera/ops/kernel_catalogue.h"

#include "tessera/ops/op_def.h"

namespace tessera::ops {

KernelChoice FakeKernelCatalogue::choose(const KernelRequest& request) const {
  KernelChoice choice{.name = "fake." + request.op};
  const OpDef* def = OpRegistry::instance().find(request.op);
  if (def == nullptr || !def->elementwise || request.outputs.empty()) return choice;
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
