// StagedPlan: a training step of a pipeline as all ranks know it: the graph of one micro-batch and that of the update,
// which stage computes what, and how everything is split within a stage. Made once; a rank then cuts its own part out
// of it (stages/cut.h).
#pragma once

#include <string>
#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/compiler/stages/cut.h"
#include "tessera/compiler/stages/stage_placement.h"
#include "tessera/compiler/stages/update_rounds.h"

namespace tessera::compiler {

struct StagedPlan {
  // The graph of one micro-batch, and its plan on the ranks 0 to n-1 of any stage.
  PlannedPart micro;
  StagePlacement placement;
  // Parameters that lie in optimizer shards, made whole for the phases; no inputs where there are none.
  PlannedPart gather;
  // As the micro-batch would be planned if it gathered them: what is recorded of the strategies.
  PlannedPart with_shards;
  // What the stages were made with, and the accumulators of the parameters that several stages have.
  StageOptions options = {};
  // From accumulators to the optimizer; no nodes where nothing is trained.
  PlannedPart update;
  UpdateRounds rounds = {};           // of the update
  std::map<std::string, int> values;  // parameters and states of both: the stage, the first of several, or kEveryStage

  int num_stages() const { return placement.num_stages; }
  int ranks_per_stage() const { return static_cast<int>(micro.plan.ranks().size()); }
  std::vector<int> ranks_of(int stage) const;
  // How parameters and states lie on the ranks of their stages; those of every stage, replicated, are left out.
  // What is named as an accumulator lies in memory of the step. A parameter of several stages has a first axis of them.
  ShardingHints layouts() const;
};

// Makes the plans of both graphs, on a mesh of the ranks of a stage. `update` may be null. Throws InvalidArgument as
// place_on_stages(), place_update() and propagate() do.
StagedPlan plan_stages(const ir::Graph& micro, const ir::Graph* update, const mesh::Mesh& mesh,
                       const ShardingHints& hints, const StageOptions& stages, const CompileOptions& options);

// The parameters of this stage that lie in shards, made whole.
PlannedPart cut_gather(const StagedPlan& plan, int stage);

// The update's results that this stage makes: new values of its parameters and states, and of those of every stage.
std::vector<std::string> update_outputs(const StagedPlan& plan, int stage);

// How a stage of them has a value: its layout on the ranks of the first of them, less the axis of the stages.
mesh::Layout without_stages(const mesh::Layout& layout, int ranks_per_stage);

}  // namespace tessera::compiler
