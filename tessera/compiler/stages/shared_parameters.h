// Parameters that several chunks of a pipeline read, such as an embedding that is used again as the output projection.
// Each of these chunks adds up its own part of the gradient, and each of their stages has the parameter. The lowest of
// the stages owns it: it gets the other stages' sums once a step, updates the parameter, and sends them the new value.
// So the states of the optimizer are on one stage only, and all stages have the same bits.
//
// A job with parameter servers is a pipeline of two stages: stage 0 has the ranks that keep parameters, stage 1 those
// that train. A parameter that is served is shared by both and belongs to stage 0 (StageOptions::served). Rows that are
// looked up in a served table are looked up on the servers, so that they alone are sent, and their gradients.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tessera/compiler/stages/stage_placement.h"

namespace tessera::compiler {

// What passes between two stages once a step.
struct SharedMessage {
  std::vector<std::string> values;  // parameters or accumulators, by name
  int from = 0;
  int to = 0;
};

// A cast of a parameter that several chunks read, made once more by each of them: they read the parameter then.
ir::Graph repeat_casts(const ir::Graph& graph, const StagePlacement& placement);

// The graph of a micro-batch, in which each chunk adds its part of a shared parameter's gradient to an accumulator of
// its own. `options` gets the new ones.
ir::Graph split_accumulators(const ir::Graph& graph, const StagePlacement& placement, StageOptions& options);

// The graph of the update, in which what split_accumulators() has split is added up.
ir::Graph sum_accumulators(const ir::Graph& update, const StageOptions& options);

// The other stages' sums, to the owners of the parameters; and the new values back. By sender and receiver.
std::vector<SharedMessage> messages_of_sums(const StagePlacement& placement, const StageOptions& options);
std::vector<SharedMessage> messages_of_values(const StagePlacement& placement, const StageOptions& options);

// Gives each node of a micro-batch its stage, in a job with servers, whatever it had before. `served`: parameters, by
// name. A table is looked up on the servers where its indices are made of data alone, of nothing that is trained.
void place_for_servers(ir::Graph& graph, const std::set<std::string>& served);

}  // namespace tessera::compiler
