// Text of others, fit to be shown, and numbers of things in words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

// The text with what would steer a terminal or deceive its reader as \xNN: control characters, and so escape sequences,
// those that turn the writing's direction, and bytes that are no UTF-8. Line breaks and tabs stay.
std::string printable(std::string_view text);

// "1 stage", "2 stages", "0 stages", "4 micro-batches".
std::string plural(int64_t count, std::string_view noun);

}  // namespace tessera
