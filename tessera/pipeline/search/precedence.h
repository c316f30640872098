// When a phase can start at the earliest, and how much must follow it: longest paths through what holds in every sound
// schedule whose series and lines take their micro-batches in order (series.h says why these are enough).
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/pipeline/series.h"

namespace tessera::pipeline {

// Micro-batch k + lag of `to` starts no earlier than `delay_ns` after micro-batch k of `from` has ended.
struct Precedence {
  int from = 0;
  int to = 0;
  int lag = 0;
  int64_t delay_ns = 0;
};

// All that is done once for each micro-batch by something that does one thing at a time: series by stages, messages by
// lanes. Nodes are series, then lines; machines are stages, then lanes.
struct PrecedenceGraph {
  int micro_batches = 0;
  std::vector<int64_t> ns;              // of each node
  std::vector<int> machine;             // of each node
  std::vector<int64_t> last_ns;         // of each machine: what it does after all nodes, an update
  std::vector<Precedence> precedences;  // those of lag 0 have no cycle

  std::vector<std::vector<int>> nodes_of_machines() const;
};

// Chains of a series' or line's micro-batches, what phases and messages need, slots, and memory: where a stage has room
// for L micro-batches of what a chunk keeps, forward of micro-batch k + L waits for backward of k, or for its weight
// gradient.
PrecedenceGraph precedence_graph(const PipelineProblem& problem, const SeriesTable& table);

// The same step read from its end to its beginning: what follows a phase there must go before it here.
PrecedenceGraph reversed(const PrecedenceGraph& graph);

// The earliest start of each node's micro-batches, node * micro_batches + k, ascending in k. `first_ns` of each machine
// passes before it does anything. Besides the longest path, a machine has to do all of a phase's ancestors that are
// its own, one after the other, before the phase: if those that start at h or later take w, it starts at h + w or
// later.
std::vector<int64_t> earliest_starts(const PrecedenceGraph& graph, const std::vector<int64_t>& first_ns);

// How long a micro-batch is on its way from the start of each chunk's forward to the end of its backward, at least.
std::vector<int64_t> residences(const PipelineProblem& problem);

}  // namespace tessera::pipeline
