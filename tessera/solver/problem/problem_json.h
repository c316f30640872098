// Problems are read and written as JSON, in the form of the ASPLOS/EuroSys 2025 contest on intra-operator parallelism
// (github google/iopddl):
//
//     {"problem": {"name": "...",
//                  "nodes": {"intervals": [[begin, end], ...], "costs": [[...], ...], "usages": [[...], ...]},
//                  "edges": {"nodes": [[u, v], ...], "costs": [[...], ...]},
//                  "usage_limit": 123}}
//
// A cost of 10^18 or more forbids. Other members are passed over.
#pragma once

#include <string>
#include <string_view>

#include "tessera/solver/problem/problem.h"

namespace tessera::solver {

// Throws InvalidArgument that names `path` and the member that is missing or not what it should be. The result is
// validated.
Problem parse_problem(std::string_view text, const std::string& path);

}  // namespace tessera::solver
