#include "tessera/train/options/parallel_mode.h"

#include <fmt/ranges.h>

#include <array>
#include <vector>

#include "tessera/base/error.h"

namespace tessera::train {
namespace {

struct Facts {
  std::string_view name;
  bool needs_ranks = true;
  bool reads_strategies = false;
};

// By ParallelMode.
constexpr auto kModes = std::to_array<Facts>({
    {.name = "stand_alone", .needs_ranks = false},
    {.name = "data_parallel"},
    {.name = "hybrid_parallel"},
    {.name = "semi_auto_parallel", .reads_strategies = true},
    {.name = "auto_parallel", .reads_strategies = true},
    {.name = "pipeline_parallel", .reads_strategies = true},
});
static_assert(kModes.size() == kNumParallelModes);

const Facts& facts(ParallelMode mode) { return kModes[static_cast<size_t>(mode)]; }

}  // namespace

std::string_view to_string(ParallelMode mode) { return facts(mode).name; }
bool needs_ranks(ParallelMode mode) { return facts(mode).needs_ranks; }
std::string ranks_apart_text(int num_ranks) {
  return fmt::format(
      "parallel_mode is stand_alone: each of the {} ranks trains a network of its own on all rows; with "
      "data_parallel they train one",
      num_ranks);
}
bool reads_strategies(ParallelMode mode) { return facts(mode).reads_strategies; }

std::string modes_that_read_strategies() {
  std::vector<std::string_view> names;
  for (const Facts& mode : kModes) {
    if (mode.reads_strategies) names.push_back(mode.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

ParallelMode parse_parallel_mode(const std::string& text) {
  std::vector<std::string_view> names;
  for (size_t i = 0; i < kModes.size(); ++i) {
    if (text == kModes[i].name) return static_cast<ParallelMode>(i);
    names.push_back(kModes[i].name);
  }
  throw InvalidArgument("unknown parallel mode \"{}\"; available: {}", text, fmt::join(names, ", "));
}

}  // namespace tessera::train
