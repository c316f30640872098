#include "tessera/tools/solve_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::tools {

SolveText solve_text(const SolveCommand& command) {
  constexpr double kLeastTimeout = 1e-3;
  constexpr TextKind kProblems{
      .name = "problem", .max_bytes = int64_t{1} << 30, .remedy = "solve one of fewer nodes and edges"};
  const Clock& clock = Clock::system();
  const int64_t begin_ns = clock.monotonic_ns();
  const auto seconds = [&] { return 1e-9 * static_cast<double>(clock.monotonic_ns() - begin_ns); };
  const auto problem =
      solver::parse_problem(read_text_file(FileSystem::local(), command.path, kProblems), command.path);
  const double reading = seconds();
  solver::SolveOptions options{.gap = command.gap, .seed = command.seed};
  if (command.timeout > 0) options.timeout_seconds = std::max(kLeastTimeout, command.timeout - reading);
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
      fmt::print(stderr, "{:8.1f} s  round {:6}  bound {:<16.10g}  {}\n", reading + progress.seconds, progress.round,
                 progress.bound, found);
    };
  }
  const auto solution = solver::solve(problem, options);
  const bool solved = solution.cost != solver::kForbidden;
  const auto evaluation = solved ? solver::evaluate(problem, solution.choices) : solver::Evaluation{};
  const auto choices = fmt::format("[{}]\n", fmt::join(solution.choices, ", "));
  if (command.profile) {
    const auto& spent = solution.profile;
    const auto known = spent.first_solution < 0
                           ? std::string("no solution is known")
                           : fmt::format("a solution was known after {:.2f} s", reading + spent.first_solution);
    fmt::print(stderr,
               "reading {:.2f} s, reduction {:.2f} s, beginning {:.2f} s, search {:.2f} s beside bound {:.2f} s, exact "
               "search {:.2f} s; all {:.2f} s; {}\n",
               reading, spent.reduction, spent.first, spent.search, spent.bound, spent.exact, seconds(), known);
  }
  if (command.json) {
    nlohmann::ordered_json json{{"name", problem.name},          {"nodes", problem.nodes.size()},
                                {"edges", problem.edges.size()}, {"status", to_string(solution.status)},
                                {"rounds", solution.rounds},     {"seconds", reading + solution.seconds}};
    if (solved) {
      json["cost"] = solution.cost;
      json["bound"] = solution.bound;
      json["gap"] = solution.gap();
      json["peak_usage"] = evaluation.peak_usage;
      json["choices"] = solution.choices;
    }
    if (problem.usage_limit != solver::kNoLimit) json["usage_limit"] = problem.usage_limit;
    return {json.dump() + "\n", solved};
  }
  auto text = fmt::format("{}: {}, {}: {} after {}, {:.1f} s\n", problem.name,
                          plural(std::ssize(problem.nodes), "node"), plural(std::ssize(problem.edges), "edge"),
                          to_string(solution.status), plural(solution.rounds, "round"), reading + solution.seconds);
  if (solved) {
    text +=
        fmt::format("cost {:.12g}, bound {:.12g}, gap {:.3f} %\n", solution.cost, solution.bound, 100 * solution.gap());
    text += fmt::format("peak usage {} at {}", evaluation.peak_usage, evaluation.peak_time);
    text += problem.usage_limit == solver::kNoLimit ? "\n" : fmt::format(" of {}\n", problem.usage_limit);
  }
  return {text + choices, solved};
}

}  // namespace tessera::tools
