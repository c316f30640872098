// Verification of the local graphs of all ranks against the plan that they were made by. Each local value is followed
// as a piece of a logical value: which elements, and over which axes it is still partial. Slices and collectives
// between the operators are computed on pieces and must lead to what the plan says an operator reads; inside of an
// operator its `localize` is trusted, but for its collectives and the place at which it draws random numbers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/compiler/verify/communication.h"

namespace tessera::compiler {

// Every fault, one line each, those of verify_communication first; one that several ranks share is said once, with the
// ranks. `ranks` are all ranks of the plan. The logical graph must be sound and its plan verified.
std::vector<std::string> verify_local(const ir::Graph& graph, const Plan& plan, std::span<const RankGraph> ranks);

// The local graphs of all ranks of a plan.
std::vector<RankGraph> partition_all(const ir::Graph& graph, const Plan& plan, const PartitionOptions& options = {});

}  // namespace tessera::compiler
