// Timelines that tests write by hand.
#pragma once

#include <string>
#include <utility>

#include "tessera/timeline/rank_timeline.h"

namespace tessera::timeline {

// WrittenRank is a rank's part, span by span. Times are milliseconds.
class WrittenRank {
 public:
  WrittenRank(int rank, int size, const std::string& clock = "clock") {
    part_.rank = {.rank = rank, .size = size, .pid = 100 + rank, .host = "host " + clock, .clock = clock, .job = "job"};
    part_.is_written = true;
    part_.lanes = {{.title = "compute", .spans = {}}, {.title = "collectives", .spans = {}}};
  }
  WrittenRank& system_ms(int64_t now_ms) {
    part_.clocks.system_ms = now_ms;
    return *this;
  }
  WrittenRank& does(SpanKind kind, const std::string& text, int64_t begin_ms, int64_t end_ms, int64_t step = 1) {
    return add(0, {.kind = kind, .text = text, .source = text, .graph = "train"}, begin_ms, end_ms, step);
  }
  // An all_reduce of all ranks, the `number`-th of the step's graph.
  WrittenRank& meets(int number, int64_t begin_ms, int64_t end_ms, int64_t step = 1, bool meets = true) {
    SpanName name{.kind = SpanKind::kCollective, .text = "all_reduce \"w\"", .graph = "train", .bytes = 1024};
    for (int rank = 0; rank < part_.rank.size; ++rank) name.ranks.push_back(rank);
    name.number = number;
    name.meets = meets;
    return add(1, std::move(name), begin_ms, end_ms, step);
  }
  WrittenRank& add(size_t lane, SpanName name, int64_t begin_ms, int64_t end_ms, int64_t step = 1) {
    part_.names.push_back(std::move(name));
    part_.lanes[lane].spans.push_back({.begin_ns = begin_ms * 1'000'000,
                                       .end_ns = end_ms * 1'000'000,
                                       .step = step,
                                       .name = static_cast<uint32_t>(part_.names.size() - 1)});
    return *this;
  }
  RankTimeline& part() { return part_; }

 private:
  RankTimeline part_;
};

}  // namespace tessera::timeline
