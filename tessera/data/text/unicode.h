// Text in UTF-8: lines that are checked, and words as Python's str.split() finds them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::data {

// The lines of a text, without their ends (\n, \r\n or \r); what follows the last end is a line unless it is empty.
std::vector<std::string_view> text_lines(std::string_view text);

// Throws InvalidArgument naming `file`, the line and the byte unless the line is UTF-8 (no surrogates, nothing
// overlong) without NUL and of at most kMaxLineBytes.
inline constexpr size_t kMaxLineBytes = size_t{1} << 20;
void require_utf8(std::string_view line, std::string_view file, int64_t line_number);

// The words between white space: that of ASCII and of Unicode, the no-break space included.
std::vector<std::string_view> split_words(std::string_view text);
// The text without the white space at its ends.
std::string_view strip_space(std::string_view text);

}  // namespace tessera::data
