#include "tessera/compiler/stages/make_programs.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tessera/base/error.h"
#include "tessera/compiler/cost/operator_time.h"
#include "tessera/compiler/stages/stage_messages.h"
#include "tessera/pipeline/search/named.h"

namespace tessera::compiler {
namespace {

using ir::ItemKind;
using ir::NodeId;
using ir::Program;
using ir::ValueId;
using pipeline::PhaseKind;

// FindOptions::effort of a step: less than the search's own, because every rank waits for it when training begins.
constexpr int64_t kEffort = 200'000;

// Of the first of the layout's ranks.
Type local_type(const StagedPlan& plan, ValueId v, const mesh::Layout& layout) {
  const Type& type = plan.micro.type(v);
  return {type.dtype, mesh::local_shape(type.shape, layout.sharding, layout.mesh, layout.mesh.ranks()[0])};
}

double node_seconds(const StagedPlan& plan, NodeId n, const MachineProfile& profile) {
  const ir::Node& node = plan.micro.node(n);
  const Plan& micro = plan.of_chunk(plan.placement.chunk_of(n)).micro;
  std::vector<Type> inputs;
  std::vector<Type> outputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(local_type(plan, node.inputs[i], micro.operand_layout(n, i)));
  }
  for (const ValueId v : node.outputs) outputs.push_back(local_type(plan, v, micro.layout(v)));
  return operator_seconds(node.op, node.attributes, inputs, outputs, profile);
}

// The values that pass from phase to phase of a chunk: those that its later phases read of its earlier ones.
std::vector<int64_t> kept_bytes(const StagedPlan& plan) {
  std::set<std::pair<int, ValueId>> kept;
  const auto& graph = plan.micro;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const int chunk = plan.placement.chunk_of(n);
    if (chunk == kEveryStage) continue;
    for (const ValueId v : graph.node(n).inputs) {
      const NodeId producer = graph.info(v).node;
      if (producer == ir::kNone) continue;
      const bool is_kept = plan.placement.chunk_of(producer) == kEveryStage
                               ? !plan.placement.is_constant[static_cast<size_t>(producer)]
                               : plan.placement.phase_of(producer) != plan.placement.phase_of(n) ||
                                     plan.placement.chunk_of(producer) != chunk;
      if (is_kept) kept.emplace(chunk, v);
    }
  }
  std::vector<int64_t> bytes(static_cast<size_t>(plan.placement.num_chunks()));
  for (const auto& [chunk, v] : kept) {
    bytes[static_cast<size_t>(chunk)] += local_type(plan, v, plan.of_chunk(chunk).micro.source_layout(v)).size_bytes();
  }
  return bytes;
}

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

// What the scheduler calls chunks, cells name.
void require_fit(const pipeline::PipelineProblem& problem, const std::string& schedule) {
  const auto why = pipeline::misfit(problem, schedule);
  if (why.empty()) return;
  throw InvalidArgument(
      "pipeline schedule \"{}\": {} (cells name the stage and the segment of their chunk: set_stage(stage, segment))",
      schedule, why);
}

}  // namespace

int64_t nanoseconds(double seconds) { return std::max<int64_t>(1, std::llround(seconds * 1e9)); }

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

std::optional<int> border_of(const StagePlacement& placement, int from, int to) {
  if (placement.stage_of_chunk(from) == placement.stage_of_chunk(to)) return std::nullopt;
  const int step = from < to ? 1 : -1;
  // The chunk before the last one, seen from the sender.
  int last = to - step;
  while (placement.stage_of_chunk(last) == placement.stage_of_chunk(to)) last -= step;
  return from < to ? last : last - 1;
}

bool splits_backward(const std::string& schedule) { return schedule.starts_with("zb_"); }

pipeline::PipelineProblem pipeline_problem(const StagedPlan& plan, int micro_batches, const MachineProfile& profile) {
  struct Seconds {
    double forward = 0;
    double backward = 0;
    double weight_gradient = 0;
  };
  const auto& placement = plan.placement;
  std::vector<Seconds> seconds(static_cast<size_t>(placement.num_chunks()));
  for (NodeId n = 0; n < plan.micro.num_nodes(); ++n) {
    const int chunk = placement.chunk_of(n);
    if (chunk == kEveryStage) continue;
    auto& of_chunk = seconds[static_cast<size_t>(chunk)];
    const PhaseKind kind = placement.phase_of(n);
    double& sum = kind == PhaseKind::kForward    ? of_chunk.forward
                  : kind == PhaseKind::kBackward ? of_chunk.backward
                                                 : of_chunk.weight_gradient;
    sum += node_seconds(plan, n, profile);
  }
  const auto kept = kept_bytes(plan);
  pipeline::PipelineProblem problem;
  problem.micro_batches = micro_batches;
  problem.split_backward = placement.split_backward;
  problem.stages.resize(static_cast<size_t>(plan.num_stages()));
  for (int chunk = 0; chunk < placement.num_chunks(); ++chunk) {
    const auto& of_chunk = seconds[static_cast<size_t>(chunk)];
    problem.chunks.push_back({.stage = placement.stage_of_chunk(chunk),
                              .forward_ns = nanoseconds(of_chunk.forward),
                              .backward_ns = nanoseconds(of_chunk.backward),
                              .weight_gradient_ns = problem.split_backward ? nanoseconds(of_chunk.weight_gradient) : 0,
                              .activation_bytes = kept[static_cast<size_t>(chunk)],
                              .weight_gradient_bytes = problem.split_backward ? kept[static_cast<size_t>(chunk)] : 0});
  }
  problem.borders.resize(problem.chunks.size() - 1);
  const Link& link = profile.intra_host;
  for (const auto& message : chunk_messages(plan.micro, placement)) {
    const auto border = border_of(placement, message.from, message.to);
    if (!border) continue;
    const int64_t bytes = busiest_bytes(message_between(plan, message));
    auto& at = problem.borders[static_cast<size_t>(*border)];
    auto& time = message.from < message.to ? at.forward : at.backward;
    time.latency_ns = nanoseconds(link.latency_seconds);
    time.duration_ns += nanoseconds(static_cast<double>(bytes) / link.bytes_per_second);
  }
  return problem;
}

ChosenSchedule choose_schedule(StagedPlan& plan, int micro_batches, const std::string& name,
                               const MachineProfile& profile) {
  require_micro_batches(plan.options, micro_batches);
  const auto place = [&](bool split) {
    auto options = plan.options;
    options.split_backward = split;
    plan.placement = place_on_stages(plan.micro, options);
  };
  const auto find = [&](bool split) -> ChosenSchedule {
    place(split);
    const auto problem = pipeline_problem(plan, micro_batches, profile);
    if (name != "auto") require_fit(problem, name);
    return {pipeline::find_schedule(problem, name, {.effort = kEffort}), split};
  };
  if (name != "auto") return find(splits_backward(name));
  auto split = find(true);
  auto whole = find(false);
  if (whole.found.makespan_ns <= split.found.makespan_ns) return whole;
  place(true);
  return split;
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
