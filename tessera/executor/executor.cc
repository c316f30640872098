#include "tessera/executor/executor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "tessera/base/logging.h"
#include "tessera/base/processes/no_memory.h"
#include "tessera/base/strings.h"
#include "tessera/comm/transport.h"
#include "tessera/executor/collectives.h"
#include "tessera/executor/task_orders.h"
#include "tessera/ops/registry/collective_def.h"

namespace tessera::executor {

using ir::Step;
using ir::StepKind;

namespace {

template <typename T>
bool all_within(const T* indices, int64_t n, int64_t begin, int64_t end) {
  // One comparison an index: what is below `begin` wraps around to more than any size.
  const auto size = static_cast<uint64_t>(end - begin);
  bool all = true;
  for (int64_t i = 0; i < n; ++i) {
    all &= static_cast<uint64_t>(static_cast<int64_t>(indices[i])) - static_cast<uint64_t>(begin) < size;
  }
  return all;
}

// Whether every index is in [begin, end). False may also mean that the view is not dense: look again, one by one.
bool surely_within(const TensorView& view, const ops::IndexRange& range) {
  if (!view.is_dense()) return false;
  const int64_t n = view.num_elements();
  switch (view.dtype) {
    case DType::kU8: return all_within(view.as<uint8_t>(), n, range.begin, range.end);
    case DType::kI32: return all_within(view.as<int32_t>(), n, range.begin, range.end);
    case DType::kI64: return all_within(view.as<int64_t>(), n, range.begin, range.end);
    default: return false;
  }
}

// `matmul "fc"`
std::string operator_name(const Step& step) {
  return step.source.empty() ? step.op : fmt::format("{} \"{}\"", step.op, step.source);
}

[[noreturn]] void throw_no_memory(const Step& step, const std::bad_alloc& error) {
  throw InvalidArgument("{}: {}", operator_name(step), no_memory_text(error));
}

// Where a run ends, however it does, nothing of it is under way: what stops it, as a loss that is not finite, stands
// before the waits for the gradients, which the other ranks go on with, and a queue may read what the host writes next.
class EndsRun {
 public:
  EndsRun(CommLanes* lanes, DeviceCollectives* on_device, Arena& arena)
      : lanes_(lanes), on_device_(on_device), arena_(arena) {}
  // The run has ended well.
  void is_well() { has_failed_ = false; }
  // It has, and the queue goes on.
  void is_well_and_goes_on() { has_failed_ = waits_for_queue_ = false; }
  ~EndsRun() {
    if (lanes_ != nullptr) lanes_->drain();
    if (has_failed_ && arena_.gate() != nullptr) arena_.gate()->doubt();
    if (!waits_for_queue_) return;
    if (on_device_ != nullptr) on_device_->abandon_run();
    try {
      arena_.queue().synchronize();
    } catch (const std::exception& error) {
      // Where a run has ended well, all was waited for before.
      log_error("a device has failed after what ended its step: {}", error.what());
    }
  }
  EndsRun(const EndsRun&) = delete;
  EndsRun& operator=(const EndsRun&) = delete;

 private:
  CommLanes* lanes_;
  DeviceCollectives* on_device_;
  Arena& arena_;
  bool waits_for_queue_ = true;
  bool has_failed_ = true;
};

}  // namespace

bool all_finite(const TensorView& view) {
  if (!is_floating(view.dtype) || view.num_elements() == 0) return true;
  const auto finite = [](double x) { return std::isfinite(x); };
  // Only losses come here on the fast path: one element.
  if (view.num_elements() == 1) {
    return dispatch_floating(view.dtype, "all_finite", [&](auto zero) {
      using T = decltype(zero);
      return finite(static_cast<ComputeType<T>>(*view.as<T>()));
    });
  }
  for (const double x : Tensor::copy_of(view).to_doubles()) {
    if (!finite(x)) return false;
  }
  return true;
}

Executor::Executor(ir::Schedule schedule, Arena& arena, const KernelSelection& kernels, CommLanes* lanes,
                   const GroupResolver& groups, int num_ranks, const DeviceGroupResolver& device_groups)
    : schedule_(std::move(schedule)),
      parallel_for_(kernels.num_threads()),
      host_parallel_for_(kernels.num_threads()),
      arena_(arena),
      queue_(arena.queue()),
      lanes_(lanes) {
  arena.grow_to(schedule_.arena_bytes);
  // As a kernel that makes what lies there splits it between the threads.
  for (const auto& block : schedule_.blocks) arena.touch(block.offset, block.bytes, parallel_for_);
  // What is in front of the planned part holds values, which a snapshot may be reading.
  arena.touch(schedule_.persistent_bytes, schedule_.arena_bytes - schedule_.persistent_bytes, parallel_for_);
  if (is_on_device()) slots_.push_back(make_slot());
  recorded_collectives_ = std::make_shared<RecordedCollectives>(schedule_.steps.size());
  tasks_.resize(schedule_.steps.size());
  for (size_t s = 0; s < schedule_.steps.size(); ++s) {
    const Step& step = schedule_.steps[s];
    Task& task = tasks_[s];
    task.kind = step.kind;
    for (const int v : step.inputs) task.inputs.push_back(view_of(v));
    for (const int v : step.outputs) task.outputs.push_back(view_of(v));
    for (const int v : step.outputs) {
      const auto& value = schedule_.values[static_cast<size_t>(v)];
      const bool is_persistent =
          is_in_arena(v) && value.offset < schedule_.persistent_bytes && value.type.size_bytes() > 0;
      if (is_persistent && step.kind != StepKind::kWait) task.updated.push_back(view_of(v));
    }
    if (step.guard >= 0) {
      task.guard = view_of(step.guard).as<bool>();
      task.host_looks = !is_on_device() || is_on_host(step.guard);
    }
    if (step.kind == StepKind::kCompute) {
      prepare_compute(task, step, kernels);
    } else if (step.kind == StepKind::kCopy) {
      prepare_copy(task, step, kernels);
    } else if (step.kind == StepKind::kStart && is_done_there(step)) {
      prepare_start_on_device(s, kernels, device_groups);
    } else if (step.kind == StepKind::kStart) {
      check(lanes != nullptr, "a schedule with collectives needs communication lanes");
      prepare_start(s, groups(step.attributes));
      task.is_awaited_at_once = s + 1 < tasks_.size() && schedule_.steps[s + 1].joins == static_cast<int>(s);
    }
  }
  for (const auto& [name, v] : schedule_.inputs) inputs_[name] = view_of(v);
  for (const auto& [name, v] : schedule_.outputs) outputs_[name] = view_of(v);
  nanoseconds_.resize(tasks_.size());
  shared_loss_step_ = find_shared_loss(num_ranks);
  find_inputs_of_device();
  find_decision();
  segments_ = cut_into_segments(Look::kAtDecision);
  const bool is_checked =
      std::any_of(tasks_.begin(), tasks_.end(), [](const Task& task) { return task.kind == StepKind::kCheckFinite; });
  whole_segments_ = cut_into_segments(is_checked ? Look::kAtDecision : Look::kAtEnd);
  find_host_data();
}

Executor::~Executor() {
  if (!is_on_device()) return;
  try {
    queue_.synchronize();
  } catch (const std::exception& error) {
    log_error("a device has failed after the last step of {}: {}", schedule_.name, error.what());
  }
  // A recording goes before the events and the host's memory in it.
  segments_.clear();
  whole_segments_.clear();
}

// A schedule begins with them.
void Executor::find_inputs_of_device() {
  for (const Task& task : tasks_) {
    if (task.copies != CopyWay::kToDevice) return;
    inputs_of_device_.push_back({task.outputs[0].data, task.inputs[0].data, task.inputs[0].size_bytes()});
  }
}

void Executor::find_decision() {
  for (const char* name : {"loss", ir::kUpdateGuard}) {
    const auto output = schedule_.outputs.find(name);
    if (output == schedule_.outputs.end()) continue;
    has_decision_ = true;
    for (size_t s = 0; s < tasks_.size(); ++s) {
      const bool copies = tasks_[s].copies == CopyWay::kToHost && schedule_.steps[s].outputs[0] == output->second;
      if (copies) decided_step_ = std::max(decided_step_, static_cast<int>(s));
    }
  }
}

// Where collectives work in the host's memory, they and what is recorded of their copies have its addresses: it is that
// of the only slot.
void Executor::find_host_data() {
  if (!may_run_ahead()) return;
  const auto add = [this](int v, TensorView& view) {
    if (is_on_host(v)) host_data_.emplace_back(&view.data, schedule_.values[static_cast<size_t>(v)].offset);
  };
  for (size_t s = 0; s < tasks_.size(); ++s) {
    const Step& step = schedule_.steps[s];
    for (size_t i = 0; i < step.inputs.size(); ++i) add(step.inputs[i], tasks_[s].inputs[i]);
    for (size_t i = 0; i < step.outputs.size(); ++i) add(step.outputs[i], tasks_[s].outputs[i]);
    if (tasks_[s].indices && step.indices >= 0) add(step.indices, tasks_[s].index_values);
  }
  for (auto& [name, view] : inputs_) add(schedule_.inputs.at(name), view);
}

Executor::Slot Executor::make_slot() const {
  return {.memory = arena_.device()->allocate_on_host(schedule_.host_bytes),
          .is_decided = arena_.device()->make_event()};
}

size_t Executor::free_slot() {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (std::find(under_way_.begin(), under_way_.end(), slot) == under_way_.end()) return slot;
  }
  slots_.push_back(make_slot());
  return slots_.size() - 1;
}

void Executor::use_slot(size_t slot) {
  slot_ = slot;
  for (const auto& [data, offset] : host_data_) *data = slots_[slot].memory.get() + offset;
  for (size_t i = 0; i < inputs_of_device_.size(); ++i) inputs_of_device_[i].from = tasks_[i].inputs[0].data;
}

void Executor::show_results(size_t slot) {
  if (slots_.size() <= 1) return;
  for (auto& [name, view] : outputs_) {
    view.data = slots_[slot].memory.get() + schedule_.values[static_cast<size_t>(schedule_.outputs.at(name))].offset;
  }
}

bool Executor::closes_gate(const Step& step) const {
  return schedule_.gate >= 0 && step.outputs.size() == 1 && step.outputs[0] == schedule_.gate;
}

void Executor::look_at_loss(size_t slot) {
  if (schedule_.gate < 0) return;
  show_results(slot);
  const TensorView& loss = output("loss");
  if (all_finite(loss)) return;
  synchronize();  // all that was given has found it closed
  arena_.gate()->open();
  throw NonFiniteLoss(fmt::format("loss is {}", shortest(Tensor::copy_of(loss).to_doubles()[0])));
}

bool Executor::is_done_there(const Step& start) const {
  return is_on_device() && !is_on_host(start.inputs.empty() ? start.outputs[0] : start.inputs[0]);
}

bool Executor::is_of_queue(size_t index) const {
  if (!is_on_device()) return false;
  switch (tasks_[index].kind) {
    case StepKind::kCompute:
    case StepKind::kCopy: return !tasks_[index].is_of_host && !tasks_[index].host_looks;
    case StepKind::kStart:
      return tasks_[index].on_device.has_value() && device_collectives_->is_recordable(*tasks_[index].on_device);
    case StepKind::kWait: return tasks_[static_cast<size_t>(schedule_.steps[index].joins)].on_device.has_value();
    case StepKind::kCheckFinite: return false;
  }
  return false;
}

bool Executor::has_shared_loss(const Segment& segment) const {
  const auto step = static_cast<size_t>(shared_loss_step_);
  return shared_loss_step_ >= 0 && step >= segment.begin && step < segment.end;
}

// Whether the task can be done in one recording with those of the segment: it is the queue's alone, whatever the host
// finds, what the host looks at before it has not been copied there by the segment, and no event that the host waits
// for stands between them.
bool Executor::may_be_recorded(const Segment& segment, size_t task, Look look) const {
  const Step& step = schedule_.steps[task];
  if (!is_of_queue(task)) return false;
  // What is not recorded is done when it has been started: a recording of nothing but the wait for it would be empty.
  if (step.kind == StepKind::kWait && segment.begin == task && !is_of_queue(static_cast<size_t>(step.joins))) {
    return false;
  }
  // A feed may do the first ones.
  if (task < inputs_of_device_.size()) return false;
  if (look == Look::kAtDecision) {
    // What comes to the host does so in the memory of this run or another: recorded by itself, it would be so for each.
    if (may_run_ahead() && tasks_[task].copies == CopyWay::kToHost) return false;
    const bool is_behind_event = decided_step_ >= 0 && task == static_cast<size_t>(decided_step_) + 1;
    if (is_behind_event && segment.begin < task) return false;
  }
  if (!tasks_[task].indices) return true;
  for (size_t s = segment.begin; s < task; ++s) {
    const auto& outputs = schedule_.steps[s].outputs;
    if (std::find(outputs.begin(), outputs.end(), step.indices) != outputs.end()) return false;
  }
  return true;
}

std::vector<Executor::Segment> Executor::cut_into_segments(Look look) const {
  std::vector<Segment> segments;
  for (size_t s = 0; s < tasks_.size(); ++s) {
    const bool continues =
        !segments.empty() && segments.back().is_recordable && may_be_recorded(segments.back(), s, look);
    if (!continues) {
      segments.push_back({.begin = s, .end = s});
      segments.back().is_recordable = may_be_recorded(segments.back(), s, look);
    }
    Segment& segment = segments.back();
    segment.end = s + 1;
    segment.copies_to_host = segment.copies_to_host || tasks_[s].copies == CopyWay::kToHost;
  }
  return segments;
}

bool Executor::is_on_host(int value) const {
  return schedule_.values[static_cast<size_t>(value)].space == ir::MemorySpace::kHost;
}

bool Executor::is_in_arena(int value) const {
  return schedule_.values[static_cast<size_t>(value)].space == ir::MemorySpace::kArena;
}

TensorView Executor::view_of(int value) const {
  const auto& scheduled = schedule_.values[static_cast<size_t>(value)];
  std::byte* const memory = is_on_host(value)    ? slots_[slot_].memory.get()
                            : is_in_arena(value) ? arena_.data()
                                                 : arena_.gate()->address();
  return {memory + scheduled.offset, scheduled.type.dtype, scheduled.type.shape, scheduled.strides};
}

void Executor::prepare_compute(Task& task, const Step& step, const KernelSelection& kernels) {
  std::vector<Type> types;
  for (const auto& input : task.inputs) types.push_back(input.type());
  task.indices = ops::index_range(step.op, step.attributes, types);
  if (task.indices) {
    check(step.indices >= 0 || !is_on_device(), "a step has indices that the host cannot look at");
    task.index_values =
        step.indices >= 0 ? view_of(step.indices) : task.inputs[static_cast<size_t>(task.indices->operand)];
  }
  KernelRequest request{.op = step.op,
                        .inputs = task.inputs,
                        .outputs = task.outputs,
                        .attributes = step.attributes,
                        .num_threads = kernels.num_threads()};
  for (auto& v : request.inputs) v.data = nullptr;
  for (auto& v : request.outputs) v.data = nullptr;
  check(!step.on_host || is_on_device(), "a step that the host computes beside itself");
  task.is_of_host = step.on_host;
  computes_on_host_ = computes_on_host_ || step.on_host;
  try {
    task.kernel = kernels.prepare(request, step.kernel, step.on_host);
  } catch (const std::bad_alloc& error) {
    throw_no_memory(step, error);
  }
  check(task.kernel.scratch_bytes <= step.scratch_bytes, "a kernel wants more scratch than was planned");
  std::byte* const memory = step.on_host ? slots_[slot_].memory.get() : arena_.data();
  task.scratch = {memory + step.scratch_offset, static_cast<size_t>(step.scratch_bytes)};
}

void Executor::prepare_copy(Task& task, const Step& step, const KernelSelection& kernels) {
  const TensorView& from = task.inputs[0];
  const TensorView& to = task.outputs[0];
  check_equal(from.type(), to.type(), "types of a copy");
  const bool comes_from_host = is_on_host(step.inputs[0]);
  if (comes_from_host || is_on_host(step.outputs[0])) {
    check(from.strides == to.strides, "a copy between the host and a device changes the layout");
    task.copies = comes_from_host ? CopyWay::kToDevice : CopyWay::kToHost;
    return;
  }
  if (is_on_device()) {
    KernelRequest request{
        .op = step.op, .inputs = task.inputs, .outputs = task.outputs, .num_threads = kernels.num_threads()};
    request.inputs[0].data = request.outputs[0].data = nullptr;
    task.kernel = kernels.prepare(request, step.op);
    check_equal(task.kernel.scratch_bytes, int64_t{0}, "scratch memory of a copy");
    return;
  }
  task.kernel.run =
      [copy = StridedCopy(from.shape, from.strides, to.strides, size_bytes(from.dtype))](const KernelArgs& args) {
        args.parallel_for(copy.num_units(), copy.grain(), [&](int64_t begin, int64_t end) {
          copy.run(args.inputs[0].data, args.outputs[0].data, begin, end);
        });
      };
}

void Executor::prepare_start(size_t index, comm::Communicator& group) {
  Task& task = tasks_[index];
  const Step& step = schedule_.steps[index];
  std::function<void()> collective = [recorded = recorded_collectives_, index,
                                      call = prepare_collective(step, task.inputs, task.outputs, group)] {
    recorded->call(index, call);
  };
  if (is_on_device()) {
    task.is_copied = arena_.device()->make_event();
    collective = [event = task.is_copied.get(), collective = std::move(collective)] {
      event->synchronize();
      collective();
    };
  }
  task.collective = std::make_shared<const std::function<void()>>(std::move(collective));
  task.lane = &(*lanes_)[ir::lane_of(step.attributes)];
}

void Executor::prepare_start_on_device(size_t index, const KernelSelection& kernels,
                                       const DeviceGroupResolver& groups) {
  check(static_cast<bool>(groups), "a schedule with collectives of a device needs groups of devices");
  if (device_collectives_ == nullptr) {
    device_collectives_ = std::make_unique<DeviceCollectives>(*arena_.device(), queue_, kernels, parallel_for_);
  }
  Task& task = tasks_[index];
  const Step& step = schedule_.steps[index];
  task.on_device = device_collectives_->add(step, task.inputs, task.outputs, groups(step.attributes));
}

// From the loss back to the collective of all ranks that made it; -1: there is none, or the loss stops nothing.
int Executor::find_shared_loss(int num_ranks) const {
  const auto loss = schedule_.outputs.find("loss");
  const bool is_checked =
      schedule_.outputs.contains(ir::kUpdateGuard) || schedule_.gate >= 0 ||
      std::any_of(tasks_.begin(), tasks_.end(), [](const Task& task) { return task.kind == StepKind::kCheckFinite; });
  if (loss == schedule_.outputs.end() || !is_checked) return -1;
  std::set<int> wanted{loss->second};
  for (int s = static_cast<int>(schedule_.steps.size()) - 1; s >= 0; --s) {
    const Step& step = schedule_.steps[static_cast<size_t>(s)];
    const bool makes = std::any_of(step.outputs.begin(), step.outputs.end(), [&](int v) { return wanted.contains(v); });
    if (!makes || step.kind == StepKind::kWait) continue;
    if (step.kind == StepKind::kStart) {
      const auto* collective = ops::collective_of(step.op);
      const bool is_sum =
          collective->reduces && collective->gives_one && step.attributes.get_string("reduction") == "sum";
      if (is_sum && step.attributes.get_ints("ranks").size() == static_cast<size_t>(num_ranks)) return s;
      return -1;
    }
    wanted.insert(step.inputs.begin(), step.inputs.end());
  }
  return -1;
}

void Executor::check_indices(size_t index) {
  const Task& task = tasks_[index];
  const TensorView& indices = task.index_values;
  if (bad_index_) return;
  wait_for_copies();
  if (surely_within(indices, *task.indices)) return;
  const auto& [operand, begin, end] = *task.indices;
  Tensor values(DType::kI64, indices.shape);
  copy_elements(indices, values.view());
  int64_t position = 0;
  for (const int64_t value : values.values<int64_t>()) {
    if (value >= begin && value < end) {
      ++position;
      continue;
    }
    bad_index_ = {static_cast<int>(index), operand, position, value - begin, end - begin};
    if (notes_bad_indices_ || static_cast<int>(index) < shared_loss_step_) return;
    throw InvalidIndex(fmt::format("{} is given the index {}, which is not in [0, {})", schedule_.steps[index].op,
                                   value - begin, end - begin));
  }
}

// What this rank adds to the loss becomes NaN, and so does the loss of all ranks.
void Executor::spoil_loss(size_t index) {
  const Step& step = schedule_.steps[index];
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const TensorView& view = tasks_[index].inputs[i];
    const int v = step.inputs[i];
    const bool is_planned =
        is_on_host(v) || schedule_.values[static_cast<size_t>(v)].offset >= schedule_.persistent_bytes;
    if (!is_planned || !is_floating(view.dtype) || !view.is_dense()) continue;
    // All bits set is a NaN in every floating type.
    (is_on_host(v) ? host_queue() : queue_).fill(view.data, std::byte{0xFF}, view.size_bytes());
  }
}

void Executor::wait_for_copies() {
  if (!copies_to_host_) return;
  synchronize();
  copies_to_host_ = false;
}

void Executor::wait_for(int value) {
  const bool has_event = decided_step_ >= 0 && schedule_.steps[static_cast<size_t>(decided_step_)].outputs[0] == value;
  if (!has_event) return wait_for_copies();
  Event& is_decided = *slots_[slot_].is_decided;
  device_collectives_ != nullptr ? device_collectives_->synchronize(is_decided) : is_decided.synchronize();
}

void Executor::synchronize() {
  device_collectives_ != nullptr ? device_collectives_->synchronize() : queue_.synchronize();
}

void Executor::end_run() { device_collectives_ != nullptr ? device_collectives_->end_run() : queue_.synchronize(); }

// A value as the host can read it: a copy, whose work it waits for.
Tensor Executor::read(int v) {
  const TensorView view = view_of(v);
  if (!is_on_device() || is_on_host(v)) {
    wait_for_copies();
    return Tensor::copy_of(view);
  }
  Tensor copy(view.type());
  queue_.copy(copy.view().data, view.data, view.size_bytes(), CopyWay::kToHost);
  synchronize();
  TensorView there = copy.view();
  there.strides = view.strides;
  return Tensor::copy_of(there);
}

void Executor::give_to_queue(size_t index) {
  const Task& task = tasks_[index];
  if (task.on_device) return device_collectives_->give(*task.on_device);
  if (task.copies) {
    queue_.copy(task.outputs[0].data, task.inputs[0].data, task.inputs[0].size_bytes(), *task.copies);
    return;
  }
  const Step& step = schedule_.steps[index];
  const auto* const after_piece = after_piece_ && !is_on_device() ? &after_piece_ : nullptr;
  try {
    if (task.is_of_host) {
      task.kernel.run({task.inputs, task.outputs, step.attributes, task.scratch, host_parallel_for_});
      return;
    }
    queue_.launch(task.kernel,
                  {task.inputs, task.outputs, step.attributes, task.scratch, parallel_for_, &queue_, after_piece},
                  task.guard);
  } catch (const std::bad_alloc& error) {
    throw_no_memory(step, error);
  }
  if (after_piece != nullptr) after_piece_();
}

void Executor::run_task(size_t index) {
  if (progress_ != nullptr) progress_->enter_piece(index);
  Task& task = tasks_[index];
  const Step& step = schedule_.steps[index];
  if (task.host_looks || task.is_of_host) wait_for_copies();
  if (task.host_looks && !*task.guard) return;
  if (before_update_) {
    for (const TensorView& view : task.updated) before_update_(view);
  }
  switch (task.kind) {
    case StepKind::kCompute:
    case StepKind::kCopy:
      if (task.indices) check_indices(index);
      if (profiling_ && is_timed_by_device(index)) queue_.record(*profile_begin_);
      give_to_queue(index);
      if (profiling_ && is_timed_by_device(index)) queue_.record(*profile_end_);
      copies_to_host_ = copies_to_host_ || task.copies == CopyWay::kToHost;
      if (static_cast<int>(index) == decided_step_) queue_.record(*slots_[slot_].is_decided);
      break;
    case StepKind::kStart:
      if (bad_index_ && static_cast<int>(index) == shared_loss_step_) {
        wait_for_copies();
        spoil_loss(index);
      }
      if (task.on_device) {
        device_collectives_->start(*task.on_device);
        break;
      }
      if (task.is_copied != nullptr) queue_.record(*task.is_copied);
      task.ticket = task.lane->start(task.collective, !task.is_awaited_at_once);
      break;
    case StepKind::kWait: {
      const Task& started = tasks_[static_cast<size_t>(step.joins)];
      if (started.on_device) {
        device_collectives_->wait(*started.on_device);
      } else {
        started.lane->wait(started.ticket);
      }
      break;
    }
    case StepKind::kCheckFinite:
      wait_for(step.inputs[0]);
      if (!all_finite(task.inputs[0])) {
        throw NonFiniteLoss(fmt::format("loss is {}", shortest(Tensor::copy_of(task.inputs[0]).to_doubles()[0])));
      }
      break;
  }
}

void Executor::fill_planned_memory() {
  // All bits set is a NaN in every floating type.
  const auto fill = [this] {
    queue_.fill(arena_.data() + schedule_.persistent_bytes, std::byte{0xFF},
                schedule_.arena_bytes - schedule_.persistent_bytes);
  };
  if (is_on_device()) return fill();  // the data inputs are not there yet
  // The data inputs have been written already and stay.
  std::vector<Tensor> data;
  for (const auto& [name, view] : inputs_) data.push_back(Tensor::copy_of(view));
  fill();
  size_t i = 0;
  for (const auto& [name, view] : inputs_) copy_elements(data[i++].view(), view);
}

void Executor::run_unrecorded(const Segment& segment) {
  for (size_t s = segment.begin; s < segment.end; ++s) {
    const Task& task = tasks_[s];
    const bool is_given = (task.kind == StepKind::kCompute || task.kind == StepKind::kCopy) && !task.is_of_host;
    RunRecorder::Run* const run = is_given ? recorded_run_ : nullptr;
    if (run != nullptr) run->gives();
    run_task(s);
    if (run != nullptr) run->has_given(s);
  }
}

std::vector<RecordedWork> Executor::work_of(const Segment& segment) {
  std::vector<Touched> touched;
  std::vector<size_t> given;
  for (size_t s = segment.begin; s < segment.end; ++s) {
    const Task& task = tasks_[s];
    if (task.kind == StepKind::kWait) continue;  // what a collective touches says who waits for it
    given.push_back(s);
    Touched& of_task = touched.emplace_back();
    for (const TensorView& view : task.inputs) of_task.reads.push_back(range_of(view));
    // Behind its operands a collective has a second buffer.
    for (size_t i = task.outputs.size(); task.on_device && i < task.inputs.size(); ++i) {
      of_task.writes.push_back(range_of(task.inputs[i]));
    }
    for (const TensorView& view : task.outputs) of_task.writes.push_back(range_of(view));
    if (task.guard != nullptr) of_task.reads.push_back({reinterpret_cast<uintptr_t>(task.guard), 1});
    if (!task.scratch.empty()) {
      of_task.writes.push_back({reinterpret_cast<uintptr_t>(task.scratch.data()), task.scratch.size()});
    }
  }
  std::vector<RecordedWork> work;
  const auto after = orders_of(touched);
  int last_collective = -1;
  for (size_t i = 0; i < after.size(); ++i) {
    RecordedWork& piece = work.emplace_back();
    piece.give = [this, index = given[i]] { give_to_queue(index); };
    piece.after = after[i];
    piece.waits_for_others = tasks_[given[i]].on_device.has_value();
    if (!piece.waits_for_others) continue;
    // All ranks do them in one order.
    if (last_collective >= 0 && std::ranges::find(piece.after, last_collective) == piece.after.end()) {
      piece.after.push_back(last_collective);
    }
    last_collective = static_cast<int>(i);
  }
  return work;
}

const Recording* Executor::recording_of(Segment& segment) {
  const bool is_timed = device_collectives_ != nullptr && device_collectives_->is_timed();
  const size_t number = 2 * (segment.copies_to_host ? slot_ : 0) + (is_timed ? 1 : 0);
  if (segment.recordings.size() <= number) segment.recordings.resize(number + 1);
  std::unique_ptr<Recording>& recording = segment.recordings[number];
  if (recording == nullptr) {
    // What must follow what is alike in all slots, whose memory lies apart.
    if (segment.work.empty()) segment.work = work_of(segment);
    recording = queue_.record(segment.work);
  }
  return recording.get();
}

void Executor::run_segment(Segment& segment) {
  // What a kernel needs is made in its first run, which is not recorded.
  if (!segment.is_recordable || segment.num_runs++ == 0) return run_unrecorded(segment);
  const Recording* const recording = recording_of(segment);
  if (recording == nullptr) {
    segment.is_recordable = false;
    return run_unrecorded(segment);
  }
  for (size_t s = segment.begin; s < segment.end; ++s) {
    if (tasks_[s].indices) check_indices(s);
  }
  // The loss is spoiled between two pieces of the recording.
  if (bad_index_ && has_shared_loss(segment)) return run_unrecorded(segment);
  for (size_t s = segment.begin; s < segment.end; ++s) {
    if (tasks_[s].on_device) device_collectives_->replays(*tasks_[s].on_device);
    if (!before_update_) continue;
    for (const TensorView& view : tasks_[s].updated) before_update_(view);
  }
  if (device_collectives_ != nullptr) device_collectives_->wait_for_all();
  if (progress_ != nullptr) progress_->enter_piece(segment.begin);
  if (recorded_run_ != nullptr) recorded_run_->gives();
  queue_.replay(*recording);
  if (recorded_run_ != nullptr) recorded_run_->has_given_together(segment.begin);
  const bool decides =
      decided_step_ >= static_cast<int>(segment.begin) && decided_step_ < static_cast<int>(segment.end);
  if (decides) queue_.record(*slots_[slot_].is_decided);
  copies_to_host_ = copies_to_host_ || segment.copies_to_host;
}

// The same as a run does without a recorder, with a look at the clock after each step.
void Executor::record_steps(Look look) {
  if (run_recorder_ == nullptr) {
    run_recorder_ =
        std::make_unique<RunRecorder>(schedule_, *recorder_, recorded_collectives_, arena_.device(), queue_);
  }
  RunRecorder::Run run(*run_recorder_);
  const struct LetGo {  // also where a step throws
    RunRecorder::Run*& run;
    ~LetGo() { run = nullptr; }
  } let_go{recorded_run_};
  recorded_run_ = is_on_device() ? &run : nullptr;
  for (Segment& segment : segments(look)) {
    if (is_on_device()) {
      run_segment(segment);
      segment.is_recordable ? run.passed_together(segment.begin) : run.passed(segment.begin);
      continue;
    }
    for (size_t s = segment.begin; s < segment.end; ++s) {
      run_task(s);
      run.passed(s);
    }
  }
  if (!is_on_device()) return;
  for (size_t s = 0; s < tasks_.size(); ++s) {
    if (!tasks_[s].on_device) continue;
    const auto [begin, end] = device_collectives_->times(*tasks_[s].on_device);
    if (begin != nullptr) run.did_collective(s, *begin, *end);
  }
  end_run();
  run.waited();
}

// Runs the steps from the first to the last, or to one that throws.
void Executor::run_steps(Look look, bool by_feed) {
  if (recorder_ != nullptr && recorder_->is_on()) return record_steps(look);
  if (!profiling_) {
    const size_t first = by_feed ? inputs_of_device_.size() : 0;
    if (by_feed) feed_->give(inputs_of_device_);
    for (Segment& segment : segments(look)) {
      if (segment.begin >= first) run_segment(segment);
    }
    return;
  }
  for (size_t s = 0; s < tasks_.size(); ++s) {
    const int64_t begin = clock_->monotonic_ns();
    run_task(s);
    if (is_on_device()) synchronize();
    nanoseconds_[s] +=
        is_timed_by_device(s) ? profile_end_->nanoseconds_since(*profile_begin_) : clock_->monotonic_ns() - begin;
  }
}

void Executor::run_observed(ValueObserver& observer) {
  std::vector<bool> is_seen(schedule_.values.size());
  // What a collective makes in place has been put there before by a copy: that is not the value yet.
  std::vector<bool> is_exchanged(schedule_.values.size());
  for (const Step& step : schedule_.steps) {
    if (step.kind != StepKind::kStart) continue;
    for (const int v : step.outputs) is_exchanged[static_cast<size_t>(v)] = true;
  }
  const auto show = [&](std::span<const int> values) {
    for (const int v : values) {
      if (is_seen[static_cast<size_t>(v)] || !observer.wants(v)) continue;
      is_seen[static_cast<size_t>(v)] = true;
      observer.see(v, read(v));
    }
  };
  const auto show_made = [&](std::span<const int> values) {
    for (const int v : values) {
      if (!is_exchanged[static_cast<size_t>(v)]) show(std::span(&v, 1));
    }
  };
  for (size_t s = 0; s < tasks_.size(); ++s) {
    const Step& step = schedule_.steps[s];
    const bool computes = step.kind == StepKind::kCompute || step.kind == StepKind::kCopy;
    // What a collective has made is there when the first step reads it, which may write over it.
    if (computes || step.kind == StepKind::kCheckFinite) show(step.inputs);
    run_task(s);
    if (computes && (step.guard < 0 || step.guard == schedule_.gate)) show_made(step.outputs);
    // What a step makes that has failed is nobody's to see.
    if (closes_gate(step)) {
      wait_for_copies();
      look_at_loss(slot_);
    }
  }
  for (const auto& [name, v] : schedule_.outputs) show(std::span(&v, 1));
}

void Executor::prepare_run() {
  bad_index_.reset();
  // Nobody looks at what an earlier run still copies; what the host computes may be on its way to the device, too.
  if (!computes_on_host_) copies_to_host_ = false;
  if (schedule_.gate >= 0) arena_.gate()->open_if_doubted();
  if (fill_with_nan_) fill_planned_memory();
}

void Executor::run_until_decided() {
  // While a device communicates, whoever waits for it must look at the other ranks, too: that is for run() to do.
  if (!is_on_device() || !has_decision_ || device_collectives_ != nullptr) return run();
  prepare_run();
  const comm::RankProgress::Run run(progress_, *this);
  EndsRun end(lanes_, device_collectives_.get(), arena_);
  run_steps(Look::kAtDecision, /*by_feed=*/feed_ != nullptr);
  if (decided_step_ >= 0) slots_[slot_].is_decided->synchronize();
  look_at_loss(slot_);
  end.is_well_and_goes_on();
}

void Executor::start() {
  check(may_run_ahead(), "a run is started that others must wait for");
  prepare_run();
  const comm::RankProgress::Run run(progress_, *this);
  EndsRun end(lanes_, device_collectives_.get(), arena_);
  run_steps(Look::kAtEnd, /*by_feed=*/feed_ != nullptr);
  end.is_well_and_goes_on();
  under_way_.push_back(slot_);
  use_slot(free_slot());
}

void Executor::finish() {
  check(!under_way_.empty(), "a run is finished that was not started");
  const size_t slot = under_way_.front();
  under_way_.pop_front();
  slots_[slot].is_decided->synchronize();
  try {
    look_at_loss(slot);
  } catch (...) {
    forget();
    arena_.gate()->doubt();
    use_slot(slot);  // its inputs are looked at once more
    throw;
  }
}

// What is recorded for a timeline has the collectives' times in it, whether its steps are those that the timeline shows
// or not: all ranks have a timeline or none has, but they need not show the same steps.
void Executor::begin_collectives() {
  if (device_collectives_ == nullptr) return;
  device_collectives_->set_timed(recorder_ != nullptr && recorder_->is_begun());
  device_collectives_->begin_run();
}

void Executor::run(ValueObserver* observer) {
  prepare_run();
  const comm::RankProgress::Run run(progress_, *this);
  begin_collectives();
  EndsRun end(lanes_, device_collectives_.get(), arena_);
  if (observer != nullptr) {
    run_observed(*observer);
  } else {
    run_steps(Look::kAtEnd, /*by_feed=*/false);
  }
  end_run();
  copies_to_host_ = false;
  look_at_loss(slot_);
  show_results(slot_);
  end.is_well();
}

std::string Executor::find_non_finite() {
  // Collectives are run too: the other ranks look for theirs at the same time.
  const comm::RankProgress::Run run(progress_, *this);
  begin_collectives();
  EndsRun end(lanes_, device_collectives_.get(), arena_);
  std::string found;
  for (size_t s = 0; s < tasks_.size(); ++s) {
    const Step& step = schedule_.steps[s];
    if (step.kind == StepKind::kCheckFinite || step.guard >= 0 || closes_gate(step)) break;
    run_task(s);
    // A copy between host and device makes nothing new.
    if (!found.empty() || step.kind == StepKind::kStart || tasks_[s].copies) continue;
    for (size_t o = 0; o < step.outputs.size(); ++o) {
      const bool is_read_in_place = !is_on_device();
      if (is_read_in_place ? all_finite(tasks_[s].outputs[o]) : all_finite(read(step.outputs[o]).view())) continue;
      const auto& value = schedule_.values[static_cast<size_t>(step.outputs[o])];
      found = fmt::format("{} of {}, {}{}", value.name, operator_name(step), value.type,
                          step.line.empty() ? "" : fmt::format(", made by {}", step.line));
      if (progress_ != nullptr) {
        progress_->set_non_finite({{operator_name(step), step.line}, static_cast<int>(s)});
      }
      break;
    }
  }
  end.is_well();
  return found;
}

comm::PieceName Executor::piece_name(int number) const {
  if (number < 0 || static_cast<size_t>(number) >= schedule_.steps.size()) return {};
  const Step& step = schedule_.steps[static_cast<size_t>(number)];
  switch (step.kind) {
    case StepKind::kWait: {
      const Step& started = schedule_.steps[static_cast<size_t>(step.joins)];
      return {"the wait for " + operator_name(started), started.line};
    }
    case StepKind::kCheckFinite: return {"the check of the loss", step.line};
    case StepKind::kCompute:
    case StepKind::kCopy:
    case StepKind::kStart: break;
  }
  return {operator_name(step), step.line};
}

std::string Executor::line_of_call(std::string_view call) const {
  for (const Step& step : schedule_.steps) {
    if (step.kind != StepKind::kStart || step.line.empty()) continue;
    // As a call's header has it, which cuts it; before it may stand what the communicator does, behind it its number.
    const std::string name = operator_name(step).substr(0, comm::kMaxCallName);
    const size_t at = call.find(name);
    const std::string_view rest = at == std::string_view::npos ? "" : call.substr(at + name.size());
    if (rest.starts_with(" #") || rest.starts_with("\" #")) return step.line;
  }
  return "";
}

std::vector<TensorView> Executor::updated() const {
  std::vector<TensorView> all;
  for (const Task& task : tasks_) all.insert(all.end(), task.updated.begin(), task.updated.end());
  return all;
}

const TensorView& Executor::input(const std::string& name) const {
  const auto it = inputs_.find(name);
  if (it == inputs_.end()) throw InvalidArgument("graph {} has no data input \"{}\"", schedule_.name, name);
  return it->second;
}

const TensorView& Executor::output(const std::string& name) const {
  const auto it = outputs_.find(name);
  if (it == outputs_.end()) throw InvalidArgument("graph {} has no result \"{}\"", schedule_.name, name);
  return it->second;
}

void Executor::set_profiling(bool on) {
  profiling_ = on;
  if (!on || !is_on_device() || profile_begin_ != nullptr) return;
  auto begin = arena_.device()->make_timed_event();
  auto end = arena_.device()->make_timed_event();
  if (begin == nullptr || end == nullptr) return;
  profile_begin_ = std::move(begin);
  profile_end_ = std::move(end);
}

bool Executor::is_timed_by_device(size_t index) const {
  const StepKind kind = tasks_[index].kind;
  return profile_begin_ != nullptr && (kind == StepKind::kCompute || kind == StepKind::kCopy);
}

std::string Executor::profile_note() const {
  if (!is_on_device()) return "";
  if (profile_begin_ == nullptr) {
    return fmt::format("{} does not tell the time: by the host's clock, which counts giving a step and waiting for it",
                       arena_.device()->name());
  }
  return fmt::format(
      "kernels and copies by the clock of {}, each by itself: in a step that is replayed they may run beside each "
      "other; "
      "collectives, waits and checks by the host's",
      arena_.device()->name());
}

std::vector<StepTime> Executor::profile() const {
  std::vector<StepTime> times;
  for (size_t s = 0; s < tasks_.size(); ++s) {
    const Step& step = schedule_.steps[s];
    const auto kind = step.kind == StepKind::kStart  ? step.op + ".start"
                      : step.kind == StepKind::kWait ? step.op + ".wait"
                      : step.kind == StepKind::kCopy ? "copy"
                                                     : step.kernel;
    times.push_back({kind, step.source, static_cast<double>(nanoseconds_[s]) / 1000.0, is_timed_by_device(s)});
  }
  return times;
}

}  // namespace tessera::executor
