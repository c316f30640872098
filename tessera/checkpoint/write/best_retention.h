// The checkpoints that are a training's best by a number, and the removal of the others. Each carries its number as an
// entry beside its values, so that the files alone say which are the best: a training that goes on reads them again.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/files/file_system.h"

namespace tessera::checkpoint {

// A checkpoint with the number that it was saved for.
struct ScoredCheckpoint {
  std::string name;  // of its file: "best-3_6.ckpt"
  int64_t step = 0;  // of the training that it holds
  double score = 0;
  friend bool operator==(const ScoredCheckpoint&, const ScoredCheckpoint&) = default;
};

// The best checkpoints so far: the best first, of equal ones the earlier first. Pure data: ranks that add the same have
// the same.
class BestList {
 public:
  // `max`: how many, at least 1. `falls`: a smaller score is better. A score is better only by more than min_delta.
  BestList(int64_t max, bool falls, double min_delta = 0) : max_(max), falls_(falls), min_delta_(min_delta) {}
  // Whether one of that score would be among the best, where it takes the place of any that has the same step: there
  // are fewer than `max`, or it is better than the last one. A score that is not finite is never among them.
  bool takes(double score, int64_t step) const;
  // Puts it in its place, instead of any that has the same step; the last one goes where there are too many.
  void add(ScoredCheckpoint checkpoint);
  void clear() { checkpoints_.clear(); }
  const std::vector<ScoredCheckpoint>& checkpoints() const { return checkpoints_; }

 private:
  int64_t max_;
  bool falls_;
  double min_delta_;
  std::vector<ScoredCheckpoint> checkpoints_;
};

// Finds and removes such checkpoints in a directory, as PREFIX-EPOCH_STEP.ckpt of PREFIX and its successors (PREFIX_1,
// ...). Used by the first rank of each directory, which no other job writes to meanwhile (DirectoryLock). Files of
// other trainings, and checkpoints without the entry, are neither found nor removed.
class BestRetention {
 public:
  // `entry`: the name of the entry that has the number.
  BestRetention(FileSystem& files, std::string directory, std::string prefix, std::string training_id,
                std::string entry);
  // Ends removals that a crash interrupted, and returns this training's checkpoints that are whole and carry a finite
  // number, in the order of their names. A warning names each that is damaged or cannot be read. A missing directory
  // has none.
  std::vector<ScoredCheckpoint> find();
  // Called after a commit, with the best ones, the new one among them: removes the others of those that find() or an
  // earlier call has seen. A crash leaves each of them whole or in a removal that find() ends. Returns the names
  // removed. Throws IoError where some could not be removed, when the others are; the next call tries again.
  std::vector<std::string> keep_only(std::span<const ScoredCheckpoint> best);
  // The same, but what cannot be removed is a warning: the save has succeeded.
  void tidy(std::span<const ScoredCheckpoint> best);

 private:
  bool is_of_prefix(const std::string& name) const;
  bool is_of_training(const std::string& path) const;

  FileSystem& files_;
  std::string directory_;
  std::string prefix_;
  std::string training_id_;
  std::string entry_;
  std::set<std::string> seen_;  // names of this training's that have a number
};

}  // namespace tessera::checkpoint
