// Loader: takes a model's values from a checkpoint, each rank what its plan wants of it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/checkpoint/format/encryption.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/train/core/model_core.h"
#include "tessera/train/options/train_options.h"
#include "tessera/train/saving/rank_barrier.h"
#include "tessera/train/saving/training_identity.h"

namespace tessera::train {

class Loader {
 public:
  Loader(ModelCore& core, TrainingIdentity& identity) : core_(core), identity_(identity) {}

  // Does what Model::load_checkpoint says, except that the caller takes over where training stood. No save may be under
  // way.
  checkpoint::CheckpointInfo load_training(const std::string& path, const LoadCheckpointOptions& options);
  // As Model::load_parameters. No save may be under way.
  void load_parameters(const std::string& path, const checkpoint::Encryption& decryption);
  // What the latest of these two read.
  const checkpoint::GlobalCheckpoint::Report& report() const { return report_; }

 private:
  struct Opened {
    std::unique_ptr<FileSystem> plain;  // what was encrypted, in memory; the checkpoint reads from it
    checkpoint::GlobalCheckpoint checkpoint;
  };
  // What is to be loaded of a checkpoint, and how.
  struct Loading {
    checkpoint::Encryption decryption;
    std::string job_name;  // as in checkpoint::GlobalCheckpoint::open
    std::vector<std::string> names;
    bool is_resumed = false;  // the values of a training that goes on, all of them
    bool accepts_other_trainings = false;
  };
  // Where the values of an opened checkpoint go.
  struct Destinations {
    std::vector<std::string> names;  // of all values that ranks read
    std::vector<checkpoint::GlobalCheckpoint::Wanted> wanted;
    std::vector<std::pair<std::string, Tensor>> elsewhere;  // values that do not lie as the checkpoint has them
  };

  Opened load(const std::string& path, const Loading& loading);
  // `reads_once`: what is damaged may be noticed when values have changed already.
  Opened load_first_usable(const std::string& path, const Loading& loading, RankBarrier* others, bool reads_once);
  bool can_begin_anew(RankBarrier* others);
  // Whether each rank has checkpoints of its own, of its own values.
  bool are_of_each_rank() const { return core_.mode->form_of_save(/*integrated=*/true) == SaveForm::kOwn; }
  Opened open_checkpoint(const std::string& path, const Loading& loading);
  Destinations destinations_in(const checkpoint::GlobalCheckpoint& loaded, const Loading& loading);
  void take_elsewhere(const checkpoint::GlobalCheckpoint& loaded, const Destinations& destinations);

  ModelCore& core_;
  TrainingIdentity& identity_;
  checkpoint::GlobalCheckpoint::Report report_;
};

}  // namespace tessera::train
