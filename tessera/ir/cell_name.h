// What graphs, strategies and messages call a cell.
#pragma once

#include <string>

namespace tessera::ir {

// A cell's name is its path of attributes, "layer1.0"; the root, whose path is empty, is ".".
inline std::string cell_name(std::string path) { return path.empty() ? "." : path; }

}  // namespace tessera::ir
