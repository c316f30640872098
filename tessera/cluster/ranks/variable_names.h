// The environment variables whose names begin with TESSERA_, and which of a process's are none of them. What each says
// stands in docs/environment.md, which lists the same.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::cluster {

// All of them, in the order of their names.
std::span<const std::string_view> variable_names();

// What is said of those of `names` (the variables of a process) that begin with TESSERA_ and that nobody reads:
// "TESSERA_JOIN_TIMEOUT (did you mean TESSERA_JOIN_TIMEOUT_MS?)". "" where there are none. What Kubernetes sets for a
// service whose name begins so (TESSERA_JOB_SERVICE_HOST, TESSERA_JOB_PORT, ...) is not meant for Tessera.
std::string describe_unknown_variables(const std::vector<std::string>& names);

}  // namespace tessera::cluster
