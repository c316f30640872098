// DashboardPage: the page of a job, which asks for /state.json and shows it: its parts, so that the dashboard can say
// to the browser which style and which script are the page's own, and that no others are.
#pragma once

#include <string>

namespace tessera::cluster {

struct DashboardPage {
  std::string body;    // HTML of <body>'s inside, without style, script and handlers
  std::string style;   // CSS
  std::string script;  // JavaScript, which runs once the body is there
};

struct DashboardOptions {
  std::string place = {};  // [ADDRESS:]PORT, as parse_dashboard_place() reads it; "": there is no dashboard
  DashboardPage page = {};
};

}  // namespace tessera::cluster
