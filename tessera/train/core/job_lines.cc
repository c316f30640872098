#include "tessera/train/core/job_lines.h"

#include <fmt/format.h>

#include "tessera/base/strings.h"

namespace tessera::train {

std::optional<std::string> find_line(std::string_view state, std::string_view key) {
  for (const std::string_view line : split(state, '\n')) {
    if (line.starts_with(key)) return std::string(line.substr(key.size()));
  }
  return std::nullopt;
}

std::string with_line(std::string_view state, std::string_view key, std::string_view value) {
  std::string lines;
  for (const std::string_view line : split(state, '\n')) {
    if (!line.empty() && !line.starts_with(key)) lines += fmt::format("{}\n", line);
  }
  return lines + fmt::format("{}{}\n", key, value);
}

}  // namespace tessera::train
