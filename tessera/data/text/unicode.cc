#include "tessera/data/text/unicode.h"

#include "tessera/base/error.h"
#include "tessera/base/printable.h"
#include "tessera/base/utf8.h"

namespace tessera::data {
namespace {

uint32_t byte_at(std::string_view text, size_t i) { return static_cast<unsigned char>(text[i]); }

// How many bytes the white space has that the text begins with; 0 where there is none. Python's str.isspace().
size_t space_bytes(std::string_view text) {
  const uint32_t first = byte_at(text, 0);
  if (first == ' ' || (first >= 0x09 && first <= 0x0d) || (first >= 0x1c && first <= 0x1f)) return 1;
  const auto second = text.size() > 1 ? byte_at(text, 1) : 0;
  if (first == 0xc2) return second == 0x85 || second == 0xa0 ? 2 : 0;
  if (text.size() < 3 || first < 0xe1 || first > 0xe3) return 0;
  const uint32_t third = byte_at(text, 2);
  const bool is_space = (first == 0xe1 && second == 0x9a && third == 0x80) ||  // U+1680
                        (first == 0xe2 && second == 0x80 &&
                         (third <= 0x8a || third == 0xa8 || third == 0xa9 || third == 0xaf)) ||  // U+2000 to U+202F
                        (first == 0xe2 && second == 0x81 && third == 0x9f) ||                    // U+205F
                        (first == 0xe3 && second == 0x80 && third == 0x80);                      // U+3000
  return is_space ? 3 : 0;
}

}  // namespace

std::vector<std::string_view> text_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find_first_of("\r\n");
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + (text.substr(end, 2) == "\r\n" ? 2 : 1));
  }
  return lines;
}

void require_utf8(std::string_view line, std::string_view file, int64_t line_number) {
  if (line.size() > kMaxLineBytes) {
    throw InvalidArgument("text \"{}\": line {} has {} bytes; at most {} are read", printable(file), line_number,
                          line.size(), kMaxLineBytes);
  }
  for (size_t i = 0; i < line.size();) {
    const size_t length = line[i] == '\0' ? 0 : first_character(line.substr(i)).num_bytes;
    if (length == 0) {
      throw InvalidArgument(
          "text \"{}\": line {}: must be UTF-8 without NUL, byte {} is 0x{:02x}; convert it, as by iconv -t UTF-8",
          printable(file), line_number, i + 1, byte_at(line, i));
    }
    i += length;
  }
}

std::vector<std::string_view> split_words(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t space = space_bytes(text.substr(i));
    if (space == 0) {
      ++i;  // no byte within a character looks like the beginning of a space
      continue;
    }
    if (i > begin) words.push_back(text.substr(begin, i - begin));
    begin = i += space;
  }
  if (begin < text.size()) words.push_back(text.substr(begin));
  return words;
}

std::string_view strip_space(std::string_view text) {
  const auto words = split_words(text);
  if (words.empty()) return {};
  return {words.front().data(), static_cast<size_t>(words.back().data() + words.back().size() - words.front().data())};
}

}  // namespace tessera::data
