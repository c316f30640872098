#include "tessera/compiler/stages/make_programs.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tessera/base/error.h"
#include "tessera/compiler/cost/operator_time.h"

namespace tessera::compiler {
namespace {

using ir::ItemKind;
using ir::NodeId;
using ir::Program;
using ir::ValueId;
using pipeline::PhaseKind;

// FindOptions::effort of a step: less than the search's own, because every rank waits for it when training begins.
constexpr int64_t kEffort = 200'000;

// Of the first rank of any stage.
Type local_type(const StagedPlan& plan, ValueId v, const mesh::Layout& layout) {
  const Type& type = plan.micro.graph.type(v);
  return {type.dtype, mesh::local_shape(type.shape, layout.sharding, layout.mesh, layout.mesh.ranks()[0])};
}

double node_seconds(const StagedPlan& plan, NodeId n, const MachineProfile& profile) {
  const ir::Node& node = plan.micro.graph.node(n);
  std::vector<Type> inputs;
  std::vector<Type> outputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    inputs.push_back(local_type(plan, node.inputs[i], plan.micro.plan.operand_layout(n, i)));
  }
  for (const ValueId v : node.outputs) outputs.push_back(local_type(plan, v, plan.micro.plan.layout(v)));
  return operator_seconds(node.op, node.attributes, inputs, outputs, profile);
}

// The values that pass from phase to phase of a stage: those that its later phases read of its earlier ones.
std::vector<int64_t> kept_bytes(const StagedPlan& plan) {
  std::set<std::pair<int, ValueId>> kept;
  const auto& graph = plan.micro.graph;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    const int stage = plan.placement.stage_of(n);
    if (stage == kEveryStage) continue;
    for (const ValueId v : graph.node(n).inputs) {
      const NodeId producer = graph.info(v).node;
      if (producer == ir::kNone) continue;
      const bool is_kept = plan.placement.stage_of(producer) == kEveryStage
                               ? !plan.placement.is_constant[static_cast<size_t>(producer)]
                               : plan.placement.phase_of(producer) != plan.placement.phase_of(n) ||
                                     plan.placement.stage_of(producer) != stage;
      if (is_kept) kept.emplace(stage, v);
    }
  }
  std::vector<int64_t> bytes(static_cast<size_t>(plan.num_stages()));
  for (const auto& [stage, v] : kept) {
    bytes[static_cast<size_t>(stage)] += local_type(plan, v, plan.micro.plan.source_layout(v)).size_bytes();
  }
  return bytes;
}

// The messages of one phase of a stage to one other stage travel together.
struct MessageGroup {
  int from = 0;
  PhaseKind made = PhaseKind::kForward;
  int to = 0;
  PhaseKind read = PhaseKind::kForward;  // the first phase that reads one of them
};

std::vector<MessageGroup> groups_of(const std::vector<StageMessage>& messages) {
  std::vector<MessageGroup> groups;
  for (const auto& message : messages) {
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
  ProgramMaker(int stage, int num_stages, const std::vector<MessageGroup>& groups, int micro_batches)
      : groups_(groups), program_{stage, num_stages, micro_batches, 1, {}} {}

  Program run(const std::vector<pipeline::Phase>& order, int receive_ahead) {
    add_phases(order, receive_ahead);
    return std::move(program_);
  }

  // And what comes once a step.
  Program run_with_update(const std::vector<pipeline::Phase>& order, const ProgramOptions& options) {
    add_phases(order, options.receive_ahead);
    pass(options.sums, kinds_.back());
    program_.items.push_back({.kind = ItemKind::kRun, .phase = PhaseKind::kUpdate});
    pass(options.values, PhaseKind::kUpdate);
    return std::move(program_);
  }

 private:
  void add_phases(const std::vector<pipeline::Phase>& order, int receive_ahead) {
    std::set<PhaseKind> kinds;
    for (const auto& phase : order) {
      if (phase.kind != PhaseKind::kUpdate) kinds.insert(phase.kind);
    }
    kinds_.assign(kinds.begin(), kinds.end());
    program_.slots = std::min(program_.micro_batches, in_flight(order) + receive_ahead);
    for (int k = 0; k < program_.slots; ++k) receive(kinds_.front(), k);
    for (const auto& phase : order) {
      if (phase.kind != PhaseKind::kUpdate) add(phase.kind, phase.micro_batch);
    }
  }

  // The most micro-batches that have begun and not ended.
  int in_flight(const std::vector<pipeline::Phase>& order) const {
    int now = 0;
    int most = 1;
    for (const auto& phase : order) {
      if (phase.kind == kinds_.front()) most = std::max(most, ++now);
      if (phase.kind == kinds_.back()) --now;
    }
    return most;
  }

  // Messages that are of all micro-batches together.
  void pass(const std::vector<SharedMessage>& messages, PhaseKind phase) {
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

  void push(ItemKind kind, PhaseKind phase, int micro_batch, int peer = -1) {
    program_.items.push_back({kind, phase, micro_batch, micro_batch % program_.slots, peer});
  }

  // Opens the slot for the messages that this phase reads first.
  void receive(PhaseKind kind, int micro_batch) {
    for (const auto& group : groups_) {
      if (group.to == program_.stage && group.read == kind)
        push(ItemKind::kReceive, group.made, micro_batch, group.from);
    }
  }

  void add(PhaseKind kind, int micro_batch) {
    for (const auto& group : groups_) {
      if (group.to == program_.stage && group.read == kind) push(ItemKind::kAwait, group.made, micro_batch, group.from);
    }
    push(ItemKind::kRun, kind, micro_batch);
    for (const auto& group : groups_) {
      if (group.from == program_.stage && group.made == kind) push(ItemKind::kSend, group.made, micro_batch, group.to);
    }
    const auto next = std::find(kinds_.begin(), kinds_.end(), kind) + 1;
    if (next != kinds_.end()) return receive(*next, micro_batch);
    const int after = micro_batch + program_.slots;
    if (after < program_.micro_batches) receive(kinds_.front(), after);
  }

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

int64_t nanoseconds(double seconds) { return std::max<int64_t>(1, std::llround(seconds * 1e9)); }

pipeline::PipelineProblem pipeline_problem(const StagedPlan& plan, int micro_batches, const MachineProfile& profile) {
  struct Seconds {
    double forward = 0;
    double backward = 0;
    double weight_gradient = 0;
  };
  std::vector<Seconds> seconds(static_cast<size_t>(plan.num_stages()));
  for (NodeId n = 0; n < plan.micro.graph.num_nodes(); ++n) {
    const int stage = plan.placement.stage_of(n);
    if (stage == kEveryStage) continue;
    auto& of_stage = seconds[static_cast<size_t>(stage)];
    const PhaseKind kind = plan.placement.phase_of(n);
    double& sum = kind == PhaseKind::kForward    ? of_stage.forward
                  : kind == PhaseKind::kBackward ? of_stage.backward
                                                 : of_stage.weight_gradient;
    sum += node_seconds(plan, n, profile);
  }
  const auto kept = kept_bytes(plan);
  pipeline::PipelineProblem problem;
  problem.micro_batches = micro_batches;
  problem.split_backward = plan.placement.split_backward;
  for (int stage = 0; stage < plan.num_stages(); ++stage) {
    const auto& of_stage = seconds[static_cast<size_t>(stage)];
    problem.stages.push_back({});
    problem.chunks.push_back({.stage = stage,
                              .forward_ns = nanoseconds(of_stage.forward),
                              .backward_ns = nanoseconds(of_stage.backward),
                              .weight_gradient_ns = problem.split_backward ? nanoseconds(of_stage.weight_gradient) : 0,
                              .activation_bytes = kept[static_cast<size_t>(stage)],
                              .weight_gradient_bytes = problem.split_backward ? kept[static_cast<size_t>(stage)] : 0});
  }
  problem.borders.resize(static_cast<size_t>(plan.num_stages() - 1));
  const Link& link = profile.intra_host;
  for (const auto& message : stage_messages(plan.micro.graph, plan.placement)) {
    const int64_t bytes = local_type(plan, message.value, plan.micro.plan.source_layout(message.value)).size_bytes();
    auto& border = problem.borders[static_cast<size_t>(std::min(message.from, message.to))];
    auto& time = message.from < message.to ? border.forward : border.backward;
    time.latency_ns = nanoseconds(link.latency_seconds);
    time.duration_ns += nanoseconds(static_cast<double>(bytes) / link.bytes_per_second);
  }
  return problem;
}

ChosenSchedule choose_schedule(StagedPlan& plan, int micro_batches, const std::string& name,
                               const MachineProfile& profile) {
  require_micro_batches(plan.num_stages(), micro_batches);
  const auto place = [&](bool split) {
    auto options = plan.options;
    options.split_backward = split;
    plan.placement = place_on_stages(plan.micro.graph, options);
  };
  const auto find = [&](bool split) -> ChosenSchedule {
    place(split);
    return {pipeline::find_schedule(pipeline_problem(plan, micro_batches, profile), name, {.effort = kEffort}), split};
  };
  if (name != "auto") return find(name.starts_with("zb_"));
  auto split = find(true);
  auto whole = find(false);
  if (whole.found.makespan_ns <= split.found.makespan_ns) return whole;
  place(true);
  return split;
}

std::vector<Program> make_programs(const pipeline::PipelineSchedule& schedule,
                                   const std::vector<StageMessage>& messages, const ProgramOptions& options) {
  const auto groups = groups_of(messages);
  const int num_stages = static_cast<int>(schedule.stages.size());
  std::vector<Program> programs;
  for (int stage = 0; stage < num_stages; ++stage) {
    std::vector<pipeline::Phase> order;
    for (const auto& timed : schedule.stages[static_cast<size_t>(stage)]) order.push_back(timed.phase);
    programs.push_back(ProgramMaker(stage, num_stages, groups, options.micro_batches).run_with_update(order, options));
  }
  require_sound(programs);
  return programs;
}

std::vector<Program> make_forward_programs(int num_stages, const std::vector<StageMessage>& messages) {
  const auto groups = groups_of(messages);
  const std::vector<pipeline::Phase> order = {{PhaseKind::kForward, 0, 0}};
  std::vector<Program> programs;
  for (int stage = 0; stage < num_stages; ++stage) {
    programs.push_back(ProgramMaker(stage, num_stages, groups, 1).run(order, 0));
  }
  require_sound(programs);
  return programs;
}

}  // namespace tessera::compiler
