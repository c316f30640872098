// What the ranks of an elastic job are about to do, compared before they do anything together: a rank that has been
// started later, with other arguments, is the one that does not fit, and the job goes on without it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/cluster/ranks/context.h"

namespace tessera::train {

// What decides a training, by the names of its options: {"epochs", "8"}.
using TrainingSettings = std::vector<std::pair<std::string, std::string>>;

// Whether require_same_as_job() compares anything: in an elastic job of several ranks.
bool is_compared_with_job(cluster::Context& context);

// Compares the settings of all ranks; every rank calls it. Where they differ, those count which most of the ranks have
// that have trained in this job before, or, where none has, most of all ranks. A rank whose settings are others leaves
// the job for good: it throws cluster::Misfit, which names each of them with its value here and in the job. The other
// ranks throw cluster::Resizing, for the next generation begins without that rank.
void require_same_as_job(cluster::Context& context, const TrainingSettings& own);

}  // namespace tessera::train
