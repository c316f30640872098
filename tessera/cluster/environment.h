// The launcher's side of the environment; see launch.h for the ranks' side.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tessera::cluster {

// This process's environment as NAME=VALUE, with `settings` in place of what it says and `defaults` where it says
// nothing; without the variables of a job that this process itself is a rank of.
std::vector<std::string> child_environment(const std::map<std::string, std::string>& settings,
                                           const std::map<std::string, std::string>& defaults);

// The file that running `name` would start. Throws InvalidArgument naming it.
std::string find_program(const std::string& name);

}  // namespace tessera::cluster
