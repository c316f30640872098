// Nodes that no limit concerns and that have at most two neighbours are decided exactly: each takes what is best beside
// every pair of its neighbours' choices, and the neighbours pay for it.
#pragma once

#include <array>
#include <vector>

#include "tessera/base/deadline.h"
#include "tessera/solver/problem/problem.h"

namespace tessera::solver {

struct FreeNodes {
  Problem problem;        // without them; the others keep their order
  std::vector<int> kept;  // the original's node for each of them
  // Nodes that were taken out, in this order.
  struct Taken {
    int node = 0;
    std::array<int, 2> neighbours{-1, -1};  // those that it has first
    std::vector<int> best;                  // its choice, row-major by theirs
  };
  std::vector<Taken> taken;
  int num_fixed = 0;  // how many of those are not decided exactly

  // The original's choices for those of `problem`.
  std::vector<int> original(const std::vector<int>& choices) const;

 private:
  friend FreeNodes take_out_free_nodes(Problem problem, const Deadline& deadline);
  friend FreeNodes take_out_all_nodes(Problem problem, const Deadline& stop);
  std::vector<int> num_choices_;  // the numbers of choices of the original's nodes
};

// Takes out the free nodes that have a neighbour; `problem` is as reduce() leaves it. original() completes a solution
// of what is left to one of the same cost, and the best of what is left is the best of the original. Where the
// deadline is over the others stay.
FreeNodes take_out_free_nodes(Problem problem, const Deadline& deadline = kNoDeadline);

// Takes out nodes as if there were no limit, until no node is left: where none has at most two neighbours, the one with
// most is fixed, to what is best beside the least that each neighbour can cost. Throws Stopped where it is.
FreeNodes take_out_all_nodes(Problem problem, const Deadline& stop = kNoDeadline);

}  // namespace tessera::solver
