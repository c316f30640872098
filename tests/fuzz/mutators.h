// Damage that keeps a form, so that it reaches what lies behind a parser's first check. Each takes bytes and returns
// others, which depend on the draws only. Input of another form is damaged byte by byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/draws.h"

namespace tessera::fuzz {

// Numbers at which parsers go wrong: around powers of two, the largest of each width.
const std::vector<uint64_t>& telling_numbers();
// Texts likewise: empty, with separators, quotes, a path, not UTF-8, a word of each format.
const std::vector<std::string>& telling_texts();

// Flips, cuts, inserts, repeats and moves bytes.
std::string mutate_bytes(std::string bytes, Draws& draws);
// Protocol Buffers: takes the fields apart, drops, repeats, swaps, renumbers and changes some, nested ones too, and
// writes them with right lengths but for one in eight, which lies.
std::string mutate_wire(const std::string& bytes, Draws& draws);
// JSON: the same with its values and members.
std::string mutate_json(const std::string& text, Draws& draws);
// Text in lines of words.
std::string mutate_lines(const std::string& text, Draws& draws);

}  // namespace tessera::fuzz
