#include "tessera/train/kept/kept_restores.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::train {
namespace {

constexpr const char* kMemory = "what a rank has kept";
// As many as a memory has.
constexpr size_t kMostVersions = 2;

std::string print_version(const KeptStep& version) {
  return fmt::format("{} {} {} {} {}", version.training, version.model, version.order, version.generation,
                     version.num_ranks);
}

// From the second word on.
KeptStep parse_version(const std::vector<std::string>& words) {
  return {parse_int(words[1], kMemory), parse_int(words[2], kMemory), parse_int(words[3], kMemory),
          parse_int(words[4], kMemory), parse_int(words[5], kMemory)};
}

// Hashes have all 64 bits.
uint64_t parse_hash(const std::string& word) { return static_cast<uint64_t>(parse_int(word, kMemory)); }
int64_t print_hash(uint64_t hash) { return static_cast<int64_t>(hash); }

}  // namespace

std::string print_memory(const RankMemory& memory) {
  std::string text =
      fmt::format("needs {} {} {} {} {}\n", print_hash(memory.fingerprint), print_hash(memory.copies_fingerprint),
                  memory.own_bytes, memory.has_copies ? 1 : 0, memory.has_any ? 1 : 0);
  for (const KeptStep& version : memory.own) text += fmt::format("own {}\n", print_version(version));
  for (const auto& other : memory.for_others) {
    text += fmt::format("for {} {} {} {}\n", print_version(other.version), other.rank, print_hash(other.fingerprint),
                        other.size_bytes);
  }
  return text;
}

RankMemory parse_memory(std::string_view text) {
  RankMemory memory;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty()) continue;
    std::vector<std::string> words;
    for (const auto word : split(line, ' ')) words.emplace_back(word);
    if (words[0] == "needs" && words.size() == 6) {
      memory.fingerprint = parse_hash(words[1]);
      memory.copies_fingerprint = parse_hash(words[2]);
      memory.own_bytes = parse_int(words[3], kMemory);
      memory.has_copies = words[4] == "1";
      memory.has_any = words[5] == "1";
    } else if (words[0] == "own" && words.size() == 6) {
      memory.own.insert(parse_version(words));
    } else if (words[0] == "for" && words.size() == 9) {
      memory.for_others.push_back(
          {parse_version(words), parse_int(words[6], kMemory), parse_hash(words[7]), parse_int(words[8], kMemory)});
    } else {
      throw InvalidArgument("{}: no line of it is \"{}\"", kMemory, line);
    }
  }
  return memory;
}

std::vector<KeptRestore> find_restores(const std::vector<RankMemory>& of_ranks, int64_t model) {
  std::vector<KeptRestore> restores;
  const auto num_ranks = static_cast<int64_t>(of_ranks.size());
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const RankMemory& needs = of_ranks[static_cast<size_t>(rank)];
    if (needs.has_any) continue;
    std::map<KeptStep, KeptRestore> found;
    for (int64_t buddy = 0; buddy < num_ranks; ++buddy) {
      for (const auto& other : of_ranks[static_cast<size_t>(buddy)].for_others) {
        const KeptStep& version = other.version;
        const bool is_its = other.rank == rank && version.num_ranks == num_ranks && version.model == model &&
                            other.fingerprint == needs.fingerprint && other.size_bytes == needs.own_bytes;
        if (!is_its) continue;
        KeptRestore restore{.version = version, .rank = static_cast<int>(rank), .buddy = static_cast<int>(buddy)};
        if (needs.has_copies) {
          const auto holder = std::ranges::find_if(of_ranks, [&](const RankMemory& has) {
            return has.own.contains(version) && has.copies_fingerprint == needs.copies_fingerprint;
          });
          if (holder == of_ranks.end()) continue;
          restore.copies_from = static_cast<int>(holder - of_ranks.begin());
        }
        found.emplace(version, restore);
      }
    }
    while (found.size() > kMostVersions) found.erase(found.begin());
    for (const auto& [version, restore] : found) restores.push_back(restore);
  }
  return restores;
}

}  // namespace tessera::train
