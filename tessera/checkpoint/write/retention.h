// Retention: which checkpoints are kept. Unlike the reference's ModelCheckpoint it removes old ones only after the new
// one is committed, and counts only verified ones.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/checkpoint/read/choose.h"
#include "tessera/checkpoint/write/checkpoint_config.h"

namespace tessera::checkpoint {

// Whose checkpoints are counted together: of one training, however often it was started again, and so under whatever
// successor of a prefix (CKP, CKP_1, ...). Trainings are told apart by CheckpointInfo::job_name where both have one,
// else by CheckpointInfo::training_id. A checkpoint of no known training counts with its own prefix only.
struct RetainedTraining {
  // That the user gave: "CKP" where the present one is "CKP_2"; "": only the present one counts.
  std::string base_prefix = {};
  std::string job_name = {};
  std::string training_id = {};
};

// Removes old checkpoints of one training. Used by the rank that writes, which no other job does meanwhile
// (DirectoryLock).
class Retention {
 public:
  // `config` is validated. `prefix` is that of the present run.
  Retention(FileSystem& files, std::string directory, std::string prefix, const CheckpointConfig& config,
            RetainedTraining training = {});
  // Verifies what it has not seen yet; removes the oldest verified checkpoints beyond keep_checkpoint_max, or all but
  // the oldest of each window and the newest; those of earlier runs are older than those of the present one. A
  // checkpoint that is damaged or has no manifest is neither counted nor removed; what a crash has left of a removal,
  // or of a save that was never committed, is removed. What is left of a checkpoint whose NAME.ckpt has gone is removed
  // when keep_checkpoint_max newer ones are verified, or one where windows count; a warning names it. Files of other
  // trainings, and those that somebody is about to save, are left alone. Returns the names removed, oldest first, of
  // whole checkpoints. Throws IoError where some could not be removed, when the others are.
  std::vector<std::string> apply();
  // The saver calls this after a commit: apply(), but what cannot be removed is a warning. The save has succeeded.
  void tidy();
  // The saver calls this before the first save: it ends removals that a crash interrupted. Logs a warning where that
  // fails; apply() tries again.
  void finish_removals();

 private:
  struct Known {
    bool is_verified = false;
    int64_t size_bytes = 0;
    CheckpointInfo info;
  };
  using FilesOfCheckpoints = std::map<std::string, std::vector<std::string>>;  // see removal.h
  // Without those that somebody saves now.
  FilesOfCheckpoints files_of_runs() const;
  // Leaves those of other trainings out.
  void keep_own(FilesOfCheckpoints& checkpoints) const;
  bool is_of_training(const std::string& checkpoint) const;
  std::optional<int64_t> run_of(const std::string& prefix) const;
  // Takes those without NAME.ckpt out of `checkpoints` and returns them.
  static FilesOfCheckpoints take_remains(FilesOfCheckpoints& checkpoints);
  // The order of age: the run, epoch and step in it.
  using Age = std::tuple<int64_t, int64_t, int64_t>;
  Age age_of(const std::string& checkpoint, const CheckpointPosition& position) const;
  // Of `remains`, what is to be removed beside verified checkpoints of these ages.
  FilesOfCheckpoints remains_to_remove(const FilesOfCheckpoints& remains, const std::vector<Age>& verified) const;
  void look_at(const std::string& name, int64_t size);

  FileSystem& files_;
  std::string directory_;
  std::string prefix_;
  RetainedTraining training_;
  int64_t keep_max_;
  int64_t window_ms_;
  std::map<std::string, Known> known_;
};

}  // namespace tessera::checkpoint
