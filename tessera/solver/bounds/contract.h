// A relaxation made smaller by leaving choices out, and tighter by joining groups; a dual's costs go along.
#pragma once

#include <vector>

#include "tessera/solver/bounds/dual.h"
#include "tessera/solver/bounds/relaxation.h"

namespace tessera::solver {

// What a smaller relaxation is made of.
struct Contraction {
  std::vector<bool> is_out;  // whether a choice of the graph is left out, by choice
  std::vector<int> partner;  // the group that each group is joined with; -1: none. Each of two is the other's
  double most = kForbidden;  // pairs that the dual says cost more than the least by this are left out
};

struct Contracted {
  Relaxation relaxation;
  Dual::State state;      // the dual's, as the new graph has it; it says no less
  bool is_empty = false;  // some group has no choice left; nothing else means anything then
};

// `dual` is one of the graph and has made a pass, so that no edge has a cost below zero.
Contracted contract(const Relaxation& relaxation, const Dual& dual, const Contraction& how);

}  // namespace tessera::solver
