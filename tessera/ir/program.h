// Program: what a rank of a pipeline does in one training step: phases of micro-batches one after the other, and what
// it sends to other stages and receives from them beside that. All ranks of a stage have the same one.
//
// A stage has one chunk of the network or several. In each of them a micro-batch has a slot, memory for what its phases
// leave to each other and for what is received for it, from the first item that names it until its last phase there has
// run; the next micro-batch of the slot takes it then, once what is sent from it has left. Messages from one phase of a
// chunk to a chunk of another stage travel in the order of micro-batches; to one of the same stage they are copied.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/pipeline/pipeline_schedule.h"

namespace tessera::ir {

enum class ItemKind {
  kReceive,  // from here on messages may arrive in the slot
  kAwait,    // waits until those have arrived
  kRun,      // runs a phase
  kSend,     // from here on messages leave the slot
  kPass      // copies messages to the slot of another chunk of this stage
};

struct ProgramItem {
  ItemKind kind = ItemKind::kRun;
  // What runs; of a message: the phase that made it.
  pipeline::PhaseKind phase = pipeline::PhaseKind::kForward;
  // -1: an update; a message of all micro-batches together: before the update what their phases have added up for a
  // parameter of both stages, after it that parameter's new value.
  int micro_batch = -1;
  int slot = -1;
  int peer = -1;  // the stage at the other end of a message
  // Which chunk of this stage it is, and which of the peer's. -1: of an item without micro-batch, or without peer.
  int chunk = -1;
  int peer_chunk = -1;
  bool operator==(const ProgramItem&) const = default;
};

struct Program {
  int stage = 0;
  int num_stages = 1;
  int micro_batches = 1;
  std::map<int, int> slots;  // by chunk of this stage: how many
  std::vector<ProgramItem> items;
  bool operator==(const Program&) const = default;
};

// One line an item; parse_program(print(program)) == program. The chunk is named where its number is not that of its
// stage: "run forward c3 m0 slot 0", "send forward c3 m0 slot 0 to stage 2 c4".
//   program of stage 1 of 2: 4 micro-batches in 2 slots
//     receive forward m0 slot 0 from stage 0
//     await forward m0 slot 0 from stage 0
//     run forward m0 slot 0
//     run backward m0 slot 0
//     send backward m0 slot 0 to stage 0
//     send backward to stage 0
//     run update
//     receive update from stage 0
//     await update from stage 0
// With several chunks: "program of stage 1 of 2: 4 micro-batches in 2 slots, c3 in 3 slots".
std::string print(const Program& program);
// Throws InvalidArgument naming the line that is not of that form.
Program parse_program(std::string_view text);

// What is wrong with the programs of all stages, in their order: a phase that is missing, comes twice or too early, a
// slot of two micro-batches, a message that one end knows only or that is passed from or to a slot that is another
// micro-batch's, or stages that wait for each other for ever, however fast they are. Empty: nothing.
std::vector<std::string> verify_programs(std::span<const Program> programs);

}  // namespace tessera::ir
