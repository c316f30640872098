#include "tessera/checkpoint/write/save_trigger.h"

namespace tessera::checkpoint {

SaveTrigger::SaveTrigger(const CheckpointConfig& config, const Clock& clock, int64_t resumed_step)
    : steps_(config.save_checkpoint_steps.value_or(0)),
      seconds_(config.save_checkpoint_seconds),
      clock_(clock),
      last_step_(resumed_step),
      last_time_ns_(clock.monotonic_ns()) {}

bool SaveTrigger::is_due(int64_t step) const {
  if (step == last_step_) return false;
  if (steps_ > 0) return step - last_step_ >= steps_;
  return seconds_ > 0 && (clock_.monotonic_ns() - last_time_ns_) / 1'000'000'000 >= seconds_;
}

void SaveTrigger::saved(int64_t step) {
  last_step_ = step;
  last_time_ns_ = clock_.monotonic_ns();
}

}  // namespace tessera::checkpoint
