// What keeps the hosts of a job from training well together, as far as their facts show it.
#pragma once

#include <string>
#include <vector>

#include "tessera/tools/check/facts.h"

namespace tessera::tools {

enum class Severity {
  kWarning,  // the job runs, slower than it could or with other bits than elsewhere
  kFault,    // it does not run, or only by luck
};
const char* to_string(Severity severity);  // "warning"

struct Finding {
  Severity severity = Severity::kWarning;
  std::string what;    // is so, and where
  std::string remedy;  // what to do
};

// `rank_table`: the text of a rank table that the job is to go by, "" where it has none; `rank_table_name`: its file's.
std::vector<Finding> find_faults(const ClusterFacts& facts, const std::string& rank_table = "",
                                 const std::string& rank_table_name = "");

}  // namespace tessera::tools
