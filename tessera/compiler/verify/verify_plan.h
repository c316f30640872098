// Verification of a plan: whether its shardings are what the ranks will really hold, by the operators' rules alone,
// whoever made it (the planner, a search, a file). What holds then:
//
//   - an operand arrives split as the factors of its node are, and only from a value it can be made of;
//   - a result is split as those factors are, and partial over exactly the axes of what was contracted and of the
//     partial sums that passed through;
//   - partial sums pass only through operands in which the operator is linear, jointly where it is jointly so, never
//     along an axis that splits the node; partial maxima, minima and products are completed before any use;
//   - so a value that is said to be whole, or replicated along an axis, is equal on the ranks that it is said of, as
//     far as the inputs are: a random operator draws by the element's place in the global value;
//   - what leaves the graph is whole, and the new value of a parameter or state lies where the old one does.
#pragma once

#include <string>
#include <vector>

#include "tessera/compiler/plan/plan.h"

namespace tessera::compiler {

// Every fault of the plan, one line each: the node with its source, the sharding that is had and the one that is
// wanted, and what to insert between. Empty: no rank can take a part for the whole. The graph must be sound.
std::vector<std::string> verify_plan(const ir::Graph& graph, const Plan& plan);

// Throws InvalidArgument listing all faults, unless there are none.
void verify_plan_or_throw(const ir::Graph& graph, const Plan& plan);

}  // namespace tessera::compiler
