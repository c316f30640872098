// EpochMonitor: the number that a callback watches from epoch to epoch, and the best that it has been.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/data/dataset.h"
#include "tessera/train/callback.h"

namespace tessera::train {

struct MonitorOptions {
  // A metric of the model, "loss" among them; or "train_loss": the mean of the losses that the epoch's steps reported.
  std::string monitor = "loss";
  // What the metrics are those of, evaluated after each epoch. Absent: what a callback before this one has evaluated
  // after the epoch's last step, as EpochSummary does.
  std::optional<data::Dataset> valid = {};
  int num_workers = 1;  // threads that make the batches of `valid`
  // "min": smaller is better; "max": larger is; "auto": by the metric, as far as it is one of Tessera's.
  std::string mode = "auto";
  // A value is better only where it beats the best one by more than that.
  double min_delta = 0;
};

// Used by one callback, which hands on its calls. Losses and metrics are those of all ranks; where these train together
// they take rank 0's values and counts, so that all decide alike, those too that have come to the job later.
class EpochMonitor {
 public:
  // `who`: the callback, for messages. Throws InvalidArgument for another mode, for "auto" with a metric that is not
  // known to be better when it is smaller or larger, and for a min_delta that is negative or not finite.
  EpochMonitor(std::string who, MonitorOptions options);

  // A training begins: nothing has been seen, but where another process of the job has begun it.
  // Throws InvalidArgument where the model has no such metric, naming those that it has.
  void begin(RunContext& run);
  void epoch_begin() { loss_sum_ = num_losses_ = 0; }
  void step_end(const RunContext& run);
  // Looks at the number after an epoch, and returns whether it is the best so far. An epoch that is trained once more
  // takes the place of what it was before. A number that is not finite is never the best. Collective. Throws
  // InvalidArgument where nothing has been evaluated.
  bool look(RunContext& run);

  // The number of the latest epoch.
  double value() const { return seen_.back().value; }
  // Epochs since the best one, or since count_anew().
  int64_t waited() const { return static_cast<int64_t>(seen_.back().waited); }
  // Has waited() count from the latest epoch on.
  void count_anew() { seen_.back().waited = 0; }
  bool has_best() const;
  double best() const { return seen_.back().best; }
  // Begins with a best value that an earlier process has seen.
  void take_best(double best);
  const std::string& name() const { return options_.monitor; }
  // Whether a smaller number is better.
  bool falls() const { return falls_; }

 private:
  // Numbers all, so that ranks send them as they are.
  struct Seen {
    double step = 0;
    double value = 0;
    double best = 0;
    double waited = 0;
  };
  double worst() const;
  bool is_better(double value, double best) const;
  double value_after(RunContext& run) const;

  std::string who_;
  MonitorOptions options_;
  bool falls_ = true;
  double loss_sum_ = 0;
  double num_losses_ = 0;
  std::vector<Seen> seen_;  // by epoch, behind what was there before the first one
};

}  // namespace tessera::train
