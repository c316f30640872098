// Ranks on several hosts: what ranks of one host can do together they do by one transport (shared memory), and only
// what must goes between hosts, by another (Gloo, MPI).
//
// Reductions add by rank within a host, in the order of the group, and then by host, in the order of the hosts' first
// ranks; results of bf16 and f16 are rounded once more for each host.
#pragma once

#include <memory>
#include <vector>

#include "tessera/comm/transport.h"

namespace tessera::comm {

// `host_of[r]` is a number of rank r's host; `within` connects ranks of equal numbers, `between` all of them.
std::unique_ptr<Transport> make_hierarchical_transport(std::unique_ptr<Transport> within,
                                                       std::unique_ptr<Transport> between, std::vector<int> host_of);

}  // namespace tessera::comm
