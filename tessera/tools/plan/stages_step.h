// `tessera plan --stages`: a train step cut into the stages of a pipeline.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tessera/tools/arguments/stages_command.h"
#include "tessera/tools/plan/plan_step.h"

namespace tessera::tools {

// What a StagesStep shows is held here, because the planner asks for it again where a cut is to be explained.
struct StagesStep {
  compiler::MachineProfile profile;
  int64_t memory_limit_bytes = 0;  // 0: none
  int num_ranks = 1;
  int64_t rows = 0;  // of the batch
  ir::Graph whole;   // the step of the whole batch, simplified
  compiler::StageSearchOptions options;
  std::unique_ptr<compiler::StagePlanner> planner;

  std::optional<compiler::PlannedStages> taken;  // absent: one stage is
  double data_parallel_seconds = 0;              // of the whole step on all ranks; infinite where it does not fit

  bool searches_ranks = false;  // how many each stage has
  // With "auto".
  bool is_auto = false;
  std::optional<PlannedStep> one_stage;  // absent where nothing fits
  std::string one_stage_fault;
  compiler::StagePlanner::Search search;
  double one_stage_seconds() const;
};

// Plans the step as the command says. With "auto" a pipeline is taken where its step is shorter than that of the plan
// of one stage by more than compiler::kWorthwhile. Throws UsageError for a file, and what plan_step() and
// compiler::StagePlanner throw.
std::unique_ptr<StagesStep> plan_stages_step(PlanCommand command, const StagesCommand& stages);

}  // namespace tessera::tools
