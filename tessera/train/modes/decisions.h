// What a job has decided by measuring, or in limited time: kept with the job's scheduler, so that a generation after a
// loss goes by what was decided and does not decide anew, perhaps otherwise. Nothing is kept of a job that a loss ends.
#pragma once

#include <string>

#include "tessera/cluster/ranks/context.h"

namespace tessera::train {

// Rank 0's text on all ranks, which all call it.
std::string broadcast_text(cluster::Context& context, std::string text, const char* what);

// What was decided for `subject`, which says all that the decision depends on in one line; "" where nothing was. Every
// rank calls it, and all get the same.
std::string find_decision(cluster::Context& context, const std::string& subject);
// Keeps it; rank 0 does, on the others nothing happens. Where the scheduler has no room for it, it is said.
void keep_decision(cluster::Context& context, const std::string& subject, const std::string& text);

}  // namespace tessera::train
