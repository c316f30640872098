// The addresses at which a process of this host may listen.
#pragma once

#include <string>
#include <vector>

namespace tessera::cluster::rendezvous {

// Those of the network interfaces that are up, loopbacks last; an address that is known on its own link only is none of
// them. Empty where the system does not say.
std::vector<std::string> host_addresses();

}  // namespace tessera::cluster::rendezvous
