// The laws of conversion, for all numbers of ranks and stages up to 16 ranks on either side: each rank of the
// destination holds what the global values say, converting back gives the bytes of the source, one rank at a time gives
// the bytes of the whole directory, and what was converted joins to the global values by its manifests alone.
// TESSERA_CHECKPOINT_CASES cases are drawn with a fixed seed; 0 takes all.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tessera/checkpoint/convert/transform.h"
#include "tessera/checkpoint/read/load.h"
#include "tessera/testing/checkpoints/transform_cases.h"

namespace tessera::checkpoint {
namespace {

constexpr int kMaxRanks = 16;
constexpr int kMaxStages = 4;
constexpr size_t kNumAppended = 3;  // by save_side
constexpr int kNumCases = TESSERA_CHECKPOINT_CASES;

struct Size {
  int stages;
  int ranks;
};

std::vector<Size> all_sizes() {
  std::vector<Size> sizes;
  for (int stages = 1; stages <= kMaxStages; ++stages) {
    for (int ranks = 1; stages * ranks <= kMaxRanks; ++ranks) sizes.push_back({stages, ranks});
  }
  return sizes;
}

// What differs between a directory and what its ranks must hold.
std::string difference(FileSystem& files, const SideCase& side, const std::string& directory, const std::string& name) {
  for (int rank = 0; rank < side.num_ranks(); ++rank) {
    const auto path = fmt::format("{}/rank_{}/{}{}.ckpt", directory, rank, name, rank);
    const auto checkpoint = load(files, path);
    if (!checkpoint.is_verified()) return path + " has no manifest";
    auto held = side.held_by(rank);
    const auto& entries = checkpoint.entries();
    if (entries.size() != held.size() + kNumAppended) return fmt::format("{}: {} values", path, entries.size());
    for (const auto& [text, content] : {std::pair("note", "all ranks"), std::pair("nothing", "")}) {
      const auto* entry = checkpoint.find(text);
      if (entry == nullptr || entry->read_text() != content) return fmt::format("{}: the text {} differs", path, text);
    }
    for (const auto& [tensor, value] : held) {
      const auto* entry = checkpoint.find(tensor);
      if (entry == nullptr) return fmt::format("{}: {} is missing", path, tensor);
      if (!bit_equal(entry->read(), value)) return fmt::format("{}: {} {} differs", path, tensor, entry->type_text());
    }
    if (checkpoint.manifest()->info.step != 21 || checkpoint.manifest()->info.world_size != side.num_ranks()) {
      return path + ": the manifest's facts differ";
    }
  }
  return "";
}

std::string file_of(const std::string& directory, int rank, const std::string& name) {
  return fmt::format("{}/rank_{}/{}{}.ckpt", directory, rank, name, rank);
}

// "" when one case keeps every law. `json`: strategy files that hold shapes, so that a rank's own sources are enough.
std::string broken_law(const TransformCase& c, bool json) {
  MemoryFileSystem files;
  const std::string from = json ? "from.json" : "from_strategy.ckpt";
  const std::string to = json ? "to.json" : "to_strategy.ckpt";
  write_strategy_file(files, from, c.from.strategy);
  write_strategy_file(files, to, c.to.strategy);
  save_side(files, c.from, "src", "CKP");
  transform_checkpoints(files, "src", "dst", "out", from, to, {.num_threads = 1});
  if (auto wrong = difference(files, c.to, "dst", "out"); !wrong.empty()) return wrong;

  transform_checkpoints(files, "dst", "back", "CKP", to, from, {.num_threads = 1});
  std::map<int64_t, std::string> sources;
  for (int rank = 0; rank < c.from.num_ranks(); ++rank) {
    sources[rank] = file_of("src", rank, "CKP");
    if (files.read_text(sources[rank]) != files.read_text(file_of("back", rank, "CKP"))) {
      return fmt::format("there and back differs on rank {}", rank);
    }
  }
  for (int rank = 0; rank < c.to.num_ranks(); ++rank) {
    auto given = sources;
    if (json) {
      const auto needed = rank_list_for_transform(files, rank, from, to);
      std::erase_if(given, [&](const auto& it) { return !std::count(needed.begin(), needed.end(), it.first); });
    }
    transform_checkpoint_by_rank(files, rank, given, "one.ckpt", from, to);
    if (files.read_text("one.ckpt") != files.read_text(file_of("dst", rank, "out"))) {
      return fmt::format("by rank differs from the whole directory on rank {}", rank);
    }
  }
  transform_checkpoints(files, "dst", "joined", "whole", "", "", {.num_threads = 1});
  const auto joined = load(files, "joined/rank_0/whole0.ckpt");
  for (const auto& parameter : c.from.parameters) {
    const auto* entry = joined.find(parameter.name);
    if (entry == nullptr || !bit_equal(entry->read(), parameter.value)) return parameter.name + " joined differs";
  }
  return "";
}

// "2 stages of 4 ranks", "stages of 3 + 1 ranks".
std::string name_of(const mesh::StageRanks& ranks) {
  return fmt::format("{} stages of {} ranks", ranks.num_stages(), ranks.to_string());
}

void expect_laws(const mesh::StageRanks& from, const mesh::StageRanks& to, bool json, std::mt19937& random) {
  const auto wrong = broken_law(make_case(from, to, random), json);
  EXPECT_EQ(wrong, "") << fmt::format("from {} to {}{}", name_of(from), name_of(to), json ? ", JSON" : "");
}

TEST(Transform, F45_F46_KeepsItsLaws) {
  const auto sizes = all_sizes();
  std::vector<std::pair<Size, Size>> pairs;
  for (const Size& from : sizes) {
    for (const Size& to : sizes) pairs.emplace_back(from, to);
  }
  std::mt19937 random(20260101);
  if (kNumCases > 0) {
    std::shuffle(pairs.begin(), pairs.end(), random);
    pairs.resize(kNumCases);
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto& [from, to] = pairs[i];
    expect_laws(mesh::StageRanks::equal(from.stages, from.ranks), mesh::StageRanks::equal(to.stages, to.ranks),
                i % 2 == 0, random);
  }
}

TEST(Transform, KeepsItsLawsWhereStagesHaveUnequalNumbersOfRanks) {
  constexpr int kUnequalCases = 40;
  std::mt19937 random(20260102);
  const auto draw = [&] {
    std::vector<int> counts(1 + random() % 3);
    for (int& count : counts) count = static_cast<int>(1 + random() % 4);
    return mesh::StageRanks(counts);
  };
  for (int i = 0; i < kUnequalCases; ++i) {
    const auto from = draw();
    expect_laws(from, draw(), i % 2 == 0, random);
  }
}

}  // namespace
}  // namespace tessera::checkpoint
