// LiveRecord: what this rank tells of its training to those who look at the job while it runs
// (cluster::TrainingFigures): at most once a second, and only where somebody may look. Else each call costs a branch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/cluster/ranks/training_figures.h"
#include "tessera/train/core/learning_rate_reader.h"
#include "tessera/train/core/model_core.h"

namespace tessera::train {

// A step that was finished.
struct LiveStep {
  int64_t epoch = 0;  // from 1; 0 in a loop of the program's own
  int64_t num_epochs = 0;
  int64_t steps_per_epoch = 0;
  int64_t step = 0;  // since the beginning of training
  int64_t rows = 0;  // trained since the step that was told before; as RunContext counts them
  double loss = 0;
};

// A checkpoint that has been begun.
struct LiveCheckpoint {
  std::string path;  // "": there is none
  int64_t step = 0;
};

class LiveRecord {
 public:
  // The core must outlive the record.
  explicit LiveRecord(ModelCore& core) : core_(core) {}

  // A training begins behind this step.
  void begin(const LiveStep& before);
  void step_end(const LiveStep& step, const LiveCheckpoint& newest);
  // How it has ended: "completed", "stopped" or "failed".
  void end(const char* how, const LiveCheckpoint& newest);

 private:
  int64_t now_ns() const { return core_.context.clock().monotonic_ns(); }
  // What does not change from step to step.
  void begin_figures(const LiveStep& step);
  // How the step is split, for people; "" where there is nothing to say beside the mode.
  std::string plan_words() const;
  void tell(int64_t now);

  ModelCore& core_;
  cluster::TrainingFigures figures_;
  std::optional<LearningRateReader> rates_;
  bool has_begun_ = false;
  int64_t told_ns_ = 0;    // when; 0: never
  int64_t marked_ns_ = 0;  // since when rows are counted
  int64_t rows_ = 0;
};

}  // namespace tessera::train
