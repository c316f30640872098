#include "tessera/solver/core.h"

#include <utility>

#include "tessera/solver/problem/free_nodes.h"
#include "tessera/solver/problem/smaller_problem.h"

namespace tessera::solver {

Core::Core(const Problem& problem, const Deadline& deadline) : problem_(reduced(problem, deadline)) {
  while (!is_infeasible_ && !deadline.is_over()) {
    auto free = take_out_free_nodes(std::move(problem_), deadline);
    problem_ = std::move(free.problem);
    if (free.taken.empty()) break;
    steps_.push_back([free = std::move(free)](const std::vector<int>& choices) { return free.original(choices); });
    problem_ = reduced(problem_, deadline);
  }
}

std::vector<int> Core::original(std::vector<int> choices) const {
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) choices = (*step)(choices);
  return choices;
}

Problem Core::reduced(const Problem& problem, const Deadline& deadline) {
  auto made = reduce(problem, deadline);
  is_infeasible_ = made.infeasible;
  Problem smaller = std::move(made.problem);
  steps_.push_back([made = std::move(made)](const std::vector<int>& choices) { return made.original(choices); });
  return smaller;
}

}  // namespace tessera::solver
