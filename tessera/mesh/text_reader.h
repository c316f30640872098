// Reads short notations such as ((2,1),(1,4)): blanks between tokens are skipped, every failure names the whole text
// and the place. The parsers of this folder share it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::mesh {

class TextReader {
 public:
  TextReader(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  // Takes `c` if it comes next.
  bool accept(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("expected \"{}\"", c));
  }
  bool sees(char c) {
    skip_blanks();
    return at_ < text_.size() && text_[at_] == c;
  }
  int64_t integer() {
    skip_blanks();
    const size_t begin = at_;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (at_ == begin) fail("expected an integer");
    return parse_int(text_.substr(begin, at_ - begin), what_);
  }
  void end() {
    skip_blanks();
    if (at_ != text_.size()) fail("expected the end");
  }
  [[noreturn]] void fail(const std::string& expected) const {
    throw InvalidArgument("{} \"{}\": {} at character {}", what_, text_, expected, at_ + 1);
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n')) ++at_;
  }

  std::string_view text_;
  std::string_view what_;
  size_t at_ = 0;
};

}  // namespace tessera::mesh
