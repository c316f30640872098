// The page of a running job, as `tessera run --dashboard` and `tessera scheduler --dashboard` serve it: it asks for
// nothing but the job's state.
#pragma once

#include "tessera/tessera.h"

namespace tessera::tools {

// The page's parts, in the style of all pages.
cluster::DashboardPage job_page();

}  // namespace tessera::tools
