#include "tests/laws/random_plan.h"

#include <algorithm>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/solver/solve.h"

namespace tessera::laws {

std::vector<int> random_solution(const compiler::SearchProblem& search, uint64_t seed) {
  solver::Problem problem = search.problem();
  int64_t draws = 0;
  const auto randomize = [&](double& cost) {
    if (cost != solver::kForbidden) cost = random_open_uniform({.seed = seed}, draws++);
  };
  for (auto& node : problem.nodes) std::for_each(node.costs.begin(), node.costs.end(), randomize);
  for (auto& edge : problem.edges) {
    auto& costs = edge.costs.own();
    std::for_each(costs.begin(), costs.end(), randomize);
  }
  auto found = solver::solve(problem, {.rounds = 2});
  check(!found.choices.empty(), "a random plan is found");
  return std::move(found.choices);
}

}  // namespace tessera::laws
