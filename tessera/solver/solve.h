// Solves a problem as well as its budget allows and proves how well: the cost of what was found, and a lower bound on
// the cost of everything.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/solver/problem/problem.h"

namespace tessera::solver {

struct Progress {
  int round = 0;
  double seconds = 0;
  double cost = kForbidden;  // kForbidden: no solution yet
  double bound = -kForbidden;
};

struct SolveOptions {
  // The search ends after so many rounds, or before, when the bound is met. Equal problems, seeds and rounds have equal
  // solutions, whatever the machine.
  int rounds = 200;
  // Where > 0: ends when so much time is over, too, in the middle of a round; what is found then depends on the
  // machine.
  double timeout_seconds = 0;
  const Clock* clock = &Clock::system();
  // Ends, too, soon after it becomes true, with whatever was found.
  const std::atomic<bool>* stop = nullptr;
  // Ends when (cost - bound) <= gap * |cost|.
  double gap = 0;
  // Ends when the bound is not below this: what costs as much is not wanted.
  double cutoff = kForbidden;
  uint64_t seed = 0;
  // Called after each round.
  std::function<void(const Progress&)> on_progress = {};
};

enum class Status {
  kOptimal,     // the gap that was asked for is met
  kFeasible,    // a solution; whether a better one exists is not known
  kInfeasible,  // proven: there is none
  kUnknown      // none was found
};
// "optimal", "feasible", ...
std::string to_string(Status status);

// Where the time went, in seconds; search and bound run beside each other.
struct Profile {
  double reduction = 0;  // until the problem is laid out for computing
  double first = 0;      // until the search has a beginning
  double search = 0;
  double bound = 0;
  double exact = 0;
  double first_solution = -1;  // since the start, at the end of a round; -1: none
};

struct Solution {
  Status status = Status::kUnknown;
  std::vector<int> choices;  // one for each node; empty where there is none
  double cost = kForbidden;
  double bound = -kForbidden;  // no solution costs less
  int rounds = 0;
  double seconds = 0;
  Profile profile;

  // (cost - bound) / |cost|; 0 where both are 0.
  double gap() const;
};

// Validates the problem first. Uses two threads.
Solution solve(const Problem& problem, const SolveOptions& options = {});

}  // namespace tessera::solver
