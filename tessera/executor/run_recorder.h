// RunRecorder: adds what an executor does to its rank's timeline: a span for each step of the schedule on the rank's
// own lane, and one for each collective on that of its communication lane. What a device does has a lane of its own:
// events on its queue stand around each step, or around what is replayed in one, and tell the time by its clock. So
// have the collectives that devices do by themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tessera/ir/schedule.h"
#include "tessera/tensor/device.h"
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
  // `device`, on which the queue is, may be null.
  RunRecorder(const ir::Schedule& schedule, timeline::TimelineRecorder& recorder,
              std::shared_ptr<RecordedCollectives> collectives, Device* device, Queue& queue);

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
    // The device does the collective that step `number` starts between these timed events, to which it will have come
    // when waited() is called.
    void did_collective(size_t number, const Event& begin, const Event& end);
    // The device has done what it was given.
    void waited();
    // The device is given work from here on, up to a call of one of the next two; nothing where it cannot tell the
    // time.
    void gives();
    // That was a step, or the steps from `begin` on, which it does as one.
    void has_given(size_t number) { end_given(of_.on_device_.names, number); }
    void has_given_together(size_t begin) { end_given(of_.on_device_.together, begin); }

   private:
    void add(uint32_t name);
    void end_given(const std::vector<uint32_t>& names, size_t number);
    void add_device_spans();

    RunRecorder& of_;
    int64_t began_ns_ = 0;
    int64_t now_ns_ = 0;
    int64_t step_ = 0;
    uint32_t run_ = 0;
  };

 private:
  struct TimedCollective {
    uint32_t name = 0;
    const Event* begin = nullptr;
    const Event* end = nullptr;
  };
  // What is there where the device can tell the time.
  struct OnDevice {
    Queue* queue = nullptr;  // null: it cannot
    timeline::SpanBuffer* lane = nullptr;
    std::vector<uint32_t> names = {};                  // by step
    std::vector<uint32_t> together = {};               // of what begins with that step
    std::vector<std::unique_ptr<Event>> events = {};   // of each piece of work the begin and the end
    std::vector<uint32_t> given = {};                  // of this run: the names of the pieces
    timeline::SpanBuffer* collectives_lane = nullptr;  // null: it does none
    std::vector<uint32_t> collectives = {};            // names by step that starts one
    std::vector<TimedCollective> done = {};            // of this run
    std::vector<timeline::TimedSpan> spans = {};
  };
  // From here on runs add what the device does, where it can tell the time; `collectives` names those that it does by
  // itself, by step.
  void look_at_device(Device& device, Queue& queue, std::vector<uint32_t> collectives);

  const ir::Schedule& schedule_;
  timeline::TimelineRecorder& recorder_;
  std::shared_ptr<RecordedCollectives> collectives_;
  OnDevice on_device_;
  std::vector<uint32_t> names_;     // by step
  std::vector<uint32_t> together_;  // of what begins with that step
  uint32_t run_name_ = 0;
  std::vector<timeline::TimedSpan> spans_;  // of this run; holds as many as there can be
};

}  // namespace tessera::executor
