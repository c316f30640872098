// Executor: runs one schedule, as often as it is told, in an arena. Knows nothing of how the schedule came about.
// Kernels go through the arena's queue; on a device the host waits for it only where a step of the host's own reads
// what was copied to the host, and at the end of a run.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/rank_progress.h"
#include "tessera/executor/arena.h"
#include "tessera/executor/comm_lane.h"
#include "tessera/executor/device_collectives.h"
#include "tessera/executor/input_feed.h"
#include "tessera/executor/kernel_selection.h"
#include "tessera/executor/run_recorder.h"
#include "tessera/ir/schedule.h"
#include "tessera/ops/registry/index_range.h"
#include "tessera/tensor/strided_copy.h"

namespace tessera::executor {

// The loss of a step is not finite. Nothing was updated; the data inputs are still in place.
class NonFiniteLoss : public Error {
 public:
  using Error::Error;
};

// A step was given an index, a label or a row number that its operator has no place for.
class InvalidIndex : public InvalidArgument {
 public:
  explicit InvalidIndex(const std::string& message) : InvalidArgument(message) {}
};

// Which index that was.
struct BadIndex {
  int step = 0;          // the step of the schedule whose operator reads the index
  int operand = 0;       // the operand of that step
  int64_t position = 0;  // where the element stands in the operand, row-major
  int64_t value = 0;     // relative to `begin`, as the whole table counts
  int64_t limit = 0;     // good ones are in [0, limit)
};

// The communicator of a collective's group in its lane: the step's attributes "ranks" and "lane".
using GroupResolver = std::function<comm::Communicator&(const Attributes&)>;
// The same of a collective that the device does (Executor).
using DeviceGroupResolver = std::function<comm::DeviceGroup&(const Attributes&)>;

struct StepTime {
  std::string kernel;
  std::string source;
  double microseconds = 0;    // all runs together
  bool is_of_device = false;  // by the device's own clock; else by the host's
};

// Looks at the values of a run, each when it has just come to be and nothing has been written over it.
class ValueObserver {
 public:
  virtual ~ValueObserver() = default;
  // Whether it wants to see that value of the schedule, which costs a copy.
  virtual bool wants(int value) const = 0;
  // Its elements, dense and row-major, in memory of the host.
  virtual void see(int value, const Tensor& elements) = 0;
};

class Executor final : public comm::RankProgress::Pieces {
 public:
  // Prepares every kernel. `arena` must hold the schedule's bytes; `lanes` and `groups` are used only by schedules with
  // collectives. All outlive the executor. `num_ranks`: of the job. In an arena on a device the host works on values of
  // its own memory only (compiler/schedule/host_copies.h); collectives whose values lie in the device's memory are done
  // there, in the groups of `device_groups`.
  Executor(ir::Schedule schedule, Arena& arena, const KernelSelection& kernels, CommLanes* lanes,
           const GroupResolver& groups, int num_ranks = 1, const DeviceGroupResolver& device_groups = {});
  // Waits for what a device is still doing.
  ~Executor() override;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // One step. No allocation. Throws NonFiniteLoss, InvalidIndex, or what a kernel or collective throws. When it returns
  // or throws, no collective is under way: those that were started have ended, or one of their lane has failed.
  //
  // A bad index is found before the kernel that would read it. Where all ranks share the loss, the step goes on with a
  // loss that is NaN, so that all ranks stop at the check of it, with nothing updated; else it ends at once.
  //
  // An observer sees what the steps make, but for those that a guard may leave out, and what collectives make, as soon
  // as a step reads it. A run with one takes its steps one by one.
  void run(ValueObserver* observer = nullptr);
  // Does what run() does, and returns as soon as it is known what becomes of the values: "loss" and ir::kUpdateGuard
  // are in output() by then, and data inputs may be written for the next run. A device may still be doing the rest,
  // before all that it is given later: what fails there is thrown by who waits for it next. Data inputs go by the feed,
  // where there is one. A run in which the device itself takes part in collectives is waited for.
  void run_until_decided();
  // Whether a run may start before the loss of an earlier one is known: on a device, where a gate leaves out the
  // updates of a run whose loss is not finite, and those of all that come later (ir::Schedule::gate). Not where the
  // host computes steps beside it, for which it must wait, or looks at other ranks while devices communicate.
  bool may_run_ahead() const {
    return schedule_.gate >= 0 && decided_step_ >= 0 && !computes_on_host_ && device_collectives_ == nullptr;
  }
  // Begins such a run and returns while the device does it. From here on input() is other memory, for the next run.
  // Throws InvalidIndex, for this run; the earlier ones are to be finished all the same.
  void start();
  // Waits until the loss is known of the run that was started first, whose results output() has then, but for those
  // that come later than the loss. Throws NonFiniteLoss: then neither this run nor a later one has changed anything,
  // and later ones are forgotten, in every executor of the session by forget().
  void finish();
  void forget() { under_way_.clear(); }
  // The first bad index that the latest run met on this rank.
  const std::optional<BadIndex>& bad_index() const { return bad_index_; }
  // Whether a run goes on after a bad index, which its kernel passes over: then bad_index() tells it, and whoever runs
  // the schedule sees to it that nothing comes of the results.
  void set_notes_bad_indices(bool on) { notes_bad_indices_ = on; }
  // Whether the ranks stop together for a bad index of one of them.
  bool stops_together() const { return shared_loss_step_ >= 0; }
  // One step that looks at each result; the first with a non-finite element is described ("" when there is none) and
  // the step ends there. Writes nothing persistent before that but what a skipped step writes, too.
  std::string find_non_finite();

  // Data inputs to write before run(), results to read after it, in memory of the host. Throws InvalidArgument for an
  // unknown name.
  const TensorView& input(const std::string& name) const;
  const TensorView& output(const std::string& name) const;
  const ir::Schedule& schedule() const { return schedule_; }

  // Fills all planned memory with NaN before each step: what reads before it writes shows.
  void set_fill_with_nan(bool on) { fill_with_nan_ = on; }

  // Called in each run before a step that changes a parameter or state, with its memory: whoever else reads the present
  // value must be done with it then. Its address tells which one it is; on a device the host cannot look there.
  void set_before_update(std::function<void(const TensorView&)> call) { before_update_ = std::move(call); }
  // The memory of the parameters and states that a run changes, in the order in which it does.
  std::vector<TensorView> updated() const;

  // By which run_until_decided() gives data inputs to a device. It must outlive this executor; null: the queue that
  // computes copies them itself.
  void set_feed(InputFeed* feed) { feed_ = feed; }

  // What the profile's times are told by, in place of the system's clock. It must outlive this executor.
  void set_clock(const Clock& clock) { clock_ = &clock; }
  // From now on each run says there which step it is at. It must outlive this executor; null: nobody looks on.
  void set_progress(comm::RankProgress* progress) { progress_ = progress; }
  // From now on each run calls this, on the thread that runs, whenever it has come further; kernels of the host that
  // work long do so between pieces (KernelArgs::after_piece). Nothing is called where a device computes.
  void set_after_piece(std::function<void()> call) { after_piece_ = std::move(call); }
  // While it records, each run adds what it does to the rank's timeline. It must outlive this executor; null: nothing
  // is recorded.
  void set_recorder(timeline::TimelineRecorder* recorder) { recorder_ = recorder; }
  // A step of the schedule, in words.
  comm::PieceName piece_name(int number) const override;
  std::string line_of_call(std::string_view call) const override;
  // Time per step from here on, by step index; costs two clock reads a step, and on a device each step is given and
  // waited for by itself. What a device does is timed by its own clock, where it can tell (Device::make_timed_event).
  void set_profiling(bool on);
  std::vector<StepTime> profile() const;
  // Whose clock has told the times, and what is in them; "" on the host.
  std::string profile_note() const;

 private:
  struct Task {
    ir::StepKind kind = ir::StepKind::kCompute;
    std::vector<TensorView> inputs;
    std::vector<TensorView> outputs;
    PreparedKernel kernel;
    std::span<std::byte> scratch;
    std::optional<CopyWay> copies;  // bytes between the host and a device, no kernel
    CommLane::Task collective;
    CommLane* lane = nullptr;
    std::optional<size_t> on_device;  // a collective that the device does: its number in device_collectives_
    bool is_awaited_at_once = false;  // the next step waits for this collective
    int64_t ticket = -1;
    bool is_of_host = false;      // computed by the host beside a device
    const bool* guard = nullptr;  // left out where it is false
    bool host_looks = false;      // at the guard, which is in its memory
    std::optional<ops::IndexRange> indices;
    TensorView index_values;           // those of the operand, in memory of the host
    std::unique_ptr<Event> is_copied;  // what a collective works on has come from the device
    std::vector<TensorView> updated;   // parameters and states among the outputs
  };
  // When the host sees the loss of a run: as soon as it has come, in mid-step, or when the device has done all.
  enum class Look { kAtDecision, kAtEnd };
  // Tasks [begin, end). Those of a device that the host need not come between are recorded in their second run, and
  // replayed from then on.
  struct Segment {
    size_t begin = 0;
    size_t end = 0;
    bool is_recordable = false;
    bool copies_to_host = false;
    int64_t num_runs = 0;
    std::vector<RecordedWork> work = {};  // once it is recorded
    // By slot, where something comes to the host in it; else one. Of each a second, in which collectives are timed.
    std::vector<std::unique_ptr<Recording>> recordings = {};
  };
  // The host's memory of one run, where several are under way.
  struct Slot {
    std::shared_ptr<std::byte> memory;
    std::unique_ptr<Event> is_decided;  // stands behind the decided step
  };
  void find_inputs_of_device();
  void find_decision();
  void find_host_data();
  std::vector<Segment> cut_into_segments(Look look) const;
  std::vector<Segment>& segments(Look look) { return look == Look::kAtEnd ? whole_segments_ : segments_; }
  // The segment's tasks, each with those that it must follow because of what they read and write.
  std::vector<RecordedWork> work_of(const Segment& segment);
  bool may_be_recorded(const Segment& segment, size_t task, Look look) const;
  // The recording for the present slot, which is made where there is none yet. Null: the queue cannot record.
  const Recording* recording_of(Segment& segment);
  void run_segment(Segment& segment);
  void give_to_queue(size_t index);
  void run_unrecorded(const Segment& segment);
  void prepare_compute(Task& task, const ir::Step& step, const KernelSelection& kernels);
  void prepare_copy(Task& task, const ir::Step& step, const KernelSelection& kernels);
  void prepare_start(size_t index, comm::Communicator& group);
  void prepare_start_on_device(size_t index, const KernelSelection& kernels, const DeviceGroupResolver& groups);
  // Whether a collective works on values in the device's memory.
  bool is_done_there(const ir::Step& start) const;
  // Whether the queue alone does the step, in its place among others.
  bool is_of_queue(size_t index) const;
  bool has_shared_loss(const Segment& segment) const;
  TensorView view_of(int value) const;
  bool is_on_host(int value) const;
  bool is_in_arena(int value) const;
  bool is_on_device() const { return arena_.device() != nullptr; }
  // Returns when the host may read what was copied to it.
  void wait_for_copies();
  // The same for that value alone, where an event stands behind its copy.
  void wait_for(int value);
  // Returns when the queue has done all its work; then also the collectives of the run, which ends.
  void synchronize();
  void end_run();
  void prepare_run();
  Slot make_slot() const;
  // One that no run is under way in.
  size_t free_slot();
  // The host's memory is that of the slot from here on: for what runs, and for results.
  void use_slot(size_t slot);
  void show_results(size_t slot);
  // Of the run in the slot, whose loss is known: throws NonFiniteLoss where a gate was closed, and opens it.
  void look_at_loss(size_t slot);
  bool closes_gate(const ir::Step& step) const;
  void run_steps(Look look, bool by_feed);
  void run_observed(ValueObserver& observer);
  void record_steps(Look look);
  // The collectives that devices do from here on are those of a new run.
  void begin_collectives();
  Tensor read(int value);
  void check_indices(size_t index);
  void spoil_loss(size_t index);
  int find_shared_loss(int num_ranks) const;
  void run_task(size_t index);
  void fill_planned_memory();
  ir::Schedule schedule_;
  ParallelFor parallel_for_;
  ParallelFor host_parallel_for_;  // what the host computes while a device's queue works
  std::vector<Task> tasks_;
  std::vector<Segment> segments_;        // all tasks, in order, for a run whose loss is looked at in mid-step
  std::vector<Segment> whole_segments_;  // the same for one that is looked at when it has ended
  int shared_loss_step_ = -1;            // starts the collective that gives all ranks the loss
  bool computes_on_host_ = false;        // steps that a device has no kernel for
  bool has_decision_ = false;            // a result says what becomes of the values
  int decided_step_ = -1;                // on a device: it brings the last of them to the host; -1: collectives do
  std::vector<InputFeed::Input> inputs_of_device_;  // what the first steps copy there
  InputFeed* feed_ = nullptr;
  std::optional<BadIndex> bad_index_;
  bool notes_bad_indices_ = false;
  std::map<std::string, TensorView> inputs_;
  std::map<std::string, TensorView> outputs_;
  Arena& arena_;
  Queue& queue_;
  // On a device: one slot, or as many as runs are under way at once, and one more.
  std::vector<Slot> slots_;
  size_t slot_ = 0;                                    // of the next run, or of the present one
  std::deque<size_t> under_way_;                       // slots of runs that were started
  std::vector<std::pair<void**, int64_t>> host_data_;  // addresses in a slot's memory that tasks and inputs_ have
  bool copies_to_host_ = false;                        // are under way
  CommLanes* lanes_;
  std::unique_ptr<DeviceCollectives> device_collectives_;  // null: there are none
  std::function<void(const TensorView&)> before_update_;
  bool fill_with_nan_ = false;
  const Clock* clock_ = &Clock::system();
  comm::RankProgress* progress_ = nullptr;
  std::function<void()> after_piece_;
  timeline::TimelineRecorder* recorder_ = nullptr;
  std::shared_ptr<RecordedCollectives> recorded_collectives_;
  std::unique_ptr<RunRecorder> run_recorder_;  // once there was something to record
  RunRecorder::Run* recorded_run_ = nullptr;   // on a device, while a run is recorded
  bool is_timed_by_device(size_t index) const;
  bool profiling_ = false;
  // Around each piece of work that a profiled run gives to a device; null where that cannot tell the time.
  std::unique_ptr<Event> profile_begin_;
  std::unique_ptr<Event> profile_end_;
  std::vector<int64_t> nanoseconds_;
};

// Whether every element of a floating view is finite; true for other dtypes.
bool all_finite(const TensorView& view);

}  // namespace tessera::executor
