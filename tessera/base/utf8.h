// Reads the characters of UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

struct Utf8Character {
  size_t num_bytes = 0;  // 0: none
  uint32_t code = 0;     // its code point
};

// The character that a text of at least one byte begins with; none where the bytes are no UTF-8: overlong, a surrogate,
// beyond U+10FFFF or cut off.
Utf8Character first_character(std::string_view text);

// Whether all of the text is UTF-8.
bool is_utf8(std::string_view text);

}  // namespace tessera
