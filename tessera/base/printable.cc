#include "tessera/base/printable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "tessera/base/utf8.h"

namespace tessera {
namespace {

// Control characters, but for a line break and a tab, and those that turn the writing's direction.
bool steers(uint32_t code) {
  if (code == '\n' || code == '\t') return false;
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size();) {
    const auto [length, code] = first_character(text.substr(i));
    if (length > 0 && !steers(code)) {
      shown += text.substr(i, length);
      i += length;
    } else {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i++]));
    }
  }
  return shown;
}

std::string plural(int64_t count, std::string_view noun) {
  const char* const ending = count == 1 ? "" : noun.ends_with("batch") ? "es" : "s";
  return fmt::format("{} {}{}", count, noun, ending);
}

std::string describe_json_error(std::string_view text, size_t num_read) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "the text is empty";
  const size_t at = std::min(num_read == 0 ? 0 : num_read - 1, text.size());
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::ranges::count(before, '\n');
  // npos + 1 is 0: the first line.
  const std::string_view begin = before.substr(before.rfind('\n') + 1);
  // Bytes that continue a character have 10 as their first bits.
  const auto column =
      1 + std::ranges::count_if(begin, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
  const std::string place = fmt::format("line {}, column {}", line, column);
  if (at == text.size()) return place + ": the text ends before it is whole";
  const std::string_view rest = text.substr(at);
  if (rest[0] == '\n') return place + ": the line cannot end there";
  const size_t length = std::max<size_t>(first_character(rest).num_bytes, 1);
  return fmt::format("{}: \"{}\" cannot stand there", place, printable(rest.substr(0, length)));
}

std::string plain_json_words(std::string_view what) {
  constexpr size_t kMostBytes = 200;
  const size_t tag_end = what.starts_with('[') ? what.find("] ") : std::string_view::npos;
  if (tag_end != std::string_view::npos) what.remove_prefix(tag_end + 2);
  // A character that is cut is no UTF-8, and is shown as bytes.
  return printable(what.substr(0, kMostBytes));
}

}  // namespace tessera
