// What `tessera cluster check` prints.
#pragma once

#include <string>
#include <vector>

#include "tessera/tools/check/facts.h"
#include "tessera/tools/check/findings.h"

namespace tessera::tools {

// Tables of hosts and pairs, and what was found.
std::string check_text(const ClusterFacts& facts, const std::vector<Finding>& findings);
// Prints the same as one JSON object.
std::string check_json(const ClusterFacts& facts, const std::vector<Finding>& findings);

}  // namespace tessera::tools
