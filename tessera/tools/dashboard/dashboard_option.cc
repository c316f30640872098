#include "tessera/tools/dashboard/dashboard_option.h"

#include "tessera/tools/arguments/usage.h"

namespace tessera::tools {

void add_dashboard_option(CLI::App& command, cluster::DashboardOptions& dashboard) {
  command
      .add_option("--dashboard", dashboard.place,
                  "[ADDRESS:]PORT: show the running job as a page there, 0 for any free port; the page's address, with "
                  "its token,\nis printed (docs/dashboard.md); default address: 127.0.0.1, for this host alone")
      ->check(dashboard_place());
}

}  // namespace tessera::tools
