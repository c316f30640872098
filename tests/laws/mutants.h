// Mutants: faults put into what the planner, the rules and partition make of a case, to see whether the sharding laws
// notice. Made from the operator registry, so that a new operator brings its own.
#pragma once

#include <string>
#include <vector>

#include "tests/laws/sharding_laws.h"

namespace tessera::laws {

struct Mutant {
  std::string fault;  // the mutation: "a result is summed over its replicas"
  std::string name;   // "matmul: result 0, sums over its first partial axis taken as whole"
  std::string op;     // whose cases it runs against; empty: a few of every operator's
  CaseHooks hooks;
  std::string local_op = {};  // it needs a node of this operator in a local graph
};

// In the order of the registry, those of collectives last.
std::vector<Mutant> all_mutants();

// Why a mutant that survives may: no test can tell it from the original. Empty for all others.
std::string why_equivalent(const std::string& mutant);

}  // namespace tessera::laws
