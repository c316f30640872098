#include "tessera/base/printable.h"

#include <fmt/format.h>

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

}  // namespace tessera
