// What `tessera bisect` prints: sentences for people, or all of it as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/engine.h"

namespace tessera::tools {

// The first difference of two runs, what was compared, and what was not.
std::string bisect_text(const session::RecordComparison& comparison, const session::ComparisonOptions& options);
// One JSON object, on a line; docs/bisect.md lists its members.
std::string bisect_json(const session::RecordComparison& comparison, const session::ComparisonOptions& options);

// The copies of one run's values that are not alike on all ranks, at the first step that has such.
struct OddCopies {
  int64_t num_steps = 0;  // that were looked at
  int64_t num_values = 0;
  std::optional<int64_t> step = std::nullopt;  // the first with such copies
  std::vector<std::string> values = {};
};
// Throws as session::read_step() does, and InvalidArgument where there are no records.
OddCopies find_odd_copies(FileSystem& files, const std::string& directory, std::optional<int64_t> only);
std::string odd_copies_text(const OddCopies& copies);
std::string odd_copies_json(const OddCopies& copies);

}  // namespace tessera::tools
