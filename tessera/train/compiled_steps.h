// CompiledSteps: a model's network as it runs: traced, planned and compiled for inputs of some types when these come
// first, kept from then on. The plan of the first training step says where parameters and states lie.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tessera/session/session.h"
#include "tessera/session/trace.h"
#include "tessera/train/model_core.h"
#include "tessera/train/snapshot.h"
#include "tessera/train/training_identity.h"

namespace tessera::train {

class CompiledSteps {
 public:
  // A training step finishes the copy of what it changes before it changes it.
  CompiledSteps(ModelCore& core, TrainingIdentity& identity, Snapshot& snapshot)
      : core_(core), identity_(identity), snapshot_(snapshot) {}

  // Each throws InvalidArgument for inputs that do not fit the network, and is collective the first time.
  session::Executable& training(const InputSpecs& inputs, session::StepPart part);
  session::Executable& evaluation(const InputSpecs& inputs);
  session::Executable& prediction(const InputSpecs& inputs);
  // Compiles a prediction, with values where strategies want them if they lie whole until now.
  void build_prediction(const InputSpecs& inputs);
  // The logical graph of the training step, with its update.
  ir::Graph trace_training(const InputSpecs& inputs) { return trace_training(inputs, updating_part()); }
  // Measures each kernel of the training steps from here on.
  void enable_profiling();

 private:
  // The part of a training step that updates values, and says where they lie.
  session::StepPart updating_part() const;
  ir::Graph trace_training(const InputSpecs& inputs, session::StepPart part);
  ir::Graph trace_evaluation(const InputSpecs& inputs);
  session::Executable& predict(const InputSpecs& inputs, bool places_values);
  // Where values are not placed yet: places them as this step wants them, and returns its plan where it has one.
  std::optional<compiler::Compiled> place_values(const ir::Graph& step, const InputSpecs& inputs);
  void place_as_planned(const compiler::Compiled& planned);
  // By its plan, if it has one.
  std::unique_ptr<session::Executable> compile(const ir::Graph& graph, const InputSpecs& inputs,
                                               std::optional<compiler::Compiled> planned);
  void record(const session::Executable& executable, bool is_training);
  // Says once that strategies of the network have no effect in this mode.
  void say_unused_strategies(const ir::Graph& graph);

  ModelCore& core_;
  TrainingIdentity& identity_;
  Snapshot& snapshot_;
  std::map<std::string, std::unique_ptr<session::Executable>> compiled_;  // by what for, and for which inputs
  bool values_placed_ = false;
  bool predicts_split_ = false;  // values lie as strategies say
  bool strategies_said_ = false;
};

}  // namespace tessera::train
