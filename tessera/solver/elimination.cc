#include "tessera/solver/elimination.h"

#include <utility>

#include "tessera/solver/problem/free_nodes.h"
#include "tessera/solver/problem/smaller_problem.h"

namespace tessera::solver {

Solution solve_by_elimination(const Problem& problem, const Clock& clock, const Deadline& stop) {
  const int64_t begin_ns = clock.monotonic_ns();
  validate(problem);
  ReducedProblem reduced = reduce(problem, stop);
  Solution solution;
  if (reduced.infeasible) {
    solution.status = Status::kInfeasible;
    return solution;
  }
  const FreeNodes nodes = take_out_all_nodes(std::move(reduced.problem), stop);
  auto choices = reduced.original(nodes.original({}));
  const Evaluation evaluation = evaluate(problem, choices);
  solution.seconds = 1e-9 * static_cast<double>(clock.monotonic_ns() - begin_ns);
  const bool is_exact = nodes.num_fixed == 0;
  if (is_exact) {
    // Without the limit nothing costs less, so with it neither.
    solution.bound = evaluation.cost;
    if (evaluation.cost == kForbidden) solution.status = Status::kInfeasible;
  }
  if (!evaluation.feasible) return solution;
  solution.choices = std::move(choices);
  solution.cost = evaluation.cost;
  solution.status = is_exact ? Status::kOptimal : Status::kFeasible;
  return solution;
}

}  // namespace tessera::solver
