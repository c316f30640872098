// Layers that are alike have names that differ in numbers only.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::compiler {

// Whether a part of a path is the number of a layer.
bool is_layer_number(std::string_view part);

// "blocks.3.attention:matmul#2" -> blocks, 3, attention, and ":matmul#2", which a path may lack.
std::pair<std::vector<std::string>, std::string> layer_path(const std::string& name);

// The name of a cell, a parameter or an operator with "*" for each number in its path: "blocks.*.attention:matmul#2".
std::string layer_pattern(const std::string& name);

}  // namespace tessera::compiler
