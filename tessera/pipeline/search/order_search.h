// Improves a schedule by changing the order of phases on its critical path.
#pragma once

#include <string>

#include "tessera/pipeline/search/list_schedule.h"

namespace tessera::pipeline {

// An incumbent is the best schedule so far.
struct Incumbent {
  Timeline timeline;
  std::string origin;

  // Takes the timeline where it is complete and better.
  void offer(const Timeline& timeline, const std::string& origin);
};

// Goes from order to order, each a step away: two phases of one stage that stand at the edge of a critical block,
// phases that follow each other without a pause on the longest path, trade places, or one moves to the block's edge.
// What is not much worse than it was a while ago is kept (late acceptance: Burke and Bykov 2017). Ends when `bound_ns`
// is met or the scheduler has placed `effort` phases. A function of its arguments.
void search_orders(ListScheduler& scheduler, int64_t bound_ns, int64_t effort, uint64_t seed, Incumbent& best);

}  // namespace tessera::pipeline
