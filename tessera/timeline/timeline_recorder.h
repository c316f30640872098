// TimelineRecorder: what one rank does and when, while a timeline is recorded. Each of the rank's threads adds spans to
// a lane of its own. It is there in every rank and holds nothing before it is told to record; what is not recorded
// costs a look at a flag.
//
// The rank's own thread tells it of steps and has it write; names, lanes and spans are added by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/files/file_system.h"
#include "tessera/timeline/rank_timeline.h"
#include "tessera/timeline/span.h"
#include "tessera/timeline/span_buffer.h"
#include "tessera/timeline/timeline_options.h"

namespace tessera::timeline {

class TimelineRecorder {
 public:
  // The rank's process, host and clock are found when something is recorded.
  explicit TimelineRecorder(const RecordedRank& rank);
  // Writes what has not been written yet.
  ~TimelineRecorder();
  TimelineRecorder(const TimelineRecorder&) = delete;
  TimelineRecorder& operator=(const TimelineRecorder&) = delete;

  // Records from now on as the options say, and writes a part without spans, so that one of a rank that is killed is
  // there. Throws IoError where the file cannot be written, InvalidArgument where another one is being recorded. All
  // that is given outlives the recording.
  void begin(const TimelineOptions& options, FileSystem& files, const Clock& clock);
  // Ends the recording and writes what has not been written. Throws nothing: what fails is logged.
  void end();
  // Whether begin() was called, and end() was not since.
  bool is_begun() const { return is_begun_; }
  const TimelineOptions& options() const { return options_; }

  // Whether spans are recorded at this moment. Any thread.
  bool is_on() const { return is_on_.load(std::memory_order_acquire); }
  int64_t now_ns() const { return clock_->monotonic_ns(); }

  // The step of a training that begins, from 1; it ends where the next one begins, or by end_step(). With the last one
  // that is to be recorded the part is written.
  void begin_step(int64_t step);
  void end_step();
  int64_t step() const { return step_.load(std::memory_order_relaxed); }
  // How many runs of the graph there were in this step, the one that begins not counted.
  uint32_t count_run(const std::string& graph);

  // The number of a name, which is kept.
  uint32_t add_name(const SpanName& name);
  // Where a lane's spans go; made at the first call, with a quarter of the room of the main lane.
  SpanBuffer& lane(const std::string& title);
  // Adds spans to the main lane, that of the thread that makes the rank's calls.
  void add_to_main(std::span<const TimedSpan> spans);
  // Adds a span of a kind that has one name, such as kCallbacks, to the main lane.
  void add(SpanKind kind, int64_t begin_ns, int64_t end_ns);

  // Writes all that is recorded so far, where that is more than was written. What fails is logged, and, where no spans
  // were written before, the part says why.
  void write();
  // All that is recorded so far.
  RankTimeline timeline() const;

 private:
  void set_on(bool on) { is_on_.store(on, std::memory_order_release); }
  void look_for_request(int64_t step);
  int64_t request_size() const;
  void write_part(bool is_ended);
  RankTimeline part_without_spans() const;
  void write_failure(const std::string& reason);

  RecordedRank rank_;
  TimelineOptions options_;
  bool is_begun_ = false;
  TracedSteps window_;  // that are recorded now; after the last one nothing is
  int64_t seen_requests_ = 0;
  FileSystem* files_ = nullptr;
  const Clock* clock_ = &Clock::system();
  std::atomic<bool> is_on_{false};
  std::atomic<int64_t> step_{0};
  int64_t step_began_ns_ = 0;             // 0: it is not recorded
  std::map<std::string, uint32_t> runs_;  // of this step, by graph
  ClockPair clocks_at_begin_;
  std::string end_words_;
  bool has_unwritten_ = false;
  int64_t process_ = 0;  // that records

  mutable std::mutex mutex_;
  std::vector<SpanName> names_;
  std::unique_ptr<SpanBuffer> main_lane_;
  std::map<std::string, std::unique_ptr<SpanBuffer>> lanes_;
};

// While a ScopedSpan lives, the rank's own thread does something of a kind that has one name.
class ScopedSpan {
 public:
  // `recorder` may be null.
  ScopedSpan(TimelineRecorder* recorder, SpanKind kind)
      : recorder_(recorder != nullptr && recorder->is_on() ? recorder : nullptr),
        kind_(kind),
        begin_ns_(recorder_ == nullptr ? 0 : recorder_->now_ns()) {}
  ~ScopedSpan() {
    if (recorder_ != nullptr) recorder_->add(kind_, begin_ns_, recorder_->now_ns());
  }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;

 private:
  TimelineRecorder* recorder_;
  SpanKind kind_;
  int64_t begin_ns_;
};

// While a StepSpan lives, a step of the training is under way.
class StepSpan {
 public:
  // `recorder` may be null.
  StepSpan(TimelineRecorder* recorder, int64_t step) : recorder_(recorder) {
    if (recorder_ != nullptr && recorder_->is_begun()) recorder_->begin_step(step);
  }
  ~StepSpan() {
    if (recorder_ != nullptr && recorder_->is_begun()) recorder_->end_step();
  }
  StepSpan(const StepSpan&) = delete;
  StepSpan& operator=(const StepSpan&) = delete;

 private:
  TimelineRecorder* recorder_;
};

// TimedWork times one kind of work that is done again and again, by one thread at a time, on a lane of its own.
class TimedWork {
 public:
  // `recorder` may be null, else it outlives this. `lane`: the lane's title.
  TimedWork(TimelineRecorder* recorder, std::string lane, SpanName name)
      : recorder_(recorder), title_(std::move(lane)), name_(std::move(name)) {}
  // Calls work(), and records it where spans are recorded, also where it throws.
  template <typename Work>
  void run(Work&& work) {
    if (recorder_ == nullptr || !recorder_->is_on()) return work();
    const Span span(*this);
    work();
  }

 private:
  class Span {
   public:
    explicit Span(TimedWork& of) : of_(of), begin_ns_(of.begin()) {}
    ~Span() { of_.end(begin_ns_); }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    TimedWork& of_;
    int64_t begin_ns_;
  };
  int64_t begin();
  void end(int64_t begin_ns);

  TimelineRecorder* recorder_;
  std::string title_;
  SpanName name_;
  SpanBuffer* lane_ = nullptr;  // once there was something to record
  uint32_t number_ = 0;         // of the name
  int64_t step_ = -1;           // of the latest run
  uint32_t run_ = 0;            // within that step
};

}  // namespace tessera::timeline
