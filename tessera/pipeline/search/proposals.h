// Rules that are worth a try when a schedule is searched.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/pipeline/search/list_schedule.h"

namespace tessera::pipeline {

// Is told the rules, where they come from, and whether that is a schedule's name; false ends the enumeration.
using TakeProposal = std::function<bool(const std::string& origin, const SchedulingRules& rules, bool is_named)>;

// The named schedules that fit first, then orders of preference (kinds, or what has the longest way to the end) with
// warm-ups of several depths: limits on the micro-batches in flight as multiples of what covers the way to the end of
// the network and back, from none to what memory allows.
void for_each_proposal(const PipelineProblem& problem, const SeriesTable& table, const TakeProposal& take);

// Keys of each phase, by what must follow it: the longest way to the end first.
std::vector<int64_t> keys_by_tail(const PipelineProblem& problem, const SeriesTable& table);

// How many micro-batches each stage has in flight when none waits: the time from the start of each visit's forward
// until its backward has ended, by the time that the slowest stage takes for a micro-batch.
std::vector<double> natural_depths(const PipelineProblem& problem);

}  // namespace tessera::pipeline
