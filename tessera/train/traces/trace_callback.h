// Trace: a training's timeline as a file that ui.perfetto.dev and chrome://tracing show (docs/timeline.md).
#pragma once

#include <cstdint>
#include <string>

#include "tessera/timeline/timeline_options.h"
#include "tessera/train/callback.h"

namespace tessera::train {

struct TraceOptions {
  int64_t first_step = 1;  // of the training, resumed steps counted
  int64_t last_step = 0;   // recorded, too; 0: all to the end
  // For so many spans a rank has room in the lane that computes, 32 bytes each; where there are more, the oldest go.
  int64_t num_spans = timeline::TimelineOptions{}.num_spans;
};

// Records what all ranks do in these steps, and writes it to `file` when the training ends: rank 0 joins what each rank
// has written as FILE.rank.N. Where a rank's part is elsewhere, or the training fails, the parts stay, and `tessera
// trace merge` joins them. Every rank needs the callback. Does nothing but warn where the job is recorded already, by
// `tessera run --trace` or TESSERA_TRACE. The constructor throws InvalidArgument for steps that cannot be, begin() an
// IoError where the file cannot be written.
class Trace : public Callback {
 public:
  explicit Trace(std::string file, const TraceOptions& options = {});
  void begin(RunContext& run) override;
  void end(RunContext& run) override;

 private:
  timeline::TimelineOptions options_;
  bool is_recording_ = false;
};

}  // namespace tessera::train
