// The parts of a report's page that say how the training step is spread, what memory it takes and where its time goes.
#pragma once

#include <string>

#include "tessera/tools/report/run_report.h"

namespace tessera::tools {

// Each has a heading. Where the run has not written what it is made of, it says in a sentence how to get it.
std::string time_part(const RunReport& report);
std::string step_memory_part(const RunReport& report);
std::string plan_part(const RunReport& report);

}  // namespace tessera::tools
