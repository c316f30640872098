#include "tessera/compiler/stages/make_programs.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"

namespace tessera::compiler {
namespace {

using ir::ItemKind;
using ir::Program;
using pipeline::PhaseKind;

// The messages of one phase of a chunk to one other chunk travel together.
struct MessageGroup {
  int from = 0;
  PhaseKind made = PhaseKind::kForward;
  int to = 0;
  PhaseKind read = PhaseKind::kForward;  // the first phase that reads one of them
};

std::vector<MessageGroup> groups_of(const std::vector<ChunkMessage>& messages) {
  std::vector<MessageGroup> groups;
  for (const auto& message : messages) {
    check((message.made == PhaseKind::kForward) == (message.from < message.to),
          "activations go to later chunks, gradients to earlier ones");
    const bool goes_along = !groups.empty() && groups.back().from == message.from &&
                            groups.back().made == message.made && groups.back().to == message.to;
    if (!goes_along) {
      groups.push_back({message.from, message.made, message.to, message.read});
    } else {
      groups.back().read = std::min(groups.back().read, message.read);
    }
  }
  return groups;
}

class ProgramMaker {
 public:
  // The placement and the groups must last as long as the maker. `order`: of the stage's phases.
  ProgramMaker(int stage, const StagePlacement& placement, const std::vector<MessageGroup>& groups, int micro_batches,
               const std::vector<pipeline::TimedPhase>& order, int receive_ahead)
      : placement_(placement), groups_(groups), program_{stage, placement.num_stages, micro_batches, {}, {}} {
    std::set<PhaseKind> kinds;
    for (const auto& timed : order) {
      if (timed.phase.kind != PhaseKind::kUpdate) kinds.insert(timed.phase.kind);
    }
    kinds_.assign(kinds.begin(), kinds.end());
    for (const auto& [chunk, count] : most_in_flight(order)) {
      program_.slots[chunk] = std::min(program_.micro_batches, count + receive_ahead);
    }
    for (const auto& [chunk, slots] : program_.slots) {
      for (int k = 0; k < slots; ++k) receive(kinds_.front(), chunk, k);
    }
    for (const auto& timed : order) {
      if (timed.phase.kind != PhaseKind::kUpdate) add(timed.phase);
    }
  }

  Program run() { return std::move(program_); }

  // And what comes once a step.
  Program run_with_update(const ProgramOptions& options) {
    pass_once(options.sums, kinds_.back());
    program_.items.push_back({.kind = ItemKind::kRun, .phase = PhaseKind::kUpdate});
    pass_once(options.values, PhaseKind::kUpdate);
    return std::move(program_);
  }

 private:
  // Messages that are of all micro-batches together.
  void pass_once(const std::vector<SharedMessage>& messages, PhaseKind phase) {
    for (const auto& message : messages) {
      if (message.from == program_.stage) {
        program_.items.push_back({.kind = ItemKind::kSend, .phase = phase, .peer = message.to});
      }
    }
    for (const ItemKind kind : {ItemKind::kReceive, ItemKind::kAwait}) {
      for (const auto& message : messages) {
        if (message.to == program_.stage)
          program_.items.push_back({.kind = kind, .phase = phase, .peer = message.from});
      }
    }
  }

  void push(ItemKind kind, PhaseKind phase, int chunk, int micro_batch, int peer = -1) {
    program_.items.push_back({.kind = kind,
                              .phase = phase,
                              .micro_batch = micro_batch,
                              .slot = micro_batch % program_.slots.at(chunk),
                              .peer = placement_.stage_of_chunk(peer),
                              .chunk = chunk,
                              .peer_chunk = peer});
  }

  bool stays_here(const MessageGroup& group) const {
    return placement_.stage_of_chunk(group.from) == placement_.stage_of_chunk(group.to);
  }

  // Opens the slot for the messages that this phase reads first.
  void receive(PhaseKind kind, int chunk, int micro_batch) {
    for (const auto& group : groups_) {
      if (group.to == chunk && group.read == kind && !stays_here(group)) {
        push(ItemKind::kReceive, group.made, chunk, micro_batch, group.from);
      }
    }
  }

  void add(const pipeline::Phase& phase) {
    const auto [kind, chunk, micro_batch] = phase;
    for (const auto& group : groups_) {
      if (group.to != chunk) continue;
      if (!stays_here(group)) {
        if (group.read == kind) push(ItemKind::kAwait, group.made, chunk, micro_batch, group.from);
      } else if (group.made == PhaseKind::kForward && kind == PhaseKind::kForward) {
        // This chunk takes its slot now. The earlier one has its own until its backward, which comes after this one's,
        // but maybe not until this one's weight gradient.
        push(ItemKind::kPass, group.made, group.from, micro_batch, chunk);
      }
    }
    push(ItemKind::kRun, kind, chunk, micro_batch);
    for (const auto& group : groups_) {
      if (group.from != chunk || group.made != kind) continue;
      if (!stays_here(group)) {
        push(ItemKind::kSend, group.made, chunk, micro_batch, group.to);
      } else if (group.made != PhaseKind::kForward) {
        // The earlier chunk has its slot still; this one gives its own away, maybe before the other computes.
        push(ItemKind::kPass, group.made, chunk, micro_batch, group.to);
      }
    }
    const auto next = std::find(kinds_.begin(), kinds_.end(), kind) + 1;
    if (next != kinds_.end()) return receive(*next, chunk, micro_batch);
    const int after = micro_batch + program_.slots.at(chunk);
    if (after < program_.micro_batches) receive(kinds_.front(), chunk, after);
  }

  const StagePlacement& placement_;
  const std::vector<MessageGroup>& groups_;
  std::vector<PhaseKind> kinds_;
  Program program_;
};

void require_sound(const std::vector<Program>& programs) {
  const auto faults = ir::verify_programs(programs);
  if (faults.empty()) return;
  throw InternalError(fmt::format("the programs of a pipeline have {} fault{}:\n  {}", faults.size(),
                                  faults.size() == 1 ? "" : "s", fmt::join(faults, "\n  ")));
}

}  // namespace

std::map<int, int> most_in_flight(const std::vector<pipeline::TimedPhase>& order) {
  PhaseKind last = PhaseKind::kForward;
  for (const auto& timed : order) {
    if (timed.phase.kind != PhaseKind::kUpdate) last = std::max(last, timed.phase.kind);
  }
  std::map<int, int> now;
  std::map<int, int> most;
  for (const auto& [phase, start, end] : order) {
    if (phase.kind == PhaseKind::kForward) most[phase.chunk] = std::max(most[phase.chunk], ++now[phase.chunk]);
    if (phase.kind == last) --now[phase.chunk];
  }
  return most;
}

std::vector<Program> make_programs(const pipeline::PipelineSchedule& schedule, const StagePlacement& placement,
                                   const std::vector<ChunkMessage>& messages, const ProgramOptions& options) {
  const auto groups = groups_of(messages);
  std::vector<Program> programs;
  for (int stage = 0; stage < placement.num_stages; ++stage) {
    const auto& order = schedule.stages[static_cast<size_t>(stage)];
    programs.push_back(ProgramMaker(stage, placement, groups, options.micro_batches, order, options.receive_ahead)
                           .run_with_update(options));
  }
  require_sound(programs);
  return programs;
}

std::vector<Program> make_forward_programs(const StagePlacement& placement, const std::vector<ChunkMessage>& messages) {
  const auto groups = groups_of(messages);
  std::vector<Program> programs;
  for (int stage = 0; stage < placement.num_stages; ++stage) {
    std::vector<pipeline::TimedPhase> order;
    for (const int chunk : placement.chunks_of(stage)) order.push_back({.phase = {PhaseKind::kForward, chunk, 0}});
    programs.push_back(ProgramMaker(stage, placement, groups, 1, order, 0).run());
  }
  require_sound(programs);
  return programs;
}

}  // namespace tessera::compiler
