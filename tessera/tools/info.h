// What the command `tessera` says of this build.
#pragma once

#include <string>

namespace tessera::tools {

// Build type, compiler, CPU model and features, cores, backends, transports, versions of the libraries.
std::string info_text(const std::string& version);
std::string info_json(const std::string& version);

}  // namespace tessera::tools
