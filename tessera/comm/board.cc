#include "tessera/comm/board.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

#include "tessera/base/error.h"

namespace tessera::comm {
namespace {

constexpr int64_t kUnlimited = int64_t{1} << 62;
constexpr uint64_t kStaged = uint64_t{1} << 63;
constexpr size_t kLine = 64;
// About 20 us awake where there is a core to spare: a round trip between two cores takes about 1 us.
constexpr int kSpins = 400;
constexpr int kYields = 4;
// A failed peer is noticed after this time even when nobody wakes us.
constexpr int64_t kSleepNs = 20'000'000;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

uint32_t* futex_word(std::atomic<uint32_t>& value) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
  return reinterpret_cast<uint32_t*>(&value);
}

// Sleeps while *value == seen, at most kSleepNs.
void futex_wait(std::atomic<uint32_t>& value, uint32_t seen) {
  timespec limit{0, kSleepNs};
  syscall(SYS_futex, futex_word(value), FUTEX_WAIT, seen, &limit, nullptr, 0);
}

struct BoardHead {
  uint64_t group = 0;
  uint64_t size = 0;
};

struct RankArea {
  alignas(kLine) Signal ready;
  alignas(kLine) Signal done;
  std::atomic<uint64_t> last_sequence{0};  // of the rank's last call, for messages
};

struct Post {
  CallHeader header;
  int64_t posted_at_ns = 0;
  // BoardPart parts[size] follow
};

struct Mailbox {
  alignas(kLine) Signal ready;
  alignas(kLine) Signal done;
  struct Letter {
    CallHeader header;
    BoardPart part;
    int64_t posted_at_ns = 0;
  } letters[2];
};

// Where everything lies.
struct Layout {
  Layout(int num_ranks, const BoardOptions& options)
      : size(static_cast<size_t>(num_ranks)),
        post_bytes(round_up(sizeof(Post) + size * sizeof(BoardPart), kLine)),
        rank_bytes(sizeof(RankArea) + 2 * post_bytes),
        exchange_staging(static_cast<size_t>(options.exchange_staging_bytes)),
        message_staging(static_cast<size_t>(options.message_staging_bytes)) {
    ranks = round_up(sizeof(BoardHead), kLine);
    mailboxes = ranks + size * rank_bytes;
    exchanges = round_up(mailboxes + size * size * sizeof(Mailbox), 4096);
    messages = exchanges + size * 2 * exchange_staging;
    end = messages + size * size * 2 * message_staging;
  }
  size_t rank_area(int rank) const { return ranks + static_cast<size_t>(rank) * rank_bytes; }
  size_t post(int rank, uint32_t step) const { return rank_area(rank) + sizeof(RankArea) + step % 2 * post_bytes; }
  size_t mailbox(int from, int to) const { return mailboxes + pair(from, to) * sizeof(Mailbox); }
  size_t exchange_area(int rank, uint32_t step) const {
    return exchanges + (static_cast<size_t>(rank) * 2 + step % 2) * exchange_staging;
  }
  size_t message_area(int from, int to, uint32_t number) const {
    return messages + (pair(from, to) * 2 + number % 2) * message_staging;
  }
  size_t pair(int from, int to) const { return static_cast<size_t>(from) * size + static_cast<size_t>(to); }

  size_t size;
  size_t post_bytes;
  size_t rank_bytes;
  size_t exchange_staging;
  size_t message_staging;
  size_t ranks = 0;
  size_t mailboxes = 0;
  size_t exchanges = 0;
  size_t messages = 0;
  size_t end = 0;
};

class BoardChannel final : public Channel {
 public:
  BoardChannel(const GroupInfo& group, void* memory, std::shared_ptr<void> keep,
               std::shared_ptr<AddressSpace> addresses, JobState& job, const BoardOptions& options)
      : group_(group),
        memory_(static_cast<std::byte*>(memory)),
        keep_(std::move(keep)),
        addresses_(std::move(addresses)),
        job_(job),
        options_(options),
        layout_(static_cast<int>(group.ranks.size()), options),
        expected_(group.ranks.size()),
        reads_ours_(group.ranks.size()),
        messages_sent_(group.ranks.size()),
        messages_received_(group.ranks.size()) {
    const BoardHead& head = *reinterpret_cast<BoardHead*>(memory_);
    if (head.group != group.id() || head.size != group.ranks.size()) {
      throw IoError(
          "group \"{}\": rank {} creates another group at this place than its peers; every rank must create "
          "the same groups in the same order",
          group.name, group.ranks[static_cast<size_t>(group.rank)]);
    }
  }

  int64_t max_exchange_bytes() const override {
    return options_.exchange_staging_bytes > 0 ? options_.exchange_staging_bytes : kUnlimited;
  }

  bool is_direct(const void* data, int64_t bytes) override { return addresses_->publish(data, bytes).has_value(); }

  void begin(const CallHeader& header, std::span<const Part> parts, std::span<const Expected> expected) override {
    ++step_;
    header_ = header;
    std::copy(expected.begin(), expected.end(), expected_.begin());
    // Our posts are used in turn: nobody may still read the last but one.
    if (step_ > 2) {
      for (int p = 0; p < size(); ++p) {
        if (p != group_.rank) wait(area(p).done, step_ - 2, p);
      }
    }
    std::byte* post_memory = memory_ + layout_.post(group_.rank, step_);
    auto* offers = reinterpret_cast<BoardPart*>(post_memory + sizeof(Post));
    has_direct_part_ = false;
    size_t staged = layout_.exchange_area(group_.rank, step_);
    const void* previous = nullptr;
    uint64_t previous_address = 0;
    for (int p = 0; p < size(); ++p) {
      const Part& part = parts[index(p)];
      BoardPart& offer = offers[p];
      reads_ours_[index(p)] = p != group_.rank && part.bytes >= 0;
      offer.bytes = part.bytes;
      if (p == group_.rank || part.bytes <= 0) continue;
      if (part.data != previous) {
        previous = part.data;
        previous_address = offer_bytes(part.data, part.bytes, staged);
      }
      offer.address = previous_address;
    }
    Post& post = *reinterpret_cast<Post*>(post_memory);
    post.header = header;
    post.posted_at_ns = options_.link.is_instant() ? 0 : now_ns();
    area(group_.rank).last_sequence.store(header.sequence, std::memory_order_relaxed);
    area(group_.rank).ready.set(step_);
  }

  const CallHeader& header_of(int peer) override { return post_of(peer).header; }

  const void* receive_view(int peer) override {
    wait(area(peer).ready, step_, peer);
    const Post& post = post_of(peer);
    check_same_call(header_, post.header, group_, peer);
    const BoardPart& part = reinterpret_cast<const BoardPart*>(&post + 1)[group_.rank];
    check_same_bytes(header_, group_, peer, expected_[index(peer)].bytes, part.bytes);
    if (part.bytes <= 0) return nullptr;
    pass_link(post.posted_at_ns, part.bytes);
    return resolve(peer, part.address);
  }

  void receive(int peer) override {
    const void* bytes = receive_view(peer);
    const Expected& expected = expected_[index(peer)];
    if (bytes != nullptr) std::memcpy(expected.into, bytes, static_cast<size_t>(expected.bytes));
  }

  void end() override {
    area(group_.rank).done.set(step_);
    if (!has_direct_part_) return;
    for (int p = 0; p < size(); ++p) {
      if (reads_ours_[index(p)]) wait(area(p).done, step_, p);
    }
  }

  void send_message(const CallHeader& header, int to, const void* data, int64_t bytes) override {
    header_ = header;
    Mailbox& mailbox = *reinterpret_cast<Mailbox*>(memory_ + layout_.mailbox(group_.rank, to));
    uint32_t& number = messages_sent_[index(to)];
    const int64_t slice = max_message_bytes();
    for (int64_t begin = 0; begin == 0 || begin < bytes; begin += slice) {
      ++number;
      wait(mailbox.done, number - 2, to);
      Mailbox::Letter& letter = mailbox.letters[number % 2];
      letter.header = header;
      letter.part.bytes = std::min(slice, bytes - begin);
      if (letter.part.bytes > 0) {
        size_t staged = layout_.message_area(group_.rank, to, number);
        letter.part.address = offer_bytes(static_cast<const std::byte*>(data) + begin, letter.part.bytes, staged);
      }
      letter.posted_at_ns = options_.link.is_instant() ? 0 : now_ns();
      mailbox.ready.set(number);
    }
    wait(mailbox.done, number, to);
  }

  void receive_message(const CallHeader& header, int from, void* data, int64_t bytes) override {
    header_ = header;
    Mailbox& mailbox = *reinterpret_cast<Mailbox*>(memory_ + layout_.mailbox(from, group_.rank));
    uint32_t& number = messages_received_[index(from)];
    const int64_t slice = max_message_bytes();
    for (int64_t begin = 0; begin == 0 || begin < bytes; begin += slice) {
      ++number;
      wait(mailbox.ready, number, from);
      const Mailbox::Letter& letter = mailbox.letters[number % 2];
      check_message(header, letter.header, group_, from);
      check_same_bytes(header, group_, from, std::min(slice, bytes - begin), letter.part.bytes);
      if (letter.part.bytes > 0) {
        pass_link(letter.posted_at_ns, letter.part.bytes);
        std::memcpy(static_cast<std::byte*>(data) + begin, resolve(from, letter.part.address),
                    static_cast<size_t>(letter.part.bytes));
      }
      mailbox.done.set(number);
    }
  }

 private:
  static size_t index(int rank) { return static_cast<size_t>(rank); }
  int size() const { return static_cast<int>(group_.ranks.size()); }
  int64_t max_message_bytes() const {
    return options_.message_staging_bytes > 0 ? options_.message_staging_bytes : kUnlimited;
  }
  RankArea& area(int rank) { return *reinterpret_cast<RankArea*>(memory_ + layout_.rank_area(rank)); }
  const Post& post_of(int rank) { return *reinterpret_cast<const Post*>(memory_ + layout_.post(rank, step_)); }

  // Publishes or stages bytes; `staged` moves on by what was staged.
  uint64_t offer_bytes(const void* data, int64_t bytes, size_t& staged) {
    if (const auto address = addresses_->publish(data, bytes)) {
      has_direct_part_ = true;
      return *address;
    }
    const size_t place = staged;
    std::memcpy(memory_ + place, data, static_cast<size_t>(bytes));
    staged = round_up(place + static_cast<size_t>(bytes), kLine);
    return kStaged | place;
  }

  const void* resolve(int peer, uint64_t address) {
    if ((address & kStaged) != 0) return memory_ + (address & ~kStaged);
    return addresses_->resolve(group_.ranks[index(peer)], address);
  }

  void pass_link(int64_t posted_at_ns, int64_t bytes) {
    if (options_.link.is_instant()) return;
    const auto latency = static_cast<int64_t>(options_.link.latency_us * 1e3);
    const double rate = options_.link.gigabytes_per_second;
    const auto transfer = rate > 0 ? static_cast<int64_t>(static_cast<double>(bytes) / rate) : int64_t{0};
    link_free_at_ns_ = std::max(link_free_at_ns_, posted_at_ns + latency) + transfer;
    std::this_thread::sleep_until(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(link_free_at_ns_)));
  }

  void wait(Signal& signal, uint32_t target, int peer) {
    if (signal.reached(target)) return;
    if (options_.wait.spin) {
      for (int i = 0; i < kSpins; ++i) {
        __builtin_ia32_pause();
        if (signal.reached(target)) return;
      }
    }
    for (int i = 0; i < kYields; ++i) {
      sched_yield();
      if (signal.reached(target)) return;
    }
    const int64_t start = now_ns();
    while (true) {
      const bool failed = job_.failed();
      const bool left = job_.has_left(group_.ranks[index(peer)]);
      const int64_t waited_ms = (now_ns() - start) / 1'000'000;
      signal.num_waiters.fetch_add(1);
      const uint32_t seen = signal.value.load();
      const bool reached = static_cast<int32_t>(seen - target) >= 0;
      const bool is_over = reached || failed || left || waited_ms >= options_.wait.timeout_ms;
      if (!is_over) futex_wait(signal.value, seen);
      signal.num_waiters.fetch_sub(1);
      if (reached) return;
      if (failed) throw_peer_failure(header_, group_, job_);
      if (left) throw_left(header_, group_, peer);
      if (is_over) throw_late(header_, group_, peer, waited_ms, last_call_of(peer));
    }
  }

  std::string last_call_of(int peer) {
    const uint64_t last = area(peer).last_sequence.load(std::memory_order_relaxed);
    if (last == 0) return "it has made no call in this group yet";
    return fmt::format("its last call in this group was #{}", last);
  }

  GroupInfo group_;
  std::byte* memory_;
  std::shared_ptr<void> keep_;
  std::shared_ptr<AddressSpace> addresses_;
  JobState& job_;
  BoardOptions options_;
  Layout layout_;
  CallHeader header_;
  uint32_t step_ = 0;
  bool has_direct_part_ = false;
  int64_t link_free_at_ns_ = 0;
  std::vector<Expected> expected_;
  std::vector<char> reads_ours_;
  std::vector<uint32_t> messages_sent_;
  std::vector<uint32_t> messages_received_;
};

}  // namespace

void Signal::set(uint32_t next) {
  // Sequentially consistent with the waiter, who first counts itself and then reads the value: one of us sees the
  // other.
  value.store(next);
  if (num_waiters.load() != 0) {
    syscall(SYS_futex, futex_word(value), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }
}

size_t board_bytes(int size, const BoardOptions& options) { return Layout(size, options).end; }

void initialize_board(void* memory, const GroupInfo& group, const BoardOptions& options) {
  const auto size = static_cast<int>(group.ranks.size());
  const Layout layout(size, options);
  auto* bytes = static_cast<std::byte*>(memory);
  for (int r = 0; r < size; ++r) {
    new (bytes + layout.rank_area(r)) RankArea;
    for (uint32_t step = 0; step < 2; ++step) new (bytes + layout.post(r, step)) Post;
    for (int q = 0; q < size; ++q) new (bytes + layout.mailbox(r, q)) Mailbox;
  }
  new (memory) BoardHead{group.id(), group.ranks.size()};
}

std::unique_ptr<Channel> make_board_channel(const GroupInfo& group, void* memory, std::shared_ptr<void> keep,
                                            std::shared_ptr<AddressSpace> addresses, JobState& job,
                                            const BoardOptions& options) {
  return std::make_unique<BoardChannel>(group, memory, std::move(keep), std::move(addresses), job, options);
}

}  // namespace tessera::comm
