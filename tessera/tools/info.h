// What the command `tessera` says of this build.
#pragma once

#include <string>
#include <vector>

namespace tessera::tools {

// Build type, compiler, CPU model and features, cores, backends, transports, versions of the libraries.
std::string info_text(const std::string& version);
std::string info_json(const std::string& version);
// Those of this CPU that kernels are chosen by.
std::vector<std::string> cpu_features();

}  // namespace tessera::tools
