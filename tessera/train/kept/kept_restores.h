// Restores: a rank whose memory is gone gets back what its buddy has kept for it (buddy_copies.h), and what every rank
// has from another one. Pure functions: which rank gives what to which, from what each says that it has.
#pragma once

#include <compare>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::train {

// Which version of what ranks have kept: the training, its step, the generation and its number of ranks.
struct KeptStep {
  int64_t training = 0;
  int64_t model = 0;
  int64_t order = 0;  // the step; that the training is over is the last of all
  int64_t generation = 0;
  int64_t num_ranks = 0;
  auto operator<=>(const KeptStep&) const = default;
};

// What a rank has and what it would need, as it tells the others.
struct RankMemory {
  // The version of another rank: what only that rank has of it.
  struct ForOther {
    KeptStep version;
    int64_t rank = 0;
    uint64_t fingerprint = 0;
    int64_t size_bytes = 0;
    auto operator<=>(const ForOther&) const = default;
  };
  // Hashes of the values that it is to have, and of those that every rank has; bytes of what only it has.
  uint64_t fingerprint = 0;
  uint64_t copies_fingerprint = 0;
  int64_t own_bytes = 0;
  bool has_copies = false;  // some values are on every rank
  bool has_any = false;     // its memory has a version, if only of another training
  std::set<KeptStep> own;
  std::vector<ForOther> for_others;
  bool operator==(const RankMemory&) const = default;
};

std::string print_memory(const RankMemory& memory);
// Throws InvalidArgument where the text is none of print_memory().
RankMemory parse_memory(std::string_view text);

// A version that a rank gets back: what only it has of its buddy, the rest of a rank that has the same version.
struct KeptRestore {
  KeptStep version;
  int rank = 0;
  int buddy = 0;
  int copies_from = -1;  // -1: there is nothing that every rank has
  bool operator==(const KeptRestore&) const = default;
};
// Of a model that these ranks train together: for each rank that has nothing, up to two versions, the older one first.
std::vector<KeptRestore> find_restores(const std::vector<RankMemory>& of_ranks, int64_t model);

}  // namespace tessera::train
