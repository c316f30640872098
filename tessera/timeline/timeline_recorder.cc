#include "tessera/timeline/timeline_recorder.h"

#include <unistd.h>

#include <array>
#include <exception>
#include <fstream>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/timeline/timeline_files.h"
#include "tessera/timeline/timeline_json.h"

namespace tessera::timeline {
namespace {

constexpr int64_t kMostSpans = int64_t{1} << 26;

// Names of the kinds that have one; their numbers are those of the kinds.
std::vector<SpanName> names_of_kinds() {
  const auto words = [](SpanKind kind) {
    switch (kind) {
      case SpanKind::kBatch: return "the next batch";
      case SpanKind::kCallbacks: return "the callbacks";
      case SpanKind::kSave: return "the save of a checkpoint";
      case SpanKind::kEvaluation: return "an evaluation";
      case SpanKind::kCompilation: return "the compilation of a step";
      case SpanKind::kWait: return "the wait for the device";
      default: return to_string(kind);
    }
  };
  std::vector<SpanName> names;
  for (int kind = 0; kind <= static_cast<int>(SpanKind::kDevice); ++kind) {
    names.push_back({.kind = static_cast<SpanKind>(kind), .text = words(static_cast<SpanKind>(kind))});
  }
  return names;
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// All processes of one boot of a machine have the same monotonic clock.
std::string clock_name(const std::string& host) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(file, id) ? id : host;
}

ClockPair clocks_of(const Clock& clock) { return {.steady_ns = clock.monotonic_ns(), .system_ms = clock.wall_ms()}; }

}  // namespace

TimelineRecorder::TimelineRecorder(const RecordedRank& rank) : rank_(rank) {}

TimelineRecorder::~TimelineRecorder() { end(); }

void TimelineRecorder::begin(const TimelineOptions& options, FileSystem& files, const Clock& clock) {
  if (options.file.empty()) return;
  if (is_begun_) {
    throw InvalidArgument("a timeline is being recorded already, for {}; one more can be when that one has ended",
                          options_.file);
  }
  if (options.num_spans < 1 || options.num_spans > kMostSpans) {
    throw InvalidArgument("a timeline's number of spans must be from 1 to {}, got {}", kMostSpans, options.num_spans);
  }
  const TracedSteps& steps = options.steps;
  if (steps.first < 1 || steps.last < steps.first || steps.on_request < 0) {
    throw InvalidArgument("a timeline's steps must be from 1, the first one not above the last one, got {} to {}",
                          steps.first, steps.last);
  }
  check_writable(files, options.file);
  {
    const std::lock_guard lock(mutex_);
    if (names_.empty()) names_ = names_of_kinds();
    main_lane_ = std::make_unique<SpanBuffer>("compute", static_cast<size_t>(options.num_spans));
    for (auto& [title, buffer] : lanes_) buffer->clear();  // whoever adds to them keeps their addresses
  }
  process_ = getpid();
  if (rank_.pid == 0) rank_.pid = process_;
  if (rank_.host.empty()) rank_.host = host_name();
  if (rank_.clock.empty()) rank_.clock = clock_name(rank_.host);
  options_ = options;
  files_ = &files;
  clock_ = &clock;
  clocks_at_begin_ = clocks_of(clock);
  window_ = steps;
  seen_requests_ = steps.on_request > 0 ? request_size() : 0;
  step_.store(0, std::memory_order_relaxed);
  step_began_ns_ = 0;
  if (!options.keeps_earlier || !files.exists(part_path(options.file, rank_.rank))) write_part(/*is_ended=*/false);
  is_begun_ = true;
  has_unwritten_ = false;
  // What comes before the first step is recorded where that one is.
  set_on(steps.on_request == 0 && steps.first == 1);
}

void TimelineRecorder::end() {
  if (!is_begun_) return;
  set_on(false);
  write();
  is_begun_ = false;
}

int64_t TimelineRecorder::request_size() const {
  const std::string path = request_path(options_.file);
  try {
    return files_->exists(path) ? files_->size_bytes(path) : 0;
  } catch (const IoError&) {  // it has gone meanwhile
    return 0;
  }
}

void TimelineRecorder::look_for_request(int64_t step) {
  const int64_t size = request_size();
  if (size <= seen_requests_) return;
  seen_requests_ = size;
  {
    const std::lock_guard lock(mutex_);
    main_lane_->clear();
    for (auto& [title, buffer] : lanes_) buffer->clear();
  }
  window_ = {.first = step, .last = step + options_.steps.on_request - 1};
  set_on(true);
}

void TimelineRecorder::begin_step(int64_t step) {
  step_.store(step, std::memory_order_relaxed);
  if (options_.steps.on_request > 0) {
    if (!is_on()) look_for_request(step);
  } else {
    set_on(step >= window_.first && step <= window_.last);
  }
  if (!is_on()) return;
  for (auto& [graph, count] : runs_) count = 0;
  step_began_ns_ = now_ns();
}

void TimelineRecorder::end_step() {
  const int64_t began_ns = std::exchange(step_began_ns_, 0);
  if (began_ns == 0) return;
  add(SpanKind::kStep, began_ns, now_ns());
  if (step() < window_.last) return;
  set_on(false);
  write();
}

uint32_t TimelineRecorder::count_run(const std::string& graph) { return runs_[graph]++; }

uint32_t TimelineRecorder::add_name(const SpanName& name) {
  const std::lock_guard lock(mutex_);
  names_.push_back(name);
  return static_cast<uint32_t>(names_.size() - 1);
}

SpanBuffer& TimelineRecorder::lane(const std::string& title) {
  const std::lock_guard lock(mutex_);
  auto& buffer = lanes_[title];
  if (buffer == nullptr) {
    buffer = std::make_unique<SpanBuffer>(title, static_cast<size_t>(options_.num_spans / 4 + 1));
  }
  return *buffer;
}

void TimelineRecorder::add_to_main(std::span<const TimedSpan> spans) {
  has_unwritten_ = true;
  main_lane_->add_all(spans);
}

void TimelineRecorder::add(SpanKind kind, int64_t begin_ns, int64_t end_ns) {
  const TimedSpan span{.begin_ns = begin_ns, .end_ns = end_ns, .step = step(), .name = static_cast<uint32_t>(kind)};
  add_to_main({&span, 1});
}

RankTimeline TimelineRecorder::timeline() const {
  RankTimeline found{.rank = rank_, .clocks = clocks_at_begin_, .steps = options_.steps};
  const std::lock_guard lock(mutex_);
  found.names = names_;
  const auto add = [&](const SpanBuffer& buffer) {
    SpanBuffer::Contents contents = buffer.contents();
    found.lanes.push_back({.title = buffer.title(),
                           .num_dropped = contents.num_dropped,
                           .whole_from_ns = contents.whole_from_ns,
                           .spans = std::move(contents.spans)});
  };
  if (main_lane_ != nullptr) add(*main_lane_);
  for (const auto& [title, buffer] : lanes_) add(*buffer);
  return found;
}

void TimelineRecorder::write_part(bool is_ended) {
  RankTimeline part = is_ended ? timeline() : part_without_spans();
  part.is_written = is_ended;
  files_->write_atomically(part_path(options_.file, rank_.rank), part_json(part), 0600);
}

RankTimeline TimelineRecorder::part_without_spans() const {
  RankTimeline part = timeline();
  for (RecordedLane& lane : part.lanes) lane.spans.clear();
  return part;
}

// On a full disk there is no room for another file: the reason takes that of the part that begin() has written.
void TimelineRecorder::write_failure(const std::string& reason) {
  const std::string path = part_path(options_.file, rank_.rank);
  try {
    const bool has_spans = files_->exists(path) && read_timeline(*files_, path).ranks.at(0).is_written;
    if (has_spans) return;
    RankTimeline part = part_without_spans();
    part.failure = reason;
    part.names.clear();
    const auto file = files_->create(path, 0600);
    try {
      file->append(part_json(part));
      file->close();
    } catch (const std::exception&) {
      files_->create(path, 0600);  // an empty part says that there was no room for a word
    }
  } catch (const std::exception&) {  // the log has the reason
  }
}

void TimelineRecorder::write() {
  // A child of fork() has its parent's spans, which are not its own to write.
  if (!is_begun_ || !std::exchange(has_unwritten_, false) || getpid() != process_) return;
  try {
    write_part(/*is_ended=*/true);
  } catch (const std::exception& error) {
    log_warning("the timeline of this rank is not written: {}", error.what());
    write_failure(error.what());
  }
}

int64_t TimedWork::begin() {
  if (lane_ == nullptr) {
    SpanBuffer& lane = recorder_->lane(title_);
    number_ = recorder_->add_name(name_);
    lane_ = &lane;
  }
  const int64_t step = recorder_->step();
  run_ = step == step_ ? run_ + 1 : 0;
  step_ = step;
  return recorder_->now_ns();
}

void TimedWork::end(int64_t begin_ns) {
  lane_->add({.begin_ns = begin_ns, .end_ns = recorder_->now_ns(), .step = step_, .run = run_, .name = number_});
}

}  // namespace tessera::timeline
