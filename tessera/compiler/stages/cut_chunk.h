// A planned graph, cut into the phases of the chunks of a pipeline: each a graph with a plan of its own, split as the
// whole is. What passes from one phase to a later one, or to another chunk, is a state of these graphs, named for its
// value: it lies in the slot that a micro-batch has in the chunk.
//
// The plan is on a mesh of as many ranks as the stage has, 0 to n-1; what is cut is on the ranks of the stage. So
// between stages of equally many ranks, rank i of one has the same piece of a message as rank i of the other.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/compiler/stages/planned_part.h"
#include "tessera/compiler/stages/stage_placement.h"

namespace tessera::compiler {

// How the state of a slot is called that holds the value: "slot.12"; the data input "x": "slot.x".
std::string slot_name(const ir::Graph& graph, ir::ValueId v);

struct SlotValue {
  std::string name;
  Type type;  // global
  mesh::Layout layout;
  bool is_input = false;  // a data input of the whole graph, of the name without "slot."
  std::string input = {};
};

struct ChunkPhase {
  pipeline::PhaseKind kind = pipeline::PhaseKind::kForward;
  PlannedPart part;
};

// What is to be done in one chunk for a micro-batch.
struct ChunkParts {
  std::vector<ChunkPhase> phases;  // forward, backward and, where it is split, weight gradient
  std::vector<SlotValue> slot;     // what lies in a micro-batch's slot
  // Accumulators that are a value of the slot, which the update reads there: the names of both.
  std::map<std::string, std::string> read_in_slot;
};

// The plan's values as they are where other phases and chunks read them: completed, as Plan::copies says.
// `ranks`: those of the chunk's stage, as many as the plan's.
ChunkParts cut_chunk(const ir::Graph& graph, const Plan& plan, const StagePlacement& placement, int chunk,
                     const std::vector<int>& ranks);

}  // namespace tessera::compiler
