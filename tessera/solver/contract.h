// A relaxation made smaller by leaving choices out, and tighter by joining groups; a dual's costs go along.
#pragma once

#include <vector>

#include "tessera/solver/dual.h"
#include "tessera/solver/relaxation.h"

namespace tessera::solver {

// What a smaller relaxation is made of.
struct Contraction {
  std::vector<bool> is_out;  // by choice of the graph: left out
  std::vector<int> partner;  // by group: joined with it, -1: with none; of two, each is the other's
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
