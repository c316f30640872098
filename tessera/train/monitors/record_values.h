// RecordValues: a callback that has a training record the values of its steps, from its begin to its end.
#pragma once

#include <utility>

#include "tessera/train/callback.h"
#include "tessera/train/options/value_record_options.h"

namespace tessera::train {

// Does what Model::record_values() does, for one call of train(); behind it nothing is recorded any more.
class RecordValues : public Callback {
 public:
  explicit RecordValues(ValueRecordOptions options) : options_(std::move(options)) {}
  // Throws as Model::record_values().
  void begin(RunContext& run) override;
  void end(RunContext& run) override;

 private:
  ValueRecordOptions options_;
};

}  // namespace tessera::train
