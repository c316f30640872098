// What is recorded of a job's timeline, and where it is written.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "tessera/base/files/file_system.h"

namespace tessera::timeline {

inline constexpr int64_t kLastStep = std::numeric_limits<int64_t>::max();

// The steps of a training that are recorded.
struct TracedSteps {
  int64_t first = 1;
  int64_t last = kLastStep;
  // Above 0: none, until somebody asks for them; then so many from the next one on (request_path).
  int64_t on_request = 0;

  bool operator==(const TracedSteps&) const = default;
};
// Parses "10:20", "10:", ":20", "15", "request", "request:50"; "" are all steps. Steps count from 1, the last one is
// recorded, too. Throws InvalidArgument naming `what` and the forms.
TracedSteps parse_traced_steps(std::string_view text, std::string_view what);
// The text that is parsed as these steps.
std::string to_string(const TracedSteps& steps);

struct TimelineOptions {
  std::string file;  // of the whole job; "": nothing is recorded
  TracedSteps steps = {};
  // A part that is there already stays until this process has spans to write: it is of the same job, begun anew.
  bool keeps_earlier = false;
  // For so many spans there is room in the lane that computes, 32 bytes each; other lanes have a quarter.
  int64_t num_spans = int64_t{1} << 17;
};

// Where a rank writes what it has recorded: FILE.rank.N.
std::string part_path(const std::string& file, int rank);
// The file that asks for steps, where they are recorded on request: FILE.request. Each byte that it grows by asks once.
std::string request_path(const std::string& file);
// Throws IoError where `file` cannot be written: its folder is not there and cannot be made, or takes no files, or the
// name is that of a folder, a device or a pipe. Leaves no file.
void check_writable(FileSystem& files, const std::string& file);

}  // namespace tessera::timeline
