// What `tessera report` prints: a summary for people, or all of it as JSON.
#pragma once

#include <string>

#include "tessera/tools/report/compare_runs.h"

namespace tessera::tools {

// The summary of a run: its headlines, what is to be known of its log, and the command to repeat it.
std::string report_text(const RunReport& report);
// One JSON object, on a line; docs/reports.md lists its members.
std::string report_json(const RunReport& report);

// The same of two runs.
std::string comparison_text(const RunComparison& comparison);
std::string comparison_json(const RunComparison& comparison);

// "equal at 40 common steps", "differs first at step 7: 0.5 and 0.25 (50% of the larger)": what is said of a number.
std::string number_comparison_text(const NumberComparison& number);
// "B is 1.25 times as fast as A", by the medians.
std::string speed_text(const RunComparison& comparison);

}  // namespace tessera::tools
