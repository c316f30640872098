// begin_anew starts this process's program again, in its place: parents, launchers and terminals see the same process.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tessera::cluster {

// The program, its arguments, its environment and its directory are those that it began with; `settings` are variables
// beside. Descriptors that are open stay so, but sockets and what is closed on exec; of those that are, `inherited`
// stay open. Threads end, memory goes, buffers of C are written out. Throws IoError where the system refuses.
[[noreturn]] void begin_anew(const std::map<std::string, std::string>& settings, const std::vector<int>& inherited);

}  // namespace tessera::cluster
