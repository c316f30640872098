// The update of a pipeline's step in rounds. Each stage updates what it has; where an optimizer looks at values of
// several stages, such as the norm of all gradients or whether all of them are finite, every stage makes its part in
// one round, all are told what the others have made, and each goes on by itself in the next: with equal values, so with
// equal bits.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tessera/compiler/stages/planned_part.h"
#include "tessera/compiler/stages/stage_placement.h"

namespace tessera::compiler {

struct UpdateRounds {
  std::vector<int> nodes;   // by NodeId: the stage, or kEveryStage: made by all that need it
  std::vector<int> rounds;  // by NodeId: as late as its readers allow
  std::vector<bool> is_constant;
  int num_rounds = 1;
  // By round but the last: values that one stage makes, with that stage, and that all are told at its end.
  std::vector<std::map<ir::ValueId, int>> told = {};
  // Inputs that may be partial sums and that several rounds read, with the first of these: they are completed in that.
  std::map<ir::ValueId, int> kept_inputs = {};

  bool is_told(ir::ValueId v) const;
};

// `values`: parameters and states, the stage or kEveryStage; those that only the update has are added: they are on the
// stage whose values they are made of. `summed`: inputs that may be partial sums. Throws InvalidArgument for a value of
// one stage that is to become one of another.
UpdateRounds place_update(const ir::Graph& graph, std::map<std::string, int>& values,
                          const std::set<std::string>& summed = {});

// Values that a later round reads, or that are told.
std::set<ir::ValueId> values_between_rounds(const ir::Graph& graph, const UpdateRounds& rounds);

// Under which state a value passes from round to round: "update.12".
std::string between_rounds_name(ir::ValueId v);

// What this stage does in each round. The last one makes `outputs`, and ir::kUpdateGuard where the graph has it.
std::vector<PlannedPart> cut_update(const ir::Graph& graph, const Plan& plan, const UpdateRounds& rounds, int stage,
                                    const std::vector<std::string>& outputs, const std::vector<int>& ranks);

}  // namespace tessera::compiler
