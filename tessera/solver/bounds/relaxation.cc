#include "tessera/solver/bounds/relaxation.h"
#include "tessera/base/integers.h"

#include <numeric>

namespace tessera::solver {
namespace {}  // namespace

Relaxation::Relaxation(const Instance& instance)
    : graph(&instance, [](const CostGraph*) {}), members(as_index(instance.num_nodes())), choices(members.size()) {
  for (int n = 0; n < instance.num_nodes(); ++n) {
    members[as_index(n)] = {n};
    choices[as_index(n)].resize(as_index(instance.num_choices(n)));
    std::iota(choices[as_index(n)].begin(), choices[as_index(n)].end(), 0);
  }
}

std::vector<int> Relaxation::of_instance(const std::vector<int>& of_groups) const {
  size_t count = 0;
  for (const auto& group : members) count += group.size();
  std::vector<int> result(count);
  for (size_t g = 0; g < members.size(); ++g) {
    for (size_t m = 0; m < members[g].size(); ++m) {
      result[as_index(members[g][m])] = choices[g][as_index(of_groups[g]) * members[g].size() + m];
    }
  }
  return result;
}

}  // namespace tessera::solver
