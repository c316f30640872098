#include "tessera/executor/device_collectives.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/logging.h"
#include "tessera/comm/watched_wait.h"
#include "tessera/executor/collectives.h"
#include "tessera/ops/registry/collective_def.h"

namespace tessera::executor {
namespace {

constexpr int64_t kMarkBytes = 8;
// Between looks at the groups.
constexpr int64_t kLookNs = 1'000'000;

}  // namespace

// What a rank copies around a call, in the queue that the call is given to.
class DeviceCollectives::OwnWork final : public ops::OwnWork {
 public:
  OwnWork(const KernelSelection& kernels, const ParallelFor& parallel_for)
      : kernels_(kernels), parallel_for_(parallel_for) {}

  void set_queue(Queue& queue) { queue_ = &queue; }

  std::function<void()> copies(const std::vector<TensorView>& from, const std::vector<TensorView>& to) const override {
    // Queues need the kernels and the views until the work is done.
    auto all = std::make_shared<std::vector<Copy>>();
    for (size_t i = 0; i < from.size(); ++i) {
      if (from[i].num_elements() == 0) continue;
      Copy& copy = all->emplace_back(Copy{.from = from[i], .to = to[i]});
      if (from[i].is_dense() && to[i].is_dense()) continue;
      KernelRequest request{
          .op = "copy", .inputs = {from[i]}, .outputs = {to[i]}, .num_threads = kernels_.num_threads()};
      request.inputs[0].data = request.outputs[0].data = nullptr;
      copy.kernel = kernels_.prepare(request, "copy");
      check_equal(copy.kernel->scratch_bytes, int64_t{0}, "scratch memory of a copy");
    }
    return [this, all] {
      for (const Copy& copy : *all) run(copy);
    };
  }
  std::function<void()> zeros(const TensorView& to) const override {
    return [this, to] { queue_->fill(to.data, std::byte{0}, to.size_bytes()); };
  }

 private:
  struct Copy {
    TensorView from;
    TensorView to;
    std::optional<PreparedKernel> kernel = std::nullopt;  // none: the bytes lie one after another
  };
  void run(const Copy& copy) const {
    if (!copy.kernel) return queue_->copy(copy.to.data, copy.from.data, copy.from.size_bytes(), CopyWay::kWithin);
    queue_->launch(*copy.kernel, {{&copy.from, 1}, {&copy.to, 1}, attributes_, {}, parallel_for_, queue_}, nullptr);
  }

  const KernelSelection& kernels_;
  const ParallelFor& parallel_for_;
  Attributes attributes_;
  Queue* queue_ = nullptr;
};

DeviceCollectives::DeviceCollectives(Device& device, Queue& compute, const KernelSelection& kernels,
                                     const ParallelFor& parallel_for)
    : device_(device),
      compute_(compute),
      queue_(device.make_queue()),
      own_work_(std::make_unique<OwnWork>(kernels, parallel_for)),
      begun_(device.make_event()),
      end_(device.make_event()) {}

// Where a call has failed the queue may still have work, which needs the marks and the calls' kernels.
DeviceCollectives::~DeviceCollectives() { queue_.reset(); }

size_t DeviceCollectives::add(const ir::Step& step, std::span<const TensorView> inputs,
                              std::span<const TensorView> outputs, comm::DeviceGroup& group) {
  Collective& collective = collectives_.emplace_back();
  collective.group = &group;
  collective.call = prepare_collective(step, inputs, outputs, group, *own_work_);
  collective.ended = device_.make_event();
  if (std::find(groups_.begin(), groups_.end(), &group) == groups_.end()) groups_.push_back(&group);
  return collectives_.size() - 1;
}

void DeviceCollectives::set_timed(bool on) {
  is_timed_ = on;
  for (Collective& collective : collectives_) {
    if (!is_timed_ || collective.end_time != nullptr) continue;
    collective.begin_time = device_.make_timed_event();
    collective.end_time = device_.make_timed_event();
    is_timed_ = collective.begin_time != nullptr && collective.end_time != nullptr;
  }
}

DeviceCollectives::Times DeviceCollectives::times(size_t number) const {
  const Collective& collective = collectives_[number];
  if (!is_timed_ || !collective.is_given) return {};
  return {collective.begin_time.get(), collective.end_time.get()};
}

void DeviceCollectives::begin_run() {
  check_groups();
  if (marks_ == nullptr) make_marks();
  std::atomic_ref<int64_t>(*reinterpret_cast<int64_t*>(mark_.get())).store(0);
  for (Collective& collective : collectives_) collective.is_given = false;
  last_started_.reset();
}

void DeviceCollectives::make_marks() {
  const size_t count = 2 * collectives_.size() + 1;
  const auto bytes = static_cast<int64_t>(count) * kMarkBytes;
  numbers_ = device_.allocate_on_host(bytes);
  mark_ = device_.allocate_on_host(kMarkBytes);
  for (size_t i = 0; i < count; ++i) {
    const auto number = static_cast<int64_t>(i);
    std::memcpy(numbers_.get() + i * kMarkBytes, &number, kMarkBytes);
  }
  marks_ = device_.reserve(bytes);
  marks_->resize(bytes);
  compute_.copy(marks_->data(), numbers_.get(), bytes, CopyWay::kToDevice);
}

void DeviceCollectives::start(size_t number) {
  compute_.record(*begun_);
  queue_->wait(*begun_);
  give_to(*queue_, number);
  queue_->record(*collectives_[number].ended);
  collectives_[number].is_given = true;
  last_started_ = number;
}

void DeviceCollectives::wait(size_t number) {
  // In a recording the order of what it touches is enough.
  if (!last_started_ || number > *last_started_) return;
  compute_.wait(*collectives_[number].ended);
  if (number == *last_started_) last_started_.reset();
}

void DeviceCollectives::wait_for_all() {
  if (last_started_) wait(*last_started_);
}

void DeviceCollectives::give(size_t number) { give_to(compute_, number); }

void DeviceCollectives::replays(size_t number) { collectives_[number].is_given = true; }

void DeviceCollectives::give_to(Queue& queue, size_t number) {
  Collective& collective = collectives_[number];
  own_work_->set_queue(queue);
  collective.group->set_queue(queue);
  mark(queue, 2 * number + 1);
  if (is_timed_) queue.record(*collective.begin_time);
  collective.call();
  if (is_timed_) queue.record(*collective.end_time);
  mark(queue, 2 * number + 2);
  collective.last = collective.group->last_call();
}

void DeviceCollectives::mark(Queue& queue, size_t place) {
  // Nobody is waited for in a group of one.
  if (collectives_[(place - 1) / 2].group->size() == 1) return;
  queue.copy(mark_.get(), marks_->data() + place * kMarkBytes, kMarkBytes, CopyWay::kToHost);
}

int64_t DeviceCollectives::mark_now() const {
  return std::atomic_ref<int64_t>(*reinterpret_cast<int64_t*>(mark_.get())).load(std::memory_order_acquire);
}

comm::DeviceGroup::Call DeviceCollectives::call_of(size_t number) const {
  const Collective& collective = collectives_[number];
  comm::DeviceGroup::Call call = collective.last;
  call.header.sequence = collective.group->num_done() + 1;
  for (size_t i = 0; i < number; ++i) {
    if (collectives_[i].group == collective.group && collectives_[i].is_given) ++call.header.sequence;
  }
  return call;
}

bool DeviceCollectives::is_any_given() const {
  return std::any_of(collectives_.begin(), collectives_.end(), [](const Collective& c) { return c.is_given; });
}

void DeviceCollectives::synchronize() {
  if (is_any_given()) {
    compute_.record(*end_);
    watch(*end_);
  }
  compute_.synchronize();
}

void DeviceCollectives::synchronize(Event& event) { is_any_given() ? watch(event) : event.synchronize(); }

void DeviceCollectives::end_run() {
  wait_for_all();
  synchronize();
  count_calls();
}

void DeviceCollectives::abandon_run() {
  try {
    end_run();
  } catch (const std::exception& error) {
    log_debug("what was under way on {} has ended: {}", device_.name(), error.what());
  }
}

void DeviceCollectives::count_calls() {
  for (Collective& collective : collectives_) {
    if (std::exchange(collective.is_given, false)) collective.group->add_done(1);
  }
}

void DeviceCollectives::watch(Event& end) {
  // A wait, while the device is in a collective.
  std::optional<comm::DeviceGroup::Call> call;
  comm::DeviceGroup* group = nullptr;
  std::optional<comm::WatchedWait> wait;
  int64_t mark = 0;
  int64_t since_ns = 0;
  int64_t looked_ns = 0;
  try {
    for (comm::DevicePauses pauses; !end.has_come(); pauses.next()) {
      const int64_t now_ns = Clock::system().monotonic_ns();
      if (now_ns - looked_ns < kLookNs) continue;
      looked_ns = now_ns;
      if (const int64_t mark_there = mark_now(); mark_there != mark) {
        mark = mark_there;
        since_ns = now_ns;
        wait.reset();
        call.reset();
        if (mark % 2 == 1) {
          const auto number = static_cast<size_t>(mark / 2);
          group = collectives_[number].group;
          call = call_of(number);
          if (group->job() != nullptr) {
            wait.emplace(call->header, group->info(), call->peer, group->deadline_ms(), *group->job());
          }
        }
      }
      const int64_t waited_ms = (now_ns - since_ns) / 1'000'000;
      if (wait) wait->look(waited_ms);
      // The group that the device waits for is named, where there is one.
      if (call) group->check(*call);
      check_groups();
      if (call) group->require_in_time(*call, waited_ms);
    }
    if (wait) wait->set_waited((Clock::system().monotonic_ns() - since_ns) / 1'000'000);
    check_groups();
  } catch (...) {
    break_groups(std::current_exception());
    throw;
  }
}

void DeviceCollectives::check_groups() {
  for (comm::DeviceGroup* group : groups_) group->check(group->last_call());
}

void DeviceCollectives::break_groups(const std::exception_ptr& error) {
  for (comm::DeviceGroup* group : groups_) group->break_off(error);
}

}  // namespace tessera::executor
