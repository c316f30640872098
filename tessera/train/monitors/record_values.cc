#include "tessera/train/monitors/record_values.h"

#include <utility>

#include "tessera/train/model.h"

namespace tessera::train {

RecordValues::RecordValues(ValueRecordOptions options) : options_(std::move(options)) {
  if (!options_.is_on()) {
    throw InvalidArgument("RecordValues: it needs a directory to record into, or compare_with, one to compare with");
  }
  if (!options_.stops && options_.compare_with.empty()) {
    throw InvalidArgument("RecordValues: stops = false has no effect without compare_with: give that, too");
  }
}

void RecordValues::begin(RunContext& run) { run.model.record_values(options_); }

void RecordValues::end(RunContext& run) { run.model.record_values({}); }

}  // namespace tessera::train
