#include "tessera/train/monitors/record_values.h"

#include "tessera/train/model.h"

namespace tessera::train {

void RecordValues::begin(RunContext& run) { run.model.record_values(options_); }

void RecordValues::end(RunContext& run) { run.model.record_values({}); }

}  // namespace tessera::train
