#include "tessera/comm/wire/wire.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/comm/wire/wire_channel.h"

namespace tessera::comm {
namespace {

// Parts up to here travel inside their header: most control values are scalars.
constexpr int64_t kInlineBytes = 512;
// Per peer; with it the buffer that one reduction reads from all peers stays in the cache.
constexpr int64_t kSliceBytes = int64_t{1} << 20;
// Libraries count bytes in int.
constexpr int64_t kMaxMessageBytes = int64_t{1} << 28;
// After a connection broke, the hub tells within this time which rank failed.
constexpr int64_t kHubDelayMs = 1000;

enum Purpose { kHeaderTag = 0, kPartTag = 1, kMessageHeaderTag = 2, kMessageTag = 3, kNumPurposes = 4 };
// A group's tags are those of a slot. This one is for ranks that agree on another.
constexpr int kMeetingSlot = 0;

struct Envelope {
  CallHeader header;
  int64_t bytes = -1;
  std::byte inline_bytes[kInlineBytes];
};

class WireChannel final : public Channel {
 public:
  // `slot` stays this channel's until it ends; null: the one for meetings.
  WireChannel(const GroupInfo& group, std::shared_ptr<const int> slot, std::shared_ptr<Wire> wire, JobState& job,
              const WaitOptions& wait)
      : group_(group),
        slot_(std::move(slot)),
        wire_(std::move(wire)),
        job_(job),
        wait_(wait),
        peers_(group.ranks.size()) {
    for (Peer& peer : peers_) {
      peer.send_header = wire_->make_operation();
      peer.send_part = wire_->make_operation();
      peer.receive_header = wire_->make_operation();
      peer.receive_part = wire_->make_operation();
    }
  }

  int64_t max_exchange_bytes() const override { return kSliceBytes * size(); }
  int64_t wait_without_deadline() override { return std::exchange(wait_.timeout_ms, kNoDeadlineMs); }
  int64_t deadline_ms() const override { return wait_.timeout_ms; }
  JobState* job() override { return &job_; }

  void begin(const CallHeader& header, std::span<const Outgoing> parts, std::span<const Expected> expected) override {
    header_ = header;
    has_headers_ = false;
    for (int p = 0; p < size(); ++p) {
      Peer& peer = peers_[as_index(p)];
      peer.part = p == group_.rank ? Outgoing{} : parts[as_index(p)];
      peer.expected = p == group_.rank ? Expected{} : expected[as_index(p)];
      peer.is_received = false;
    }
    for (int i = 1; i < size(); ++i) {
      const int p = (group_.rank + i) % size();
      Peer& peer = peers_[as_index(p)];
      if (peer.expected.bytes >= 0) peer.receive_header->receive(&peer.in, sizeof(Envelope), world(p), tag(kHeaderTag));
    }
    for (int i = 1; i < size(); ++i) {
      const int p = (group_.rank + i) % size();
      Peer& peer = peers_[as_index(p)];
      if (peer.part.bytes < 0) continue;
      fill(peer.out, header, peer.part.data, peer.part.bytes);
      peer.send_header->send(&peer.out, sizeof(Envelope), world(p), tag(kHeaderTag));
      if (peer.part.bytes > kInlineBytes) {
        peer.send_part->send(peer.part.data, peer.part.bytes, world(p), tag(kPartTag));
      }
    }
  }

  const CallHeader& header_of(int peer) override { return peers_[as_index(peer)].in.header; }

  const void* receive_view(int p) override {
    receive(p);
    const Peer& peer = peers_[as_index(p)];
    if (peer.expected.bytes <= 0) return nullptr;
    if (peer.expected.into != nullptr) return peer.expected.into;
    return peer.expected.bytes > kInlineBytes ? peer.staging.data() : peer.in.inline_bytes;
  }

  void receive(int p) override {
    receive_headers();
    Peer& peer = peers_[as_index(p)];
    if (peer.is_received) return;
    if (peer.expected.bytes > kInlineBytes) {
      wait(*peer.receive_part, p);
    } else if (peer.expected.bytes > 0 && peer.expected.into != nullptr) {
      std::memcpy(peer.expected.into, peer.in.inline_bytes, static_cast<size_t>(peer.expected.bytes));
    }
    peer.is_received = true;
  }

  void end() override {
    for (int p = 0; p < size(); ++p) {
      Peer& peer = peers_[as_index(p)];
      if (peer.part.bytes < 0) continue;
      wait(*peer.send_header, p);
      if (peer.part.bytes > kInlineBytes) wait(*peer.send_part, p);
    }
  }

  void send_message(const CallHeader& header, int to, const void* data, int64_t bytes) override {
    header_ = header;
    Peer& peer = peers_[as_index(to)];
    fill(peer.out, header, data, bytes);
    peer.send_header->send(&peer.out, sizeof(Envelope), world(to), tag(kMessageHeaderTag));
    wait(*peer.send_header, to);
    for (int64_t begin = 0; bytes > kInlineBytes && begin < bytes; begin += kMaxMessageBytes) {
      peer.send_part->send(static_cast<const std::byte*>(data) + begin, std::min(kMaxMessageBytes, bytes - begin),
                           world(to), tag(kMessageTag));
      wait(*peer.send_part, to);
    }
  }

  void receive_message(const CallHeader& header, int from, void* data, int64_t bytes) override {
    header_ = header;
    Peer& peer = peers_[as_index(from)];
    peer.receive_header->receive(&peer.in, sizeof(Envelope), world(from), tag(kMessageHeaderTag));
    wait(*peer.receive_header, from);
    check_message(header, peer.in.header, group_, from, job_);
    if (bytes > 0 && bytes <= kInlineBytes) std::memcpy(data, peer.in.inline_bytes, static_cast<size_t>(bytes));
    for (int64_t begin = 0; bytes > kInlineBytes && begin < bytes; begin += kMaxMessageBytes) {
      peer.receive_part->receive(static_cast<std::byte*>(data) + begin, std::min(kMaxMessageBytes, bytes - begin),
                                 world(from), tag(kMessageTag));
      wait(*peer.receive_part, from);
    }
  }

 private:
  struct Peer {
    Outgoing part;
    Expected expected;
    bool is_received = false;
    Envelope out;
    Envelope in;
    std::vector<std::byte> staging;
    std::unique_ptr<Wire::Operation> send_header;
    std::unique_ptr<Wire::Operation> send_part;
    std::unique_ptr<Wire::Operation> receive_header;
    std::unique_ptr<Wire::Operation> receive_part;
  };

  int size() const { return static_cast<int>(group_.ranks.size()); }
  int world(int rank) const { return group_.ranks[as_index(rank)]; }
  int tag(Purpose purpose) const { return (slot_ ? *slot_ : kMeetingSlot) * kNumPurposes + purpose; }

  static void fill(Envelope& envelope, const CallHeader& header, const void* data, int64_t bytes) {
    envelope.header = header;
    envelope.bytes = bytes;
    if (bytes > 0 && bytes <= kInlineBytes) std::memcpy(envelope.inline_bytes, data, static_cast<size_t>(bytes));
  }

  // Compares all headers before any part is received: the library must not be asked for another size than is sent.
  void receive_headers() {
    if (has_headers_) return;
    for (int p = 0; p < size(); ++p) {
      Peer& peer = peers_[as_index(p)];
      if (peer.expected.bytes < 0) continue;
      wait(*peer.receive_header, p);
      check_same_call(header_, peer.in.header, group_, p, job_);
      check_same_bytes(header_, group_, p, peer.expected.bytes, peer.in.bytes);
      if (peer.expected.bytes <= kInlineBytes) continue;
      void* into = peer.expected.into;
      if (into == nullptr) {
        const auto bytes = static_cast<size_t>(peer.expected.bytes);
        if (peer.staging.size() < bytes) peer.staging.resize(bytes);
        into = peer.staging.data();
      }
      peer.receive_part->receive(into, peer.expected.bytes, world(p), tag(kPartTag));
    }
    has_headers_ = true;
  }

  void wait(Wire::Operation& operation, int p) {
    WatchedWait watch(header_, group_, p, wait_.timeout_ms, job_);
    switch (operation.wait(wait_.timeout_ms, watch)) {
      case Wire::End::kDone: return;
      case Wire::End::kLate: throw_late(header_, group_, p, wait_.timeout_ms, "");
      case Wire::End::kFailed: throw_peer_failure(header_, group_, job_);
      case Wire::End::kLeft: throw_left(header_, group_, p);
      case Wire::End::kLost: break;
    }
    for (int64_t waited = 0; waited < kHubDelayMs && !job_.failed(); waited += 5) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (job_.failed()) throw_peer_failure(header_, group_, job_);
    throw IoError("{} of group \"{}\": rank {} lost rank {}: {}", header_.label(), group_.name, world(group_.rank),
                  world(p), operation.reason());
  }

  GroupInfo group_;
  std::shared_ptr<const int> slot_;
  std::shared_ptr<Wire> wire_;
  JobState& job_;
  WaitOptions wait_;
  CallHeader header_;
  bool has_headers_ = false;
  std::vector<Peer> peers_;
};

// The slots that the groups of a rank have. Thread-safe.
class Slots {
 public:
  // Holds the slot until the last copy of what it returns goes.
  static std::shared_ptr<const int> hold(const std::shared_ptr<Slots>& slots, int slot) {
    const std::lock_guard lock(slots->mutex_);
    const auto place = slots->held_.insert(slot);
    return {&*place, [slots, place](const int*) {
              const std::lock_guard lock(slots->mutex_);
              slots->held_.erase(place);
            }};
  }
  // Of the first `count` slots those that are held are 1.
  std::vector<uint8_t> held(int count) const {
    std::vector<uint8_t> held(static_cast<size_t>(count));
    const std::lock_guard lock(mutex_);
    for (const int slot : held_) {
      if (slot < count) held[as_index(slot)] = 1;
    }
    return held;
  }

 private:
  mutable std::mutex mutex_;
  std::multiset<int> held_;  // parts of a group may share one
};

class WireTransport final : public Transport {
 public:
  WireTransport(std::shared_ptr<Wire> wire, JobState& job, const WaitOptions& wait)
      : wire_(std::move(wire)), job_(job), wait_(wait) {}
  std::string name() const override { return wire_->name(); }
  void leave() override { wire_->leave(); }
  std::unique_ptr<Communicator> create_communicator(const GroupInfo& group) override {
    return make_wire_communicator(group, make_channel(group, Slots::hold(slots_, choose_slot(group))));
  }

 private:
  // The most slots that ranks look through for a free one.
  static constexpr int kMaxSearched = 8192;

  std::unique_ptr<Channel> make_channel(const GroupInfo& group, std::shared_ptr<const int> slot) {
    return std::make_unique<WireChannel>(group, std::move(slot), wire_, job_, wait_);
  }

  // The first groups have slots by their numbers. Once those are used up, the members agree on one that none of them
  // holds: ranks end groups at different times, so they may hold different ones.
  int choose_slot(const GroupInfo& group) {
    const int num_slots = wire_->max_tag() / kNumPurposes + (wire_->max_tag() % kNumPurposes == kNumPurposes - 1);
    if (group.number < num_slots - 1) return 1 + group.number;
    const int num_searched = std::min(num_slots, kMaxSearched);
    std::vector<uint8_t> held = slots_->held(num_searched);
    make_wire_communicator(group, make_channel(group, nullptr))
        ->all_reduce(held.data(), num_searched, DType::kU8, ReduceOp::kMax, "create_group");
    // The one that was free for longest, as far as numbers tell.
    const int num_free = num_searched - 1;
    for (int i = 0; i < num_free; ++i) {
      const int slot = 1 + (group.number + i) % num_free;
      if (held[as_index(slot)] == 0) return slot;
    }
    throw IoError("group \"{}\": {} has tags for {} groups at a time, and they are taken: destroy groups that are done",
                  group.name, wire_->name(), num_free);
  }

  std::shared_ptr<Wire> wire_;
  JobState& job_;
  WaitOptions wait_;
  std::shared_ptr<Slots> slots_ = std::make_shared<Slots>();
};

}  // namespace

std::unique_ptr<Transport> make_wire_transport(std::shared_ptr<Wire> wire, JobState& job, const WaitOptions& wait) {
  return std::make_unique<WireTransport>(std::move(wire), job, wait);
}

}  // namespace tessera::comm
