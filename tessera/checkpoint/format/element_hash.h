// The layout-free hash of a tensor: the sum, modulo 2^64, over its elements of h(index, bits), where index is the
// element's row-major place in the global value. So any slices that tile a tensor add up to the same hash, however it
// is cut, and a conversion can be checked without gathering anything. Finds accidents, not forgers.
//
// h(index, bits) is number index + 1 of the generator SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", 2014) with the seed `bits`, the element's bytes as a little-endian number:
//     x = bits + (index + 1) * 0x9E3779B97F4A7C15;  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
//     x = (x ^ x >> 27) * 0x94D049BB133111EB;       h = x ^ x >> 31
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tessera/checkpoint/format/region.h"

namespace tessera::checkpoint {

// The hash of elements of 1, 2, 4 or 8 bytes whose indices follow each other, beginning at `first_index`.
uint64_t hash_elements(std::span<const std::byte> bytes, int64_t element_bytes, uint64_t first_index);

// A RegionHash is the hash of a region of a tensor of shape `global`. Its elements come row-major, in pieces of whole
// elements.
class RegionHash {
 public:
  RegionHash(const Region& region, const Shape& global, int64_t element_bytes);
  void add(std::span<const std::byte> bytes);
  // The hash of what was added.
  uint64_t sum() const { return sum_; }

 private:
  void next_run();

  Region region_;
  Strides strides_;
  int64_t element_bytes_;
  int outer_ndim_ = 0;  // the dims along which runs follow each other
  int64_t run_elements_ = 1;
  int64_t left_in_run_ = 0;
  Shape at_;           // where the present run begins
  int64_t index_ = 0;  // the index of the next element
  uint64_t sum_ = 0;
};

}  // namespace tessera::checkpoint
