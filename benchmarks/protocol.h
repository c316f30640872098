// How a benchmark program talks to benchmarks/run, which has several of them take turns: a line of JSON on standard
// output when it is warm, then one for each line "go" on standard input. It ends with its input. See
// benchmarks/README.md.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "tessera/base/function_ref.h"

namespace tessera::benchmarks {

// Runs `round` whenever asked; it returns the measured value in `unit` ("images/s"). `about` says in a few words what
// was measured, for the reader of the table.
inline void serve_rounds(const std::string& unit, const std::string& about, FunctionRef<double()> round) {
  fmt::print("{{\"ready\": true, \"unit\": \"{}\", \"about\": \"{}\"}}\n", unit, about);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line) && line == "go";) {
    fmt::print("{{\"value\": {}}}\n", round());
    std::fflush(stdout);
  }
}

}  // namespace tessera::benchmarks
