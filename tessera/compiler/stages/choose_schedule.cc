#include "tessera/compiler/stages/choose_schedule.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/compiler/cost/operator_time.h"
#include "tessera/compiler/stages/stage_messages.h"
#include "tessera/pipeline/search/named.h"

namespace tessera::compiler {
namespace {

using ir::NodeId;
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

}  // namespace tessera::compiler
