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

// Where and why reading `text` as JSON failed: `line 2, column 5: "\x02" cannot stand there`, `line 3, column 1: the
// text ends before it is whole`, "the text is empty". Columns count characters from 1. `num_read` is the number of
// bytes that were read, the one that cannot be included, as the member `byte` of nlohmann's parse_error has it.
std::string describe_json_error(std::string_view text, size_t num_read);

// The words of an exception of nlohmann's library that is about a value: without the library's own tag, printable, and
// at most 200 bytes.
std::string plain_json_words(std::string_view what);

}  // namespace tessera
