// Which groups of a relaxation are joined next.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/solver/bounds/dual.h"
#include "tessera/solver/bounds/relaxation.h"

namespace tessera::solver {

struct PartnerLimits {
  size_t choices;  // how many choices a group may have
  size_t pairs;    // how many pairs the graph may have in all
};
// Groups to be joined: small ones, those that have most neighbours in common first.
std::vector<int> choose_partners(const Relaxation& relaxation, const Dual& dual, const std::vector<bool>& is_out,
                                 double most, const PartnerLimits& limits);

}  // namespace tessera::solver
