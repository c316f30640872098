// The features of this CPU that kernels are chosen by.
#pragma once

#include <string>
#include <vector>

namespace tessera::tools {

// The names of those that it has, "avx512f" among them, as `tessera info` and the facts of a host list them.
std::vector<std::string> cpu_features();

}  // namespace tessera::tools
