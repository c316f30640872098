// CompiledSteps: what a model's network is compiled into. A step is traced, planned and compiled when inputs of its
// types come first. It is kept until the network is said to have changed and turns out to compute something else. The
// plan of the first training step says where parameters and states lie.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "tessera/session/session.h"
#include "tessera/session/trace.h"
#include "tessera/train/core/model_core.h"
#include "tessera/train/saving/snapshot.h"
#include "tessera/train/saving/training_identity.h"

namespace tessera::train {

class CompiledSteps {
 public:
  // A compiled step has the snapshot finish its copy of a value before it changes the value.
  CompiledSteps(ModelCore& core, TrainingIdentity& identity, Snapshot& snapshot)
      : core_(core), identity_(identity), snapshot_(snapshot) {}

  // Each throws InvalidArgument for inputs that do not fit the network, and is collective the first time.
  session::Executable& training(const InputSpecs& inputs, session::StepPart part);
  session::Executable& evaluation(const InputSpecs& inputs);
  session::Executable& prediction(const InputSpecs& inputs);
  // Whether every rank gives the whole batch to the next prediction, in which ranks share its work.
  bool predicts_one_batch() const { return core_.mode->predicts_one_batch(values_placed_ || predicts_split_); }
  // Compiles a prediction, with values where strategies want them if they lie whole until now.
  void build_prediction(const InputSpecs& inputs);
  // What training() has compiled for these inputs, though it may be in doubt (doubt()); nullptr where it has compiled
  // nothing for them.
  session::Executable* known_training(const InputSpecs& inputs, session::StepPart part) const;
  // The logical graph of the training step, with its update.
  ir::Graph trace_training(const InputSpecs& inputs) { return trace_training(inputs, updating_part()); }
  // Measures each kernel of the training steps from here on.
  void enable_profiling();
  // The network may compute something else from here on: what was compiled is traced again before it is returned next,
  // and compiled again where its graph is another one. Executables that were returned before live until then.
  void doubt();
  // How often doubt() was called. Who keeps an executable asks for it again when this number has changed.
  int64_t num_doubts() const { return num_doubts_; }

 private:
  // The part of a training step that updates values, and says where they lie.
  session::StepPart updating_part() const;
  ir::Graph trace_training(const InputSpecs& inputs, session::StepPart part);
  ir::Graph trace_evaluation(const InputSpecs& inputs);
  session::Executable& predict(const InputSpecs& inputs, bool places_values);
  struct Entry {
    std::unique_ptr<session::Executable> executable;
    size_t graph_hash = 0;  // of its text
    bool is_doubted = false;
  };
  // What is compiled and beyond doubt; nullptr: nothing.
  session::Executable* find(const std::string& signature);
  // What was compiled and is doubted, if `graph` is its graph: it is beyond doubt then. nullptr: it must be compiled.
  session::Executable* confirm(const std::string& signature, const ir::Graph& graph);
  session::Executable& keep(const std::string& signature, const ir::Graph& graph,
                            std::unique_ptr<session::Executable> executable);
  void meet(const char* what) const;
  // In an elastic job, before values are placed: ranks whose network computes something else leave it.
  void compare_with_job(const ir::Graph& train_step) const;
  // Throws InvalidArgument for a parameter or state that the network had not when the model was made.
  void require_known_values(const ir::Graph& graph) const;
  // Where values are not placed yet: places them as this step wants them, and returns its plan where it has one.
  std::optional<compiler::Compiled> place_values(const ir::Graph& step, const InputSpecs& inputs);
  void place_as_planned(const compiler::Compiled& planned);
  void place(const compiler::StageLayouts& layouts);
  // By its plan, if it has one.
  std::unique_ptr<session::Executable> compile(const ir::Graph& graph, const InputSpecs& inputs,
                                               std::optional<compiler::Compiled> planned);
  void record(const session::Executable& executable, bool is_training);
  // Says once that strategies of the network have no effect in this mode.
  void say_unused_strategies(const ir::Graph& graph);
  // Says once that a column of f64 makes a network of f32 compute in f64.
  void say_wide_columns(const ir::Graph& graph);
  // Once: that a parameter is set_on_servers(), but the job has none.
  void say_missing_servers();

  ModelCore& core_;
  TrainingIdentity& identity_;
  Snapshot& snapshot_;
  std::map<std::string, Entry> compiled_;  // by what for, and for which inputs
  int64_t num_doubts_ = 0;
  bool values_placed_ = false;
  bool predicts_split_ = false;  // values lie as strategies say
  bool strategies_said_ = false;
  bool missing_servers_said_ = false;
  bool wide_columns_said_ = false;
};

}  // namespace tessera::train
