// Training: the loop over epochs, steps and batches, and where it stands.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/data/dataset.h"
#include "tessera/train/batches.h"
#include "tessera/train/callback.h"
#include "tessera/train/compiled_steps.h"
#include "tessera/train/core/live_record.h"
#include "tessera/train/core/model_core.h"
#include "tessera/train/core/value_recording.h"
#include "tessera/train/kept/kept_training.h"
#include "tessera/train/options/train_options.h"
#include "tessera/train/saving/saver.h"
#include "tessera/train/saving/snapshot.h"
#include "tessera/train/saving/training_progress.h"

namespace tessera::train {

class Training {
 public:
  struct Parts {
    ModelCore& core;
    CompiledSteps& steps;
    WholeBatches& whole_batches;
    TrainingProgress& progress;  // where it stands
    Snapshot& snapshot;          // has its copy of a count of batches before that is changed
    Saver& saver;                // whose saves are done when a run ends
    KeptTraining& kept;          // what outlives the process
    ValueRecording& recording;   // of the values of its steps
  };
  explicit Training(const Parts& parts)
      : core_(parts.core),
        steps_(parts.steps),
        whole_batches_(parts.whole_batches),
        progress_(parts.progress),
        snapshot_(parts.snapshot),
        saver_(parts.saver),
        kept_(parts.kept),
        recording_(parts.recording),
        live_(parts.core) {}

  // As Model::train. `model` is what callbacks see.
  void run(Model& model, int64_t num_epochs, const data::Dataset& dataset, const Callbacks& callbacks,
           const TrainOptions& options);
  // As Model::train_step.
  double run_step_on(const std::vector<TensorView>& local_batch, int64_t global_rows);
  // Compiles the step for full batches.
  void build(const data::Dataset& dataset);
  // Goes on from where a checkpoint stood.
  void resume(const checkpoint::CheckpointInfo& info);

  bool was_skipped() const { return was_skipped_; }
  // What is compiled for the latest batch; nullptr before the first.
  session::Executable* executable() const { return steps_.known_training(latest_.inputs, latest_.part); }

 private:
  class TrainCall;
  // In an elastic job: ranks that have come later with other arguments leave it (core/same_training.h).
  void compare_with_job(const data::Dataset& dataset, std::optional<int64_t> num_epochs = {});
  // Where all ranks give the rows of one batch, before the step that takes them: throws InvalidArgument on every rank
  // where one means a batch of another size or, of a batch that was compiled before, gives other rows of its own than
  // it should, or where each gives the whole batch and one gives other rows. Ranks that compile for themselves, or are
  // steps apart, give what they like, and an elastic job finds out who does not fit in when it compiles. Collective.
  void agree_on_rows(const InputSpecs& inputs, const std::vector<TensorView>& local_batch, session::StepPart part,
                     int64_t global_rows) const;
  // The same in an elastic job, of rows alone, once it is compiled.
  void agree_on_rows_of_job(const std::vector<TensorView>& local_batch) const;
  // With gradient accumulation the last batch of a step is for another graph than the others.
  session::StepPart next_part();
  std::vector<session::StepPart> parts() const;
  // Throws InvalidArgument for a data set that does not make whole steps.
  int64_t steps_per_epoch(const data::Dataset& dataset) const;
  // Has the progress count batches of the data set. Throws InvalidArgument where a step is not whole there.
  void find_place_in(const data::Dataset& dataset, int64_t full_rows);
  // Says once that a table of learning rates ends before the training, which goes on to this step.
  void say_short_rates(int64_t last_step);
  // Calls the callbacks' end(), waits for saves and ends the progress; then throws what failed first.
  void end(RunContext& run, const Callbacks& callbacks);
  // Does the same while an exception is handled, for the first `num_begun` callbacks. What fails is logged, and the
  // progress stays as it is, for who saves it.
  void fail(RunContext& run, const Callbacks& callbacks, size_t num_begun);
  // Tells the job that a loss which ends it leaves nothing to be saved.
  void tell_no_training();
  // Drops what a training that failed has left beside the values: its progress, and the micro-batches of a step that
  // was not done.
  void leave_failed();
  // Calls what computes a step, or looks at its loss: what fails is said of the step.
  void call_for_step(const RunContext& run, FunctionRef<void()> call);
  LiveCheckpoint newest_checkpoint() const { return {saver_.newest_path(), saver_.newest_step()}; }
  // Whether the step may be given to a device without waiting for its loss, or for that of the step before.
  bool may_run_ahead(const session::Executable& executable) const;
  // Says to who looks on that the step has begun.
  void note_step(int64_t step);
  // Runs it and notes whether it was skipped.
  void run_step(session::Executable& executable);
  double loss_of(session::Executable& executable) const { return core_.mode->mean_loss(executable.output("loss")); }
  // Whether the batch was the last of its step.
  bool count_batch();

  ModelCore& core_;
  CompiledSteps& steps_;
  WholeBatches& whole_batches_;
  TrainingProgress& progress_;
  Snapshot& snapshot_;
  Saver& saver_;
  KeptTraining& kept_;
  ValueRecording& recording_;
  LiveRecord live_;
  // What the latest batch was for: what is compiled for that is another one once the network has changed.
  struct Batch {
    InputSpecs inputs;
    session::StepPart part = session::StepPart::kWhole;
  };
  Batch latest_;
  bool was_skipped_ = false;
  double loss_sum_ = 0;  // the losses of run_step_on's micro-batches of the present step
  bool rates_said_ = false;
  bool state_said_ = false;
  bool has_failed_ = false;  // the latest training, and nothing has been trained or loaded since
};

}  // namespace tessera::train
