#include "tessera/tools/dashboard/job_page.h"

#include <string>

namespace tessera::tools {

// Of page.css, by the build.
extern const char* const kPageStyle;
// Of job_page.html, job_page.css and job_page.js, by the build.
extern const char* const kJobPageBody;
extern const char* const kJobPageStyle;
extern const char* const kJobPageScript;

cluster::DashboardPage job_page() {
  return {.body = kJobPageBody, .style = std::string(kPageStyle) + kJobPageStyle, .script = kJobPageScript};
}

}  // namespace tessera::tools
