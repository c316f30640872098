#include "tessera/timeline/rank_timeline.h"

#include <algorithm>
#include <numeric>

namespace tessera::timeline {
namespace {

// Of spans that are as long, those of lower numbers hold the others.
int depth_of(SpanKind kind) {
  switch (kind) {
    case SpanKind::kStep: return 0;
    case SpanKind::kCallbacks: return 1;
    case SpanKind::kEvaluation:
    case SpanKind::kSave:
    case SpanKind::kCompilation: return 2;
    case SpanKind::kPhase: return 3;
    case SpanKind::kRun: return 4;
    default: return 5;
  }
}

}  // namespace

std::vector<size_t> nested_order(const std::vector<SpanName>& names, const std::vector<TimedSpan>& spans) {
  std::vector<size_t> order(spans.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) {
    const TimedSpan& left = spans[a];
    const TimedSpan& right = spans[b];
    if (left.begin_ns != right.begin_ns) return left.begin_ns < right.begin_ns;
    if (left.end_ns != right.end_ns) return left.end_ns > right.end_ns;
    return depth_of(names[left.name].kind) < depth_of(names[right.name].kind);
  });
  return order;
}

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

int64_t origin_ns(std::span<const RankTimeline> ranks) {
  std::optional<int64_t> origin;
  for (const RankTimeline& rank : ranks) {
    for (const RecordedLane& lane : rank.lanes) {
      for (const TimedSpan& span : lane.spans) origin = std::min(origin.value_or(span.begin_ns), span.begin_ns);
    }
  }
  return origin.value_or(0);
}

}  // namespace tessera::timeline
