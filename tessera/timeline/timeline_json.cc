#include "tessera/timeline/timeline_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/json/bounded_json.h"
#include "tessera/base/printable.h"

namespace tessera::timeline {
namespace {

using TimelineJson = nlohmann::json;

constexpr int kFormat = 1;
constexpr int64_t kMostRanks = 1'000'000;
constexpr int64_t kMostNumber = int64_t{1} << 62;
constexpr double kMostFlops = 1e30;  // of a call; sums of them stay finite, and their shares short

// As JSON has it, between quotes; what is no UTF-8 is replaced.
std::string quoted(const std::string& text) {
  return TimelineJson(text).dump(-1, ' ', false, TimelineJson::error_handler_t::replace);
}

// Nanoseconds as microseconds, exactly.
std::string microseconds(int64_t ns) {
  const bool is_negative = ns < 0;
  const int64_t size = is_negative ? -ns : ns;
  return fmt::format("{}{}.{:03}", is_negative ? "-" : "", size / 1000, size % 1000);
}

// --- writing

// The members of a name that say something.
std::string name_json(const SpanName& name) {
  std::string text = fmt::format(R"({{"kind":"{}","text":{})", to_string(name.kind), quoted(name.text));
  const auto add_text = [&](const char* key, const std::string& value) {
    if (!value.empty()) text += fmt::format(R"(,"{}":{})", key, quoted(value));
  };
  add_text("source", name.source);
  add_text("kernel", name.kernel);
  add_text("line", name.line);
  add_text("graph", name.graph);
  add_text("dtype", name.dtype);
  if (name.flops > 0 && std::isfinite(name.flops)) text += fmt::format(R"(,"flops":{:.17g})", name.flops);
  if (name.bytes > 0) text += fmt::format(R"(,"bytes":{})", name.bytes);
  if (name.number >= 0) {
    text += fmt::format(R"(,"ranks":[{}],"lane":{},"number":{},"meets":{})", fmt::join(name.ranks, ","), name.lane,
                        name.number, name.meets);
  }
  return text + "}";
}

// What every event of a name has: its category, its name, and arguments.
struct EventText {
  std::string head;       // `"cat":"operator","name":"..."`
  std::string arguments;  // `"n":3,"kernel":"..."`
};

EventText event_text(const SpanName& name, size_t number) {
  EventText text{.head = fmt::format(R"("cat":"{}","name":{})", to_string(name.kind), quoted(name.text)),
                 .arguments = fmt::format(R"("n":{})", number)};
  const auto add_text = [&](const char* key, const std::string& value) {
    if (!value.empty()) text.arguments += fmt::format(R"(,"{}":{})", key, quoted(value));
  };
  add_text("kernel", name.kernel);
  add_text("line", name.line);
  if (name.flops > 0) text.arguments += fmt::format(R"(,"flops":{:.6g})", name.flops);
  if (name.bytes > 0) text.arguments += fmt::format(R"(,"bytes":{})", name.bytes);
  if (!name.ranks.empty()) text.arguments += fmt::format(R"(,"ranks":"{}")", fmt::join(name.ranks, " "));
  return text;
}

std::string rank_json(const RankTimeline& part) {
  const RecordedRank& rank = part.rank;
  std::string text = fmt::format(
      R"({{"rank":{},"size":{},"pid":{},"host":{},"clock":{},"job":{},"steady_ns":{},"system_ms":{},"steps":{},)"
      R"("is_written":{},{}"lanes":[)",
      rank.rank, rank.size, rank.pid, quoted(rank.host), quoted(rank.clock), quoted(rank.job), part.clocks.steady_ns,
      part.clocks.system_ms, quoted(to_string(part.steps)), part.is_written,
      part.failure.empty() ? "" : fmt::format(R"("failure":{},)", quoted(part.failure)));
  for (size_t i = 0; i < part.lanes.size(); ++i) {
    const RecordedLane& lane = part.lanes[i];
    text += fmt::format(R"({}{{"title":{},"dropped":{},"whole_from_ns":{}}})", i == 0 ? "" : ",", quoted(lane.title),
                        lane.num_dropped, lane.whole_from_ns);
  }
  text += "],\"names\":[";
  for (size_t i = 0; i < part.names.size(); ++i) text += (i == 0 ? "\n" : ",\n") + name_json(part.names[i]);
  return text + "]}";
}

std::string clock_json(const AlignedClock& clock) {
  const std::string uncertainty = clock.uncertainty_ns ? std::to_string(*clock.uncertainty_ns) : "null";
  return fmt::format(R"({{"clock":{},"host":{},"offset_ns":{},"uncertainty_ns":{},"by":{}}})", quoted(clock.clock),
                     quoted(clock.host), clock.offset_ns, uncertainty, quoted(clock.by));
}

// Writes events behind what the file begins with: in one piece, because those of full buffers are tens of megabytes.
class EventWriterOfTimeline {
 public:
  EventWriterOfTimeline(std::string head, std::span<const RankTimeline> ranks, int64_t origin_ns)
      : origin_ns_(origin_ns), text_(std::move(head)) {
    // More than most take. What is not used of it is never touched.
    constexpr size_t kBytesOfEvent = 320;
    size_t num_spans = 0;
    for (const RankTimeline& rank : ranks) {
      for (const RecordedLane& lane : rank.lanes) num_spans += lane.spans.size();
    }
    text_.reserve(text_.size() + kBytesOfEvent * num_spans);
  }

  void process(int pid, const std::string& name, int place) {
    event(fmt::format(R"("ph":"M","pid":{},"name":"process_name","args":{{"name":{}}})", pid, quoted(name)));
    event(fmt::format(R"("ph":"M","pid":{},"name":"process_sort_index","args":{{"sort_index":{}}})", pid, place));
  }
  void thread(int pid, size_t tid, const std::string& name) {
    event(
        fmt::format(R"("ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":{}}})", pid, tid, quoted(name)));
    event(fmt::format(R"("ph":"M","pid":{},"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}})", pid, tid,
                      tid));
  }
  void span(int pid, size_t tid, int64_t begin_ns, int64_t end_ns, const std::string& head,
            const std::string& arguments) {
    event(fmt::format(R"("ph":"X","pid":{},"tid":{},"ts":{},"dur":{},{},"args":{{{}}})", pid, tid,
                      microseconds(begin_ns - origin_ns_), microseconds(end_ns - begin_ns), head, arguments));
  }
  void arrow(int number, int from, size_t from_lane, int64_t from_ns, int to, size_t to_lane, int64_t to_ns) {
    constexpr const char* kEnd = R"("ph":"{}","id":{},"pid":{},"tid":{},"ts":{},"cat":"late","name":"late"{})";
    event(fmt::format(fmt::runtime(kEnd), "s", number, from, from_lane, microseconds(from_ns - origin_ns_), ""));
    event(fmt::format(fmt::runtime(kEnd), "f", number, to, to_lane, microseconds(to_ns - origin_ns_), R"(,"bp":"e")"));
  }
  // The whole file.
  std::string take() {
    text_ += "]}\n";
    return std::move(text_);
  }

 private:
  void event(const std::string& members) {
    text_ += is_first_ ? "\n{" : ",\n{";
    text_ += members;
    text_ += '}';
    is_first_ = false;
  }

  int64_t origin_ns_;
  std::string text_;
  bool is_first_ = true;
};

// By rank, lane and span: what else is said of a span.
using MoreArguments = std::map<std::tuple<size_t, size_t, size_t>, std::string>;

MoreArguments arguments_of_meetings(const JobTimeline& job, const JobSteps& steps) {
  MoreArguments more;
  for (const Meeting& meeting : steps.meetings) {
    const int late = job.ranks[meeting.members[meeting.late].rank].rank.rank;
    for (const MeetingMember& member : meeting.members) {
      more[{member.rank, member.lane, member.span}] =
          fmt::format(R"(,"call_bytes":{},"late_rank":{},"waited_us":{}{})", meeting.bytes, late,
                      microseconds(meeting.waited_ns(member)), meeting.is_complete ? "" : R"(,"incomplete":true)");
    }
  }
  for (const JobStep& step : steps.steps) {
    for (const PathPiece& piece : step.path) {
      if (piece.span >= 0) more[{piece.rank, 0, static_cast<size_t>(piece.span)}] = R"(,"critical":true)";
    }
  }
  return more;
}

void write_rank(EventWriterOfTimeline& events, const RankTimeline& part, size_t place, const MoreArguments& more) {
  const int pid = part.rank.rank;
  const std::string host = part.rank.host.empty() ? "" : fmt::format(" ({})", part.rank.host);
  events.process(pid, fmt::format("rank {}{}{}", pid, host, part.is_written ? "" : ": nothing was written"), pid);
  std::vector<EventText> texts;
  for (size_t i = 0; i < part.names.size(); ++i) texts.push_back(event_text(part.names[i], i));
  for (size_t l = 0; l < part.lanes.size(); ++l) {
    events.thread(pid, l, part.lanes[l].title);
    // Viewers take what comes first for what holds the others.
    for (const size_t s : nested_order(part.names, part.lanes[l].spans)) {
      const TimedSpan& span = part.lanes[l].spans[s];
      const EventText& text = texts[span.name];
      const auto found = more.find({place, l, s});
      std::string head = text.head;
      if (part.names[span.name].kind == SpanKind::kStep) {
        head = fmt::format(R"("cat":"step","name":"step {}")", span.step);
      }
      events.span(pid, l, span.begin_ns, span.end_ns, head,
                  fmt::format(R"({},"step":{},"run":{}{})", text.arguments, span.step, span.run,
                              found == more.end() ? "" : found->second));
    }
  }
}

void write_arrows(EventWriterOfTimeline& events, const JobTimeline& job, const JobSteps& steps) {
  int number = 0;
  for (const Meeting& meeting : steps.meetings) {
    const MeetingMember& late = meeting.members[meeting.late];
    for (const MeetingMember& member : meeting.members) {
      if (&member == &late || meeting.waited_ns(member) < kShownWaitNs) continue;
      events.arrow(++number, job.ranks[late.rank].rank.rank, late.lane, late.begin_ns, job.ranks[member.rank].rank.rank,
                   member.lane, member.end_ns);
    }
  }
}

// The rows below those of the ranks.
void write_critical_path(EventWriterOfTimeline& events, const JobTimeline& job, const JobSteps& steps) {
  const int pid = job.size();
  events.process(pid, "critical path", pid);
  events.thread(pid, 0, "what each step waited for last");
  for (const JobStep& step : steps.steps) {
    for (const PathPiece& piece : step.path) {
      const int rank = job.ranks[piece.rank].rank.rank;
      events.span(
          pid, 0, piece.begin_ns, piece.end_ns,
          fmt::format(R"("cat":"critical path","name":{})", quoted(fmt::format("rank {}: {}", rank, piece.what))),
          fmt::format(R"("rank":{},"use":"{}","step":{})", rank, to_string(piece.use), step.step));
    }
  }
}

void write_predicted(EventWriterOfTimeline& events, const JobTimeline& job, const JobSteps& steps, int64_t origin_ns) {
  if (job.predicted.empty()) return;
  const int pid = job.size() + 1;
  events.process(pid, "predicted", pid);
  // Beside the last whole step, which is likely the one that is most like the others.
  const int64_t begin_ns = steps.steps.empty() ? origin_ns : steps.steps.back().begin_ns();
  std::map<std::pair<int, int>, size_t> rows;
  for (const PredictedSpan& span : job.predicted) rows.try_emplace({span.process, span.lane}, 0);
  size_t next = 0;
  for (auto& [key, row] : rows) {
    row = next++;
    events.thread(pid, row, fmt::format("process {}, lane {}", key.first, key.second));
  }
  for (const PredictedSpan& span : job.predicted) {
    events.span(pid, rows.at({span.process, span.lane}), begin_ns + span.begin_ns, begin_ns + span.end_ns,
                fmt::format(R"("cat":"predicted","name":{})", quoted(span.name)),
                fmt::format(R"("source":{},"process":{},"lane":{},"at_ns":{})", quoted(span.source), span.process,
                            span.lane, span.begin_ns));
  }
}

// The file up to its events.
std::string head_text(const char* form, std::span<const RankTimeline> ranks, const std::string& more_data,
                      int64_t origin_ns) {
  std::string text = fmt::format(
      R"({{"displayTimeUnit":"ms","otherData":{{"tessera_timeline":{},"form":"{}","origin_ns":{}{},"ranks":[)", kFormat,
      form, origin_ns, more_data);
  for (size_t i = 0; i < ranks.size(); ++i) text += (i == 0 ? "\n" : ",\n") + rank_json(ranks[i]);
  return text + "]},\n\"traceEvents\":[";
}

// --- reading

// Reads members of an object, and refuses what they cannot be.
class MemberReader {
 public:
  MemberReader(const TimelineJson& object, const std::string& file) : object_(object), file_(file) {
    if (!object.is_object()) refuse("a part of it is no object");
  }
  [[noreturn]] void refuse(const std::string& why) const {
    throw InvalidArgument("{}: no timeline that Tessera has written: {}", printable(file_), why);
  }
  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  const TimelineJson& get(const char* key) const {
    if (!object_.contains(key)) refuse(fmt::format("\"{}\" is missing", key));
    return object_.at(key);
  }
  int64_t number(const char* key, int64_t least, int64_t most) const {
    const TimelineJson& value = get(key);
    if (!value.is_number_integer()) refuse(fmt::format("\"{}\" is no whole number", key));
    // Above int64 it is unsigned.
    const bool fits = !value.is_number_unsigned() || value.get<uint64_t>() <= static_cast<uint64_t>(kMostNumber);
    const int64_t found = fits ? value.get<int64_t>() : kMostNumber + 1;
    if (found < least || found > most) refuse(fmt::format("\"{}\" must be from {} to {}", key, least, most));
    return found;
  }
  double real(const char* key) const {
    const TimelineJson& value = get(key);
    if (!value.is_number()) refuse(fmt::format("\"{}\" is no number", key));
    return value.get<double>();
  }
  int64_t ns(const char* key) const {
    const double found = real(key);
    if (!(std::abs(found) < 1e15)) refuse(fmt::format("\"{}\" is no time", key));
    return std::llround(found * 1000);
  }
  double flops(const char* key) const {
    const double found = real(key);
    if (!(found >= 0 && found <= kMostFlops)) refuse(fmt::format("\"{}\" must be from 0 to {:g}", key, kMostFlops));
    return found;
  }
  std::string text(const char* key, bool may_miss = false) const {
    if (may_miss && !object_.contains(key)) return "";
    const TimelineJson& value = get(key);
    if (!value.is_string()) refuse(fmt::format("\"{}\" is no text", key));
    return value.get<std::string>();
  }
  bool flag(const char* key) const {
    const TimelineJson& value = get(key);
    if (!value.is_boolean()) refuse(fmt::format("\"{}\" must be true or false", key));
    return value.get<bool>();
  }
  const TimelineJson& array(const char* key) const {
    const TimelineJson& value = get(key);
    if (!value.is_array()) refuse(fmt::format("\"{}\" is no list", key));
    return value;
  }

 private:
  const TimelineJson& object_;
  const std::string& file_;
};

SpanName read_name(const MemberReader& name) {
  SpanName found;
  const auto kind = parse_span_kind(name.text("kind"));
  if (!kind) name.refuse("\"kind\" is none of a span");
  found.kind = *kind;
  found.text = name.text("text");
  found.source = name.text("source", /*may_miss=*/true);
  found.kernel = name.text("kernel", /*may_miss=*/true);
  found.line = name.text("line", /*may_miss=*/true);
  found.graph = name.text("graph", /*may_miss=*/true);
  found.dtype = name.text("dtype", /*may_miss=*/true);
  if (name.has("flops")) found.flops = name.flops("flops");
  if (name.has("bytes")) found.bytes = name.number("bytes", 0, kMostNumber);
  if (!name.has("number")) return found;
  found.number = static_cast<int>(name.number("number", 0, 1 << 30));
  found.lane = static_cast<int>(name.number("lane", 0, 1 << 20));
  found.meets = name.flag("meets");
  for (const TimelineJson& rank : name.array("ranks")) {
    if (!rank.is_number_integer()) name.refuse("\"ranks\" has something else than numbers");
    found.ranks.push_back(rank.get<int>());
  }
  return found;
}

RankTimeline read_rank(const MemberReader& rank, const std::string& file) {
  RankTimeline part;
  part.rank.size = static_cast<int>(rank.number("size", 1, kMostRanks));
  part.rank.rank = static_cast<int>(rank.number("rank", 0, part.rank.size - 1));
  part.rank.pid = rank.number("pid", 0, kMostNumber);
  part.rank.host = rank.text("host");
  part.rank.clock = rank.text("clock");
  part.rank.job = rank.text("job");
  part.clocks.steady_ns = rank.number("steady_ns", -kMostNumber, kMostNumber);
  part.clocks.system_ms = rank.number("system_ms", -kMostNumber / 2'000'000, kMostNumber / 2'000'000);
  part.steps = parse_traced_steps(rank.text("steps"), file);
  part.is_written = rank.flag("is_written");
  part.failure = rank.text("failure", /*may_miss=*/true);
  for (const TimelineJson& name : rank.array("names")) part.names.push_back(read_name({name, file}));
  for (const TimelineJson& json : rank.array("lanes")) {
    const MemberReader lane(json, file);
    part.lanes.push_back({.title = lane.text("title"),
                          .num_dropped = lane.number("dropped", 0, kMostNumber),
                          .whole_from_ns = lane.number("whole_from_ns", -kMostNumber, kMostNumber),
                          .spans = {}});
  }
  return part;
}

AlignedClock read_clock(const MemberReader& clock) {
  AlignedClock found{.clock = clock.text("clock"),
                     .host = clock.text("host"),
                     .offset_ns = clock.number("offset_ns", -kMostNumber, kMostNumber),
                     .by = clock.text("by")};
  if (clock.has("uncertainty_ns")) found.uncertainty_ns = clock.number("uncertainty_ns", -kMostNumber, kMostNumber);
  return found;
}

TimelineJson parse_json(std::string_view text, const std::string& file) {
  TimelineJson json = parse_bounded_json<TimelineJson>(text, printable(file), {.name = "timeline"});
  if (!json.is_object()) {
    throw InvalidArgument("{}: this is no JSON object, and so no timeline", printable(file));
  }
  return json;
}

}  // namespace

std::string part_json(const RankTimeline& part) {
  const std::span<const RankTimeline> ranks(&part, 1);
  const int64_t origin_ns = timeline::origin_ns(ranks);
  EventWriterOfTimeline events(head_text("part", ranks, "", origin_ns), ranks, origin_ns);
  write_rank(events, part, 0, {});
  return events.take();
}

std::string job_json(const JobTimeline& job, const JobSteps& steps) {
  const int64_t origin_ns = job.origin_ns();
  std::string clocks;
  for (const AlignedClock& clock : job.clocks) clocks += (clocks.empty() ? "" : ",") + clock_json(clock);
  const std::string data =
      fmt::format(R"(,"clocks":[{}],"missing_ranks":[{}],"dropped_spans":{},"whole_steps":{},"spans_that_cross":{},)"
                  R"("collectives_that_ended_early":{})",
                  clocks, fmt::join(job.missing_ranks(), ","), job.num_dropped(), steps.steps.size(), steps.num_crossed,
                  steps.num_ended_early);
  EventWriterOfTimeline events(head_text("job", job.ranks, data, origin_ns), job.ranks, origin_ns);
  const MoreArguments more = arguments_of_meetings(job, steps);
  for (size_t i = 0; i < job.ranks.size(); ++i) write_rank(events, job.ranks[i], i, more);
  write_arrows(events, job, steps);
  write_critical_path(events, job, steps);
  write_predicted(events, job, steps, origin_ns);
  return events.take();
}

JobTimeline parse_timeline(std::string_view text, const std::string& file) {
  const TimelineJson json = parse_json(text, file);
  const MemberReader whole(json, file);
  if (!whole.has("otherData") || !json.at("otherData").is_object() ||
      !json.at("otherData").contains("tessera_timeline")) {
    whole.refuse("it is of another program; simulations are given by --predicted");
  }
  const MemberReader data(whole.get("otherData"), file);
  data.number("tessera_timeline", kFormat, kFormat);
  const int64_t origin_ns = data.number("origin_ns", -kMostNumber, kMostNumber);
  JobTimeline job;
  std::map<int64_t, size_t> place_of;  // by rank
  for (const TimelineJson& rank : data.array("ranks")) {
    job.ranks.push_back(read_rank({rank, file}, file));
    if (!place_of.try_emplace(job.ranks.back().rank.rank, job.ranks.size() - 1).second) {
      data.refuse("it has a rank twice");
    }
  }
  if (job.ranks.empty()) data.refuse("it has no rank");
  if (data.has("clocks")) {
    for (const TimelineJson& clock : data.array("clocks")) job.clocks.push_back(read_clock({clock, file}));
  }
  for (const TimelineJson& json_event : whole.array("traceEvents")) {
    const MemberReader event(json_event, file);
    if (event.text("ph") != "X") continue;
    const std::string category = event.text("cat");
    if (category == "critical path") continue;
    const MemberReader arguments(event.get("args"), file);
    const int64_t length_ns = event.ns("dur");
    if (length_ns < 0) event.refuse("a span ends before it begins");
    if (category == "predicted") {
      const int64_t begin_ns = arguments.number("at_ns", 0, kMostNumber / 2);
      job.predicted.push_back({.name = event.text("name"),
                               .source = arguments.text("source"),
                               .process = static_cast<int>(arguments.number("process", 0, kMostRanks)),
                               .lane = static_cast<int>(arguments.number("lane", 0, 1 << 20)),
                               .begin_ns = begin_ns,
                               .end_ns = begin_ns + length_ns});
      continue;
    }
    const auto place = place_of.find(event.number("pid", 0, kMostRanks));
    if (place == place_of.end()) event.refuse("a span is of a rank that it does not have");
    RankTimeline& rank = job.ranks[place->second];
    const auto lane = event.number("tid", 0, std::ssize(rank.lanes) - 1);
    const int64_t begin_ns = origin_ns + event.ns("ts");
    rank.lanes[static_cast<size_t>(lane)].spans.push_back(
        {.begin_ns = begin_ns,
         .end_ns = begin_ns + length_ns,
         .step = arguments.number("step", 0, kMostNumber),
         .run = static_cast<uint32_t>(arguments.number("run", 0, (int64_t{1} << 32) - 1)),
         .name = static_cast<uint32_t>(arguments.number("n", 0, std::ssize(rank.names) - 1))});
  }
  return job;
}

std::vector<PredictedSpan> parse_predicted(std::string_view text, const std::string& file) {
  const TimelineJson json = parse_json(text, file);
  const MemberReader whole(json, file);
  std::vector<PredictedSpan> spans;
  for (const TimelineJson& json_event : whole.array("traceEvents")) {
    const MemberReader event(json_event, file);
    if (event.text("ph") != "X") continue;
    PredictedSpan span{.name = event.text("name"),
                       .source = {},
                       .process = static_cast<int>(event.number("pid", 0, kMostRanks)),
                       .lane = static_cast<int>(event.number("tid", 0, 1 << 20)),
                       .begin_ns = event.ns("ts")};
    span.end_ns = span.begin_ns + event.ns("dur");
    if (event.has("args") && event.get("args").is_object()) {
      span.source = MemberReader(event.get("args"), file).text("source", /*may_miss=*/true);
    }
    if (span.begin_ns < 0 || span.end_ns < span.begin_ns) event.refuse("a span ends before it begins");
    spans.push_back(std::move(span));
  }
  if (spans.empty()) whole.refuse("it has no span of a simulation");
  return spans;
}

}  // namespace tessera::timeline
