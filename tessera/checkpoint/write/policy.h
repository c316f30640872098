// When checkpoints are saved, and which are kept: the fields and defaults of the reference's
// CheckpointConfig and ModelCheckpoint, except that old checkpoints go only after the new one is committed, and that
// only verified ones count.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/files/file_system.h"
#include "tessera/checkpoint/format/ckpt_file.h"
#include "tessera/checkpoint/format/encryption.h"
#include "tessera/checkpoint/manifest/manifest.h"
#include "tessera/checkpoint/read/choose.h"

namespace tessera::checkpoint {

struct CheckpointConfig {
  int64_t save_checkpoint_steps = 1;          // save after this many steps; 0: by time
  int64_t save_checkpoint_seconds = 0;        // after this many seconds; ignored when steps is set
  int64_t keep_checkpoint_max = 5;            // keep this many; 0: by time
  int64_t keep_checkpoint_per_n_minutes = 0;  // keep one per window of so many minutes; ignored when max is set
  bool integrated_save = true;                // one file of whole values; false: each rank writes its slices
  bool async_save = false;                    // a thread writes a copy while training goes on
  std::vector<std::string> append_info = {};  // some of "epoch_num", "step_num"
  std::vector<Entry> append_values = {};      // further information to append
  std::string enc_key = {};                   // encrypts the files, see encryption.h
  std::string enc_mode = "AES-GCM";
};

// The config with its rules applied: steps > 0 disables seconds, max > 0 disables minutes, and where both max and
// minutes are 0 one checkpoint is kept. Throws InvalidArgument when a field is negative, all four are 0, append_info
// has an unknown name, or enc_key and enc_mode are no key and mode of an encryption.
CheckpointConfig validated(CheckpointConfig config);

// What append_info and append_values ask for: SaveOptions::append_info.
std::vector<Entry> appended_entries(const CheckpointConfig& config, const CheckpointInfo& info);

// Says after which steps to save. Steps are counted from the beginning of training. With several ranks and
// save_checkpoint_seconds one rank must decide for all: clocks differ.
class SaveTrigger {
 public:
  // `config` is validated; `resumed_step` is the step that training starts after.
  SaveTrigger(const CheckpointConfig& config, const Clock& clock, int64_t resumed_step = 0);
  bool is_due(int64_t step) const;
  // At the end of training the last step is saved if it was not.
  bool is_due_at_end(int64_t step) const { return step != last_step_; }
  void saved(int64_t step);

 private:
  int64_t steps_;
  int64_t seconds_;
  const Clock& clock_;
  int64_t last_step_;
  int64_t last_time_ns_;
};

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
