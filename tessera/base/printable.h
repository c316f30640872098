// Text of others, fit to be shown.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// The text with what would steer a terminal or deceive its reader as \xNN: control characters, and so escape sequences,
// those that turn the writing's direction, and bytes that are no UTF-8. Line breaks and tabs stay.
std::string printable(std::string_view text);

}  // namespace tessera
