// Deterministic draws: equal on every machine for equal seeds, and cheap enough to start anew for each execution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera::fuzz {

class Draws {
 public:
  explicit Draws(uint64_t seed) : state_(seed) {}

  // SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }
  // In [0, n); 0 for n = 0.
  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(next() % n); }
  bool one_in(size_t n) { return below(n) == 0; }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[below(from.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace tessera::fuzz
