// Saver: writes a model's values, and where its training stands, as checkpoints; at once, or by a thread while training
// goes on. How they are written is CheckpointJob's business.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/workers/worker.h"
#include "tessera/train/core/model_core.h"
#include "tessera/train/options/train_options.h"
#include "tessera/train/saving/checkpoint_job.h"
#include "tessera/train/saving/snapshot.h"
#include "tessera/train/saving/training_identity.h"
#include "tessera/train/saving/training_progress.h"

namespace tessera::train {

class Saver {
 public:
  // `progress` is where training stands when it saves; `snapshot` is the copy of an async save.
  Saver(ModelCore& core, TrainingIdentity& identity, const TrainingProgress& progress, Snapshot& snapshot)
      : core_(core), identity_(identity), progress_(progress), snapshot_(snapshot) {}
  // Waits for a save that is under way; logs its error.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // As Model::save_checkpoint. `updated`: what the next step changes, in this order. Collective.
  std::string save(const std::string& path, const SaveCheckpointOptions& options, std::span<const TensorView> updated);
  // Does what Model::reserve_snapshot says. Collective.
  void reserve_snapshot(const std::string& path, const SaveCheckpointOptions& options);
  // Waits for a save that a thread is writing. Throws its error, once.
  void finish();
  // How many saves have begun.
  int64_t num_saves() const { return num_saves_; }
  // The file of the newest save that has not failed by now, and the step that it holds; "" before the first.
  const std::string& newest_path() const { return newest_path_; }
  int64_t newest_step() const { return newest_step_; }

 private:
  bool says_nothing(const std::string& name);
  // What is saved, by the name that it has there, and the value that it is made of. Collective for averages.
  std::vector<std::pair<std::string, std::string>> names_to_save(bool averages);
  std::vector<CheckpointJob::Value> held_values(bool averages);
  // Makes a save that is ready to run, but for a copy of the values. Collective.
  CheckpointJob make_job(const std::string& path, const SaveCheckpointOptions& options);
  void require_own_directory(const std::string& directory, bool is_shared);
  comm::Communicator& group();
  Snapshot& snapshot();

  ModelCore& core_;
  TrainingIdentity& identity_;
  const TrainingProgress& progress_;
  Snapshot& snapshot_;
  timeline::TimedWork timed_saves_{core_.context.recorder(),
                                   "saving in the background",
                                   {.kind = timeline::SpanKind::kSave, .text = "a checkpoint is written"}};
  // Reads the snapshot; while it does, there is no second one. Training goes first, but a save gets on.
  Worker background_{{.purpose = "saving in the background", .gives_way = true}};
  int64_t num_saves_ = 0;
  std::string newest_path_;
  int64_t newest_step_ = 0;
  std::string group_;  // the name of the group that threads save with; "" before the first
};

}  // namespace tessera::train
