// Small text helpers that the standard library lacks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

// The shortest decimal that reads back as the same number: 2.3025851, 1e-05, 0.1. Whole numbers keep ".0"; nan, inf.
std::string shortest(float value);
std::string shortest(double value);

// "1.5 GiB", "812 B": for people.
std::string format_bytes(int64_t bytes);
// "12.5 us", "3.20 ms", "1.500 s": for people.
std::string format_seconds(double seconds);
// "2GiB", "1.5 MiB", "4096": the other way. Throws InvalidArgument naming `what` for any other unit and below 1 byte.
int64_t parse_bytes(std::string_view text, std::string_view what);

// Whole-string parses; nullopt-free: throw InvalidArgument naming `what` and the text when it is not a number.
int64_t parse_int(std::string_view text, std::string_view what);
double parse_double(std::string_view text, std::string_view what);

// The candidate that is closest to `name` by edit distance, or "" when none is close: for "did you mean".
std::string closest(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace tessera
