#include "tessera/compiler/schedule/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tessera/compiler/schedule/occupied.h"

namespace tessera::compiler {
namespace {

struct Block {
  int64_t at = 0;
  Lifetime buffer;
};

bool are_alive_together(const Lifetime& a, const Lifetime& b) { return a.first <= b.last && b.first <= a.last; }

// The lowest place that is free, found by looking behind every block.
int64_t lowest_place(const std::vector<Block>& blocks, const Lifetime& own) {
  std::vector<int64_t> places = {0};
  for (const auto& block : blocks) places.push_back(block.at + block.buffer.bytes);
  std::sort(places.begin(), places.end());
  const auto is_free = [&](int64_t at) {
    return std::none_of(blocks.begin(), blocks.end(), [&](const Block& block) {
      return are_alive_together(block.buffer, own) && at < block.at + block.buffer.bytes && block.at < at + own.bytes;
    });
  };
  return *std::find_if(places.begin(), places.end(), is_free);
}

std::vector<Lifetime> random_lifetimes(unsigned seed, int count) {
  std::mt19937 random(seed);
  std::vector<Lifetime> lifetimes;
  for (int i = 0; i < count; ++i) {
    const int first = static_cast<int>(random() % 37);
    const int length = static_cast<int>(random() % (i % 5 == 0 ? 37 : 4));
    lifetimes.push_back({static_cast<int64_t>(1 + random() % 9) * 64, first, std::min(36, first + length)});
  }
  return lifetimes;
}

TEST(Occupied, GivesTheLowestFreePlace) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    Occupied occupied(37);
    std::vector<Block> blocks;
    for (const auto& buffer : random_lifetimes(seed, 60)) {
      const int64_t at = occupied.lowest_place(buffer.bytes, buffer.first, buffer.last);
      ASSERT_EQ(at, lowest_place(blocks, buffer)) << "seed " << seed << ", block " << blocks.size();
      occupied.take(at, buffer.bytes, buffer.first, buffer.last);
      blocks.push_back({at, buffer});
    }
  }
}

TEST(Pack, KeepsApartWhatIsAliveTogether) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const auto buffers = random_lifetimes(seed, 80);
    const auto packing = pack(buffers);
    for (size_t a = 0; a < buffers.size(); ++a) {
      EXPECT_LE(packing.offsets[a] + buffers[a].bytes, packing.bytes);
      for (size_t b = 0; b < a; ++b) {
        const bool is_apart = packing.offsets[a] + buffers[a].bytes <= packing.offsets[b] ||
                              packing.offsets[b] + buffers[b].bytes <= packing.offsets[a];
        EXPECT_TRUE(is_apart || !are_alive_together(buffers[a], buffers[b])) << "seed " << seed;
      }
    }
    EXPECT_GE(packing.bytes, peak_of(buffers).bytes);
  }
}

// What a recurrent network of many steps keeps for its gradients: a second, or fifteen times as long where each buffer
// is compared with all others.
TEST(Pack, AHundredThousandNestedBuffersTakeWhatIsAliveAtOnce) {
  constexpr int kCount = 100000;
  std::vector<Lifetime> buffers;
  for (int i = 0; i < kCount; ++i) buffers.push_back({64 * (1 + i % 3), i, 2 * kCount - i});
  EXPECT_EQ(pack(buffers).bytes, peak_of(buffers).bytes);
}

}  // namespace
}  // namespace tessera::compiler
