// PipelineBuilder: how a rank compiles its stage of a pipeline. Phases become graphs of their own, over one layout of
// persistent values, accumulators and slots; messages get their lanes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/compiler/stages/cut_chunk.h"
#include "tessera/compiler/stages/shared_parameters.h"
#include "tessera/compiler/stages/stage_messages.h"
#include "tessera/compiler/stages/staged_plan.h"
#include "tessera/session/pipelined_step.h"

namespace tessera::session {

// Private to Session::compile_stages(). Collective: every rank of the job has one at the same time.
class PipelineBuilder {
 public:
  PipelineBuilder(Session& session, compiler::StagedPlan& plan, const PipelinedOptions& options);
  // Runs the parts below, in their order. Once.
  std::unique_ptr<PipelinedStep> run();

 private:
  using Way = PipelineParts::Way;
  // Of what is of no chunk: the update, the gathering of shards.
  static constexpr int kNoChunk = -1;
  // A value that passes from stage to stage, by its names on both.
  struct Travelling {
    std::string sent;
    std::string received;
    compiler::StageMessage message;
    // Of rows that workers have added up: what is known of them. The value before is the rows' numbers.
    std::optional<CountedRows> counted = std::nullopt;
    // Of rows that are spread where they come to: `sent` names them as servers have looked them up, once each.
    struct Listed {
      std::string places;  // by name, on the sender
      Ints bounds;         // of the parts that places count in
      std::string table;
      // Where rows are read where their table lies, of which `sent` is the parameter's name then.
      struct InPlace {
        std::string numbers;  // of the rows in the table, by name, on the sender
        Shape table;
        mesh::Layout layout;  // of the table, on ranks from 0
      };
      std::optional<InPlace> in_place = std::nullopt;
    };
    std::optional<Listed> listed = std::nullopt;
  };
  struct PhaseOfChunk {
    int chunk = kNoChunk;
    compiler::ChunkPhase phase;
  };
  // The slots of a chunk.
  struct Slots {
    std::vector<compiler::SlotValue> values;
    std::map<std::string, std::string> read;    // accumulators in the slot: ChunkParts::read_in_slot
    std::map<std::string, std::string> copies;  // states that all stages have, with the names of this chunk's copies
    ir::PersistentLayout layout;                // all values as the chunk's phases see them, in the first slot
    int64_t begin = 0;
    int64_t bytes = 0;  // of one slot
  };

  // Finds the schedule, and makes the programs of all stages. Throws InvalidArgument where a rank has found others.
  void make_programs();
  // Cuts the phases of this stage out of the plan.
  void cut();
  // Adds what is done once a step, beside the update. Returns its place in phases_.
  size_t add_once(compiler::PlannedPart part);
  // All ranks compile equally many phases, because they compare what they compile: a stage that has fewer chunks than
  // another one has phases of nothing in their place.
  void add_missing();

  // This rank's piece.
  Type local_type(const Type& type, const mesh::Layout& layout) const;
  // Behind the session's own values come those that live for a step, then the slots of each chunk.
  void lay_out();
  // In a chunk after the stage's first, a state that all stages change alike has a place of its own: when a micro-batch
  // comes there, others have been in the first chunk since.
  void copy_common_states(int chunk, const compiler::ChunkPhase& phase);
  bool is_common(const std::string& name) const;
  // Whether an accumulator has its place in a slot.
  bool is_read_in_slot(const std::string& accumulator) const;
  void lay_out(int chunk, Slots& slots);
  int num_slots(int chunk) const;
  // What other stages tell between rounds of the update lies here, too, whether it is read or not.
  void add_told();

  // Compiles and prepares each phase, those of a chunk once for each slot.
  void compile_phases();
  // What a simulation counts is what there is. Only the first rank of a stage can tell: others may have fewer rows. How
  // many slots there are is the schedule's, which may be found by other times; a limit is kept here by phases as they
  // lie. What phases take is not counted alike where shards are gathered or stages have different numbers of ranks.
  void verify_memory() const;
  // Every rank makes the groups of all stages.
  void make_groups(const std::vector<compiler::Compiled>& compiled);
  // The schedule of a phase in the first slot, moved to another slot.
  ir::Schedule in_slot(ir::Schedule schedule, int chunk, int slot) const;
  // States of the session that a phase gives new values.
  void note_forward_states(int chunk, const ir::Graph& graph);

  ValuePlace place_of(const std::string& name) const;
  ValuePlace place_in_slot(int chunk, const std::string& name, int slot) const;
  std::vector<ValuePlace> places_in_slots(int chunk, const std::string& name) const;

  // Lanes between ranks of different stages. All ranks make all pairs' groups, in one order.
  void make_channels();
  // Makes that of the messages of one phase of a chunk to another chunk.
  void make_channel(std::span<const compiler::ChunkMessage> messages);
  // Makes that of what passes from stage to stage once a step.
  void make_channel(pipeline::PhaseKind made, const compiler::SharedMessage& message);
  // What is known of a value that is the rows of add_up_rows, where their numbers, the value behind, pass with it.
  std::optional<CountedRows> counted_rows(const compiler::ChunkMessage& message,
                                          const compiler::ChunkMessage* behind) const;
  // The value of a message, as both stages have it.
  Travelling travelling(const compiler::ChunkMessage& message) const;
  // What a pair of ranks sends of rows that are spread where they come to; `box`: of what is sent, as it lies on the
  // receiver's stage; `sender`: its place in its stage. Adds what of them lies here to `by_slot`.
  ListedRows listed_rows(const Travelling& value, int chunk, bool sends, const mesh::Box& box, int sender,
                         std::vector<std::vector<TensorView>>& by_slot) const;
  // Notes a value that one chunk of this stage hands over to another.
  void hand_over(const Way& way, const std::string& name);
  // The session's group of that name, made when it is asked for first.
  comm::Communicator* pair_of(const std::string& name, const std::vector<int>& ranks);
  // One lane for each pair of ranks that have something in common.
  void make_lanes(const Way& way, int from_stage, const std::vector<Travelling>& values);
  void make_lane(comm::Communicator& pair, const Way& way, int from_stage, const std::vector<Travelling>& values);

  // Finds where the step reads and writes what it looks at itself: inputs, results, accumulators.
  void find_views();
  void find_loads(int chunk, const Slots& slots);

  Session& session_;
  compiler::StagedPlan& plan_;
  const PipelinedOptions& options_;
  cluster::Context& context_;
  bool trains_;
  int stage_;
  PipelineParts parts_;
  std::vector<compiler::ChunkMessage> messages_;
  std::vector<PhaseOfChunk> phases_;
  std::map<int, Slots> slots_;  // by chunk of this stage
  ir::PersistentLayout layout_;
  std::vector<std::string> cleared_;
  compiler::CompileOptions compile_options_;
  std::optional<size_t> gather_at_;  // in phases_
  std::optional<size_t> sums_at_;
};

}  // namespace tessera::session
