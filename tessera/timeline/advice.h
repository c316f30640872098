// What a summary of a timeline makes worth doing.
#pragma once

#include <vector>

#include "tessera/timeline/timeline_summary.h"

namespace tessera::timeline {

// Five at most, what may bring most first: of each use of time that is a hundredth of the step or more, what makes it
// shorter. Reads all of the summary but its advice.
std::vector<Advice> find_advice(const TimelineSummary& summary);

}  // namespace tessera::timeline
