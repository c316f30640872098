// What a search chooses from: the strategies that an operator can take, and what each costs.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/compiler/partition/partition.h"

namespace tessera::compiler {

struct CandidateOptions {
  // Only strategies that use all ranks: none repeats another's work. An operator that cannot be split so far has none.
  bool use_all_ranks = false;
  // Also parts without elements.
  bool allow_empty_parts = false;
};

// The strategies that the node's rule allows on so many ranks, each once: every number of parts of every factor whose
// product divides the ranks. The first splits nothing, unless all ranks are to be used. A node without operands has one
// strategy, without tuples.
std::vector<mesh::Strategy> possible_strategies(const ir::Graph& graph, ir::NodeId node, int num_ranks,
                                                const CandidateOptions& options = {});

// Everything that can be decided of the node on this mesh: each axis splits one factor, or none, or is that of partial
// sums that pass through operands in which the operator is linear. The first splits nothing. A node with a strategy has
// one choice, that. No part is without elements.
//
// Throws InvalidArgument where the mesh cannot hold the node's strategy.
std::vector<NodeChoice> possible_choices(const ir::Graph& graph, ir::NodeId node, const mesh::Mesh& mesh);

// What one rank has to do for a node.
struct LocalWork {
  struct Collective {
    std::vector<int> ranks;  // the ranks of the group, in its order
    int64_t received_bytes = 0;
    int rounds = 1;  // how many rounds of messages
  };
  double flops = 0;
  double bytes = 0;  // read and written by its operators
  std::vector<Collective> collectives;
};
// What the first rank does for the node alone: operands lie as the choice wants them, results as it leaves them.
LocalWork work_of_choice(const ir::Graph& graph, ir::NodeId node, const mesh::Mesh& mesh, const NodeChoice& choice,
                         const PartitionOptions& options = {});

// What a strategy costs the rank with the largest parts.
struct StrategyCost {
  double flops = 0;
  double bytes = 0;            // read and written by its operators
  int64_t received_bytes = 0;  // from other ranks: halos, statistics, and partial results completed
};

// The node alone, its operands lying as the strategy wants them, its results completed where they lie. Throws as
// propagate() does for a strategy that does not fit.
StrategyCost cost_of_strategy(const ir::Graph& graph, ir::NodeId node, const mesh::Strategy& strategy, int num_ranks,
                              const PartitionOptions& options = {});

}  // namespace tessera::compiler
