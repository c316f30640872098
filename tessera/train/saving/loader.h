// Loader: takes a model's values from a checkpoint, each rank what its plan wants of it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/checkpoint/format/encryption.h"
#include "tessera/checkpoint/resume/global_checkpoint.h"
#include "tessera/train/core/model_core.h"
#include "tessera/train/options/train_options.h"
#include "tessera/train/saving/rank_barrier.h"
#include "tessera/train/saving/training_identity.h"

namespace tessera::session {
class SlicedWrite;
}

namespace tessera::train {

class Loader {
 public:
  Loader(ModelCore& core, TrainingIdentity& identity) : core_(core), identity_(identity) {}

  // Does what Model::load_checkpoint says, except that the caller takes over where training stood. No save may be under
  // way.
  checkpoint::CheckpointInfo load_training(const std::string& path, const LoadCheckpointOptions& options);
  // As Model::load_parameters. No save may be under way.
  LoadedParameters load_parameters(const std::string& path, const LoadParametersOptions& options);
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
    std::string job_name;     // as in checkpoint::GlobalCheckpoint::open
    std::string prefix = {};  // as in checkpoint::Candidates
    std::vector<std::string> names;
    bool is_resumed = false;  // the values of a training that goes on, all of them
    bool accepts_other_trainings = false;
    bool allows_missing = false;                                      // what the checkpoint lacks keeps its value
    std::function<std::string(const std::string& name)> rename = {};  // as in LoadParametersOptions
    std::vector<std::string> renamed = {};
  };
  // Where the values of an opened checkpoint go.
  struct Destinations {
    std::vector<std::string> names;  // of all values that ranks read
    std::vector<checkpoint::GlobalCheckpoint::Wanted> wanted;
    std::vector<std::pair<std::string, Tensor>> elsewhere;     // values that do not lie as the checkpoint has them
    std::vector<std::shared_ptr<session::SlicedWrite>> there;  // of values on a device, which read what lies as they do
    std::map<std::string, std::string> renamed;                // what the checkpoint calls them; others have one name
    LoadedParameters report;

    const std::string& stored_name(const std::string& name) const {
      const auto found = renamed.find(name);
      return found == renamed.end() ? name : found->second;
    }
  };

  Opened load(const std::string& path, const Loading& loading);
  // `reads_once`: what is damaged may be noticed when values have changed already.
  Opened load_first_usable(const std::string& path, const Loading& loading, RankBarrier* others, bool reads_once);
  bool can_begin_anew(RankBarrier* others);
  // Whether each rank has checkpoints of its own, of its own values.
  bool are_of_each_rank() const { return core_.mode->form_of_save(/*integrated=*/true) == SaveForm::kOwn; }
  Opened open_checkpoint(const std::string& path, const Loading& loading);
  // Gives the entries the network's names, and takes those out that have none there. Notes what the checkpoint calls
  // them.
  static void rename_entries(const Loading& loading, const std::string& path,
                             std::vector<checkpoint::StoredEntry>& entries, Destinations& destinations);
  // Takes out of the entries the rows that were saved beside statistics; where this model has as many, they become the
  // statistic's entry. Returns what the checkpoint calls these rows and their statistics.
  std::set<std::string> take_rows_of_ranks(const std::set<std::string>& statistics,
                                           std::vector<checkpoint::StoredEntry>& entries, Destinations& destinations);
  Destinations destinations_in(const checkpoint::GlobalCheckpoint& loaded, const Loading& loading);
  void take_elsewhere(const checkpoint::GlobalCheckpoint& loaded, const Destinations& destinations);

  ModelCore& core_;
  TrainingIdentity& identity_;
  checkpoint::GlobalCheckpoint::Report report_;
  LoadedParameters loaded_;  // of the latest load
};

}  // namespace tessera::train
