// What is left of a problem when all that can be decided without search is: reduction and free nodes in turn, as what
// is decided of some nodes lets choices of others go, and those further nodes.
#pragma once

#include <functional>
#include <vector>

#include "tessera/solver/problem.h"

namespace tessera::solver {

class Core {
 public:
  explicit Core(const Problem& problem);

  const Problem& problem() const { return problem_; }
  bool is_infeasible() const { return is_infeasible_; }
  // The original's choices for those of problem(), of the same cost.
  std::vector<int> original(std::vector<int> choices) const;

 private:
  Problem reduced(const Problem& problem);

  bool is_infeasible_ = false;
  std::vector<std::function<std::vector<int>(const std::vector<int>&)>> steps_;
  Problem problem_;
};

}  // namespace tessera::solver
