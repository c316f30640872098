#include "tessera/compiler/stages/cut_chunk.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/compiler/stages/listed_lookups.h"
#include "tessera/compiler/stages/planned_part.h"

namespace tessera::compiler {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Value;
using ir::ValueId;
using pipeline::PhaseKind;

class ChunkCutter {
 public:
  ChunkCutter(const Graph& graph, const Plan& plan, const StagePlacement& placement, int chunk,
              const std::vector<int>& ranks)
      : graph_(graph), plan_(plan), placement_(placement), chunk_(chunk), ranks_(ranks) {}

  ChunkParts run() {
    std::vector<PhaseKind> kinds = {PhaseKind::kForward, PhaseKind::kBackward};
    if (placement_.split_backward) kinds.push_back(PhaseKind::kWeightGradient);
    find_assigned();
    for (const PhaseKind kind : kinds) phases_.push_back(find_phase(kind));
    find_kept();
    ChunkParts parts;
    for (const Phase& phase : phases_) parts.phases.push_back({phase.kind, build(phase)});
    for (const ValueId v : in_slot_) {
      SlotValue value{slot_name(graph_, v), graph_.type(v), plan_.source_layout(v)};
      value.layout.mesh = on_ranks(value.layout.mesh, ranks_);
      const ir::Input* input = input_of(v);
      if (input != nullptr && input->kind == ir::InputKind::kInput) {
        value.is_input = true;
        value.input = input->name;
      }
      parts.slot.push_back(std::move(value));
    }
    for (const auto& output : graph_.outputs()) {
      if (is_read_in_slot(output)) parts.read_in_slot[output.name] = slot_name(graph_, output.value);
    }
    return parts;
  }

 private:
  struct Phase {
    PhaseKind kind = PhaseKind::kForward;
    std::set<NodeId> nodes;       // in the order of the graph
    std::set<ValueId> slots;      // it reads from the slot
    std::set<ValueId> direct;     // parameters and states that it reads
    std::vector<ValueId> kept;    // it leaves in the slot
    std::vector<size_t> outputs;  // of the graph: states' new values, and the loss
  };

  const ir::Input* input_of(ValueId v) const {
    const auto& info = graph_.info(v);
    return info.node == ir::kNone ? &graph_.inputs()[static_cast<size_t>(info.index)] : nullptr;
  }

  // States that forward changes: what backward reads of them is what they were.
  void find_assigned() {
    for (const auto& output : graph_.outputs()) {
      const ir::Input* input = graph_.find_input(output.name);
      if (input == nullptr || input->kind == ir::InputKind::kInput) continue;
      const NodeId producer = graph_.info(output.value).node;
      if (producer == ir::kNone || placement_.phase_of(producer) == PhaseKind::kForward) assigned_.insert(input->value);
    }
  }

  void need(Phase& phase, ValueId v) {
    const NodeId producer = graph_.info(v).node;
    if (producer == ir::kNone) {
      const bool is_data = input_of(v)->kind == ir::InputKind::kInput;
      const bool has_changed = phase.kind != PhaseKind::kForward && assigned_.contains(v);
      (is_data || has_changed ? phase.slots : phase.direct).insert(v);
      if (has_changed) {
        phases_.front().direct.insert(v);
        made_.emplace(v, PhaseKind::kForward);
      }
      return;
    }
    if (phase.nodes.contains(producer)) return;
    const int at = placement_.chunk_of(producer);
    if (at != kEveryStage) {
      phase.slots.insert(v);
      return;
    }
    if (made_.contains(v) && !placement_.is_constant[static_cast<size_t>(producer)]) {
      phase.slots.insert(v);
      return;
    }
    add_node(phase, producer);
  }

  void add_node(Phase& phase, NodeId n) {
    for (const ValueId v : graph_.node(n).inputs) need(phase, v);
    phase.nodes.insert(n);
    for (const ValueId v : graph_.node(n).outputs) made_.emplace(v, phase.kind);
  }

  Phase find_phase(PhaseKind kind) {
    Phase phase{.kind = kind};
    std::set<NodeId> left_to_receivers;
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (placement_.chunk_of(n) != chunk_ || !is_spread_on_arrival(graph_, plan_, placement_, n)) continue;
      left_to_receivers.insert({n, find_lookup_in_place(graph_, plan_, placement_, n)});
    }
    for (NodeId n = 0; n < graph_.num_nodes(); ++n) {
      if (placement_.chunk_of(n) != chunk_ || placement_.phase_of(n) != kind) continue;
      if (!left_to_receivers.contains(n)) add_node(phase, n);
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const auto& output = graph_.outputs()[i];
      if (!is_mine(output, kind)) continue;
      need(phase, output.value);
      phase.outputs.push_back(i);
    }
    return phase;
  }

  bool is_read_in_slot(const ir::Output& output) const {
    return placement_.is_read_in_slot(graph_, output) && placement_.value_chunks.at(output.name) == chunk_;
  }

  // Whether this phase of the chunk makes the output.
  bool is_mine(const ir::Output& output, PhaseKind kind) const {
    if (placement_.is_read_in_slot(graph_, output)) return false;
    const ir::Input* input = graph_.find_input(output.name);
    const NodeId producer = graph_.info(output.value).node;
    if (producer == ir::kNone) {
      // Nothing changes, but for an accumulator that gets the value of a parameter or a state.
      return kind == PhaseKind::kBackward && placement_.unsummed.contains(output.name) &&
             placement_.value_chunks.at(output.name) == chunk_;
    }
    const auto owner = input == nullptr ? placement_.value_chunks.end() : placement_.value_chunks.find(output.name);
    if (owner != placement_.value_chunks.end()) {
      if (owner->second != kEveryStage && owner->second != chunk_) return false;
    } else if (placement_.chunk_of_result(graph_, output.value) != chunk_) {
      return false;
    }
    return placement_.phase_of(producer) == kind;
  }

  void find_kept() {
    for (const Phase& phase : phases_) {
      in_slot_.insert(phase.slots.begin(), phase.slots.end());
    }
    for (const auto& output : graph_.outputs()) {
      if (is_read_in_slot(output)) in_slot_.insert(output.value);
    }
    std::set<ValueId> sent;
    for (const auto& message : chunk_messages(graph_, placement_)) {
      if (message.from != chunk_) continue;
      const NodeId producer = graph_.info(message.value).node;
      if (is_spread_on_arrival(graph_, plan_, placement_, producer)) {
        const auto& operands = graph_.node(producer).inputs;
        const NodeId lookup = find_lookup_in_place(graph_, plan_, placement_, producer);
        sent.insert({lookup == ir::kNone ? operands[0] : graph_.node(lookup).inputs[1], operands[1]});
      } else {
        sent.insert(message.value);
      }
    }
    in_slot_.insert(sent.begin(), sent.end());
    for (const ValueId v : in_slot_) {
      const auto made = made_.find(v);
      if (made == made_.end()) continue;  // received, or data
      for (Phase& phase : phases_) {
        if (phase.kind == made->second) phase.kept.push_back(v);
      }
    }
  }

  PlannedPart build(const Phase& phase) {
    // One name for all chunks: their ranks compare what they communicate in it.
    PartBuilder builder(graph_, plan_, ranks_, pipeline::to_string(phase.kind));
    for (const auto& input : graph_.inputs()) {
      if (!phase.direct.contains(input.value)) continue;
      if (placement_.gathered.contains(input.name)) {
        builder.add_input(input.value, ir::InputKind::kState, gathered_name(input.name));
      } else {
        builder.add_input(input.value, input.kind, input.name);
      }
    }
    for (const size_t i : phase.outputs) {
      const ir::Input* input = graph_.find_input(graph_.outputs()[i].name);
      if (input != nullptr && !builder.has(input->value)) builder.add_input(input->value, input->kind, input->name);
    }
    for (const ValueId v : phase.slots) builder.add_input(v, ir::InputKind::kState, slot_name(graph_, v));
    for (const NodeId n : phase.nodes) builder.add_node(n);
    for (const ValueId v : phase.kept) builder.add_kept(slot_name(graph_, v), v);
    for (const size_t i : phase.outputs) {
      const auto& output = graph_.outputs()[i];
      // Not the loss of a step, which must be finite before anything is written.
      builder.add_output(output.name == "loss" ? "micro_loss" : output.name, output.value, plan_.outputs[i]);
    }
    return builder.finish();
  }

  const Graph& graph_;
  const Plan& plan_;
  const StagePlacement& placement_;
  int chunk_;
  const std::vector<int>& ranks_;
  std::vector<Phase> phases_;
  std::set<ValueId> assigned_;
  std::map<ValueId, PhaseKind> made_;  // by value, in this chunk
  std::set<ValueId> in_slot_;
};

}  // namespace

std::string slot_name(const Graph& graph, ValueId v) {
  const auto& info = graph.info(v);
  if (info.node == ir::kNone) return "slot." + graph.inputs()[static_cast<size_t>(info.index)].name;
  return fmt::format("slot.{}", v);
}

ChunkParts cut_chunk(const Graph& graph, const Plan& plan, const StagePlacement& placement, int chunk,
                     const std::vector<int>& ranks) {
  return ChunkCutter(graph, plan, placement, chunk, ranks).run();
}

}  // namespace tessera::compiler
