// Rows of the table that CsvLog writes: fields with commas between them, quoted as RFC 4180 has it.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace tessera::train {

// Before a metric's name in the name of its column.
constexpr std::string_view kMetricColumn = "evaluated_";

// The row without its end. Line breaks within a field become blanks.
std::string csv_line(const std::vector<std::string>& fields);
// The fields of a row; one empty field of an empty line.
std::vector<std::string> csv_fields(std::string_view line);

// The number that is all of the text, nan and inf included; nothing of anything else.
template <typename Number>
std::optional<Number> whole_number(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace tessera::train
