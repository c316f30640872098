// Members of a record of a log, which may be of any kind, or missing.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace tessera::tools {

// `Json` is one of nlohmann's. "" of what is no text.
template <typename Json>
std::string text_in(const Json& record, const char* name) {
  const auto found = record.find(name);
  return found != record.end() && found->is_string() ? found->template get<std::string>() : "";
}

// A count from 0 on; nothing of anything else.
template <typename Json>
std::optional<int64_t> count_in(const Json& record, const char* name) {
  const auto found = record.find(name);
  if (found == record.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() &&
      found->template get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return std::nullopt;
  }
  const auto value = found->template get<int64_t>();
  return value < 0 ? std::nullopt : std::optional(value);
}

}  // namespace tessera::tools
