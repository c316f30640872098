// What `tessera info --kernels` says: which kernels were measured to be the fastest on this machine.
#pragma once

#include <string>

#include "tessera/engine.h"
#include "tessera/tessera.h"

namespace tessera::tools {

// The table that sessions remember in `directory`: for each operator and shape the candidates' times, the fastest
// first, and which was chosen.
std::string kernels_text(FileSystem& file_system, const std::string& directory);
// Returns the same as one JSON object, in the form of the file (docs/kernels.md).
std::string kernels_json(FileSystem& file_system, const std::string& directory);

}  // namespace tessera::tools
