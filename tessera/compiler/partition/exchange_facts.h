// What each rank has to do in the exchanges of a plan's redistributions, told from layouts alone, without the ranks'
// local graphs.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "tessera/base/deadline.h"
#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/compiler/plan/plan.h"
#include "tessera/mesh/redistribution/redistribution.h"

namespace tessera::compiler {

struct ExchangeFacts {
  // The bytes of each rank, by its position in plan.ranks(): received from its own host and from others, and sent,
  // exchange by exchange.
  std::vector<std::vector<int64_t>> by_rank;
  // The exchanges of `rank`'s local graph that these are, see exchange_key(). Inside of operators there are more.
  std::set<std::string> keys;
};
// Throws DeadlineOver.
ExchangeFacts exchange_facts(const ir::Graph& logical, const Plan& plan, int rank,
                             const mesh::RedistributionOptions& options, const MachineProfile& profile,
                             const Deadline& deadline = kNoDeadline);
// What tells exchanges of one rank apart: who sends what to whom.
std::string exchange_key(Attributes exchange);

}  // namespace tessera::compiler
