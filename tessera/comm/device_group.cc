#include "tessera/comm/device_group.h"

#include <fmt/ranges.h>

#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/comm/group_calls.h"
#include "tessera/comm/job_state.h"
#include "tessera/comm/reduce.h"
#include "tessera/tensor/device.h"

namespace tessera::comm {
namespace {

constexpr std::string_view kConnect = "connecting the devices";
// How long what a device says of an error waits for what the job knows: the failure of a rank is the reason of both.
constexpr int64_t kReasonMs = 1000;
// Most waits are for the rest of a step.
constexpr int kPausesAwake = 2000;
constexpr std::chrono::microseconds kPauseAsleep{50};

std::string names_of_others(const GroupInfo& group) {
  std::vector<int> others;
  for (size_t i = 0; i < group.ranks.size(); ++i) {
    if (static_cast<int>(i) != group.rank) others.push_back(group.ranks[i]);
  }
  return fmt::format("{}", fmt::join(others, ", "));
}

}  // namespace

void DevicePauses::next() {
  if (num_passed_++ < kPausesAwake) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(kPauseAsleep);
  }
}

DeviceGroup::DeviceGroup(Communicator& on_host, DeviceCommunicators& devices)
    : Communicator(on_host.name(), on_host.rank(), on_host.ranks()),
      info_{.name = on_host.name(), .rank = on_host.rank(), .ranks = on_host.ranks()},
      job_(on_host.job()),
      timeout_ms_(on_host.deadline_ms()) {
  std::string id = rank() == 0 ? devices.make_id() : "";
  auto bytes = static_cast<int64_t>(id.size());
  on_host.broadcast(&bytes, 1, DType::kI64, 0, kConnect);
  id.resize(static_cast<size_t>(bytes));
  on_host.broadcast(id.data(), bytes, DType::kU8, 0, kConnect);
  give(call_of(CallKind::kBarrier, 0, DType::kU8, kConnect),
       [&] { communicator_ = devices.join(id, rank(), size(), [this] { look(); }); });
}

void DeviceGroup::all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, std::string_view who) {
  check_reducible(dtype, op, who);
  Call call = call_of(CallKind::kAllReduce, count, dtype, who);
  call.header.op = op;
  give(call, [&] { communicator_->all_reduce(*queue_, data, count, dtype, op); });
}

void DeviceGroup::all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                             std::string_view who) {
  give(call_of(CallKind::kAllGather, total(counts), dtype, who),
       [&] { communicator_->all_gather(*queue_, in, out, counts, dtype); });
}

void DeviceGroup::reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype, ReduceOp op,
                                 std::string_view who) {
  check_reducible(dtype, op, who);
  Call call = call_of(CallKind::kReduceScatter, total(counts), dtype, who);
  call.header.op = op;
  give(call, [&] { communicator_->reduce_scatter(*queue_, in, out, counts, dtype, op); });
}

void DeviceGroup::broadcast(void* data, int64_t count, DType dtype, int root, std::string_view who) {
  Call call = call_of(CallKind::kBroadcast, count, dtype, who);
  call.header.root = root;
  give(call, [&] { communicator_->broadcast(*queue_, data, count, dtype, root); });
}

void DeviceGroup::all_to_all(const void* in, std::span<const int64_t> in_counts, void* out,
                             std::span<const int64_t> out_counts, DType dtype, std::string_view who) {
  give(call_of(CallKind::kAllToAll, 0, dtype, who),
       [&] { communicator_->all_to_all(*queue_, in, in_counts, out, out_counts, dtype); });
}

void DeviceGroup::send(const void* data, int64_t count, DType dtype, int to, std::string_view who) {
  Call call = call_of(CallKind::kSend, count, dtype, who.empty() ? "send" : who);
  call.peer = to;
  give(call, [&] { communicator_->send(*queue_, data, count, dtype, to); });
}

void DeviceGroup::receive(void* data, int64_t count, DType dtype, int from, std::string_view who) {
  Call call = call_of(CallKind::kSend, count, dtype, who.empty() ? "receive" : who);
  call.peer = from;
  give(call, [&] { communicator_->receive(*queue_, data, count, dtype, from); });
}

void DeviceGroup::barrier(std::string_view who) {
  throw InternalError(fmt::format("{}: group \"{}\" is one of devices, which has no barrier", who, name()));
}

void DeviceGroup::check(const Call& call) {
  if (broken_) std::rethrow_exception(broken_);
  std::exception_ptr of_device;
  if (job_ == nullptr || !job_->failed()) {
    try {
      return communicator_->check();
    } catch (const Error&) {
      of_device = std::current_exception();
    }
  }
  throw_failure(call, of_device);
}

void DeviceGroup::require_in_time(const Call& call, int64_t waited_ms) {
  if (job_ == nullptr) return;
  try {
    for (int peer = 0; waited_ms >= kReasonMs && peer < size(); ++peer) {
      if (peer != rank() && job_->has_left(info_.ranks[as_index(peer)])) throw_left(call.header, info_, peer);
    }
    if (waited_ms < timeout_ms_) return;
    if (call.peer >= 0) throw_late(call.header, info_, call.peer, waited_ms, "it has not come there on its device");
    throw PeerSilence(fmt::format("{}: rank {} has waited {} ms on its device for ranks {}",
                                  place_of(call.header, info_), info_.ranks[as_index(rank())], waited_ms,
                                  names_of_others(info_)));
  } catch (...) {
    break_off(std::current_exception());
    throw;
  }
}

void DeviceGroup::break_off(std::exception_ptr error) {
  if (broken_) return;
  broken_ = std::move(error);
  if (communicator_ != nullptr) communicator_->abort();
}

DeviceGroup::Call DeviceGroup::call_of(CallKind kind, int64_t count, DType dtype, std::string_view who) const {
  Call call;
  call.header.kind = kind;
  call.header.count = count;
  call.header.dtype = dtype;
  call.header.set_who(who);
  if (size() == 2) call.peer = 1 - rank();
  return call;
}

template <typename F>
void DeviceGroup::give(const Call& call, F&& work) {
  if (broken_) std::rethrow_exception(broken_);
  tessera::check(queue_ != nullptr || communicator_ == nullptr, "a group of devices is used without a queue");
  call_ = call;
  const bool waits_on_host = communicator_ != nullptr && !is_recordable();
  if (waits_on_host) call_.header.sequence = ++num_given_;
  since_ns_ = Clock::system().monotonic_ns();
  std::optional<WatchedWait> watch;
  if (job_ != nullptr) watch.emplace(call_.header, info_, call_.peer, timeout_ms_, *job_);
  watch_ = watch ? &*watch : nullptr;
  try {
    if (waits_on_host) {
      // Others are waited for from when this rank's own work is done.
      queue_->synchronize();
      since_ns_ = Clock::system().monotonic_ns();
    }
    work();
  } catch (...) {
    watch_ = nullptr;
    break_off(std::current_exception());
    throw;
  }
  watch_ = nullptr;
}

void DeviceGroup::look() {
  if (job_ == nullptr) return;
  if (job_->failed()) throw_peer_failure(call_.header, info_, *job_);
  const int64_t waited_ms = (Clock::system().monotonic_ns() - since_ns_) / 1'000'000;
  if (watch_ != nullptr) watch_->look(waited_ms);
  require_in_time(call_, waited_ms);
}

// What is under way ends first: no rank waits for this one's device while it looks for the reason.
void DeviceGroup::throw_failure(const Call& call, std::exception_ptr of_device) {
  communicator_->abort();
  for (int64_t waited_ms = 0; job_ != nullptr && !job_->failed() && waited_ms < kReasonMs; ++waited_ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  try {
    if (job_ != nullptr && job_->failed()) throw_peer_failure(call.header, info_, *job_);
    std::rethrow_exception(std::move(of_device));
  } catch (...) {
    break_off(std::current_exception());
    throw;
  }
}

}  // namespace tessera::comm
