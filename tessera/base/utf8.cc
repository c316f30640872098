#include "tessera/base/utf8.h"

namespace tessera {

Utf8Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[i])); };
  if (byte(0) < 0x80) return {1, byte(0)};
  const size_t length = byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : 2;
  if (byte(0) < 0xc2 || byte(0) > 0xf4 || text.size() < length) return {};
  uint32_t code = byte(0) & (0xffU >> (length + 1));
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  const uint32_t least = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {length, code};
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t num_bytes = first_character(text).num_bytes;
    if (num_bytes == 0) return false;
    text.remove_prefix(num_bytes);
  }
  return true;
}

}  // namespace tessera
