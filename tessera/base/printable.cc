#include "tessera/base/printable.h"

#include <fmt/format.h>

#include <cstdint>

namespace tessera {
namespace {

// Of the character of UTF-8 that the text begins with; 0 when that is none or a control character other than a line
// break and a tab.
size_t character_bytes(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  if (byte(0) < 0x80) return (byte(0) >= 0x20 && byte(0) != 0x7f) || byte(0) == '\n' || byte(0) == '\t' ? 1 : 0;
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return 0;
  uint32_t code = byte(0) & (0xffU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3fU);
  }
  const uint32_t least = length == 2 ? 0xa0 : length == 3 ? 0x800 : 0x10000;  // U+0080 to U+009F are controls, too
  const bool is_direction = (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
  return code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) || is_direction ? 0 : length;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  for (size_t i = 0; i < text.size();) {
    const size_t length = character_bytes(text.substr(i));
    if (length > 0) {
      shown += text.substr(i, length);
      i += length;
    } else {
      shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i++]));
    }
  }
  return shown;
}

}  // namespace tessera
