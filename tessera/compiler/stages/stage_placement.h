// Which stage of a pipeline computes what, in which phase: node -> chunk -> stage. A rank's stage is another matter: no
// rank is named here.
//
// A chunk is what the network computes on one stage without leaving it. A network that goes over the stages several
// times, in segments, has several chunks on a stage. Chunks are numbered in the order of forward: first those of
// segment 0, which all stages have in their order, then those of segment 1, up or down the stages, as its cells read
// each other, and so on.
//
// The graph is that of one micro-batch: forward, loss, backward, gradients added to accumulators.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/stages/chunk_numbers.h"
#include "tessera/ir/graph.h"
#include "tessera/mesh/stage_ranks.h"
#include "tessera/pipeline/pipeline_schedule.h"

namespace tessera::compiler {

// In place of a stage's or a chunk's number: whichever needs it computes it by itself.
inline constexpr int kEveryStage = -2;

struct StageOptions {
  int num_stages = 1;
  // The accumulators of gradients, by name, with the parameters that they belong to.
  std::map<std::string, std::string> accumulators = {};
  // The accumulators of a parameter that several chunks read, by name: those of its chunks but the one that owns it,
  // the first on the lowest stage.
  struct OtherAccumulator {
    std::string of_owner;  // the owner's accumulator, by name
    int chunk = 0;
    friend bool operator==(const OtherAccumulator&, const OtherAccumulator&) = default;
  };
  std::map<std::string, OtherAccumulator> other_accumulators = {};
  // States that all stages have and change alike: the number of the step of random operators.
  std::set<std::string> common_states = {};
  // Whether what the gradient of a stage's input does not need is a phase of its own.
  bool split_backward = false;
  // Parameters that are read as gathered_name() has them: of what lies in shards a stage makes the whole once a step.
  std::set<std::string> gathered = {};
  // Whether a stage without parameters is refused, where none are `served`.
  bool require_parameters = true;
  // Parameters that stage 0 owns, whoever reads them: it keeps their optimizer's states and updates them.
  std::set<std::string> served = {};
  // Whether the ranks of all stages reach each other's parameters, as those of one host do: rows of those that are
  // served are then read where their table lies (stages/listed_lookups.h).
  bool reads_rows_in_place = false;
  // Whether each stage is planned by itself. Else stages of equally many ranks have one plan.
  bool plans_each_stage = false;

  // The kind of a stage, by which its plan is found: stages of one kind have one plan.
  int kind_of(int stage, const mesh::StageRanks& ranks) const { return plans_each_stage ? stage : ranks.count(stage); }
};

// Throws InvalidArgument where a batch is cut into fewer micro-batches than there are stages: some would always wait.
// Servers of parameters may: they compute little.
void require_micro_batches(const StageOptions& stages, int micro_batches);

struct StagePlacement {
  int num_stages = 1;
  ChunkNumbers chunks = {{0}, {0}};
  bool split_backward = false;
  std::vector<int> nodes;                   // by NodeId: the chunk, or kEveryStage
  std::vector<pipeline::PhaseKind> phases;  // by NodeId; of those of every stage: the first that may need it
  std::vector<bool> is_constant;            // by NodeId: made of nothing; every phase makes it by itself
  std::map<std::string, int> values;        // parameters and states: the stage, or kEveryStage
  // The same: a chunk of that stage that reads or writes it; the first that reads a parameter. kEveryStage: all.
  std::map<std::string, int> value_chunks = {};
  // Parameters that several stages read, with all of them in order; `values` has the first.
  std::map<std::string, std::vector<int>> shared = {};
  std::set<std::string> shared_by_chunks = {};  // parameters that several chunks read, of one stage or of several
  std::set<std::string> gathered = {};          // StageOptions::gathered
  // Accumulators that nothing is added to: a step's only micro-batch gives them their value.
  std::set<std::string> unsummed = {};
  bool reads_rows_in_place = false;  // StageOptions::reads_rows_in_place

  // Whether a result is the value of such an accumulator that its chunk has in the slot anyway, as data or as what
  // another chunk sends: the update reads it there.
  bool is_read_in_slot(const ir::Graph& graph, const ir::Output& output) const;
  int num_chunks() const { return chunks.count(); }
  int stage_of_chunk(int chunk) const { return chunk < 0 ? chunk : chunks.stages[static_cast<size_t>(chunk)]; }
  // Those of a stage, in order.
  std::vector<int> chunks_of(int stage) const;
  int chunk_of(ir::NodeId n) const { return nodes[static_cast<size_t>(n)]; }
  int stage_of(ir::NodeId n) const { return stage_of_chunk(chunk_of(n)); }
  // Which chunk makes a result that is no parameter and no state: of what all could make, the last one.
  int chunk_of_result(const ir::Graph& graph, ir::ValueId result) const;
  pipeline::PhaseKind phase_of(ir::NodeId n) const { return phases[static_cast<size_t>(n)]; }
};

// A forward node is in the chunk of the stage and segment that its cell names; without one it joins its earliest user,
// or, where nobody uses it, the last of those whose results it reads. What is made of constants alone is in every
// chunk. A gradient joins its forward node, an accumulator its parameter, a state the node that reads it. A parameter
// that several chunks read is read by all of them, on all of their stages (stages/shared_parameters.h).
//
// Throws InvalidArgument naming cell, stage and the way out: a stage that is out of range, one that reads from a later
// one or a later segment, a stage without parameters, a segment without cells, and a state that several stages read, or
// several chunks of a stage where forward changes it.
StagePlacement place_on_stages(const ir::Graph& graph, const StageOptions& options);

// The state of a step that holds what the phases read of such a parameter: "whole.fc.weight".
std::string gathered_name(const std::string& parameter);

// A value that one chunk makes and another one reads. Where both are on one stage, it is handed over there.
struct ChunkMessage {
  ir::ValueId value = ir::kNone;
  int from = 0;
  int to = 0;
  pipeline::PhaseKind made = pipeline::PhaseKind::kForward;  // the phase of `from` after which it is sent
  pipeline::PhaseKind read = pipeline::PhaseKind::kForward;  // the first phase of `to` that reads it
  bool operator==(const ChunkMessage&) const = default;
};
// All of them: by sender, its phase, receiver and value. Those of one sender's phase to one receiver are sent in this
// order.
std::vector<ChunkMessage> chunk_messages(const ir::Graph& graph, const StagePlacement& placement);

}  // namespace tessera::compiler
