// What launcher and ranks share beside the variables; see launch.h for the ranks' side.
#pragma once

#include <fcntl.h>

#include <map>
#include <string>
#include <vector>

namespace tessera::cluster {

// What keeps the memory with a job's secret as it is.
inline constexpr int kSecretSeals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;

// This process's environment as NAME=VALUE, with `settings` in place of what it says and `defaults` where it says
// nothing; without the variables of a job that this process itself is a rank of.
std::vector<std::string> child_environment(const std::map<std::string, std::string>& settings,
                                           const std::map<std::string, std::string>& defaults);

// The file that running `name` would start. Throws InvalidArgument naming it.
std::string find_program(const std::string& name);

}  // namespace tessera::cluster
