// What a core dump would have of this process, for tests.
#pragma once

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

namespace tessera::comm {

// Whether the kernel leaves the page at `address` out of a dump: the flag "dd" in /proc/self/smaps.
inline bool is_left_out_of_dumps(const void* address) {
  std::ifstream maps("/proc/self/smaps");
  const auto place = reinterpret_cast<uintptr_t>(address);
  bool is_inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) is_inside = begin <= place && place < end;
    if (is_inside && line.starts_with("VmFlags:")) return (line + " ").find(" dd ") != std::string::npos;
  }
  return false;
}

}  // namespace tessera::comm
