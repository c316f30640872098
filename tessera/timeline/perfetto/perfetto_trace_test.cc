// Claims about timelines in Perfetto's form, read back byte by byte; tests/processes/perfetto_test.py has Perfetto's
// own classes read them.
#include "tessera/timeline/perfetto/perfetto_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/files/protobuf_wire.h"
#include "tessera/base/utf8.h"
#include "tessera/timeline/align_clocks.h"
#include "tessera/timeline/test_timelines.h"

namespace tessera::timeline {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr uint64_t kMillisecond = 1'000'000;

struct ReadField {
  uint64_t number = 0;
  std::string text;  // of a length-delimited one
};
// By the field's number, in order.
using ReadMessage = std::multimap<uint64_t, ReadField>;

ReadMessage read_message(std::string_view bytes) {
  static const std::string path = "trace";
  ReadMessage message;
  WireCursor cursor(path, std::as_bytes(std::span(bytes)), 0);
  while (!cursor.done()) {
    const WireKey key = cursor.key();
    ReadField field;
    if (key.wire_type == kVarint) {
      field.number = cursor.varint("a number");
    } else if (key.wire_type == kLengthDelimited) {
      field.text = as_text(cursor.message("a text").rest());
    } else {
      const auto rest = cursor.rest();
      cursor.skip(key.wire_type);
      for (size_t i = 0; i < rest.size() - cursor.remaining(); ++i) {
        field.number |= static_cast<uint64_t>(rest[i]) << (8 * i);
      }
    }
    message.emplace(key.field, std::move(field));
  }
  return message;
}

uint64_t number_in(const ReadMessage& message, uint64_t field) {
  const auto found = message.find(field);
  return found == message.end() ? 0 : found->second.number;
}
std::string text_in(const ReadMessage& message, uint64_t field) {
  const auto found = message.find(field);
  return found == message.end() ? "" : found->second.text;
}

struct ReadSlice {
  std::string track;  // its name
  uint64_t uuid = 0;  // of the track
  std::string name;
  std::string category;
  uint64_t begin_ns = 0;
  uint64_t end_ns = 0;
  size_t depth = 0;
  std::map<std::string, std::string> arguments = {};
  std::vector<uint64_t> flows = {};
  std::vector<uint64_t> terminated_flows = {};
};
struct ReadTrack {
  uint64_t parent = 0;
  std::string name;
  uint64_t place = 0;
};

// ReadTrace reads a trace as Perfetto's trace processor does: packets by time, those of one time as they stand in the
// file; the end of a slice ends the innermost one of its track. What breaks a rule is a failure.
class ReadTrace {
 public:
  explicit ReadTrace(const std::string& bytes) {
    std::vector<std::pair<uint64_t, ReadMessage>> events;
    bool is_first = true;
    for (const auto& [field, packet_field] : read_message(bytes)) {
      EXPECT_EQ(field, 1U);
      const ReadMessage packet = read_message(packet_field.text);
      EXPECT_EQ(number_in(packet, 10), 1U);
      EXPECT_EQ(number_in(packet, 13), is_first ? 3U : 2U);
      is_first = false;
      intern(read_message(text_in(packet, 12)));
      if (packet.contains(60)) add_track(read_message(text_in(packet, 60)));
      if (packet.contains(11)) events.emplace_back(number_in(packet, 8), named(read_message(text_in(packet, 11))));
    }
    std::ranges::stable_sort(events, {}, [](const auto& event) { return event.first; });
    std::map<uint64_t, std::vector<size_t>> open;
    for (const auto& [at_ns, event] : events) {
      const uint64_t uuid = number_in(event, 11);
      EXPECT_TRUE(tracks.contains(uuid));
      auto& stack = open[uuid];
      if (number_in(event, 9) == 1) {
        ReadSlice slice = slice_of(event);
        slice.begin_ns = at_ns;
        slice.depth = stack.size();
        stack.push_back(slices.size());
        slices.push_back(std::move(slice));
        continue;
      }
      EXPECT_EQ(number_in(event, 9), 2U);
      EXPECT_FALSE(stack.empty()) << "a slice ends that has not begun";
      if (stack.empty()) continue;
      ReadSlice& slice = slices[stack.back()];
      stack.pop_back();
      slice.end_ns = at_ns;
      for (auto [place, last] = event.equal_range(48); place != last; ++place) {
        slice.terminated_flows.push_back(place->second.number);
      }
    }
    for (const auto& [uuid, stack] : open) EXPECT_THAT(stack, IsEmpty()) << tracks[uuid].name;
  }

  const ReadSlice& slice(const std::string& track, const std::string& name) const {
    for (const ReadSlice& found : slices) {
      if (found.track == track && found.name == name) return found;
    }
    ADD_FAILURE() << "no slice " << name << " on " << track;
    return slices.front();
  }
  // The rows of the tracks with this name, each with its slices' begins in ms.
  std::vector<std::vector<uint64_t>> rows(const std::string& track) const {
    std::map<uint64_t, std::vector<uint64_t>> found;
    for (const ReadSlice& slice : slices) {
      if (slice.track == track) found[slice.uuid].push_back(slice.begin_ns / kMillisecond);
    }
    std::vector<std::vector<uint64_t>> begins;
    for (auto& [uuid, row] : found) begins.push_back(std::move(row));
    return begins;
  }

  std::map<uint64_t, ReadTrack> tracks;
  std::vector<ReadSlice> slices;  // by begin

 private:
  void intern(const ReadMessage& data) {
    for (const auto& [kind, field] : data) {
      const ReadMessage entry = read_message(field.text);
      const std::string text = text_in(entry, 2);
      EXPECT_TRUE(is_utf8(text));
      EXPECT_GT(number_in(entry, 1), 0U);
      EXPECT_TRUE(texts_.try_emplace({kind, number_in(entry, 1)}, text).second) << "interned twice: " << text;
    }
  }
  // A text that was interned before, or with this packet.
  std::string interned(uint64_t kind, uint64_t number) {
    const auto found = texts_.find({kind, number});
    EXPECT_NE(found, texts_.end()) << "kind " << kind << ", number " << number << " is not interned yet";
    return found == texts_.end() ? "" : found->second;
  }
  void add_track(const ReadMessage& track) {
    EXPECT_TRUE(is_utf8(text_in(track, 2)));
    const uint64_t parent = number_in(track, 5);
    EXPECT_TRUE(parent == 0 || tracks.contains(parent));
    const ReadTrack read{.parent = parent, .name = text_in(track, 2), .place = number_in(track, 12)};
    EXPECT_TRUE(tracks.try_emplace(number_in(track, 1), read).second);
  }
  // The event, with its texts in place of their numbers.
  ReadMessage named(ReadMessage event) {
    for (auto& [field, value] : event) {
      if (field == 3) value.text = interned(1, value.number);
      if (field == 10) value.text = interned(2, value.number);
      if (field != 4) continue;
      const ReadMessage annotation = read_message(value.text);
      std::string text = interned(3, number_in(annotation, 1)) + "=";
      if (annotation.contains(17)) text += interned(29, number_in(annotation, 17));
      if (annotation.contains(4)) text += std::to_string(static_cast<int64_t>(number_in(annotation, 4)));
      if (annotation.contains(2)) text += number_in(annotation, 2) == 1 ? "true" : "false";
      value.text = std::move(text);
    }
    return event;
  }
  ReadSlice slice_of(const ReadMessage& event) {
    ReadSlice slice{.track = tracks[number_in(event, 11)].name,
                    .uuid = number_in(event, 11),
                    .name = text_in(event, 10),
                    .category = text_in(event, 3)};
    for (auto [place, last] = event.equal_range(4); place != last; ++place) {
      const std::string& text = place->second.text;
      const size_t at = text.find('=');
      EXPECT_TRUE(slice.arguments.try_emplace(text.substr(0, at), text.substr(at + 1)).second) << text;
    }
    for (auto [place, last] = event.equal_range(47); place != last; ++place)
      slice.flows.push_back(place->second.number);
    return slice;
  }

  std::map<std::pair<uint64_t, uint64_t>, std::string> texts_;
};

ReadTrace written(std::vector<RankTimeline> parts) {
  const JobTimeline job = align(std::move(parts));
  return ReadTrace(perfetto_trace(job, find_steps(job)));
}

// Rank 0 begins the all_reduce at 30 ms, rank 1 comes at 70; both have it at 79 and end their step at 100 ms.
std::vector<RankTimeline> waiting_rank() {
  WrittenRank early(0, 2);
  early.does(SpanKind::kOperator, "forward", 10, 30)
      .does(SpanKind::kWait, "wait", 30, 80)
      .does(SpanKind::kRun, "run", 10, 90)
      .does(SpanKind::kStep, "step", 0, 100)
      .meets(0, 30, 79);
  WrittenRank late(1, 2);
  late.does(SpanKind::kOperator, "forward", 10, 70)
      .does(SpanKind::kWait, "wait", 70, 80)
      .does(SpanKind::kRun, "run", 10, 90)
      .does(SpanKind::kStep, "step", 0, 100)
      .meets(0, 70, 79);
  return {early.part(), late.part()};
}

TEST(PerfettoTraces, HaveATrackForEachLaneBelowItsRank) {
  const ReadTrace trace = written(waiting_rank());
  std::map<std::string, std::vector<std::string>> names;  // by the parent's
  for (const auto& [uuid, track] : trace.tracks) {
    names[track.parent == 0 ? "" : trace.tracks.at(track.parent).name].push_back(track.name);
    if (track.name == "critical path") {
      EXPECT_EQ(track.place, 2U) << "below the ranks";
    }
  }
  EXPECT_THAT(names.at(""), ElementsAre("job of 2 ranks"));
  EXPECT_THAT(names.at("job of 2 ranks"),
              UnorderedElementsAre("rank 0 (host clock)", "rank 1 (host clock)", "critical path"));
  EXPECT_THAT(names.at("rank 0 (host clock)"), UnorderedElementsAre("compute", "collectives"));
  EXPECT_THAT(names.at("rank 1 (host clock)"), UnorderedElementsAre("compute", "collectives"));
}

TEST(PerfettoTraces, SlicesOfARanksOwnThreadNest) {
  const ReadTrace trace = written(waiting_rank());
  const ReadSlice& step = trace.slice("compute", "step 1");
  EXPECT_EQ(std::pair(step.begin_ns, step.end_ns), std::pair(uint64_t{0}, 100 * kMillisecond));
  EXPECT_EQ(std::pair(step.category, step.depth), std::pair(std::string("step"), size_t{0}));
  const ReadSlice& run = trace.slice("compute", "run");
  EXPECT_EQ(std::pair(run.begin_ns, run.end_ns), std::pair(10 * kMillisecond, 90 * kMillisecond));
  EXPECT_EQ(run.depth, 1U);
  const ReadSlice& forward = trace.slice("compute", "forward");
  EXPECT_EQ(forward.depth, 2U);
  EXPECT_EQ(forward.arguments.at("source"), "forward");
  EXPECT_EQ(forward.arguments.at("step"), "1");
}

TEST(PerfettoTraces, SlicesThatFollowEachOtherDoNotNest) {
  WrittenRank rank(0, 1);
  rank.does(SpanKind::kOperator, "first", 10, 20)
      .does(SpanKind::kOperator, "second", 20, 30)
      .does(SpanKind::kOperator, "none", 30, 30)
      .does(SpanKind::kStep, "step", 0, 40);
  const ReadTrace trace = written({rank.part()});
  for (const char* name : {"first", "second", "none"}) EXPECT_EQ(trace.slice("compute", name).depth, 1U) << name;
  EXPECT_EQ(trace.slice("compute", "first").end_ns, 20 * kMillisecond);
  EXPECT_EQ(trace.slice("compute", "second").end_ns, 30 * kMillisecond);
}

TEST(PerfettoTraces, SpansOfALaneThatOverlapStandOnTracksOfOneName) {
  WrittenRank rank(0, 1);
  rank.does(SpanKind::kStep, "step", 0, 100).meets(0, 10, 30).meets(1, 20, 40).meets(2, 30, 50).meets(3, 32, 34);
  const ReadTrace trace = written({rank.part()});
  // The last one lies within the others: side by side with them, not below.
  EXPECT_THAT(trace.rows("collectives"), ElementsAre(ElementsAre(10, 30), ElementsAre(20), ElementsAre(32)));
  for (const ReadSlice& slice : trace.slices) {
    if (slice.track == "collectives") {
      EXPECT_EQ(slice.depth, 0U);
    }
  }
}

TEST(PerfettoTraces, SpansOfAMainLaneThatCrossStandBesideIt) {
  WrittenRank rank(0, 1);
  rank.does(SpanKind::kOperator, "a", 10, 50)
      .does(SpanKind::kOperator, "b", 40, 60)
      .does(SpanKind::kStep, "step", 0, 100);
  const ReadTrace trace = written({rank.part()});
  EXPECT_THAT(trace.rows("compute"), ElementsAre(ElementsAre(0, 10), ElementsAre(40)));
  EXPECT_EQ(trace.slice("compute", "b").end_ns, 60 * kMillisecond);
}

TEST(PerfettoTraces, AnArrowLeadsFromTheLateRankToTheEndOfTheWait) {
  const ReadTrace trace = written(waiting_rank());
  std::vector<const ReadSlice*> met;
  for (const ReadSlice& slice : trace.slices) {
    if (slice.category == "collective") met.push_back(&slice);
  }
  ASSERT_EQ(met.size(), 2U);
  const ReadSlice& early = *met[0];
  const ReadSlice& late = *met[1];
  EXPECT_THAT(early.flows, IsEmpty());
  EXPECT_THAT(early.terminated_flows, ElementsAre(1));
  EXPECT_THAT(late.flows, ElementsAre(1));
  EXPECT_THAT(late.terminated_flows, IsEmpty());
  EXPECT_EQ(early.arguments.at("late_rank"), "1");
  EXPECT_EQ(early.arguments.at("waited_ns"), "40000000");
  EXPECT_EQ(late.arguments.at("waited_ns"), "0");
  EXPECT_EQ(late.arguments.at("call_bytes"), "1024");
  EXPECT_EQ(late.arguments.at("ranks"), "0 1");
}

TEST(PerfettoTraces, TheCriticalPathHasNoGaps) {
  const ReadTrace trace = written(waiting_rank());
  uint64_t at_ns = 0;
  for (const ReadSlice& slice : trace.slices) {
    if (slice.track != "critical path") continue;
    EXPECT_EQ(slice.begin_ns, at_ns);
    EXPECT_EQ(slice.arguments.at("step"), "1");
    at_ns = slice.end_ns;
  }
  EXPECT_EQ(at_ns, 100 * kMillisecond);
  const auto is_critical = [](const ReadSlice& slice) { return slice.arguments.contains("critical"); };
  EXPECT_GE(std::ranges::count_if(trace.slices, is_critical), 2);
}

TEST(PerfettoTraces, PathsOfStepsThatOverlapStandBesideEachOther) {
  WrittenRank first(0, 2);
  first.does(SpanKind::kStep, "step", 0, 40).does(SpanKind::kStep, "step", 40, 70, 2);
  WrittenRank second(1, 2);
  second.does(SpanKind::kStep, "step", 0, 60).does(SpanKind::kStep, "step", 60, 65, 2);
  const ReadTrace trace = written({first.part(), second.part()});
  EXPECT_THAT(trace.rows("critical path"), ElementsAre(ElementsAre(0), ElementsAre(40)));
}

TEST(PerfettoTraces, TextsOfOthersAreUtf8) {
  WrittenRank rank(0, 1);
  rank.does(SpanKind::kOperator, "fc \xff\xe2\x82", 10, 20).does(SpanKind::kStep, "step", 0, 30);
  rank.part().rank.host = "host\xc0";
  const ReadTrace trace = written({rank.part()});
  EXPECT_EQ(trace.slice("compute", "fc \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd").depth, 1U);
}

TEST(PerfettoTraces, WhatWasPredictedStandsBesideTheLastStep) {
  WrittenRank rank(0, 1);
  rank.does(SpanKind::kStep, "step", 5, 30).does(SpanKind::kStep, "step", 40, 90, 2);
  JobTimeline job = align({rank.part()});
  job.predicted = {{.name = "k", .source = "fc", .process = 0, .lane = 1, .begin_ns = 2'000'000, .end_ns = 9'000'000}};
  const ReadTrace trace(perfetto_trace(job, find_steps(job)));
  const ReadSlice& predicted = trace.slice("process 0, lane 1", "k");
  EXPECT_EQ(predicted.begin_ns, (40 - 5 + 2) * kMillisecond);
  EXPECT_EQ(predicted.end_ns, (40 - 5 + 9) * kMillisecond);
  EXPECT_EQ(predicted.arguments.at("source"), "fc");
}

TEST(PerfettoTraces, OfAJobWithoutSpansHaveItsTracks) {
  WrittenRank rank(0, 2);
  rank.part().is_written = false;
  const ReadTrace trace = written({rank.part()});
  EXPECT_THAT(trace.slices, IsEmpty());
  std::vector<std::string> names;
  for (const auto& [uuid, track] : trace.tracks) names.push_back(track.name);
  EXPECT_THAT(names, Contains("rank 0 (host clock): nothing was written"));
}

}  // namespace
}  // namespace tessera::timeline
