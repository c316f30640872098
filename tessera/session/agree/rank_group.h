// Collectives in a network take a group of a job's context in this form.
#pragma once

#include <string>

#include "tessera/cluster/ranks/context.h"
#include "tessera/ops/functions/collective_functions.h"

namespace tessera::session {

// Throws InvalidArgument when there is no such group, or this rank is not in it.
ops::RankGroup rank_group(cluster::Context& context, const std::string& name = cluster::kWorldGroup);

}  // namespace tessera::session
