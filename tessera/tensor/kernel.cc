#include "tessera/tensor/kernel.h"

namespace tessera {

void KernelRegistry::add(const std::string& op, KernelFactory factory) { factories_[op].push_back(std::move(factory)); }

void KernelRegistry::add_function(const std::string& op, const std::string& name, void (*run)(const KernelArgs&),
                                  std::vector<std::pair<int, int>> in_place) {
  add(op, [kernel_name = name + "." + op, run, in_place = std::move(in_place)](const KernelRequest&) {
    return PreparedKernel{.name = kernel_name, .run = run, .in_place = in_place};
  });
}

std::optional<PreparedKernel> KernelRegistry::find(const KernelRequest& request) const {
  const auto it = factories_.find(request.op);
  if (it == factories_.end()) return std::nullopt;
  for (const auto& factory : it->second) {
    if (auto kernel = factory(request)) return kernel;
  }
  return std::nullopt;
}

std::vector<std::string> KernelRegistry::ops() const {
  std::vector<std::string> names;
  for (const auto& [name, factories] : factories_) names.push_back(name);
  return names;
}

}  // namespace tessera
