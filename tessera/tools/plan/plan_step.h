// A train step with the plan that a search found for it, or that a file says, and what that costs: what all forms of
// `tessera plan` but --memory show.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/tools/arguments/train_step.h"

namespace tessera::tools {

// Every rank has all of a result, as in a training.
inline constexpr bool kWholeResults = true;

struct PlanCommand {
  StepOptions step;  // memory_limit: of a rank's arena; default: the profile's
  MachineOptions machine;
  std::string algorithm = "certified";
  int max_axes = 2;    // the most axes of the grids that are looked at, where step.mesh says none
  int rounds = 0;      // rounds of the solver for each grid; 0: SearchOptions::rounds, or as many as the timeout allows
  double timeout = 0;  // seconds from plan_step()'s call until the best that is known is taken; 0: none
  double gap = 1e-3;   // good enough: (cost - bound) / cost
  uint64_t seed = 0;
  std::string load;         // a plan's file, instead of a search
  std::string out;          // write the plan to this file
  bool simulate = false;    // also what the simulations of this plan and of data parallel say in detail
  bool full_batch = false;  // inputs lie as the plan wants them; else each rank has its part of the batch
  bool progress = false;    // whether the search says on standard error how far it is
};

struct PlannedStep {
  ir::Graph graph;  // simplified: what the plan is of
  compiler::MachineProfile profile;
  int64_t memory_limit_bytes = 0;  // 0: none
  compiler::PlanChoices choices;
  compiler::Plan plan;
  compiler::PlanCost cost;
  std::vector<compiler::OperatorName> names;   // by NodeId
  std::optional<compiler::ChosenPlan> chosen;  // absent: the plan is a file's
  // What the plan of the search by sums costs; absent where there is none.
  std::optional<compiler::PlanCost> searched;
  compiler::PlanCost data_parallel;
  // Absent where there was no time for it, or nothing shows it.
  std::optional<compiler::SimulatedPlan> simulated;
  std::optional<compiler::SimulatedPlan> data_parallel_simulated;
  bool shows_simulation = false;  // in detail
  Deadline deadline = {};         // of the command, for what is made of the plan
};

// Traces the step, chooses a plan as a training would (or loads one), counts what it costs, simulates it and writes it,
// as the command says.
// Throws InvalidArgument as step_graph, parse_profile, search and parse_plan_record do, and where the number of ranks
// is not said; IoError for files.
PlannedStep plan_step(PlanCommand command);

// The parts of it that comparisons make again.
compiler::SearchOptions search_options(const PlanCommand& command, const PlannedStep& planned);
compiler::PlanCost count(const PlannedStep& planned, const compiler::PlanChoices& choices);

// "((4,1),(1,2))": the parts of each operand's dims.
std::string strategy_text(const compiler::Plan& plan, ir::NodeId node);
// "m=x n=y": the factors that are split, each with its axes; "sum y through 0": partial sums over y that the operator
// passes through, in operand 0. Empty where nothing is split.
std::string split_text(const mesh::Mesh& mesh, const compiler::NodeChoice& choice);
// "gradient up:matmul"
std::string to_string(const compiler::OperatorName& name);

}  // namespace tessera::tools
