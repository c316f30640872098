// Improves a schedule by changing which phases the list scheduler prefers, and how many micro-batches a stage lets in.
#pragma once

#include "tessera/pipeline/search/list_schedule.h"
#include "tessera/pipeline/search/order_search.h"

namespace tessera::pipeline {

// Prefers what has the longest way to the end, but takes each series for earlier or later by a shift of its own, and
// limits the micro-batches in flight since their first visit to a stage. Shifts and limits are drawn, then drawn anew
// one or a few at a time; what is not slower is kept, and after a while without a better schedule all are drawn again.
// Ends when `bound_ns` is met or the scheduler has placed `effort` phases. A function of its arguments.
//
// It reaches what single moves of phases (search_orders) do not: where memory is tight, many phases must change places
// at once.
void search_priorities(ListScheduler& scheduler, int64_t bound_ns, int64_t effort, uint64_t seed, Incumbent& best);

}  // namespace tessera::pipeline
