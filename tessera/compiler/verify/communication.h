// What the ranks of a job say to each other: the collectives of local graphs, group by group, and whether those of all
// ranks fit together.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tessera/compiler/partition/partition.h"

namespace tessera::compiler {

struct Collective {
  ir::NodeId node = ir::kNone;
  int64_t order = 0;
  std::string text;  // operator, source, order and sizes: equal on all ranks that do it together
};
// The collectives of one rank in the order in which they are sent, by the world ranks of the group. What a rank sends
// to one other rank has a group of its own: the sender, then the receiver.
using GroupTraffic = std::map<std::vector<int>, std::vector<Collective>>;
GroupTraffic group_traffic(const ir::Graph& local);

// The local graph of one rank, and which of its nodes are which logical node.
struct RankGraph {
  int rank = 0;
  ir::Graph graph;
  std::vector<LogicalStep> steps;
};

// What is wrong with the collectives of one local graph whatever the other ranks do, one line each: a group that names
// a rank twice or this one at another place, a bucket of collectives that do not go together, a collective that is sent
// before one that it waits for, pieces of an exchange that overlap where they arrive.
std::vector<std::string> verify_collectives(const ir::Graph& local, int rank);

// The same of all ranks, and what is wrong between them: a group in which two ranks do not do the same under the same
// number, with the two lines; a member that is missing; pieces that one rank sends and the other does not expect. Ranks
// cannot wait for each other in a circle then: each goes by the numbers, so that the lowest that is not done yet has
// all its members waiting.
std::vector<std::string> verify_communication(std::span<const RankGraph> ranks);

}  // namespace tessera::compiler
