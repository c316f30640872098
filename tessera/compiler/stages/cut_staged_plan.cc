#include "tessera/compiler/stages/cut_staged_plan.h"

#include <functional>
#include <string>

namespace tessera::compiler {
namespace {

// Of a graph whose inputs become states of a step: those that are this stage's.
PlannedPart part_of(const PlannedPart& whole, const std::vector<int>& ranks,
                    const std::function<bool(const std::string& input)>& is_own) {
  const ir::Graph& graph = whole.graph;
  PartBuilder builder(graph, whole.plan, ranks, graph.name());
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const auto& output = graph.outputs()[i];
    const ir::Input& input = graph.inputs()[static_cast<size_t>(graph.info(output.value).index)];
    if (!is_own(input.name)) continue;
    builder.add_input(output.value, input.kind, input.name);
    builder.add_input(graph.find_input(output.name)->value, ir::InputKind::kState, output.name);
    builder.add_output(output.name, output.value, whole.plan.outputs[i]);
  }
  return builder.finish();
}

}  // namespace

ChunkParts cut_chunk(const StagedPlan& plan, int chunk) {
  return cut_chunk(plan.micro, plan.of_chunk(chunk).micro, plan.placement, chunk,
                   plan.ranks_of(plan.placement.stage_of_chunk(chunk)));
}

std::vector<PlannedPart> cut_update(const StagedPlan& plan, int stage) {
  std::vector<std::string> names;
  for (const auto& output : plan.update.outputs()) {
    if (plan.update.find_input(output.name) == nullptr) continue;
    const int owner = plan.values.at(output.name);
    if (owner == stage || owner == kEveryStage) names.push_back(output.name);
  }
  return cut_update(plan.update, plan.of_stage(stage).update, plan.rounds, stage, names, plan.ranks_of(stage));
}

PlannedPart cut_gather(const StagedPlan& plan, int stage) {
  return part_of(plan.of_stage(stage).gather, plan.ranks_of(stage),
                 [&](const std::string& parameter) { return plan.values.at(parameter) == stage; });
}

PlannedPart cut_sums(const StagedPlan& plan, int stage) {
  return part_of(plan.of_stage(stage).sums, plan.ranks_of(stage), [&](const std::string& accumulator) {
    return plan.placement.stage_of_chunk(plan.options.other_accumulators.at(accumulator).chunk) == stage;
  });
}

}  // namespace tessera::compiler
