// StagedPlan: a training step of a pipeline as all ranks know it: the graph of one micro-batch and that of the update,
// which stage computes what, and how everything is split within a stage. Made once; a rank then cuts its own part out
// of it (stages/cut_staged_plan.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/compiler/compile.h"
#include "tessera/compiler/stages/planned_part.h"
#include "tessera/compiler/stages/stage_placement.h"
#include "tessera/compiler/stages/update_rounds.h"
#include "tessera/mesh/stage_ranks.h"

namespace tessera::compiler {

// How the ranks of a stage share its work: what stages of one kind are planned by.
struct WithinStage {
  mesh::Mesh mesh;           // of the ranks 0 to n-1
  ShardingHints hints = {};  // of inputs, on these ranks
  PlanOptions plan = {};
};

// The graphs of a step as stages of one kind have them, which have n ranks each: on the ranks 0 to n-1.
struct SizedPlan {
  Plan micro;   // of one micro-batch
  Plan update;  // from accumulators to the optimizer
  // Parameters that lie in optimizer shards, made whole for the phases; no inputs where there are none.
  PlannedPart gather;
  // The micro-batch as it would be planned if it gathered them: what is recorded of the strategies.
  PlannedPart with_shards;
  // What a stage has added up for a parameter of a stage of another kind, completed on its own ranks.
  PlannedPart sums;
};

// How a value lies: on the ranks of one stage, or, of a parameter that several stages have, on those of each.
using StageLayouts = std::map<std::string, std::vector<mesh::Layout>>;

struct StagedPlan {
  ir::Graph micro;  // of one micro-batch
  // From accumulators to the optimizer; no nodes where nothing is trained.
  ir::Graph update;
  StagePlacement placement = {};
  // What the stages were made with, and the accumulators of the parameters that several stages have.
  StageOptions options = {};
  mesh::StageRanks ranks = {};
  std::map<int, SizedPlan> kinds = {};  // by StageOptions::kind_of()
  UpdateRounds rounds = {};             // of the update
  std::map<std::string, int> values;    // parameters and states of both: the stage, the first of several, kEveryStage

  int num_stages() const { return placement.num_stages; }
  std::vector<int> ranks_of(int stage) const { return ranks.ranks_of(stage); }
  int kind_of(int stage) const { return options.kind_of(stage, ranks); }
  const SizedPlan& of_stage(int stage) const { return kinds.at(kind_of(stage)); }
  const SizedPlan& of_chunk(int chunk) const { return of_stage(placement.stage_of_chunk(chunk)); }
  // How parameters and states lie on the ranks of their stages; those of every stage, replicated, are left out.
  // What is named as an accumulator lies in memory of the step.
  StageLayouts layouts() const;
  // A value of the micro-batch as it leaves its chunk, or as another chunk has it: on the ranks of that chunk's stage.
  mesh::Layout layout_in_chunk(ir::ValueId v, int chunk) const;
  // A parameter, or what has been added up for it, as it passes between stages once a step: how it leaves a stage, and
  // how it comes to one.
  mesh::Layout layout_sent(const std::string& name, int stage) const;
  mesh::Layout layout_received(const std::string& name, int stage) const;
};

// Makes the plans of both graphs, for each kind of stages. `within`: by StageOptions::kind_of(). `update` may be null.
// Throws InvalidArgument as place_on_stages(), place_update() and propagate() do, and for a cell whose strategy shares
// its work among more ranks than its stage has, or among so many that they do not divide these.
StagedPlan plan_stages(const ir::Graph& micro, const ir::Graph* update, const mesh::StageRanks& ranks,
                       const std::map<int, WithinStage>& within, const StageOptions& stages,
                       const CompileOptions& options);
// The same for stages of equally many ranks each: as many as the mesh has.
StagedPlan plan_stages(const ir::Graph& micro, const ir::Graph* update, const mesh::Mesh& mesh,
                       const ShardingHints& hints, const StageOptions& stages, const CompileOptions& options);

// Whether a sum is completed before it is sent to the parameter's own stage: where that is of another kind. Else the
// ranks send what each of them has, and the update completes it all at once.
bool is_completed_first(const StagedPlan& plan, const std::string& accumulator);
// The state of a step that such a sum is completed in: "sum.NAME".
std::string summed_name(const std::string& accumulator);

}  // namespace tessera::compiler
