// How a benchmark program talks to benchmarks/run, which has several of them take turns: a line of JSON on standard
// output when it is warm, then one for each line "go" on standard input. It ends with its input. See
// benchmarks/README.md.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <iostream>
#include <map>
#include <string>
#include <string_view>

#include "tessera/base/function_ref.h"

namespace tessera::benchmarks {

// Runs `round` whenever asked; it returns the measured value in `unit` ("images/s"). `about` says in a few words what
// was measured, for the reader of the table. `bytes`: memory by name ("arena"), for the JSON form.
inline void serve_rounds(const std::string& unit, const std::string& about, FunctionRef<double()> round,
                         const std::map<std::string, int64_t>& bytes = {}) {
  std::string sizes;
  for (const auto& [name, size] : bytes) sizes += fmt::format("{}\"{}\": {}", sizes.empty() ? "" : ", ", name, size);
  fmt::print("{{\"ready\": true, \"unit\": \"{}\", \"about\": \"{}\", \"bytes\": {{{}}}}}\n", unit, about, sizes);
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line) && line == "go";) {
    fmt::print("{{\"value\": {}}}\n", round());
    std::fflush(stdout);
  }
}

// Seconds that a round of steps lasts at least. After the idle spell in which the other sides had their turn, the first
// step of a round is slower than the next ones, for some programs much more than for others: it is run and not counted.
constexpr double kRoundSeconds = 2;

// Runs steps for a round: one that is not counted, then as many as `round_seconds` take, at least one. `step` runs one
// and returns its seconds. Returns the mean of the counted ones.
inline double seconds_of_step_in_round(FunctionRef<double()> step, double round_seconds = kRoundSeconds) {
  step();
  double sum = 0;
  int count = 0;
  while (sum < round_seconds) {
    sum += step();
    ++count;
  }
  return sum / count;
}

// What a benchmark's main() does: what `run` throws becomes a line on standard error that begins with the program's
// name, and exit code 1.
inline int run_benchmark(int argc, char** argv, int (*run)(int argc, char** argv)) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    const std::string_view path = argc > 0 ? argv[0] : "";
    fmt::print(stderr, "{}: {}\n", path.substr(path.rfind('/') + 1), error.what());
    return 1;
  }
}

}  // namespace tessera::benchmarks
