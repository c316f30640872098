// The chunks of a network that goes over the stages of a pipeline, in the order of forward.
#pragma once

#include <vector>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

// By chunk: where it is.
struct ChunkNumbers {
  std::vector<int> stages;
  std::vector<int> segments;

  int count() const { return static_cast<int>(stages.size()); }
  // The chunk of a place that is there.
  int chunk_at(int stage, int segment) const;
};

// All stages have a chunk of segment 0, in their order; of each other segment those that forward nodes name, up or down
// the stages, whichever way more of them read each other. `is_forward`: by NodeId. Throws InvalidArgument for a segment
// that no node names, where one names a later segment.
ChunkNumbers number_chunks(const ir::Graph& graph, const std::vector<bool>& is_forward, int num_stages);

}  // namespace tessera::compiler
