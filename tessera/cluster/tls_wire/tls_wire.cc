#include "tessera/cluster/tls_wire/tls_wire.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/cluster/hub/hub_socket.h"
#include "tessera/cluster/tls_wire/pair.h"

namespace tessera::cluster {
namespace {

using comm::Wire;

// A wait looks at the job and the clock this often, whatever happens.
constexpr int64_t kLookMs = 50;
// A message between hosts takes as long: until then it is cheaper to stay awake.
constexpr int64_t kSpinNs = 50'000;
// What was said last reaches the other hosts within this time, or they have gone.
constexpr int64_t kLeaveMs = 1000;
constexpr int kMaxEvents = 64;

Socket opened(int descriptor, const char* what) {
  if (descriptor < 0) throw IoError("cannot have {}: {}", what, std::strerror(errno));
  return Socket(descriptor);
}

// One of the threads that wait drives: it moves the bytes of all pairs, since a peer may need what none of the others
// waits for. The others sleep until theirs is done, or nobody drives.
class TlsWire final : public Wire, public std::enable_shared_from_this<TlsWire> {
 public:
  TlsWire(std::vector<std::unique_ptr<TlsStream>> streams, bool spin, comm::JobState& job, Clock& clock)
      : job_(job),
        clock_(clock),
        spin_(spin),
        events_(opened(epoll_create1(EPOLL_CLOEXEC), "a place to wait for connections")),
        alarm_(opened(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "a descriptor to wake who waits for connections")) {
    watch(alarm_.fd(), EPOLLIN, nullptr);
    for (size_t rank = 0; rank < streams.size(); ++rank) {
      pairs_.emplace_back();
      if (streams[rank] == nullptr) continue;
      pairs_.back() = std::make_unique<Pair>(static_cast<int>(rank), std::move(streams[rank]));
      watch(pairs_.back()->socket(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, pairs_.back().get());
    }
    unfinished_.reserve(pairs_.size());
    again_.reserve(pairs_.size());
    listener_.emplace(job_, [this] { wake_all(); });
  }

  ~TlsWire() override {
    listener_.reset();
    // A child of fork() has these connections, too, and says nothing there.
    if (job_.failed() || has_given_up_ || getpid() != owner_) return;
    TlsWire::leave();
    deliver();
  }

  std::string name() const override { return "tls"; }
  std::unique_ptr<Operation> make_operation() override;
  void leave() override {
    if (std::exchange(has_left_, true)) return;
    for (const auto& pair : pairs_) {
      if (pair != nullptr) pair->leave();
    }
  }

  Pair& pair(int peer) {
    Pair* const found = pairs_[as_index(peer)].get();
    check(found != nullptr, "a wire is used between ranks that it connects");
    return *found;
  }

  void start(Pair& pair, Transfer& transfer) {
    const Pair::Moved moved = pair.start(transfer);
    // What moved by the way is waited for by others.
    if (moved.num_done > 0 || !moved.is_open) wake_all();
  }

  // Returns when the transfer is done, somebody was woken, or after `limit_ms`.
  void drive_or_sleep(const Transfer& transfer, int64_t limit_ms) {
    std::unique_lock lock(mutex_);
    if (transfer.is_done) return;
    if (has_driver_) {
      ++num_sleeping_;
      changed_.wait_for(lock, std::chrono::milliseconds(limit_ms));
      --num_sleeping_;
      return;
    }
    has_driver_ = true;
    lock.unlock();
    const DriverEnd ends{*this};
    drive(transfer, limit_ms);
  }

  // What waits here is not gone on with: the memory of all transfers belongs to their callers again.
  void give_up() {
    has_given_up_ = true;
    for (const auto& pair : pairs_) {
      if (pair != nullptr) pair->give_up("this rank has given up");
    }
    wake_all();
  }

  comm::JobState& job() { return job_; }
  int64_t now_ms() const { return clock_.monotonic_ns() / 1'000'000; }

 private:
  struct DriverEnd {
    TlsWire& wire;
    ~DriverEnd() {
      const std::lock_guard lock(wire.mutex_);
      wire.has_driver_ = false;
      if (wire.num_sleeping_ > 0) wire.changed_.notify_all();
    }
  };

  void watch(int descriptor, uint32_t what, Pair* pair) {
    epoll_event event{};
    event.events = what;
    event.data.ptr = pair;
    if (epoll_ctl(events_.fd(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
      throw IoError("cannot wait for connections: {}", std::strerror(errno));
    }
  }

  void wake_all() {
    constexpr uint64_t kOne = 1;
    [[maybe_unused]] const ssize_t written = write(alarm_.fd(), &kOne, sizeof(kOne));
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  void drive(const Transfer& transfer, int64_t limit_ms) {
    const int64_t start_ns = clock_.monotonic_ns();
    for (bool may_sleep = !spin_; !transfer.is_done;) {
      const int64_t wait_ms = may_sleep && unfinished_.empty() ? limit_ms : 0;
      const int num_events = epoll_wait(events_.fd(), found_.data(), kMaxEvents, static_cast<int>(wait_ms));
      bool was_woken = false;
      int num_done = 0;
      // Those that had more to move were not reported again.
      again_.swap(unfinished_);
      for (Pair* const pair : again_) num_done += move(*pair);
      again_.clear();
      for (int i = 0; i < num_events; ++i) {
        auto* const pair = static_cast<Pair*>(found_[as_index(i)].data.ptr);
        if (pair == nullptr) {
          was_woken = true;
        } else {
          num_done += move(*pair);
        }
      }
      if (num_done > 0) {
        const std::lock_guard lock(mutex_);
        if (num_sleeping_ > 0) changed_.notify_all();
      }
      if (was_woken) {
        uint64_t count = 0;
        [[maybe_unused]] const ssize_t taken = read(alarm_.fd(), &count, sizeof(count));
        return;
      }
      const int64_t passed_ns = clock_.monotonic_ns() - start_ns;
      if (passed_ns >= limit_ms * 1'000'000) return;
      may_sleep = !spin_ || passed_ns >= kSpinNs;
    }
  }

  // Returns how many transfers are done by that, or what wakes others: the pair's end.
  int move(Pair& pair) {
    const Pair::State before = pair.state();
    const Pair::Moved moved = pair.move();
    if (moved.has_more && std::ranges::find(unfinished_, &pair) == unfinished_.end()) unfinished_.push_back(&pair);
    if (before == Pair::State::kOpen && !moved.is_open) wake_all();
    return moved.num_done;
  }

  // The last words of a connection are lost where it is closed before the other host has them.
  void deliver() {
    const int64_t deadline = now_ms() + kLeaveMs;
    const auto is_delivered = [](const auto& pair) { return pair == nullptr || pair->is_delivered(); };
    while (!std::ranges::all_of(pairs_, is_delivered) && now_ms() < deadline) clock_.sleep_ms(1);
  }

  comm::JobState& job_;
  Clock& clock_;
  bool spin_;
  pid_t owner_ = getpid();
  Socket events_;
  Socket alarm_;
  std::vector<std::unique_ptr<Pair>> pairs_;  // by rank
  std::atomic<bool> has_given_up_{false};
  bool has_left_ = false;
  std::optional<comm::JobListener> listener_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool has_driver_ = false;
  int num_sleeping_ = 0;

  // The driver's.
  std::array<epoll_event, kMaxEvents> found_{};
  std::vector<Pair*> unfinished_;
  std::vector<Pair*> again_;
};

// So long after a rank has left, what it has sent before may arrive, and at last the end of its connection: where
// packets are lost, they are sent again after up to some seconds.
constexpr int64_t kOpenGraceMs = 10'000;

class TlsOperation final : public Wire::Operation {
 public:
  explicit TlsOperation(std::shared_ptr<TlsWire> wire) : wire_(std::move(wire)) {}
  ~TlsOperation() override { forget(); }

  void send(const void* data, int64_t bytes, int peer, int tag) override {
    start(static_cast<std::byte*>(const_cast<void*>(data)), bytes, peer, tag, true);
  }
  void receive(void* data, int64_t bytes, int peer, int tag) override {
    start(static_cast<std::byte*>(data), bytes, peer, tag, false);
  }

  Wire::End wait(int64_t timeout_ms, comm::WatchedWait& watch) override {
    const int64_t start_ms = wire_->now_ms();
    int64_t deadline_ms = start_ms + timeout_ms;
    bool saw_leave = false;
    comm::JobState& job = wire_->job();
    while (!transfer_.is_done) {
      // What had come before its end was taken before it was heard of.
      const Pair::State state = pair_->state();
      if (transfer_.is_done) break;
      if (job.failed()) return give_up(Wire::End::kFailed);
      const bool has_left = job.has_left(pair_->peer());
      if (state != Pair::State::kOpen && has_left) return give_up(Wire::End::kLeft);
      if (state == Pair::State::kLost) return give_up(Wire::End::kLost);
      const int64_t now_ms = wire_->now_ms();
      // A rank that ends the connection may have failed, of which the job hears by another way. While the connection of
      // one that has left is open, what it has sent may be on a slow way still.
      if (!saw_leave && (has_left || state == Pair::State::kLeft)) {
        saw_leave = true;
        deadline_ms = std::min(deadline_ms, now_ms + (state == Pair::State::kOpen ? kOpenGraceMs : comm::kLeftGraceMs));
      }
      if (now_ms >= deadline_ms) return give_up(saw_leave ? Wire::End::kLeft : Wire::End::kLate);
      watch.look(now_ms - start_ms);
      wire_->drive_or_sleep(transfer_, std::clamp<int64_t>(deadline_ms - now_ms, 1, kLookMs));
    }
    return Wire::End::kDone;
  }
  std::string reason() const override { return reason_; }

 private:
  void start(std::byte* data, int64_t bytes, int peer, int tag, bool is_send) {
    forget();
    pair_ = &wire_->pair(peer);
    transfer_.data = data;
    transfer_.bytes = bytes;
    transfer_.tag = static_cast<uint32_t>(tag);
    transfer_.is_send = is_send;
    wire_->start(*pair_, transfer_);
  }

  void forget() {
    if (pair_ != nullptr && !transfer_.is_done) pair_->forget(transfer_);
  }

  Wire::End give_up(Wire::End end) {
    reason_ = pair_->reason();
    wire_->give_up();
    return end;
  }

  std::shared_ptr<TlsWire> wire_;
  Pair* pair_ = nullptr;
  Transfer transfer_;
  std::string reason_;
};

std::unique_ptr<Wire::Operation> TlsWire::make_operation() {
  return std::make_unique<TlsOperation>(shared_from_this());
}

}  // namespace

std::shared_ptr<comm::Wire> make_tls_wire(const MeetingOptions& options, bool spin, comm::Store& store,
                                          comm::JobState& job, Clock& clock) {
  MeetingOptions meeting = options;
  meeting.job = &job;
  return std::make_shared<TlsWire>(meet_peers(meeting, store, clock), spin, job, clock);
}

}  // namespace tessera::cluster
