#include "tessera/compiler/stages/simulate_stages.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/simulate.h"
#include "tessera/compiler/stages/cut_places.h"
#include "tessera/compiler/stages/make_programs.h"
#include "tessera/compiler/stages/update_rounds.h"
#include "tessera/ops/kernel_catalogue.h"

namespace tessera::compiler {
namespace {

using pipeline::PhaseKind;

class StageSimulator {
 public:
  StageSimulator(StagedPlan& plan, const MachineProfile& profile, const StageSimulationOptions& options)
      : plan_(plan), profile_(profile), options_(options) {}

  SimulatedStages run() {
    require_micro_batches(plan_.num_stages(), options_.micro_batches);
    if (options_.schedule != "auto") return with_backward(options_.schedule.starts_with("zb_"));
    // A schedule may fit into memory with one of them only.
    std::string fault;
    auto split = tried(true, fault);
    auto whole = tried(false, fault);
    if (!split && !whole) throw InvalidArgument(fault);
    if (whole && (!split || whole->found.makespan_ns <= split->found.makespan_ns)) return std::move(*whole);
    place(true);
    return std::move(*split);
  }

 private:
  std::optional<SimulatedStages> tried(bool split, std::string& fault) {
    try {
      return with_backward(split);
    } catch (const InvalidArgument& error) {
      fault = error.what();
      return std::nullopt;
    }
  }

  void place(bool split) {
    auto options = plan_.options;
    options.split_backward = split;
    plan_.placement = place_on_stages(plan_.micro.graph, options);
  }

  SimulatedStages with_backward(bool split) {
    place(split);
    SimulatedStages result;
    for (int stage = 0; stage < plan_.num_stages(); ++stage) result.stages.push_back(simulate_stage(stage));
    count_messages(result);
    make_problem(result);
    result.found = pipeline::find_schedule(result.problem, options_.schedule, {.effort = options_.effort});
    for (size_t s = 0; s < result.stages.size(); ++s) {
      auto& stage = result.stages[s];
      const int64_t in_flight = stage.slot_bytes == 0 ? 1 : result.found.peak_bytes[s] / stage.slot_bytes;
      stage.slots = static_cast<int>(std::min<int64_t>(options_.micro_batches, in_flight + options_.receive_ahead));
    }
    return result;
  }

  Type local_type(const Type& type, const mesh::Layout& layout) const {
    return {type.dtype, mesh::local_shape(type.shape, layout.sharding, layout.mesh, layout.mesh.ranks()[0])};
  }

  // As the ranks of the stage lay it out (session/pipeline_builder.cc).
  SimulatedStage simulate_stage(int stage) {
    const auto ranks = plan_.ranks_of(stage);
    auto cut = cut_stage(plan_.micro.graph, plan_.micro.plan, plan_.placement, stage, ranks);
    const auto update =
        cut_update(plan_.update.graph, plan_.update.plan, plan_.rounds, stage, update_outputs(plan_, stage), ranks);
    const auto gather = cut_gather(plan_, stage);
    SimulatedStage result;
    ir::PersistentLayout persistent;
    ir::PersistentLayout slot;
    for (const auto& value : cut.slot) slot.add(value.name, local_type(value.type, value.layout));
    const auto add_inputs = [&](const PlannedPart& part) {
      for (const auto& input : part.graph.inputs()) {
        if (input.kind == ir::InputKind::kInput || slot.offsets.contains(input.name)) continue;
        if (persistent.offsets.contains(input.name)) continue;
        persistent.add(input.name, local_type(part.graph.type(input.value), part.plan.layout(input.value)));
      }
    };
    for (const auto& phase : cut.phases) add_inputs(phase.part);
    for (const auto& round : update) add_inputs(round);
    add_inputs(gather);
    result.persistent_bytes = persistent.bytes;
    result.slot_bytes = slot.bytes;
    const auto seconds = [&](const PlannedPart& part) {
      if (part.graph.num_nodes() == 0) return 0.0;
      options_.deadline.throw_if_over();
      const auto simulation = simulate_part(part);
      for (const auto& each : simulation.classes) {
        result.arena_bytes = std::max(result.arena_bytes, each.peak_memory_bytes - each.persistent_bytes);
      }
      return simulation.step_seconds;
    };
    for (const auto& phase : cut.phases) {
      (phase.kind == PhaseKind::kForward    ? result.forward_seconds
       : phase.kind == PhaseKind::kBackward ? result.backward_seconds
                                            : result.weight_gradient_seconds) = seconds(phase.part);
    }
    for (const auto& round : update) result.update_seconds += seconds(round);
    result.update_seconds += seconds(gather);  // once a step as well
    return result;
  }

  Simulation simulate_part(const PlannedPart& part) const {
    static const ops::FakeKernelCatalogue catalogue;
    Compiled compiled;
    compiled.logical = part.graph;
    compiled.plan = part.plan;
    const auto classes = schedule_classes(std::move(compiled), profile_, catalogue,
                                          {.verification = Verification::kNone, .deadline = options_.deadline});
    return simulate(classes, profile_, options_.deadline);
  }

  // Those of one phase of a stage to another stage travel together.
  void count_messages(SimulatedStages& result) {
    std::map<std::pair<int, int>, StageTraffic> traffic;
    std::map<std::tuple<int, PhaseKind, int>, int64_t> groups;
    for (const auto& message : stage_messages(plan_.micro.graph, plan_.placement)) {
      const auto type =
          local_type(plan_.micro.graph.type(message.value), plan_.micro.plan.source_layout(message.value));
      auto& on_way =
          traffic.try_emplace({message.from, message.to}, StageTraffic{message.from, message.to}).first->second;
      on_way.bytes += type.size_bytes();
      auto [group, is_new] = groups.try_emplace({message.from, message.made, message.to}, 0);
      group->second += type.size_bytes();
      if (is_new) ++on_way.messages;
    }
    for (const auto& [way, on_way] : traffic) result.traffic.push_back(on_way);
    result.problem.borders.resize(static_cast<size_t>(plan_.num_stages() - 1));
    for (const auto& [group, bytes] : groups) {
      const auto [from, made, to] = group;
      const Link& link = link_between(profile_, plan_.ranks_per_stage(), from, to);
      // What skips stages is counted at the last border that it passes.
      auto& border = result.problem.borders[static_cast<size_t>(from < to ? to - 1 : to)];
      auto& time = from < to ? border.forward : border.backward;
      time.latency_ns = std::max(time.latency_ns, nanoseconds(link.latency_seconds));
      time.duration_ns += nanoseconds(static_cast<double>(bytes) / link.bytes_per_second);
    }
  }

  void make_problem(SimulatedStages& result) {
    auto& problem = result.problem;
    problem.micro_batches = options_.micro_batches;
    problem.split_backward = plan_.placement.split_backward;
    for (size_t s = 0; s < result.stages.size(); ++s) {
      const auto& stage = result.stages[s];
      pipeline::PipelineStage of_stage{.update_ns = nanoseconds(stage.update_seconds)};
      if (options_.memory_limit_bytes > 0) {
        // What is received ahead has room, too; of a single micro-batch there is nothing to receive ahead.
        const int64_t ahead = std::min(options_.receive_ahead, options_.micro_batches - 1) * stage.slot_bytes;
        of_stage.memory_limit_bytes = options_.memory_limit_bytes - stage.persistent_bytes - stage.arena_bytes - ahead;
        if (of_stage.memory_limit_bytes < stage.slot_bytes) {
          throw InvalidArgument(
              "stage {} of {} does not fit into {} of memory on a rank: parameters and states take {}, computing {}, "
              "and each of {} micro-batches at least {}; use more stages or ranks, more micro-batches of fewer rows, "
              "or a higher memory limit",
              s, result.stages.size(), format_bytes(options_.memory_limit_bytes), format_bytes(stage.persistent_bytes),
              format_bytes(stage.arena_bytes), 1 + ahead / std::max<int64_t>(stage.slot_bytes, 1),
              format_bytes(stage.slot_bytes));
        }
      }
      problem.stages.push_back(of_stage);
      // A slot is one micro-batch's until all of its phases are done.
      problem.chunks.push_back(
          {.stage = static_cast<int>(s),
           .forward_ns = nanoseconds(stage.forward_seconds),
           .backward_ns = nanoseconds(stage.backward_seconds),
           .weight_gradient_ns = problem.split_backward ? nanoseconds(stage.weight_gradient_seconds) : 0,
           .activation_bytes = stage.slot_bytes,
           .weight_gradient_bytes = problem.split_backward ? stage.slot_bytes : 0});
    }
  }

  StagedPlan& plan_;
  const MachineProfile& profile_;
  const StageSimulationOptions& options_;
};

}  // namespace

int64_t SimulatedStages::memory_bytes() const {
  int64_t most = 0;
  for (const auto& stage : stages) most = std::max(most, stage.memory_bytes());
  return most;
}

SimulatedStages simulate_stages(StagedPlan& plan, const MachineProfile& profile,
                                const StageSimulationOptions& options) {
  return StageSimulator(plan, profile, options).run();
}

}  // namespace tessera::compiler
