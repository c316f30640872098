// The addresses at which a process of this host may listen.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::cluster::rendezvous {

// Those of the network interfaces that are up, loopbacks last; an address that is known on its own link only is none of
// them. Empty where the system does not say.
std::vector<std::string> host_addresses();

// Why nobody can listen at `host`, which is none of these, and what to do. `option`: where it was given, as "--host";
// `started`: what listens there, as "the scheduler".
std::string no_such_address(const std::string& host, std::string_view option, std::string_view started);

}  // namespace tessera::cluster::rendezvous
