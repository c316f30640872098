// Callbacks that watch one number from epoch to epoch, and act on it: end the training, keep the best values, lower the
// learning rate. All ranks do the same.
//
// A training that goes on from a checkpoint in another process counts anew, but for BestCheckpoint, whose file says
// what it has seen.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

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

// Saves a checkpoint as `path` after each epoch that is the best so far, in place of the one before. It is whole, and
// training can go on from it. A training that goes on does not replace what it has saved earlier by what is worse.
class BestCheckpoint : public Callback {
 public:
  explicit BestCheckpoint(std::string path = "best", MonitorOptions options = {});
  void begin(RunContext& run) override;
  void epoch_begin(RunContext& run) override;
  void step_end(RunContext& run) override;
  void epoch_end(RunContext& run) override;
  // Of what the file has; infinite before the first.
  double best() const { return monitor_.best(); }
  const std::string& path() const { return path_; }

 private:
  // The value that the file says, where it is of this training.
  void take_saved(RunContext& run);

  std::string path_;
  EpochMonitor monitor_;
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
// training that goes on from a checkpoint would have that from the beginning.
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
  EpochMonitor monitor_;
  ReduceOnPlateauOptions reduction_;
  PrintLine print_;
  std::vector<std::string> rates_;  // the states' names
  int64_t last_cooled_ = 0;         // the last epoch that is not counted
};

}  // namespace tessera::train
