// A job's timeline in Perfetto's own form (https://perfetto.dev): Protocol Buffers, which ui.perfetto.dev, its trace
// processor and its Python package read. It is written for them; Tessera itself reads the JSON (timeline_json.h).
#pragma once

#include <string>

#include "tessera/timeline/rank_timeline.h"
#include "tessera/timeline/step_times.h"

namespace tessera::timeline {

// Returns the bytes of a file. Below one track of the job there is a track for each rank, with one for each of its
// lanes; then the critical path, and what was predicted. Times are nanoseconds from the job's first span. All that the
// JSON says of a span is said, and an arrow leads from the begin of a late rank's collective to the end of those that
// waited.
//
// The slices of a track nest, as Perfetto wants it: spans of a lane that overlap stand on several tracks of one name
// below the same rank, which its viewer shows as one. Those of a rank's own thread nest on one track.
std::string perfetto_trace(const JobTimeline& job, const JobSteps& steps);

}  // namespace tessera::timeline
