// RunRecorder: adds what an executor does to its rank's timeline: a span for each step of the schedule on the rank's
// own lane, and one for each collective on that of its communication lane.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/ir/schedule.h"
#include "tessera/timeline/timeline_recorder.h"

namespace tessera::executor {

// RecordedCollectives is what the tasks of collectives share, which may outlive their executor.
class RecordedCollectives {
 public:
  explicit RecordedCollectives(size_t num_steps) : names_(num_steps), lanes_(num_steps) {}

  // From now on, while there is something recorded, collectives are of this run. None may be under way.
  void begin_run(timeline::TimelineRecorder& recorder, int64_t step, uint32_t run);
  // The collective that this step of the schedule starts.
  void set_step(size_t number, uint32_t name, timeline::SpanBuffer& lane);
  // Calls the collective that step `number` starts, and records it, also where it throws: which one a rank was in when
  // its job ended is worth knowing.
  void call(size_t number, const std::function<void()>& collective) const;

 private:
  std::atomic<timeline::TimelineRecorder*> recorder_{nullptr};
  int64_t step_ = 0;
  uint32_t run_ = 0;
  std::vector<uint32_t> names_;  // by step of the schedule
  std::vector<timeline::SpanBuffer*> lanes_;
};

class RunRecorder {
 public:
  // Names all that the schedule does. Both are outlived by what is given.
  RunRecorder(const ir::Schedule& schedule, timeline::TimelineRecorder& recorder,
              std::shared_ptr<RecordedCollectives> collectives);

  // While a Run lives, the schedule is run; nothing is allocated. Its spans are added when it ends, however it does.
  class Run {
   public:
    explicit Run(RunRecorder& of);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    // The step has ended, or was left out; the next one begins now.
    void passed(size_t number) { add(of_.names_[number]); }
    // Steps from `begin` on, which a device was given in one.
    void passed_together(size_t begin) { add(of_.together_[begin]); }
    // The device has done what it was given.
    void waited() { add(static_cast<uint32_t>(timeline::SpanKind::kWait)); }

   private:
    void add(uint32_t name);

    RunRecorder& of_;
    int64_t began_ns_ = 0;
    int64_t now_ns_ = 0;
    int64_t step_ = 0;
    uint32_t run_ = 0;
  };

 private:
  const ir::Schedule& schedule_;
  timeline::TimelineRecorder& recorder_;
  std::shared_ptr<RecordedCollectives> collectives_;
  std::vector<uint32_t> names_;     // by step
  std::vector<uint32_t> together_;  // of what begins with that step
  uint32_t run_name_ = 0;
  std::vector<timeline::TimedSpan> spans_;  // of this run; holds as many as there can be
};

}  // namespace tessera::executor
