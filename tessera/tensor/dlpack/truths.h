// Bools that come from outside: from a file or from another library. What computes with a bool takes its byte for 0 or
// 1, and is silently wrong with any other.
#pragma once

#include <cstddef>
#include <span>

namespace tessera {

// Whether each byte is 0 or 1.
bool are_truths(std::span<const std::byte> bytes);

// Makes each byte 1 that is not 0.
void make_truths(std::span<std::byte> bytes);

}  // namespace tessera
