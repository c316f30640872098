// What is left of a problem when all that can be decided without search is: reduction and free nodes in turn, as what
// is decided of some nodes lets choices of others go, and those further nodes.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "tessera/base/deadline.h"
#include "tessera/solver/problem/problem.h"

namespace tessera::solver {

class Core {
 public:
  // Where the deadline is over, what is left is larger.
  explicit Core(const Problem& problem, const Deadline& deadline = kNoDeadline);

  const Problem& problem() const { return problem_; }
  // problem() means nothing afterwards; original() stays.
  Problem take_problem() { return std::move(problem_); }
  bool is_infeasible() const { return is_infeasible_; }
  // The original's choices for those of problem(), of the same cost.
  std::vector<int> original(std::vector<int> choices) const;

 private:
  Problem reduced(const Problem& problem, const Deadline& deadline);

  bool is_infeasible_ = false;
  std::vector<std::function<std::vector<int>(const std::vector<int>&)>> steps_;
  Problem problem_;
};

}  // namespace tessera::solver
