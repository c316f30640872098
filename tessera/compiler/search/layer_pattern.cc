#include "tessera/compiler/search/layer_pattern.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "tessera/base/strings.h"

namespace tessera::compiler {

bool is_layer_number(std::string_view part) {
  return !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::pair<std::vector<std::string>, std::string> layer_path(const std::string& name) {
  const auto colon = std::min(name.rfind(':'), name.size());
  std::vector<std::string> parts;
  for (const auto part : split(std::string_view(name).substr(0, colon), '.')) parts.emplace_back(part);
  return {parts, name.substr(colon)};
}

std::string layer_pattern(const std::string& name) {
  auto [parts, op] = layer_path(name);
  for (auto& part : parts) {
    if (is_layer_number(part)) part = "*";
  }
  return fmt::format("{}{}", fmt::join(parts, "."), op);
}

}  // namespace tessera::compiler
