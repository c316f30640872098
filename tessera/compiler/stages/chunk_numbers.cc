#include "tessera/compiler/stages/chunk_numbers.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::NodeId;
using ir::ValueId;

// Whether more cells of a segment read from later stages than from earlier ones.
std::vector<bool> segments_that_go_down(const Graph& graph, const std::vector<bool>& is_forward, size_t num_segments) {
  std::vector<int> falls(num_segments, 0);
  // By node: the places that cells name whose results it is made of, the last one on each way.
  std::vector<std::set<std::pair<int, int>>> from(is_forward.size());
  for (size_t n = 0; n < from.size(); ++n) {
    if (!is_forward[n]) continue;
    const ir::Node& node = graph.node(static_cast<NodeId>(n));
    for (const ValueId v : node.inputs) {
      const NodeId producer = graph.info(v).node;
      if (producer == ir::kNone) continue;
      const auto& places = from[static_cast<size_t>(producer)];
      from[n].insert(places.begin(), places.end());
    }
    if (node.stage == ir::kNone) continue;
    for (const auto& [stage, segment] : from[n]) {
      if (segment != node.segment || stage == node.stage) continue;
      falls[static_cast<size_t>(segment)] += stage > node.stage ? 1 : -1;
    }
    from[n] = {{node.stage, node.segment}};
  }
  std::vector<bool> goes_down;
  for (const int count : falls) goes_down.push_back(count > 0);
  return goes_down;
}

}  // namespace

int ChunkNumbers::chunk_at(int stage, int segment) const {
  for (int chunk = 0; chunk < count(); ++chunk) {
    const auto at = static_cast<size_t>(chunk);
    if (stages[at] == stage && segments[at] == segment) return chunk;
  }
  check(false, "a cell's stage and segment have a chunk");
  return 0;
}

ChunkNumbers number_chunks(const Graph& graph, const std::vector<bool>& is_forward, int num_stages) {
  std::vector<std::set<int>> segments(1);
  for (int stage = 0; stage < num_stages; ++stage) segments[0].insert(stage);
  for (size_t n = 0; n < is_forward.size(); ++n) {
    const ir::Node& node = graph.node(static_cast<NodeId>(n));
    if (!is_forward[n] || node.stage == ir::kNone) continue;
    const auto at = static_cast<size_t>(node.segment);
    if (at >= segments.size()) segments.resize(at + 1);
    segments[at].insert(node.stage);
  }
  ChunkNumbers numbers;
  const auto goes_down = segments_that_go_down(graph, is_forward, segments.size());
  for (size_t at = 0; at < segments.size(); ++at) {
    if (segments[at].empty()) {
      throw InvalidArgument(
          "no cell is in segment {} of the pipeline, but some are in segment {}: number the segments from 0, as "
          "set_stage(stage, segment) has them",
          at, segments.size() - 1);
    }
    std::vector<int> stages(segments[at].begin(), segments[at].end());
    if (at > 0 && goes_down[at]) std::reverse(stages.begin(), stages.end());
    for (const int stage : stages) {
      numbers.stages.push_back(stage);
      numbers.segments.push_back(static_cast<int>(at));
    }
  }
  return numbers;
}

}  // namespace tessera::compiler
