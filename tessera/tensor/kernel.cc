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

void KernelRegistry::add_candidates(const std::string& op, CandidateLister lister) {
  listers_[op].push_back(std::move(lister));
}

std::vector<KernelCandidate> KernelRegistry::candidates(const KernelRequest& request) const {
  std::vector<KernelCandidate> found;
  const auto it = listers_.find(request.op);
  if (it == listers_.end()) return found;
  for (const auto& lister : it->second) {
    for (auto& candidate : lister(request)) found.push_back(std::move(candidate));
  }
  return found;
}

std::optional<PreparedKernel> KernelRegistry::find(const KernelRequest& request, const std::string& name) const {
  auto usual = find(request);
  if (name.empty() || (usual && usual->name == name)) return usual;
  for (const auto& candidate : candidates(request)) {
    if (candidate.name != name) continue;
    if (auto kernel = candidate.prepare()) return kernel;
  }
  return usual;
}

std::vector<std::string> KernelRegistry::ops() const {
  std::vector<std::string> names;
  for (const auto& [name, factories] : factories_) names.push_back(name);
  return names;
}

}  // namespace tessera
