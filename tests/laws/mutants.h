// Mutants: faults put into what the planner, the rules and partition make of a case, to see whether the sharding laws
// notice. Made from the operator registry, so that a new operator brings its own.
#pragma once

#include <string>
#include <vector>

#include "tests/laws/sharding_laws.h"

namespace tessera::laws {

struct Mutant {
  std::string name;  // "matmul: result 0, sums over its first partial axis taken as whole"
  std::string op;    // whose cases it runs against; empty: a few of every operator's
  CaseHooks hooks;
};

// In the order of the registry, those of collectives last.
std::vector<Mutant> all_mutants();

// Why no test can tell a mutant from the original, or empty.
std::string why_equivalent(const std::string& mutant);

}  // namespace tessera::laws
