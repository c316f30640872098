#include "tessera/timeline/perfetto/perfetto_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/base/files/protobuf_wire.h"
#include "tessera/base/printable.h"
#include "tessera/base/utf8.h"

namespace tessera::timeline {
namespace {

// The numbers of fields are those of Perfetto's files below protos/perfetto/trace, each message's named.

// trace.proto, Trace.
constexpr int kPacketOfTrace = 1;

// trace_packet.proto, TracePacket. `kTimestamp` is nanoseconds; the sequence is who has written the packet, and what is
// interned holds for the later packets of a sequence.
struct PacketField {
  enum : int {
    kTimestamp = 8,
    kSequenceId = 10,
    kTrackEvent = 11,
    kInternedData = 12,
    kSequenceFlags = 13,
    kTrackDescriptor = 60,
    kFirstOnSequence = 87
  };
};
// TracePacket.SequenceFlags.
constexpr int64_t kStateCleared = 1;
constexpr int64_t kNeedsState = 2;

// track_event/track_descriptor.proto, TrackDescriptor.
struct TrackField {
  enum : int { kUuid = 1, kName = 2, kParentUuid = 5, kChildOrdering = 11, kSiblingOrderRank = 12, kDescription = 14 };
};
// TrackDescriptor.ChildTracksOrdering.
constexpr int64_t kExplicitOrder = 3;

// track_event/track_event.proto, TrackEvent. Flow ids are fixed64.
struct EventField {
  enum : int {
    kCategoryIid = 3,
    kDebugAnnotation = 4,
    kType = 9,
    kNameIid = 10,
    kTrackUuid = 11,
    kFlowId = 47,
    kTerminatingFlowId = 48
  };
};
// TrackEvent.Type.
constexpr int64_t kSliceBegin = 1;
constexpr int64_t kSliceEnd = 2;

// track_event/debug_annotation.proto, DebugAnnotation.
struct AnnotationField {
  enum : int { kNameIid = 1, kBool = 2, kInt = 4, kDouble = 5, kStringIid = 17 };
};

// interned_data/interned_data.proto, InternedData. The messages EventCategory, EventName, DebugAnnotationName and
// InternedString (profiling/profile_common.proto) have their number as field 1, their text as field 2.
enum class InternedKind : int { kCategory = 1, kName = 2, kAnnotationName = 3, kText = 29 };

constexpr int64_t kSequence = 1;

// What is no UTF-8 is replaced by U+FFFD.
std::string as_utf8(std::string_view text) {
  std::string found;
  while (!text.empty()) {
    const size_t num_bytes = first_character(text).num_bytes;
    found += num_bytes == 0 ? std::string_view("\xef\xbf\xbd") : text.substr(0, num_bytes);
    text.remove_prefix(std::max<size_t>(num_bytes, 1));
  }
  return found;
}

struct TrackText {
  uint64_t parent = 0;  // 0: none
  std::string name = {};
  int64_t place = 0;  // among those of its parent
  std::string description = {};
};

// Writes packets one after the other, each with the texts that it is the first to use.
class PacketWriter {
 public:
  // The number by which events say this text, from 1.
  int64_t number_of(InternedKind kind, const std::string& text) {
    const auto [place, is_new] =
        numbers_.try_emplace({kind, text}, static_cast<int64_t>(num_interned_[static_cast<size_t>(kind)] + 1));
    if (is_new) {
      ++num_interned_[static_cast<size_t>(kind)];
      std::string entry;
      append_number_field(entry, 1, place->second);
      append_bytes_field(entry, 2, as_utf8(text));
      append_bytes_field(new_texts_, static_cast<int>(kind), entry);
    }
    return place->second;
  }
  // A new track; what is returned is its uuid.
  uint64_t add_track(const TrackText& text) {
    std::string track;
    append_number_field(track, TrackField::kUuid, static_cast<int64_t>(++num_tracks_));
    if (text.parent != 0) append_number_field(track, TrackField::kParentUuid, static_cast<int64_t>(text.parent));
    append_bytes_field(track, TrackField::kName, as_utf8(text.name));
    append_number_field(track, TrackField::kChildOrdering, kExplicitOrder);
    append_number_field(track, TrackField::kSiblingOrderRank, text.place);
    if (!text.description.empty()) append_bytes_field(track, TrackField::kDescription, as_utf8(text.description));
    std::string packet;
    append_bytes_field(packet, PacketField::kTrackDescriptor, track);
    write(std::move(packet));
    return num_tracks_;
  }
  // `fields`: what else the event has.
  void add_event(uint64_t track, int64_t type, uint64_t at_ns, std::string_view fields) {
    std::string event;
    append_number_field(event, EventField::kType, type);
    append_number_field(event, EventField::kTrackUuid, static_cast<int64_t>(track));
    event += fields;
    std::string packet;
    append_number_field(packet, PacketField::kTimestamp, static_cast<int64_t>(at_ns));
    append_bytes_field(packet, PacketField::kTrackEvent, event);
    write(std::move(packet));
  }
  std::string take() { return std::move(bytes_); }

 private:
  void write(std::string packet) {
    append_number_field(packet, PacketField::kSequenceId, kSequence);
    append_number_field(packet, PacketField::kSequenceFlags,
                        bytes_.empty() ? kStateCleared | kNeedsState : kNeedsState);
    if (bytes_.empty()) append_number_field(packet, PacketField::kFirstOnSequence, 1);
    if (!new_texts_.empty()) append_bytes_field(packet, PacketField::kInternedData, new_texts_);
    new_texts_.clear();
    append_bytes_field(bytes_, kPacketOfTrace, packet);
  }

  std::map<std::pair<InternedKind, std::string>, int64_t> numbers_;
  std::array<size_t, 30> num_interned_ = {};  // by kind
  std::string new_texts_;
  uint64_t num_tracks_ = 0;
  std::string bytes_;
};

// The fields of a slice's begin: what it is, and what is said of it.
class SliceFields {
 public:
  explicit SliceFields(PacketWriter& writer) : writer_(&writer) {}

  SliceFields& is(std::string_view category, const std::string& name) {
    append_number_field(bytes_, EventField::kCategoryIid,
                        writer_->number_of(InternedKind::kCategory, std::string(category)));
    append_number_field(bytes_, EventField::kNameIid, writer_->number_of(InternedKind::kName, name));
    return *this;
  }
  SliceFields& add_number(const char* key, int64_t value) {
    return add(key, [&](std::string& to) { append_number_field(to, AnnotationField::kInt, value); });
  }
  SliceFields& add_real(const char* key, double value) {
    return add(key, [&](std::string& to) { append_double_field(to, AnnotationField::kDouble, value); });
  }
  SliceFields& add_true(const char* key) {
    return add(key, [](std::string& to) { append_number_field(to, AnnotationField::kBool, 1); });
  }
  SliceFields& add_text(const char* key, const std::string& value) {
    const int64_t text = writer_->number_of(InternedKind::kText, value);
    return add(key, [&](std::string& to) { append_number_field(to, AnnotationField::kStringIid, text); });
  }
  SliceFields& add_flow(int64_t flow) {
    append_fixed64_field(bytes_, EventField::kFlowId, static_cast<uint64_t>(flow));
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  SliceFields& add(const char* key, const std::function<void(std::string&)>& add_value) {
    std::string annotation;
    append_number_field(annotation, AnnotationField::kNameIid, writer_->number_of(InternedKind::kAnnotationName, key));
    add_value(annotation);
    append_bytes_field(bytes_, EventField::kDebugAnnotation, annotation);
    return *this;
  }

  PacketWriter* writer_;
  std::string bytes_;
};

// The tracks of one name, on which slices stand so that those of each track nest. Slices come by their begins, what
// holds others before them.
class TrackGroup {
 public:
  // `origin_ns`: where the trace's time is 0. `nests`: slices that nest stand on one track; else each slice stands
  // beside the others.
  TrackGroup(PacketWriter& writer, TrackText text, int64_t origin_ns, bool nests)
      : writer_(&writer), text_(std::move(text)), origin_ns_(origin_ns), nests_(nests) {
    add_row();
    if (!nests_) free_.insert(0);
  }
  TrackGroup(const TrackGroup&) = delete;
  TrackGroup& operator=(const TrackGroup&) = delete;

  // `end_fields`: those of the slice's end.
  void add(int64_t begin_ns, int64_t end_ns, std::string_view fields, std::string end_fields = {}) {
    Row& row = rows_[row_for(begin_ns, end_ns)];
    close_until(row, begin_ns);
    writer_->add_event(row.track, kSliceBegin, time_of(begin_ns), fields);
    row.open.push_back({end_ns, std::move(end_fields)});
  }
  // Ends what has not ended yet; nothing is added then.
  void close() {
    for (Row& row : rows_) {
      while (!row.open.empty()) end_innermost(row);
    }
  }

 private:
  struct OpenSlice {
    int64_t end_ns = 0;
    std::string end_fields;
  };
  struct Row {
    uint64_t track = 0;
    std::vector<OpenSlice> open;  // each within the one before
  };

  // No difference of two times overflows, whatever a file says.
  uint64_t time_of(int64_t at_ns) const { return static_cast<uint64_t>(at_ns) - static_cast<uint64_t>(origin_ns_); }
  size_t add_row() {
    rows_.push_back({.track = writer_->add_track(text_), .open = {}});
    return rows_.size() - 1;
  }
  void end_innermost(Row& row) {
    const OpenSlice& slice = row.open.back();
    writer_->add_event(row.track, kSliceEnd, time_of(slice.end_ns), slice.end_fields);
    row.open.pop_back();
  }
  void close_until(Row& row, int64_t now_ns) {
    while (!row.open.empty() && row.open.back().end_ns <= now_ns) end_innermost(row);
  }
  // Where the slice crosses nothing: the first row where it nests, else the first one that is free.
  size_t row_for(int64_t begin_ns, int64_t end_ns) {
    if (nests_) {
      Row& first = rows_.front();
      close_until(first, begin_ns);
      if (first.open.empty() || end_ns <= first.open.back().end_ns) return 0;
    }
    for (; !busy_.empty() && busy_.top().first <= begin_ns; busy_.pop()) free_.insert(busy_.top().second);
    const size_t row = free_.empty() ? add_row() : *free_.begin();
    free_.erase(row);
    busy_.emplace(end_ns, row);
    return row;
  }

  using EndOfRow = std::pair<int64_t, size_t>;

  PacketWriter* writer_;
  TrackText text_;
  int64_t origin_ns_;
  bool nests_;
  std::vector<Row> rows_;
  // Rows of slices that stand beside each other: those whose slice has not ended, the first end on top, and the others.
  std::priority_queue<EndOfRow, std::vector<EndOfRow>, std::greater<>> busy_;
  std::set<size_t> free_;
};

// What is said of a single span beside what its name says.
struct SpanFields {
  std::string of_begin;
  std::string of_end;
};
// By rank, lane and span.
using SpanPlace = std::tuple<size_t, size_t, size_t>;
using FieldsOfSpans = std::map<SpanPlace, SpanFields>;

FieldsOfSpans fields_of_meetings(PacketWriter& writer, const JobTimeline& job, const JobSteps& steps) {
  FieldsOfSpans found;
  int64_t num_flows = 0;
  for (const Meeting& meeting : steps.meetings) {
    const MeetingMember& late = meeting.members[meeting.late];
    SliceFields flows(writer);
    for (const MeetingMember& member : meeting.members) {
      SliceFields fields(writer);
      fields.add_number("call_bytes", meeting.bytes).add_number("late_rank", job.ranks[late.rank].rank.rank);
      fields.add_number("waited_ns", meeting.waited_ns(member));
      if (!meeting.is_complete) fields.add_true("incomplete");
      SpanFields& span = found[{member.rank, member.lane, member.span}];
      span.of_begin += fields.bytes();
      // An arrow never leads back in time: what has ended before the late one began has not waited for it.
      const bool waits = &member != &late && meeting.waited_ns(member) >= kShownWaitNs;
      if (!waits || member.end_ns < late.begin_ns) continue;
      flows.add_flow(++num_flows);
      append_fixed64_field(span.of_end, EventField::kTerminatingFlowId, static_cast<uint64_t>(num_flows));
    }
    found[{late.rank, late.lane, late.span}].of_begin += flows.bytes();
  }
  for (const JobStep& step : steps.steps) {
    for (const PathPiece& piece : step.path) {
      if (piece.span < 0) continue;
      SpanFields& span = found[{piece.rank, 0, static_cast<size_t>(piece.span)}];
      // A span that a wait divides is on the path twice.
      const std::string critical = SliceFields(writer).add_true("critical").bytes();
      if (!span.of_begin.ends_with(critical)) span.of_begin += critical;
    }
  }
  return found;
}

// What every span of a name has.
std::string fields_of_name(PacketWriter& writer, const SpanName& name) {
  SliceFields fields(writer);
  // A step is called by its number.
  if (name.kind != SpanKind::kStep) fields.is(to_string(name.kind), name.text);
  if (!name.source.empty()) fields.add_text("source", name.source);
  if (!name.kernel.empty()) fields.add_text("kernel", name.kernel);
  if (!name.line.empty()) fields.add_text("line", name.line);
  if (name.flops > 0 && std::isfinite(name.flops)) fields.add_real("flops", name.flops);
  if (name.bytes > 0) fields.add_number("bytes", name.bytes);
  if (!name.ranks.empty()) fields.add_text("ranks", fmt::format("{}", fmt::join(name.ranks, " ")));
  return fields.bytes();
}

class JobTracks {
 public:
  JobTracks(PacketWriter& writer, const JobTimeline& job, const JobSteps& steps)
      : writer_(writer), job_(job), steps_(steps), origin_ns_(job.origin_ns()) {}

  void write() {
    root_ = writer_.add_track(
        {.name = fmt::format("job of {}", plural(job_.size(), "rank")), .description = description()});
    const FieldsOfSpans more = fields_of_meetings(writer_, job_, steps_);
    for (size_t place = 0; place < job_.ranks.size(); ++place) write_rank(place, more);
    write_critical_path();
    write_predicted();
  }

 private:
  std::string description() const {
    std::string text = fmt::format("recorded by Tessera; whole steps: {}; time 0 is {} ns of the first rank's clock",
                                   steps_.steps.size(), origin_ns_);
    for (const AlignedClock& clock : job_.clocks) {
      if (clock.by == "same") continue;
      text += fmt::format("; the clock of {} was brought to it by {}{}", clock.host, clock.by,
                          clock.uncertainty_ns ? fmt::format(", up to {} ns off", *clock.uncertainty_ns) : "");
    }
    const std::vector<int> missing = job_.missing_ranks();
    if (!missing.empty()) text += fmt::format("; ranks that wrote nothing: {}", fmt::join(missing, ", "));
    if (job_.num_dropped() > 0) text += fmt::format("; spans that had no room: {}", job_.num_dropped());
    return text;
  }

  void write_rank(size_t place, const FieldsOfSpans& more) {
    const RankTimeline& part = job_.ranks[place];
    const std::string host = part.rank.host.empty() ? "" : fmt::format(" ({})", part.rank.host);
    const uint64_t parent = writer_.add_track(
        {.parent = root_,
         .name = fmt::format("rank {}{}{}", part.rank.rank, host, part.is_written ? "" : ": nothing was written"),
         .place = part.rank.rank});
    std::vector<std::string> fields;
    for (const SpanName& name : part.names) fields.push_back(fields_of_name(writer_, name));
    for (size_t l = 0; l < part.lanes.size(); ++l) {
      TrackGroup tracks(writer_, {.parent = parent, .name = part.lanes[l].title, .place = static_cast<int64_t>(l)},
                        origin_ns_, /*nests=*/l == 0);
      for (const size_t s : nested_order(part.names, part.lanes[l].spans)) {
        const TimedSpan& span = part.lanes[l].spans[s];
        SliceFields own(writer_);
        if (part.names[span.name].kind == SpanKind::kStep) own.is("step", fmt::format("step {}", span.step));
        own.add_number("step", span.step).add_number("run", span.run);
        const auto found = more.find({place, l, s});
        const SpanFields of_span = found == more.end() ? SpanFields{} : found->second;
        tracks.add(span.begin_ns, span.end_ns, fields[span.name] + own.bytes() + of_span.of_begin, of_span.of_end);
      }
      tracks.close();
    }
  }

  void write_critical_path() {
    TrackGroup tracks(writer_, {.parent = root_, .name = "critical path", .place = job_.size()}, origin_ns_,
                      /*nests=*/false);
    // The path of a step begins on its first rank while the last one may still be in the step before.
    std::vector<std::pair<int64_t, const PathPiece*>> pieces;  // with the step
    for (const JobStep& step : steps_.steps) {
      for (const PathPiece& piece : step.path) pieces.emplace_back(step.step, &piece);
    }
    std::ranges::stable_sort(pieces, {}, [](const auto& piece) { return piece.second->begin_ns; });
    for (const auto& [step, piece] : pieces) {
      const int rank = job_.ranks[piece->rank].rank.rank;
      SliceFields fields(writer_);
      fields.is("critical path", fmt::format("rank {}: {}", rank, piece->what)).add_number("rank", rank);
      fields.add_text("use", to_string(piece->use)).add_number("step", step);
      tracks.add(piece->begin_ns, piece->end_ns, fields.bytes());
    }
    tracks.close();
  }

  // Beside the last whole step, as in the JSON.
  void write_predicted() {
    if (job_.predicted.empty()) return;
    const uint64_t parent = writer_.add_track({.parent = root_, .name = "predicted", .place = job_.size() + 1});
    const int64_t begin_ns = steps_.steps.empty() ? origin_ns_ : steps_.steps.back().begin_ns();
    std::map<std::pair<int, int>, std::vector<const PredictedSpan*>> rows;
    for (const PredictedSpan& span : job_.predicted) rows[{span.process, span.lane}].push_back(&span);
    int64_t place = 0;
    for (auto& [key, spans] : rows) {
      std::ranges::stable_sort(spans, {}, [](const PredictedSpan* span) { return span->begin_ns; });
      TrackGroup tracks(
          writer_,
          {.parent = parent, .name = fmt::format("process {}, lane {}", key.first, key.second), .place = place++},
          origin_ns_, /*nests=*/false);
      for (const PredictedSpan* span : spans) {
        SliceFields fields(writer_);
        fields.is("predicted", span->name).add_text("source", span->source);
        tracks.add(begin_ns + span->begin_ns, begin_ns + span->end_ns, fields.bytes());
      }
      tracks.close();
    }
  }

  PacketWriter& writer_;
  const JobTimeline& job_;
  const JobSteps& steps_;
  int64_t origin_ns_;
  uint64_t root_ = 0;
};

}  // namespace

std::string perfetto_trace(const JobTimeline& job, const JobSteps& steps) {
  PacketWriter writer;
  JobTracks(writer, job, steps).write();
  return writer.take();
}

}  // namespace tessera::timeline
