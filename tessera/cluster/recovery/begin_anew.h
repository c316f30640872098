// begin_anew starts this process's program again, in its place: parents, launchers and terminals see the same process.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tessera::cluster {

// Runs the program with the arguments, the environment and the directory that it began with, and with the variables of
// `settings`. Open descriptors stay open, except sockets and those that are closed on exec; of the latter, those of
// `inherited` stay open, too. Threads end, memory goes, buffers of C are written out. Throws IoError where the system
// refuses.
[[noreturn]] void begin_anew(const std::map<std::string, std::string>& settings, const std::vector<int>& inherited);

}  // namespace tessera::cluster
