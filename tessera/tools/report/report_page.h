// `tessera report -o`: a run, or two of them, as one page that works from disk and asks for nothing.
#pragma once

#include <string>

#include "tessera/tools/report/compare_runs.h"

namespace tessera::tools {

// How the run ended and its headlines, curves, epochs, checkpoints, the failure's reports, what ranks printed last, and
// where and by which command the run was made. What the logs do not have is said in words.
std::string report_page(const RunReport& report);
// Both runs' headlines, where they part, their curves over each other, and settings that differ.
std::string comparison_page(const RunComparison& comparison);

}  // namespace tessera::tools
