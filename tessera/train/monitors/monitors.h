// Callbacks that watch one number from epoch to epoch, and act on it: end the training, keep the best values, lower the
// learning rate. All ranks do the same.
//
// A training that goes on from a checkpoint in another process counts anew, but for BestCheckpoint, whose files say
// what it has seen.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tessera/checkpoint/lock/directory_lock.h"
#include "tessera/checkpoint/write/best_retention.h"
#include "tessera/tensor/tensor.h"
#include "tessera/train/callback.h"
#include "tessera/train/callbacks.h"
#include "tessera/train/monitors/epoch_monitor.h"

namespace tessera::train {

// Ends the training after an epoch when the number has not been better for `patience` epochs. With restore_best the
// parameters are in the end, whether it was stopped or not, those of the best epoch that this process has trained;
// states of the optimizer stay. A copy of this rank's parameters is kept in memory for that.
class EarlyStopping : public Callback {
 public:
  // Throws InvalidArgument for a patience below 1, and as EpochMonitor.
  explicit EarlyStopping(MonitorOptions options = {}, int64_t patience = 1, bool restore_best = false);
  void begin(RunContext& run) override;
  void epoch_begin(RunContext& run) override;
  void step_end(RunContext& run) override;
  void epoch_end(RunContext& run) override;
  void end(RunContext& run) override;
  // After which epoch it ended the training; 0: it did not.
  int64_t stopped_epoch() const { return stopped_epoch_; }
  // These say which epoch was the best, 0 before the first one, and what its value is.
  int64_t best_epoch() const { return best_epoch_; }
  double best() const { return monitor_.best(); }

 private:
  void keep(RunContext& run);
  void restore(RunContext& run);

  EpochMonitor monitor_;
  int64_t patience_;
  bool restore_best_;
  int64_t stopped_epoch_ = 0;
  int64_t best_epoch_ = 0;
  std::map<std::string, Tensor> kept_;  // this rank's pieces of the best epoch
  int64_t kept_epoch_ = 0;
};

struct BestCheckpointOptions {
  int64_t save_top_k = 1;       // keep so many of the best
  bool restore_best = false;    // the parameters are those of the best one in the end
  bool integrated_save = true;  // one file of whole values; false: each rank writes its slices
};

// Saves a checkpoint after each epoch that is the best so far, or among the best so far. It is whole, and training can
// go on from it.
//
// One is `path` itself, in place of the one before. Several are PATH-EPOCH_STEP.ckpt, PATH_1-... where the directory
// has those already; a checkpoint that is not among the best any more goes when the better one is committed, so that at
// any moment as many are whole as were before. Of equal ones the earlier stay. Ranks that name one directory write one
// checkpoint together, and no other job can write checkpoints into it while it trains.
//
// A training that goes on knows by the files what it has saved: a better one is not replaced by what is worse. With
// restore_best the parameters are in the end, stopped or not, those of the best file; states of the optimizer stay.
class BestCheckpoint : public Callback {
 public:
  // Throws InvalidArgument for a save_top_k below 1, a path of which no name can be made, and as EpochMonitor.
  explicit BestCheckpoint(std::string path = "best", MonitorOptions options = {},
                          const BestCheckpointOptions& best = {});
  void begin(RunContext& run) override;
  void epoch_begin(RunContext& run) override;
  void step_end(RunContext& run) override;
  void epoch_end(RunContext& run) override;
  void end(RunContext& run) override;
  SavedNames saved_names() const override;
  // The number of the best file; infinite before the first.
  double best() const;
  // The best file; of several "" before the first.
  std::string path() const;
  // The files that are kept, the best first, and the number of each.
  std::vector<std::string> paths() const;
  std::vector<double> scores() const;

 private:
  bool keeps_several() const { return options_.save_top_k > 1; }
  // The value that the file says, where it is of this training.
  void take_saved(RunContext& run);
  // The same of several files; and the prefix of those to come.
  void find_saved(RunContext& run);
  void save(RunContext& run, const std::string& path, double score);

  std::string path_;
  BestCheckpointOptions options_;
  EpochMonitor monitor_;
  // Of several:
  std::string directory_;
  std::string given_prefix_;
  std::string prefix_;
  checkpoint::BestList list_;
  std::shared_ptr<checkpoint::BestRetention> retention_;
  std::shared_ptr<checkpoint::DirectoryLock> lock_;  // while it trains
};

struct ReduceOnPlateauOptions {
  double factor = 0.1;
  int64_t patience = 10;
  int64_t cooldown = 0;  // epochs after a change that are not counted
  double min_rate = 0;   // no rate becomes smaller
};

// Multiplies the optimizer's learning rates by `factor` when the number has not been better for `patience` epochs;
// those of groups, too. A rate is a state of the optimizer: nothing is compiled again, and a checkpoint has it as it
// is. Rank 0 prints a line. begin() throws InvalidArgument where a rate is a table or made by operators, because a
// training that goes on from a checkpoint would have that from the beginning, and where min_rate is above all of them.
class ReduceLROnPlateau : public Callback {
 public:
  // Throws InvalidArgument for a factor outside (0,1), a patience below 1, and numbers below 0.
  explicit ReduceLROnPlateau(MonitorOptions options = {}, const ReduceOnPlateauOptions& reduction = {},
                             PrintLine print = print_line);
  void begin(RunContext& run) override;
  void epoch_begin(RunContext& run) override;
  void step_end(RunContext& run) override;
  void epoch_end(RunContext& run) override;

 private:
  void require_reducible(RunContext& run) const;

  EpochMonitor monitor_;
  ReduceOnPlateauOptions reduction_;
  PrintLine print_;
  std::vector<std::string> rates_;  // the states' names
  int64_t last_cooled_ = 0;         // the last epoch that is not counted
};

}  // namespace tessera::train
