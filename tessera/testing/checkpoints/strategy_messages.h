// What tests of file forms share: bytes written as hexadecimal text, and deterministic damage.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <string_view>

#include "tessera/base/random.h"

namespace tessera::checkpoint {

// "08 01 'w'" -> 08 01 77. Spaces and line ends separate; text stands in single quotes.
inline std::string from_hex(std::string_view text) {
  std::string bytes;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'A' + 10; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ' || text[i] == '\n') continue;
    if (text[i] == '\'') {
      const size_t end = text.find('\'', i + 1);
      bytes += text.substr(i + 1, end - i - 1);
      i = end;
      continue;
    }
    bytes += static_cast<char>(digit(text[i]) << 4 | digit(text[i + 1]));
    ++i;
  }
  return bytes;
}

// Calls f with `whole` after a few edits at random places, `rounds` times, drawn by `seed`.
inline void for_each_random_damage(const std::string& whole, int rounds, uint64_t seed,
                                   const std::function<void(const std::string&)>& f) {
  uint64_t draws = 0;
  const auto draw = [&](size_t n) {
    return static_cast<size_t>(random_below({.seed = seed}, draws++, static_cast<int64_t>(n)));
  };
  for (int round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    auto damaged = whole;
    for (size_t edits = 1 + draw(4); edits > 0 && !damaged.empty(); --edits) {
      const size_t at = draw(damaged.size());
      switch (draw(4)) {
        case 0: damaged[at] = static_cast<char>(draw(256)); break;
        case 1: damaged.insert(at, 1, static_cast<char>(draw(256))); break;
        case 2: damaged.erase(at, 1 + draw(8)); break;
        default: damaged.insert(draw(damaged.size()), damaged.substr(at, draw(40))); break;
      }
    }
    f(damaged);
  }
}

// Calls f with `whole` after every replacement of one byte by some telling values, every truncation, and `rounds` draws
// of a few random edits.
inline void for_each_damage(const std::string& whole, int rounds, const std::function<void(const std::string&)>& f) {
  for (size_t at = 0; at < whole.size(); ++at) {
    f(whole.substr(0, at));
    for (const int replacement : {0x00, 0x01, 0x0A, 0x12, 0x22, 0x5B, 0x7F, 0x80, 0xFF}) {
      auto damaged = whole;
      damaged[at] = static_cast<char>(replacement);
      f(damaged);
    }
  }
  for_each_random_damage(whole, rounds, 7, f);
}

}  // namespace tessera::checkpoint
