#include "tessera/executor/kernel_selection.h"

#include "tessera/base/error.h"

namespace tessera::executor {

KernelSelection::KernelSelection(std::vector<const KernelRegistry*> registries, int num_threads)
    : registries_(std::move(registries)), num_threads_(num_threads) {}

PreparedKernel KernelSelection::prepare(const KernelRequest& request) const {
  for (const KernelRegistry* registry : registries_) {
    if (auto kernel = registry->find(request)) return std::move(*kernel);
  }
  std::string types;
  for (const auto& input : request.inputs) types += (types.empty() ? "" : ", ") + input.type().to_string();
  throw InvalidArgument("no kernel of this build computes {} on ({}) {}", request.op, types,
                        request.attributes.to_string());
}

ops::KernelChoice KernelSelection::choose(const KernelRequest& request) const {
  auto kernel = prepare(request);
  return {std::move(kernel.name), kernel.scratch_bytes, std::move(kernel.in_place)};
}

}  // namespace tessera::executor
