// The most memory that this process has had resident.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "tessera/base/error.h"

namespace tessera::allocation {

// Not getrusage()'s, which begins with that of the process that has started this one.
inline int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return 1024 * std::stoll(line.substr(6));
  }
  throw IoError("/proc/self/status says nothing of VmHWM");
}

}  // namespace tessera::allocation
