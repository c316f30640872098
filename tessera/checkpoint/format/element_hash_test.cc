#include "tessera/checkpoint/format/element_hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tessera/checkpoint/convert/region_reader.h"
#include "tessera/tensor/tensor.h"

namespace tessera::checkpoint {
namespace {

// As the page on the format says it, one element after the other.
uint64_t by_the_formula(std::span<const std::byte> bytes, int64_t element_bytes, uint64_t first_index) {
  uint64_t sum = 0;
  for (size_t at = 0; at < bytes.size(); at += static_cast<size_t>(element_bytes)) {
    uint64_t bits = 0;
    std::memcpy(&bits, bytes.data() + at, static_cast<size_t>(element_bytes));
    uint64_t x = bits + (first_index++ + 1) * 0x9E3779B97F4A7C15;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
    x = (x ^ x >> 27) * 0x94D049BB133111EB;
    sum += x ^ x >> 31;
  }
  return sum;
}

std::vector<std::byte> random_bytes(size_t size) {
  std::mt19937 random(7);
  std::vector<std::byte> bytes(size);
  for (auto& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(ElementHash, IsSplitMix64) {
  // Its first three numbers with the seed 1234567 are known from other implementations.
  const uint64_t seed = 1234567;
  const auto bytes = std::as_bytes(std::span(&seed, 1));
  EXPECT_EQ(hash_elements(bytes, 8, 0), 6457827717110365317U);
  EXPECT_EQ(hash_elements(bytes, 8, 1), 3203168211198807973U);
  EXPECT_EQ(hash_elements(bytes, 8, 2), 9817491932198370423U);
}

TEST(ElementHash, FollowsTheFormulaForAllSizesAndLengths) {
  const auto bytes = random_bytes(1000);
  for (const int64_t size : {1, 2, 4, 8}) {
    for (int64_t count = 0; count < 100; ++count) {
      const auto part = std::span(bytes).subspan(3, static_cast<size_t>(count * size));
      const uint64_t first = (uint64_t{1} << 40) + static_cast<uint64_t>(count);
      ASSERT_EQ(hash_elements(part, size, first), by_the_formula(part, size, first)) << size << " " << count;
    }
  }
}

TEST(ElementHash, OfAllTilesIsThatOfTheWhole) {
  const Shape global{6, 5, 7};
  auto bytes = random_bytes(static_cast<size_t>(global.num_elements() * 4));
  const uint64_t whole = hash_elements(bytes, 4, 0);
  const RegionBytes from{Region::whole(global), bytes};
  for (const Shape& cut : {Shape{1, 1, 1}, Shape{4, 5, 7}, Shape{6, 2, 7}, Shape{6, 5, 3}, Shape{4, 2, 3}}) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < global[0]; i += cut[0]) {
      for (int64_t j = 0; j < global[1]; j += cut[1]) {
        for (int64_t k = 0; k < global[2]; k += cut[2]) {
          const Region wanted{{i, j, k}, cut};
          const Region tile = *intersection(wanted, Region::whole(global));
          std::vector<std::byte> held(static_cast<size_t>(tile.shape.num_elements() * 4));
          copy_region(from, {tile, held}, tile, 4);
          RegionHash hash(tile, global, 4);
          const size_t first = held.size() / 3 / 4 * 4;  // in pieces that end anywhere
          hash.add(std::span(held).first(first));
          hash.add(std::span(held).subspan(first));
          sum += hash.sum();
        }
      }
    }
    EXPECT_EQ(sum, whole) << cut.to_string();
  }
}

TEST(ElementHash, ChangesWithEachBitAndWithTheOrder) {
  auto bytes = random_bytes(64);
  const uint64_t good = hash_elements(bytes, 2, 0);
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_NE(hash_elements(bytes, 2, 0), good) << bit;
    bytes[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
  }
  std::swap_ranges(bytes.begin(), bytes.begin() + 2, bytes.begin() + 2);
  EXPECT_NE(hash_elements(bytes, 2, 0), good);
  EXPECT_NE(hash_elements(bytes, 2, 1), hash_elements(bytes, 2, 0));
}

}  // namespace
}  // namespace tessera::checkpoint
