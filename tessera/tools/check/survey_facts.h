// The facts of hosts as their ranks have told them, also where some ranks do not reach each other.
#pragma once

#include <string>
#include <vector>

#include "tessera/tessera.h"
#include "tessera/tools/check/facts.h"

namespace tessera::tools {

// The hosts of what print_host() has made on each rank, in the order of the hosts' lowest ranks; "" is of nobody.
std::vector<HostFacts> by_host(const std::vector<std::string>& of_ranks);
// Tells hosts of one name, as containers may be, apart by their addresses.
void name_apart(std::vector<HostFacts>& hosts);

// The hosts by what their ranks have told, and which pairs of them do not reach each other; nothing is measured.
ClusterFacts facts_of_survey(const cluster::Survey& survey);

}  // namespace tessera::tools
