// Rules that are worth a try when a schedule is searched.
#pragma once

#include <functional>
#include <string>

#include "tessera/pipeline/list_schedule.h"

namespace tessera::pipeline {

// Is told the rules, where they come from, and whether that is a schedule's name; false ends the enumeration.
using TakeProposal = std::function<bool(const std::string& origin, const SchedulingRules& rules, bool is_named)>;

// The named schedules that fit first, then orders of preference (kinds, or what has the longest way to the end) with
// warm-ups of several depths: limits on the micro-batches in flight as multiples of what covers the way to the end of
// the network and back, from none to what memory allows.
void for_each_proposal(const PipelineProblem& problem, const SeriesTable& table, const TakeProposal& take);

}  // namespace tessera::pipeline
