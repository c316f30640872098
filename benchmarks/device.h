// Where a benchmark computes: --device.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/executor/executor.h"
#include "tessera/session/executable.h"
#include "tessera/session/session.h"
#include "tessera/session/session_options.h"
#include "tessera/testing/devices/dry_gpu.h"
#include "tessera/train/model.h"

namespace tessera::benchmarks {

// "dry" is a device that compiles and does not compute; any other text is a session's.
inline void use_device(const std::string& device, session::SessionOptions& options) {
  if (device == "dry") {
    options.backend = &dry_backend();
    options.kernel_choice = session::KernelChoice::kFixed;
  } else {
    options.device = device;
  }
}

// Tells the arena as it is, and as the plan of the training step wants it, where there was one.
inline std::map<std::string, int64_t> bytes_of(train::Model& model) {
  std::map<std::string, int64_t> bytes{{"arena", model.session().arena_bytes()}};
  if (auto* step = model.train_executable()) bytes["plan"] = step->executor().schedule().arena_bytes;
  return bytes;
}

// The time of each kind of kernel in a step, as --profile measured it. Where the host's clock told it, what a launch
// that is waited for takes by itself, which is the time of the shortest kernel, is taken off.
inline void print_kernel_times(const executor::Executor& executor, int steps) {
  std::map<std::string, std::pair<int, double>> kinds;
  const auto times = executor.profile();
  double shortest = 1e9;
  for (const auto& time : times) {
    shortest = std::min(shortest, time.is_of_device ? 0.0 : time.microseconds / steps);
  }
  double all = 0;
  for (const auto& time : times) {
    auto& [count, sum] = kinds[time.kernel];
    ++count;
    sum += time.microseconds / steps - shortest;
    all += time.microseconds / steps - shortest;
  }
  std::vector<std::pair<double, std::string>> rows;
  for (const auto& [kind, row] : kinds) rows.emplace_back(row.second, kind);
  std::sort(rows.rbegin(), rows.rend());
  fmt::print("{:8.1f} us in {} kernels, {:.1f} us each taken off\n", all, times.size(), shortest);
  if (const auto note = executor.profile_note(); !note.empty()) fmt::print("{}\n", note);
  for (const auto& [sum, kind] : rows) fmt::print("{:8.1f} us {:4} {}\n", sum, kinds[kind].first, kind);
}

}  // namespace tessera::benchmarks
