// DeviceCollectives: the collectives of one schedule that its device does together with those of other ranks, one after
// another in the order of the schedule, which all ranks share: so the first that has not ended everywhere can go on.
// What the host gives step by step has a queue of its own, beside the one that computes; in a recording they are pieces
// of it. Lanes count for nothing here.
//
// While the host waits for the device it looks at the groups: a rank that fails or does not come ends the wait. Before
// and behind each collective the device writes down how far it is, so that the host knows in which one it waits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tessera/base/parallel_for.h"
#include "tessera/comm/device_group.h"
#include "tessera/executor/kernel_selection.h"
#include "tessera/ir/schedule.h"
#include "tessera/tensor/device.h"

namespace tessera::executor {

class DeviceCollectives {
 public:
  // `compute` is the device's queue in which everything else of the schedule is done. All that is given outlives this.
  DeviceCollectives(Device& device, Queue& compute, const KernelSelection& kernels, const ParallelFor& parallel_for);
  ~DeviceCollectives();
  DeviceCollectives(const DeviceCollectives&) = delete;
  DeviceCollectives& operator=(const DeviceCollectives&) = delete;

  // Prepares the collective that a step starts; the views are those of its values. Returns its number. In the order of
  // the schedule, before the first run.
  size_t add(const ir::Step& step, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
             comm::DeviceGroup& group);

  // Whether it may be recorded. Where it may not, start() returns when it is done.
  bool is_recordable(size_t number) const { return collectives_[number].group->is_recordable(); }

  // Whether collectives that are given from now on stand between timed events, those of recordings, too: where the
  // device can tell the time. Nothing is under way. What ranks have recorded must be alike: all of them say the same.
  void set_timed(bool on);
  bool is_timed() const { return is_timed_; }
  // Between these the device does a collective of this run: null where it is not timed, or was not given.
  struct Times {
    const Event* begin = nullptr;
    const Event* end = nullptr;
  };
  Times times(size_t number) const;

  // A run of the schedule begins; nothing is under way. Throws what has broken a group.
  void begin_run();
  // Has it done behind all that `compute` has been given so far, beside what that is given from now on.
  void start(size_t number);
  // What `compute` is given from now on waits for it; for all that were started.
  void wait(size_t number);
  void wait_for_all();
  // Gives it to `compute`, which records.
  void give(size_t number);
  // A recording that has it is replayed.
  void replays(size_t number);

  // Returns when `compute` has done its work. Throws what has broken a group; then the device does nothing any more.
  void synchronize();
  // The same for what it was given before the event was recorded there.
  void synchronize(Event& event);
  // The same for all collectives of the run, too, which ends.
  void end_run();
  // The same where the run has failed: what goes wrong now is nothing new.
  void abandon_run();

 private:
  class OwnWork;
  struct Collective {
    comm::DeviceGroup* group = nullptr;
    std::function<void()> call;
    comm::DeviceGroup::Call last;  // as it was given last
    std::unique_ptr<Event> ended;
    std::unique_ptr<Event> begin_time;  // once it was timed
    std::unique_ptr<Event> end_time;
    bool is_given = false;  // in this run
  };
  void give_to(Queue& queue, size_t number);
  // Has the device write down that it has come to a place: 2n + 1 before collective n, 2n + 2 behind it.
  void mark(Queue& queue, size_t place);
  int64_t mark_now() const;
  void make_marks();
  bool is_any_given() const;
  // The call with the number that it has in its group.
  comm::DeviceGroup::Call call_of(size_t number) const;
  void watch(Event& end);
  void check_groups();
  void break_groups(const std::exception_ptr& error);
  void count_calls();

  Device& device_;
  Queue& compute_;
  std::unique_ptr<Queue> queue_;
  std::unique_ptr<OwnWork> own_work_;
  std::unique_ptr<Event> begun_;  // what `compute` was given before a start
  std::unique_ptr<Event> end_;
  std::vector<Collective> collectives_;
  std::vector<comm::DeviceGroup*> groups_;  // each once
  bool is_timed_ = false;
  std::optional<size_t> last_started_;  // for which `compute` does not wait yet
  std::shared_ptr<std::byte> numbers_;  // 0, 1, 2, ... on the host
  std::unique_ptr<Memory> marks_;       // the same on the device
  std::shared_ptr<std::byte> mark_;     // of the host: where the device is
};

}  // namespace tessera::executor
