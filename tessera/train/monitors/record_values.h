// RecordValues: a callback that has a training record the values of its steps, from its begin to its end.
#pragma once

#include "tessera/train/callback.h"
#include "tessera/train/options/value_record_options.h"

namespace tessera::train {

// Does what Model::record_values() does, for one call of train(); behind it nothing is recorded any more.
class RecordValues : public Callback {
 public:
  // Throws InvalidArgument where there is nothing to record into and nothing to compare with, and where a difference is
  // not to stop the training and there is nothing to compare with.
  explicit RecordValues(ValueRecordOptions options);
  // Throws as Model::record_values().
  void begin(RunContext& run) override;
  void end(RunContext& run) override;

 private:
  ValueRecordOptions options_;
};

}  // namespace tessera::train
