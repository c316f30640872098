#include "tessera/mesh/stage_ranks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "tessera/base/error.h"

namespace tessera::mesh {

StageRanks::StageRanks(const std::vector<int>& counts) {
  if (counts.empty()) throw InvalidArgument("a pipeline has a stage at least, got none");
  int end = 0;
  for (size_t stage = 0; stage < counts.size(); ++stage) {
    if (counts[stage] < 1) {
      throw InvalidArgument("stage {} of {} has {} ranks: each stage needs one at least", stage, counts.size(),
                            counts[stage]);
    }
    ends_.push_back(end += counts[stage]);
  }
}

StageRanks StageRanks::equal(int num_stages, int ranks_per_stage) {
  return StageRanks(std::vector<int>(static_cast<size_t>(std::max(0, num_stages)), ranks_per_stage));
}

std::vector<int> StageRanks::ranks_of(int stage) const {
  std::vector<int> ranks(static_cast<size_t>(count(stage)));
  std::iota(ranks.begin(), ranks.end(), first(stage));
  return ranks;
}

int StageRanks::stage_of(int rank) const {
  if (rank < 0 || rank >= num_ranks()) {
    throw InvalidArgument("the stages have the ranks 0 to {}, none of them {}", num_ranks() - 1, rank);
  }
  return static_cast<int>(std::upper_bound(ends_.begin(), ends_.end(), rank) - ends_.begin());
}

std::vector<int> StageRanks::counts() const {
  std::vector<int> counts;
  for (int stage = 0; stage < num_stages(); ++stage) counts.push_back(count(stage));
  return counts;
}

std::set<int> StageRanks::sizes() const {
  const auto all = counts();
  return {all.begin(), all.end()};
}

std::string StageRanks::to_string() const {
  if (are_equal()) return fmt::format("{} each", count(0));
  return fmt::format("{}", fmt::join(counts(), " + "));
}

}  // namespace tessera::mesh
