#include <algorithm>

#include "tests/fuzz/mutators.h"

namespace tessera::fuzz {

const std::vector<uint64_t>& telling_numbers() {
  static const std::vector<uint64_t> numbers = [] {
    std::vector<uint64_t> made = {0, 1, 2, 3, 7, 10, 512, 1000};
    for (const int bits : {3, 7, 8, 15, 16, 20, 24, 29, 31, 32, 40, 53, 62, 63}) {
      const uint64_t power = uint64_t{1} << bits;
      made.insert(made.end(), {power - 1, power, power + 1});
    }
    made.push_back(UINT64_MAX);
    return made;
  }();
  return numbers;
}

const std::vector<std::string>& telling_texts() {
  static const std::vector<std::string> texts = {
      "",           ".",        "..",    "/",       "a/b",   "../../x",  "/dev/zero",
      "\xff",       "\xc0\x80", "\"",    "\\",      "\n",    " ",        "{}",
      "[]",         "-1",       "1e400", "NaN",     "str",   "Float32",  "BFloat16",
      "Uint8",      "f32",      "bf16",  "crc_num", "w",     "1-w",      "weight.1",
      "%1",         "%2",       "@",     "(grad",   "shard", "f32[2,3]", "f32[-1]",
      "((1,2),())", "\xe2\x82", "null",  "true",    ",",     ":",        std::string(1, '\0')};
  return texts;
}

std::string mutate_bytes(std::string bytes, Draws& draws) {
  for (size_t edits = 1 + draws.below(4); edits > 0; --edits) {
    const size_t at = draws.below(bytes.size());
    switch (bytes.empty() ? 3 : draws.below(7)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ 1 << draws.below(8)); break;
      case 1: bytes[at] = static_cast<char>(draws.below(256)); break;
      case 2: bytes.erase(at, 1 + draws.below(draws.one_in(4) ? bytes.size() : 8)); break;
      case 3: bytes.insert(at, draws.pick(telling_texts())); break;
      case 4: bytes.insert(draws.below(bytes.size()), bytes.substr(at, draws.below(40))); break;
      case 5: bytes.insert(at, 1 + draws.below(8), static_cast<char>(draws.one_in(2) ? 0xFF : draws.below(256))); break;
      default:
        std::reverse(
            bytes.begin() + static_cast<std::ptrdiff_t>(at),
            bytes.begin() + static_cast<std::ptrdiff_t>(at + draws.below(std::min<size_t>(bytes.size() - at, 8))));
        break;
    }
  }
  return bytes;
}

std::string mutate_lines(const std::string& text, Draws& draws) {
  struct Piece {
    size_t begin;
    size_t size;
  };
  std::string result = text;
  const auto pieces = [&](std::string_view separators) {
    std::vector<Piece> found;
    for (size_t at = 0; at < result.size();) {
      const size_t end = std::min(result.find_first_of(separators, at), result.size());
      if (end > at) found.push_back({at, end - at});
      at = end + 1;
    }
    return found;
  };
  for (size_t edits = 1 + draws.below(3); edits > 0; --edits) {
    const auto lines = pieces("\n");
    const auto words = pieces(" ,\n(){}[]:=");
    if (lines.empty() || words.empty()) break;
    const Piece line = draws.pick(lines);
    const Piece word = draws.pick(words);
    switch (draws.below(8)) {
      case 0: result.erase(line.begin, line.size); break;
      case 1: result.insert(draws.pick(lines).begin, result.substr(line.begin, line.size) + "\n"); break;
      case 2: result.replace(word.begin, word.size, result.substr(draws.pick(words).begin, draws.below(12))); break;
      case 3: result.replace(word.begin, word.size, std::to_string(draws.pick(telling_numbers()))); break;
      case 4: result.replace(word.begin, word.size, draws.pick(telling_texts())); break;
      case 5: {
        const Piece other = draws.pick(words);
        result.replace(word.begin, word.size, result.substr(other.begin, other.size));
        break;
      }
      case 6: result.erase(word.begin, word.size); break;
      default: result = mutate_bytes(std::move(result), draws); break;
    }
  }
  return result;
}

}  // namespace tessera::fuzz
