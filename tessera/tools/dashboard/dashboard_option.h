// The option --dashboard of the commands that start a job.
#pragma once

#include <CLI/CLI.hpp>

#include "tessera/tessera.h"

namespace tessera::tools {

// Adds the option to a command. `dashboard`, which lives as long as the program, has the place that it names; give it
// the page (dashboard/job_page.h).
void add_dashboard_option(CLI::App& command, cluster::DashboardOptions& dashboard);

}  // namespace tessera::tools
