// The summary of a timeline, as `tessera trace summary` prints it.
#pragma once

#include <cstddef>
#include <string>

#include "tessera/engine.h"

namespace tessera::tools {

// For people: where the time went, operators, collectives, ranks, and what is worth doing.
std::string timeline_text(const timeline::TimelineSummary& summary, const std::string& path);
// One JSON object, with times in seconds.
std::string timeline_json(const timeline::TimelineSummary& summary);

// The text in so many bytes at most, of which there are three at least, with what would steer a terminal shown; of a
// longer one the beginning, and "..." behind it.
std::string shortened(const std::string& text, size_t most_bytes);

// What a machine of this profile could compute an operator in at best.
timeline::OperatorLimit limit_of(const compiler::MachineProfile& profile);

// Reads a timeline, or a rank's part, and sums it up. `profile`: a machine's name or the file of its profile, "": none.
timeline::TimelineSummary summary_of(FileSystem& files, const std::string& path, const std::string& profile);

}  // namespace tessera::tools
