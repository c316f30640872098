#include "tessera/tools/solve_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "tessera/tessera.h"

namespace tessera::tools {

SolveText solve_text(const SolveCommand& command) {
  const auto problem = solver::parse_problem(FileSystem::local().read_text(command.path), command.path);
  solver::SolveOptions options{.timeout_seconds = command.timeout, .gap = command.gap, .seed = command.seed};
  if (command.rounds > 0) {
    options.rounds = command.rounds;
  } else if (command.timeout > 0) {
    options.rounds = std::numeric_limits<int>::max();
  }
  double told = solver::kForbidden;
  double told_at = -1;
  if (command.progress) {
    options.on_progress = [&](const solver::Progress& progress) {
      if (progress.cost >= told && progress.seconds < told_at + 5) return;
      told = progress.cost;
      told_at = progress.seconds;
      const auto found = progress.cost == solver::kForbidden
                             ? std::string("no solution yet")
                             : fmt::format("cost {:<16.10g}  gap {:.3f} %", progress.cost,
                                           100 * (progress.cost - progress.bound) / std::abs(progress.cost));
      fmt::print(stderr, "{:8.1f} s  round {:6}  bound {:<16.10g}  {}\n", progress.seconds, progress.round,
                 progress.bound, found);
    };
  }
  const auto solution = solver::solve(problem, options);
  const bool solved = solution.cost != solver::kForbidden;
  const auto evaluation = solved ? solver::evaluate(problem, solution.choices) : solver::Evaluation{};
  const auto choices = fmt::format("[{}]\n", fmt::join(solution.choices, ", "));
  if (command.json) {
    nlohmann::ordered_json json{{"name", problem.name},          {"nodes", problem.nodes.size()},
                                {"edges", problem.edges.size()}, {"status", to_string(solution.status)},
                                {"rounds", solution.rounds},     {"seconds", solution.seconds}};
    if (solved) {
      json["cost"] = solution.cost;
      json["bound"] = solution.bound;
      json["gap"] = solution.gap();
      json["peak_usage"] = evaluation.peak_usage;
    }
    if (problem.usage_limit != solver::kNoLimit) json["usage_limit"] = problem.usage_limit;
    return {json.dump() + "\n" + choices, solved};
  }
  auto text = fmt::format("{}: {} nodes, {} edges: {} after {} rounds, {:.1f} s\n", problem.name, problem.nodes.size(),
                          problem.edges.size(), to_string(solution.status), solution.rounds, solution.seconds);
  if (solved) {
    text +=
        fmt::format("cost {:.12g}, bound {:.12g}, gap {:.3f} %\n", solution.cost, solution.bound, 100 * solution.gap());
    text += fmt::format("peak usage {} at {}", evaluation.peak_usage, evaluation.peak_time);
    text += problem.usage_limit == solver::kNoLimit ? "\n" : fmt::format(" of {}\n", problem.usage_limit);
  }
  return {text + choices, solved};
}

}  // namespace tessera::tools
