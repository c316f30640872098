#include "tessera/testing/devices/fake_communicators.h"

#include <chrono>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/comm/group_calls.h"
#include "tessera/comm/memory/in_process.h"
#include "tessera/testing/devices/fake_device.h"

namespace tessera {
namespace {

constexpr const char* kWho = "a fake device";

// What the ranks of a group share.
struct Meeting {
  explicit Meeting(int size)
      : world(std::make_shared<comm::InProcessWorld>(
            size, comm::WaitOptions{.timeout_ms = comm::kNoDeadlineMs, .spin = false})) {}
  std::shared_ptr<comm::InProcessWorld> world;
  std::atomic<int> num_joined = 0;
};

// By the group's id, until all have come.
class Meetings {
 public:
  std::shared_ptr<Meeting> join(const std::string& id, int size) {
    const std::lock_guard lock(mutex_);
    auto& meeting = meetings_[id];
    if (meeting == nullptr) meeting = std::make_shared<Meeting>(size);
    auto joined = meeting;
    if (++joined->num_joined == size) meetings_.erase(id);
    return joined;
  }
  std::string new_id() {
    const std::lock_guard lock(mutex_);
    return fmt::format("fake group {}", ++num_ids_);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Meeting>> meetings_;
  int num_ids_ = 0;
};

Meetings& meetings() {
  static Meetings all;
  return all;
}

class FakeCommunicator final : public DeviceCommunicator {
 public:
  FakeCommunicator(std::shared_ptr<Meeting> meeting, const comm::GroupInfo& group,
                   std::shared_ptr<std::atomic<int64_t>> num_calls, std::shared_ptr<std::atomic<int64_t>> failing_call)
      : meeting_(std::move(meeting)),
        transport_(comm::InProcessWorld::transport(meeting_->world)),
        group_(group.ranks.size() > 1 ? transport_->create_communicator(group) : comm::make_single_communicator(group)),
        num_calls_(std::move(num_calls)),
        failing_call_(std::move(failing_call)) {}

  void all_reduce(Queue& queue, void* data, int64_t count, DType dtype, ReduceOp op) override {
    give(queue, [this, data = inside(queue, data, count), count, dtype, op] {
      group_->all_reduce(data, count, dtype, op, kWho);
    });
  }
  void all_gather(Queue& queue, const void* in, void* out, std::span<const int64_t> counts, DType dtype) override {
    give(queue,
         [this, in = inside(queue, in, counts[as_index(group_->rank())]), out = inside(queue, out, comm::total(counts)),
          all = copy_of(counts), dtype] { group_->all_gather(in, out, all, dtype, kWho); });
  }
  void reduce_scatter(Queue& queue, const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                      ReduceOp op) override {
    give(queue,
         [this, in = inside(queue, in, comm::total(counts)), out = inside(queue, out, counts[as_index(group_->rank())]),
          all = copy_of(counts), dtype, op] { group_->reduce_scatter(in, out, all, dtype, op, kWho); });
  }
  void broadcast(Queue& queue, void* data, int64_t count, DType dtype, int root) override {
    give(queue, [this, data = inside(queue, data, count), count, dtype, root] {
      group_->broadcast(data, count, dtype, root, kWho);
    });
  }
  void all_to_all(Queue& queue, const void* in, std::span<const int64_t> in_counts, void* out,
                  std::span<const int64_t> out_counts, DType dtype) override {
    give(queue, [this, in = inside(queue, in, comm::total(in_counts)), sent = copy_of(in_counts),
                 out = inside(queue, out, comm::total(out_counts)), received = copy_of(out_counts),
                 dtype] { group_->all_to_all(in, sent, out, received, dtype, kWho); });
  }
  void send(Queue& queue, const void* data, int64_t count, DType dtype, int to) override {
    give(queue,
         [this, data = inside(queue, data, count), count, dtype, to] { group_->send(data, count, dtype, to, kWho); });
  }
  void receive(Queue& queue, void* data, int64_t count, DType dtype, int from) override {
    give(queue, [this, data = inside(queue, data, count), count, dtype, from] {
      group_->receive(data, count, dtype, from, kWho);
    });
  }
  void check() override {
    if (job().failed()) throw IoError("fake device: {}", job().message());
  }
  void abort() override { job().fail(group_->rank(), "a rank of the group has given it up"); }

 private:
  comm::JobState& job() { return meeting_->world->job(); }
  static std::vector<int64_t> copy_of(std::span<const int64_t> counts) { return {counts.begin(), counts.end()}; }
  static std::byte* inside(Queue& queue, const void* address, int64_t count) {
    return count == 0 ? nullptr : FakeDevice::inside(queue, address);
  }
  void give(Queue& queue, std::function<void()> call) {
    const bool fails = ++*num_calls_ == *failing_call_;
    FakeDevice::give_for_others(queue, [this, call = std::move(call), fails] {
      if (fails) job().fail(group_->rank(), "a call has failed, as it was told to");
      call();
    });
  }

  std::shared_ptr<Meeting> meeting_;
  std::unique_ptr<comm::Transport> transport_;
  std::unique_ptr<comm::Communicator> group_;
  std::shared_ptr<std::atomic<int64_t>> num_calls_;
  std::shared_ptr<std::atomic<int64_t>> failing_call_;
};

}  // namespace

std::string FakeCommunicators::place() {
  return places_ == Places::kOne ? "the fake device" : fmt::format("fake device {}", num_places_++);
}

std::string FakeCommunicators::make_id() { return meetings().new_id(); }

std::unique_ptr<DeviceCommunicator> FakeCommunicators::join(const std::string& id, int rank, int size,
                                                            std::function<void()> waiting) {
  auto meeting = meetings().join(id, size);
  while (meeting->num_joined < size) {
    waiting();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<FakeCommunicator>(
      std::move(meeting), comm::GroupInfo{.name = id, .rank = rank, .ranks = ranks}, num_calls_, failing_call_);
}

}  // namespace tessera
