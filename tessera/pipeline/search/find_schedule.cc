#include "tessera/pipeline/search/find_schedule.h"

#include "tessera/base/error.h"
#include "tessera/pipeline/search/named.h"
#include "tessera/pipeline/search/order_search.h"
#include "tessera/pipeline/search/priority_search.h"
#include "tessera/pipeline/search/proposals.h"

namespace tessera::pipeline {
namespace {

FoundSchedule describe(const PipelineProblem& problem, PipelineSchedule schedule, std::string origin,
                       LowerBound bound) {
  FoundSchedule found{.schedule = std::move(schedule), .origin = std::move(origin), .bound = std::move(bound)};
  found.makespan_ns = found.schedule.makespan_ns();
  found.peak_bytes = peak_bytes(problem, found.schedule);
  found.bubble = bubble(found.schedule);
  check(found.bound.ns <= found.makespan_ns, "no schedule is faster than the bound");
  return found;
}

}  // namespace

FoundSchedule find_schedule(const PipelineProblem& problem, std::string_view name, const FindOptions& options) {
  validate(problem);
  if (name != "auto") return describe(problem, named_schedule(problem, name), std::string(name), lower_bound(problem));

  const auto bound = lower_bound(problem);
  ListScheduler scheduler(problem);
  Incumbent best;
  const auto is_done = [&] { return best.timeline.complete && best.timeline.makespan_ns <= bound.ns; };
  // Names are always tried; at most half of the effort is for other rules.
  const auto take = [&](const std::string& origin, const SchedulingRules& rules, bool is_named) {
    if (!is_named && best.timeline.complete && scheduler.num_placed() >= options.effort / 2) return false;
    best.offer(scheduler.run(rules), origin);
    return !is_done();
  };
  for_each_proposal(problem, scheduler.table(), take);
  check(best.timeline.complete, "a valid problem has a schedule");
  search_priorities(scheduler, bound.ns, options.effort * 3 / 4, options.seed, best);
  search_orders(scheduler, bound.ns, options.effort, options.seed, best);
  return describe(problem, to_schedule(problem, scheduler.table(), best.timeline), best.origin, bound);
}

}  // namespace tessera::pipeline
