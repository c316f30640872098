// Who keeps what for whom, and who gives it back.
#include "tessera/train/kept/buddy_copies.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/testing/run_ranks.h"
#include "tessera/train/kept/kept_restores.h"

namespace tessera::train {
namespace {

TEST(Buddies, AreOnAnotherHostWhereThereIsOne) {
  EXPECT_EQ(find_buddies({"a/x", "a/x", "b/y", "b/y"}), (std::vector<int>{2, 3, 0, 1}));
  EXPECT_EQ(find_buddies({"a/x", "a/z", "b/y"}), (std::vector<int>{2, 2, 0}));
  EXPECT_EQ(find_buddies({"a/x", "b/y", "a/x", "b/y"}), (std::vector<int>{1, 0, 3, 2}));
}

TEST(Buddies, AreOfAnotherLauncherOfTheHostElse) {
  EXPECT_EQ(find_buddies({"a/x", "a/x", "a/y"}), (std::vector<int>{2, 2, 0}));
}

TEST(Buddies, AreNoneWhereAllIsLostTogether) {
  EXPECT_EQ(find_buddies({"a/x", "a/x"}), (std::vector<int>{-1, -1}));
  EXPECT_EQ(find_buddies({"a/x"}), (std::vector<int>{-1}));
}

// Each rank of every size of hosts has a buddy elsewhere, and nobody keeps more than the even share, rounded up.
TEST(Buddies, AreLoadedEvenly) {
  for (int left = 1; left <= 5; ++left) {
    for (int right = 1; right <= 5; ++right) {
      std::vector<std::string> keepers(static_cast<size_t>(left), "a/x");
      keepers.resize(static_cast<size_t>(left + right), "b/y");
      std::vector<int> load(keepers.size());
      const auto buddies = find_buddies(keepers);
      for (size_t rank = 0; rank < keepers.size(); ++rank) {
        ASSERT_GE(buddies[rank], 0);
        EXPECT_NE(keepers[static_cast<size_t>(buddies[rank])], keepers[rank]);
        ++load[static_cast<size_t>(buddies[rank])];
      }
      for (size_t rank = 0; rank < keepers.size(); ++rank) {
        const int share = rank < static_cast<size_t>(left) ? (right + left - 1) / left : (left + right - 1) / right;
        EXPECT_LE(load[rank], share);
      }
    }
  }
}

TEST(BuddyCopies, AreTheFirstBytesOfWhatEachKeeps) {
  run_ranks(3, [](cluster::Context& context) {
    cluster::KeptMemory memory;
    const std::vector<int64_t> sizes = {5, 7000, 3};
    {
      BuddyCopies copies(context, memory, {2, 2, 0}, sizes);
      for (int step = 1; step <= 3; ++step) {
        const std::vector<std::byte> own(8000, static_cast<std::byte>(10 * step + context.rank()));
        copies.start(own);
        copies.wait();
        const auto versions = memory.versions();
        if (context.rank() == 1) {
          EXPECT_TRUE(versions.empty()) << "nobody's buddy";
          continue;
        }
        ASSERT_EQ(versions.size(), step == 1 ? 1U : 2U);
        std::vector<std::byte> expected;
        if (context.rank() == 0) expected.assign(3, static_cast<std::byte>(10 * step + 2));
        if (context.rank() == 2) {
          expected.assign(5, static_cast<std::byte>(10 * step));
          expected.resize(7005, static_cast<std::byte>(10 * step + 1));
        }
        EXPECT_EQ(std::vector<std::byte>(versions[0].begin(), versions[0].end()), expected);
      }
    }
    EXPECT_FALSE(context.has_group("copies for buddies"));
  });
}

TEST(BuddyCopies, OfAFailedJobEndWithoutAnError) {
  EXPECT_THROW(run_ranks(2,
                         [](cluster::Context& context) {
                           cluster::KeptMemory memory;
                           BuddyCopies copies(context, memory, {1, 0}, {4, 4});
                           const std::vector<std::byte> own(4);
                           copies.start(own);
                           copies.wait();
                           if (context.rank() == 1) throw IoError("this rank is lost");
                           copies.start(own);
                           copies.wait();
                           copies.start(own);
                           context.world().barrier("the next step");
                         }),
               IoError);
}

const KeptStep kSeventh = {.training = 1, .model = 1, .order = 7, .generation = 0, .num_ranks = 3};
const KeptStep kEighth = {.training = 1, .model = 1, .order = 8, .generation = 0, .num_ranks = 3};

RankMemory survivor(std::vector<RankMemory::ForOther> for_others) {
  return {.fingerprint = 11,
          .copies_fingerprint = 5,
          .own_bytes = 64,
          .has_copies = true,
          .has_any = true,
          .own = {kSeventh, kEighth},
          .for_others = std::move(for_others)};
}

std::vector<RankMemory> one_lost() {
  std::vector<RankMemory> of_ranks(3);
  of_ranks[0] = survivor({});
  of_ranks[1] = {.fingerprint = 12, .copies_fingerprint = 5, .own_bytes = 128, .has_copies = true};
  of_ranks[2] = survivor({{kSeventh, 1, 12, 128}, {kEighth, 1, 12, 128}});
  return of_ranks;
}

TEST(Restores, AreTheVersionsThatABuddyHas) {
  EXPECT_EQ(find_restores(one_lost(), 1),
            (std::vector<KeptRestore>{{kSeventh, 1, /*buddy=*/2, /*copies_from=*/0}, {kEighth, 1, 2, 0}}));
}

TEST(Restores, AreNoneOfWhatIsNotThereOrIsOfAnotherTraining) {
  const auto without = [](auto change) {
    auto of_ranks = one_lost();
    change(of_ranks);
    return find_restores(of_ranks, 1);
  };
  EXPECT_TRUE(find_restores(one_lost(), 2).empty()) << "another model";
  EXPECT_TRUE(without([](auto& ranks) { ranks[1].has_any = true; }).empty()) << "it has lost nothing";
  EXPECT_TRUE(without([](auto& ranks) { ranks[1].fingerprint = 13; }).empty()) << "its values lie in another way";
  EXPECT_TRUE(without([](auto& ranks) { ranks[1].own_bytes = 64; }).empty());
  EXPECT_TRUE(without([](auto& ranks) { ranks[1].copies_fingerprint = 6; }).empty());
  EXPECT_TRUE(without([](auto& ranks) { ranks[0].own = ranks[2].own = {}; }).empty()) << "nobody has the copies";
  EXPECT_TRUE(without([](auto& ranks) { ranks.emplace_back(survivor({})); }).empty()) << "of another number of ranks";
  EXPECT_EQ(without([](auto& ranks) { ranks[0].own = ranks[2].own = {kEighth}; }).size(), 1U);
  EXPECT_EQ(without([](auto& ranks) {
              ranks[1].has_copies = false;
              ranks[0].own = ranks[2].own = {};
            }),
            (std::vector<KeptRestore>{{kSeventh, 1, 2, -1}, {kEighth, 1, 2, -1}}));
}

TEST(Restores, ComeBackFromTheirText) {
  for (RankMemory memory : one_lost()) {
    EXPECT_EQ(parse_memory(print_memory(memory)), memory);
    memory.fingerprint = ~uint64_t{0};
    EXPECT_EQ(parse_memory(print_memory(memory)), memory);
  }
  for (const char* text : {"needs 1 2 3\n", "own 1 2\n", "for 1 2 3 4 5 6\n", "what\n", "own a b c d e\n"}) {
    EXPECT_THROW(parse_memory(text), InvalidArgument) << text;
  }
}

}  // namespace
}  // namespace tessera::train
