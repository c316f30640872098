// A timeline is recorded beside a training that has planned its memory: writing what full buffers hold takes the file's
// text, and little beside.
#include <gtest/gtest.h>

#include <string>

#include "tessera/timeline/timeline_json.h"
#include "tessera/timeline/timeline_options.h"
#include "tests/allocation/peak_resident.h"

namespace tessera::allocation {
namespace {

constexpr int64_t kOperators = 500;

// As a rank's buffers are when they are full: its computing thread's, and one a quarter as long.
timeline::RankTimeline full_part() {
  timeline::RankTimeline part;
  part.is_written = true;
  for (int64_t i = 0; i < kOperators; ++i) {
    part.names.push_back({.kind = timeline::SpanKind::kOperator,
                          .text = "matmul \"encoder.blocks.0.attention.projection\"",
                          .source = "encoder.blocks.0.attention.projection",
                          .kernel = "onednn brgemm:avx512_core",
                          .graph = "train",
                          .dtype = "f32",
                          .flops = 1e9,
                          .bytes = 1 << 20});
  }
  const int64_t capacity = timeline::TimelineOptions{}.num_spans;
  for (const int64_t size : {capacity, capacity / 4}) {
    timeline::RecordedLane lane{.title = "compute", .spans = {}};
    lane.spans.reserve(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) {
      const auto name = static_cast<uint32_t>(i % kOperators);
      lane.spans.push_back({.begin_ns = i * 20000, .end_ns = i * 20000 + 19500, .step = i / kOperators, .name = name});
    }
    part.lanes.push_back(std::move(lane));
  }
  return part;
}

TEST(TimelineMemory, FullBuffersAreWrittenInTheTextOfTheFileAndALittleBeside) {
  const timeline::RankTimeline part = full_part();
  const int64_t before = peak_resident_bytes();
  const std::string text = timeline::part_json(part);
  EXPECT_GE(text.size(), size_t{24} << 20);
  constexpr int64_t kBeside = int64_t{12} << 20;
  EXPECT_LE(peak_resident_bytes() - before, static_cast<int64_t>(text.size()) + kBeside);
}

}  // namespace
}  // namespace tessera::allocation
