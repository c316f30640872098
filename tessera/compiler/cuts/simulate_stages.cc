#include "tessera/compiler/cuts/simulate_stages.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/compiler/cuts/cut_places.h"
#include "tessera/compiler/simulate.h"
#include "tessera/compiler/stages/choose_schedule.h"
#include "tessera/compiler/stages/cut_staged_plan.h"
#include "tessera/compiler/stages/make_programs.h"
#include "tessera/compiler/stages/stage_messages.h"
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
    require_micro_batches(plan_.options, options_.micro_batches);
    if (options_.schedule != "auto") return with_backward(splits_backward(options_.schedule));
    // A schedule may fit into memory with one of them only.
    auto split = tried(true);
    auto whole = tried(false);
    if (!split && !whole) {
      if (closest_) throw DoesNotFit(*closest_);
      throw InvalidArgument(fault_);
    }
    if (whole && (!split || whole->found.makespan_ns <= split->found.makespan_ns)) return std::move(*whole);
    place(true);
    return std::move(*split);
  }

 private:
  std::optional<SimulatedStages> tried(bool split) {
    try {
      return with_backward(split);
    } catch (const DoesNotFit& error) {
      if (!closest_ || error.least_limit_bytes() < closest_->least_limit_bytes()) closest_ = error;
    } catch (const InvalidArgument& error) {
      fault_ = error.what();
    }
    return std::nullopt;
  }

  void place(bool split) {
    auto options = plan_.options;
    options.split_backward = split;
    plan_.placement = place_on_stages(plan_.micro, options);
  }

  SimulatedStages with_backward(bool split) {
    place(split);
    SimulatedStages result;
    result.chunks.resize(static_cast<size_t>(plan_.placement.num_chunks()));
    for (int stage = 0; stage < plan_.num_stages(); ++stage) {
      result.stages.push_back(simulate_stage(stage, result.chunks));
    }
    options_.deadline.throw_if_over();
    count_messages(result);
    make_problem(result);
    find_in_memory(result);
    return result;
  }

  void find(SimulatedStages& result) const {
    result.found = pipeline::find_schedule(result.problem, options_.schedule, {.effort = options_.effort});
    for (auto& stage : result.stages) stage.slots_bytes = 0;
    for (const auto& order : result.found.schedule.stages) {
      for (const auto& [chunk, count] : most_in_flight(order)) {
        auto& of_chunk = result.chunks[static_cast<size_t>(chunk)];
        of_chunk.slots = std::min(options_.micro_batches, count + options_.receive_ahead);
        result.stages[static_cast<size_t>(of_chunk.stage)].slots_bytes += of_chunk.slots * of_chunk.slot_bytes;
      }
    }
  }

  // A schedule that has a name is taken as it is, where it fits so; where it does not, and where one is searched for,
  // what stages may keep is limited.
  void find_in_memory(SimulatedStages& result) {
    if (options_.memory_limit_bytes == 0) return find(result);
    std::vector<int64_t> needed;
    if (options_.schedule != "auto") {
      find(result);
      for (const auto& stage : result.stages) needed.push_back(stage.memory_bytes());
    }
    const bool fits = !needed.empty() && result.memory_bytes() <= options_.memory_limit_bytes;
    for (size_t s = 0; s < result.stages.size(); ++s) {
      int64_t& limit = result.problem.stages[s].memory_limit_bytes;
      limit = options_.memory_limit_bytes - fixed_bytes(result, s);
      if (fits) limit = std::max(limit, result.found.peak_bytes[s]);
    }
    if (fits) {
      result.found.bound = pipeline::lower_bound(result.problem);
      return;
    }
    require_slots(result, needed);
    try {
      find(result);
    } catch (const InvalidArgument& error) {
      // It can be found without a limit.
      if (!needed.empty()) throw DoesNotFit(error.what(), needed);
      throw;
    }
  }

  static int64_t one_slot_each(const SimulatedStages& result, size_t stage) {
    int64_t bytes = 0;
    for (const auto& chunk : result.chunks) bytes += chunk.stage == static_cast<int>(stage) ? chunk.slot_bytes : 0;
    return bytes;
  }
  // What is received ahead has room, too; of a single micro-batch there is nothing to receive ahead.
  int ahead() const { return std::min(options_.receive_ahead, options_.micro_batches - 1); }
  // What a stage takes whatever its schedule is.
  int64_t fixed_bytes(const SimulatedStages& result, size_t stage) const {
    const auto& of_stage = result.stages[stage];
    return of_stage.persistent_bytes + of_stage.arena_bytes + ahead() * one_slot_each(result, stage);
  }

  // Throws where a stage has no room for one micro-batch. `needed`: what is known to do, by stage; empty: nothing is.
  void require_slots(const SimulatedStages& result, std::vector<int64_t> needed) const {
    std::optional<size_t> too_large;
    std::vector<int64_t> at_least;
    for (size_t s = 0; s < result.stages.size(); ++s) {
      at_least.push_back(fixed_bytes(result, s) + one_slot_each(result, s));
      if (at_least.back() > options_.memory_limit_bytes && !too_large) too_large = s;
    }
    if (!too_large) return;
    const auto& stage = result.stages[*too_large];
    const auto message = fmt::format(
        "stage {} of {} does not fit into {} of memory on a rank: parameters and states take {}, computing {}, and "
        "each of {} micro-batches at least {}; use more stages or ranks, more micro-batches of fewer rows, or a higher "
        "memory limit",
        *too_large, result.stages.size(), format_bytes(options_.memory_limit_bytes),
        format_bytes(stage.persistent_bytes), format_bytes(stage.arena_bytes), 1 + ahead(),
        format_bytes(one_slot_each(result, *too_large)));
    throw DoesNotFit(message, needed.empty() ? std::move(at_least) : std::move(needed));
  }

  Type local_type(const Type& type, const mesh::Layout& layout) const {
    return {type.dtype, mesh::local_shape(type.shape, layout.sharding, layout.mesh, layout.mesh.ranks()[0])};
  }

  // As the ranks of the stage lay it out (session/pipeline_builder.cc).
  SimulatedStage simulate_stage(int stage, std::vector<SimulatedChunk>& chunks) {
    std::map<int, ChunkParts> cuts;
    for (const int chunk : plan_.placement.chunks_of(stage)) cuts[chunk] = cut_chunk(plan_, chunk);
    const auto update = cut_update(plan_, stage);
    const std::vector<PlannedPart> once = {cut_gather(plan_, stage), cut_sums(plan_, stage)};
    SimulatedStage result;
    ir::PersistentLayout persistent;
    add_kept(stage, persistent);
    std::set<std::string> in_slots;
    for (const auto& [chunk, cut] : cuts) {
      ir::PersistentLayout slot;
      for (const auto& value : cut.slot) slot.add(value.name, local_type(value.type, value.layout));
      for (const auto& value : cut.slot) in_slots.insert(value.name);
      for (const auto& [accumulator, value] : cut.read_in_slot) in_slots.insert(accumulator);
      auto& of_chunk = chunks[static_cast<size_t>(chunk)];
      of_chunk.stage = stage;
      of_chunk.segment = plan_.placement.chunks.segments[static_cast<size_t>(chunk)];
      of_chunk.slot_bytes = slot.bytes;
    }
    const auto add_inputs = [&](const PlannedPart& part) {
      for (const auto& input : part.graph.inputs()) {
        if (input.kind == ir::InputKind::kInput || in_slots.contains(input.name)) continue;
        if (persistent.offsets.contains(input.name)) continue;
        persistent.add(input.name, local_type(part.graph.type(input.value), part.plan.layout(input.value)));
      }
    };
    for (const auto& [chunk, cut] : cuts) {
      for (const auto& phase : cut.phases) add_inputs(phase.part);
    }
    for (const auto& round : update) add_inputs(round);
    for (const auto& part : once) add_inputs(part);
    add_told(persistent);
    for (const auto& [chunk, cut] : cuts) {
      if (chunk != cuts.begin()->first) add_copies(cut, chunk, persistent);
    }
    result.persistent_bytes = persistent.bytes;
    const auto seconds = [&](const PlannedPart& part) {
      if (part.graph.num_nodes() == 0) return 0.0;
      options_.deadline.throw_if_over();
      const auto simulation = simulate_part(part);
      for (const auto& each : simulation.classes) {
        result.arena_bytes = std::max(result.arena_bytes, each.peak_memory_bytes - each.persistent_bytes);
      }
      return simulation.step_seconds;
    };
    for (const auto& [chunk, cut] : cuts) {
      auto& of_chunk = chunks[static_cast<size_t>(chunk)];
      for (const auto& phase : cut.phases) {
        (phase.kind == PhaseKind::kForward    ? of_chunk.forward_seconds
         : phase.kind == PhaseKind::kBackward ? of_chunk.backward_seconds
                                              : of_chunk.weight_gradient_seconds) = seconds(phase.part);
      }
    }
    for (const auto& round : update) result.update_seconds += seconds(round);
    for (const auto& part : once) result.update_seconds += seconds(part);
    return result;
  }

  // What a rank of the stage keeps from step to step, whether its own phases read it or not.
  void add_kept(int stage, ir::PersistentLayout& persistent) const {
    const auto add = [&](const ir::Graph& graph, Plan SizedPlan::*part) {
      for (const auto& input : graph.inputs()) {
        if (input.kind == ir::InputKind::kInput || plan_.options.accumulators.contains(input.name)) continue;
        if (part == &SizedPlan::micro && plan_.options.gathered.contains(input.name)) continue;
        if (persistent.offsets.contains(input.name) || !is_kept(input.name, stage)) continue;
        persistent.add(input.name,
                       local_type(graph.type(input.value), (plan_.of_stage(stage).*part).layout(input.value)));
      }
    };
    add(plan_.micro, &SizedPlan::micro);
    add(plan_.update, &SizedPlan::update);
    // Those that no graph reads are kept as well; they are numbers.
    for (const auto& name : plan_.options.common_states) {
      if (!persistent.offsets.contains(name)) persistent.add(name, {DType::kI64, {}});
    }
  }
  bool is_kept(const std::string& name, int stage) const {
    const int at = plan_.values.at(name);
    if (at == kEveryStage || at == stage) return true;
    const auto shared = plan_.placement.shared.find(name);
    if (shared == plan_.placement.shared.end()) return false;
    return std::find(shared->second.begin(), shared->second.end(), stage) != shared->second.end();
  }

  // What other stages tell between rounds of the update.
  void add_told(ir::PersistentLayout& persistent) const {
    for (const auto& round : plan_.rounds.told) {
      for (const auto& [v, stage] : round) {
        const auto name = between_rounds_name(v);
        if (!persistent.offsets.contains(name)) persistent.add(name, plan_.update.type(v));
      }
    }
  }

  // A chunk's own copies of what all stages change alike.
  void add_copies(const ChunkParts& cut, int chunk, ir::PersistentLayout& persistent) const {
    for (const auto& output : cut.phases.front().part.graph.outputs()) {
      const auto at = plan_.placement.values.find(output.name);
      if (at == plan_.placement.values.end() || at->second != kEveryStage) continue;
      persistent.add(fmt::format("{} of chunk {}", output.name, chunk), persistent.types.at(output.name));
    }
  }

  Simulation simulate_part(const PlannedPart& part) const {
    static const ops::FakeKernelCatalogue of_no_machine;
    Compiled compiled;
    compiled.logical = part.graph;
    compiled.plan = part.plan;
    auto compile = options_.compile;
    compile.verification = Verification::kNone;
    compile.deadline = options_.deadline;
    const auto& kernels = options_.kernels != nullptr ? *options_.kernels : of_no_machine;
    const auto classes = schedule_classes(std::move(compiled), profile_, kernels, compile);
    return simulate(classes, profile_, options_.deadline);
  }

  // Those of one phase of a chunk to another stage's chunk travel together.
  void count_messages(SimulatedStages& result) {
    std::map<std::pair<int, int>, ChunkTraffic> traffic;
    std::map<std::tuple<int, PhaseKind, int>, int64_t> groups;
    for (const auto& message : chunk_messages(plan_.micro, plan_.placement)) {
      if (!border_of(plan_.placement, message.from, message.to)) continue;
      const int64_t bytes = busiest_bytes(message_between(plan_, message));
      auto& on_way =
          traffic.try_emplace({message.from, message.to}, ChunkTraffic{message.from, message.to}).first->second;
      on_way.bytes += bytes;
      auto [group, is_new] = groups.try_emplace({message.from, message.made, message.to}, 0);
      group->second += bytes;
      if (is_new) ++on_way.messages;
    }
    for (const auto& [way, on_way] : traffic) result.traffic.push_back(on_way);
    result.problem.borders.resize(static_cast<size_t>(plan_.placement.num_chunks() - 1));
    for (const auto& [group, bytes] : groups) {
      const auto [from, made, to] = group;
      const Link& link =
          link_between(profile_, plan_.ranks, plan_.placement.stage_of_chunk(from), plan_.placement.stage_of_chunk(to));
      // What skips chunks is counted at the last border that it passes.
      auto& border = result.problem.borders[static_cast<size_t>(*border_of(plan_.placement, from, to))];
      auto& time = from < to ? border.forward : border.backward;
      time.latency_ns = std::max(time.latency_ns, nanoseconds(link.latency_seconds));
      time.duration_ns += nanoseconds(static_cast<double>(bytes) / link.bytes_per_second);
    }
  }

  void make_problem(SimulatedStages& result) {
    auto& problem = result.problem;
    problem.micro_batches = options_.micro_batches;
    problem.split_backward = plan_.placement.split_backward;
    for (const auto& stage : result.stages) {
      problem.stages.push_back({.update_ns = nanoseconds(stage.update_seconds)});
    }
    for (const auto& chunk : result.chunks) {
      // A slot is one micro-batch's until all of its phases are done.
      problem.chunks.push_back(
          {.stage = chunk.stage,
           .forward_ns = nanoseconds(chunk.forward_seconds),
           .backward_ns = nanoseconds(chunk.backward_seconds),
           .weight_gradient_ns = problem.split_backward ? nanoseconds(chunk.weight_gradient_seconds) : 0,
           .activation_bytes = chunk.slot_bytes,
           .weight_gradient_bytes = problem.split_backward ? chunk.slot_bytes : 0});
    }
  }

  StagedPlan& plan_;
  const MachineProfile& profile_;
  const StageSimulationOptions& options_;
  std::optional<DoesNotFit> closest_;  // of the ways of the backward that were tried
  std::string fault_;
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
