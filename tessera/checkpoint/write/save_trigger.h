// SaveTrigger: the decision to save.
#pragma once

#include <cstdint>

#include "tessera/base/clock.h"
#include "tessera/checkpoint/write/checkpoint_config.h"

namespace tessera::checkpoint {

// Says after which steps to save. Steps are counted from the beginning of training. With several ranks and
// save_checkpoint_seconds one rank must decide for all: clocks differ.
class SaveTrigger {
 public:
  // `config` is validated; `resumed_step` is the step that training starts after.
  SaveTrigger(const CheckpointConfig& config, const Clock& clock, int64_t resumed_step = 0);
  // Whether to save after this step, which has ended.
  bool is_due(int64_t step) const;
  // At the end of training the last step is saved if it was not.
  bool is_due_at_end(int64_t step) const { return step != last_step_; }
  // The caller says that it has saved: steps and time are counted from here.
  void saved(int64_t step);

 private:
  int64_t steps_;
  int64_t seconds_;
  const Clock& clock_;
  int64_t last_step_;
  int64_t last_time_ns_;
};

}  // namespace tessera::checkpoint
