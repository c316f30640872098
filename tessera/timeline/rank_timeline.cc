#include "tessera/timeline/rank_timeline.h"

#include <algorithm>

namespace tessera::timeline {

std::vector<int> JobTimeline::missing_ranks() const {
  std::vector<int> missing;
  for (int rank = 0; rank < size(); ++rank) {
    const auto is_of_rank = [rank](const RankTimeline& part) { return part.rank.rank == rank && part.is_written; };
    if (std::ranges::none_of(ranks, is_of_rank)) missing.push_back(rank);
  }
  return missing;
}

int64_t JobTimeline::num_dropped() const {
  int64_t sum = 0;
  for (const RankTimeline& rank : ranks) {
    for (const RecordedLane& lane : rank.lanes) sum += lane.num_dropped;
  }
  return sum;
}

}  // namespace tessera::timeline
