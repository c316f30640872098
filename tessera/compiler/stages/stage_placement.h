// Which stage of a pipeline computes what, in which phase: node -> stage. A rank's stage is another matter: no rank is
// named here.
//
// The graph is that of one micro-batch: forward, loss, backward, gradients added to accumulators.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/pipeline/pipeline_schedule.h"

namespace tessera::compiler {

// In place of a stage's number: every stage that needs it computes it by itself.
inline constexpr int kEveryStage = -2;

struct StageOptions {
  int num_stages = 1;
  // The accumulators of gradients, by name, with the parameters that they belong to.
  std::map<std::string, std::string> accumulators = {};
  // The accumulators of a parameter that several stages read, by name: those of its stages but the first, which owns
  // the parameter.
  struct OtherAccumulator {
    std::string of_owner;  // the owner's accumulator, by name
    int stage = 0;
    friend bool operator==(const OtherAccumulator&, const OtherAccumulator&) = default;
  };
  std::map<std::string, OtherAccumulator> other_accumulators = {};
  // States that all stages have and change alike: the number of the step of random operators.
  std::set<std::string> common_states = {};
  // Whether what the gradient of a stage's input does not need is a phase of its own.
  bool split_backward = false;
  // Parameters that are read as gathered_name() has them: of what lies in shards a stage makes the whole once a step.
  std::set<std::string> gathered = {};
  // Whether a stage without parameters is refused.
  bool require_parameters = true;
};

// Throws InvalidArgument where a batch is cut into fewer micro-batches than there are stages: some would always wait.
void require_micro_batches(int num_stages, int micro_batches);

struct StagePlacement {
  int num_stages = 1;
  bool split_backward = false;
  std::vector<int> nodes;                   // by NodeId: the stage, or kEveryStage
  std::vector<pipeline::PhaseKind> phases;  // by NodeId; of those of every stage: the first that may need it
  std::vector<bool> is_constant;            // by NodeId: made of nothing; every phase makes it by itself
  std::map<std::string, int> values;        // parameters and states: the stage, or kEveryStage
  // Parameters that several stages read, with all of them in order; `values` has the first.
  std::map<std::string, std::vector<int>> shared = {};
  std::set<std::string> gathered = {};  // StageOptions::gathered

  int stage_of(ir::NodeId n) const { return nodes[static_cast<size_t>(n)]; }
  pipeline::PhaseKind phase_of(ir::NodeId n) const { return phases[static_cast<size_t>(n)]; }
};

// A forward node is on the stage that its cell names; without one it joins its earliest user, or, where nobody uses it,
// the last of those whose results it reads. What is made of constants alone is on every stage. A gradient joins its
// forward node, an accumulator its parameter, a state the node that reads it. A parameter that several stages read is
// on all of them (stages/shared_parameters.h).
//
// Throws InvalidArgument naming cell, stage and the way out: a stage that is out of range, one that reads from a later
// one, one without parameters, and a state that several stages read.
StagePlacement place_on_stages(const ir::Graph& graph, const StageOptions& options);

// The state of a step that holds what the phases read of such a parameter: "whole.fc.weight".
std::string gathered_name(const std::string& parameter);

// A value that one stage makes and another one reads.
struct StageMessage {
  ir::ValueId value = ir::kNone;
  int from = 0;
  int to = 0;
  pipeline::PhaseKind made = pipeline::PhaseKind::kForward;  // the phase of `from` after which it is sent
  pipeline::PhaseKind read = pipeline::PhaseKind::kForward;  // the first phase of `to` that reads it
  bool operator==(const StageMessage&) const = default;
};
// All of them: by sender, its phase, receiver and value. Those of one sender's phase to one receiver are sent in this
// order.
std::vector<StageMessage> stage_messages(const ir::Graph& graph, const StagePlacement& placement);

}  // namespace tessera::compiler
