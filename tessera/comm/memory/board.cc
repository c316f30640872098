#include "tessera/comm/memory/board.h"

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
#include "tessera/base/integers.h"
#include "tessera/comm/watched_wait.h"

namespace tessera::comm {
namespace {

constexpr int64_t kUnlimited = int64_t{1} << 62;
constexpr size_t kLine = 64;
// Awake where there is a core for each rank. A round trip between two cores takes about 1 us, but to wake a core of a
// virtual machine 50: who waits no longer than that for one that sleeps falls asleep in turn, and so on for ever. Then
// asleep at once, and without spinning where the peer was last seen on our own core: whoever is woken is given a core
// that is idle, while two ranks that yield to each other stay on one. Two that wake each other in turn may stay there,
// too: after some such waits in a row one moves to another core; where that does not last, ever more seldom.
constexpr int64_t kSpinNs = 200'000;
// Between looks at the clock. Seldom with a pause, of which virtual machines may take many for a reason to stop.
constexpr int kSpins = 256;
// Of a rank that has no core of its own: to another rank that waits, a turn costs less than to be woken, and one that
// computes keeps the core for its whole slice.
constexpr int kYields = 200;
// A failed peer is noticed after this time even when nobody wakes us.
constexpr int64_t kSleepNs = 20'000'000;

// After so long a wait a rank says whom it waits for, and looks whether that one waits for it in another group.
constexpr int64_t kLongWaitMs = 500;

// How long a rank that leaves waits for the work of others, where its memory can stay for them, and they for what the
// job says of it.
constexpr int64_t kAbandonNs = 1'000'000'000;
// Of a message that is read where it lies: far less than can be copied within kAbandonNs, however slow the machine.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

// Moves this thread to another of the cores that it may use, where there is one.
void leave_core() {
  cpu_set_t allowed;
  const int core = sched_getcpu();
  if (core < 0 || sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < 2) return;
  cpu_set_t others = allowed;
  CPU_CLR(static_cast<size_t>(core), &others);
  if (sched_setaffinity(0, sizeof(others), &others) == 0) sched_setaffinity(0, sizeof(allowed), &allowed);
}

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

}  // namespace

struct Board::RankArea {
  alignas(kLine) Signal ready;
  std::atomic<bool> has_abandoned{false};
  std::atomic<int> core{-1};  // on which the rank was when it last offered something
  alignas(kLine) Signal done;
  std::atomic<bool> is_working{false};
  std::atomic<uint64_t> last_sequence{0};  // of the rank's last call, for messages
  std::atomic<int> waits_for{-1};          // the peer for whom the rank has waited long
};

// Begins on a cache line, which is all of it that a peer reads of a group of two.
struct Board::Post {
  Posted posted;
  int64_t posted_at_ns = 0;
  // BoardPart parts[size] follow, and on a line of its own the CallHeader
  BoardPart* parts() { return reinterpret_cast<BoardPart*>(this + 1); }
};

struct Board::Mailbox {
  alignas(kLine) Signal ready;
  alignas(kLine) Signal done;
  struct Letter {
    CallHeader header;
    BoardPart part;
    int64_t posted_at_ns = 0;
  } letters[2];
};

// Where everything lies.
struct Board::Layout {
  Layout(int num_ranks, const BoardOptions& options)
      : size(static_cast<size_t>(num_ranks)),
        header_in_post(round_up(sizeof(Post) + size * sizeof(BoardPart), kLine)),
        post_bytes(round_up(header_in_post + sizeof(CallHeader), kLine)),
        rank_bytes(sizeof(RankArea) + 2 * post_bytes),
        slot_bytes(static_cast<size_t>(std::max(options.slot_bytes, kMinSlotBytes))),
        message_bytes(static_cast<size_t>(options.message_bytes)) {
    ranks = round_up(sizeof(BoardHead), kLine);
    mailboxes = ranks + size * rank_bytes;
    slots = round_up(mailboxes + size * size * sizeof(Mailbox), 4096);
    messages = slots + size * 2 * slot_bytes;
    end = messages + size * size * 2 * message_bytes;
  }
  size_t rank_area(int rank) const { return ranks + as_index(rank) * rank_bytes; }
  size_t post(int rank, uint32_t step) const { return rank_area(rank) + sizeof(RankArea) + step % 2 * post_bytes; }
  size_t mailbox(int from, int to) const { return mailboxes + pair(from, to) * sizeof(Mailbox); }
  size_t slot(int rank, uint32_t step) const { return slots + (as_index(rank) * 2 + step % 2) * slot_bytes; }
  size_t message(int from, int to, uint32_t number) const {
    return messages + (pair(from, to) * 2 + number % 2) * message_bytes;
  }
  size_t pair(int from, int to) const { return as_index(from) * size + as_index(to); }

  size_t size;
  size_t header_in_post;
  size_t post_bytes;
  size_t rank_bytes;
  size_t slot_bytes;
  size_t message_bytes;
  size_t ranks = 0;
  size_t mailboxes = 0;
  size_t slots = 0;
  size_t messages = 0;
  size_t end = 0;
};

Board::Board(const GroupInfo& group, void* memory, std::shared_ptr<void> keep, std::shared_ptr<PeerAddresses> addresses,
             JobState& job, const BoardOptions& options)
    : group_(group),
      memory_(static_cast<std::byte*>(memory)),
      keep_(std::move(keep)),
      addresses_(std::move(addresses)),
      job_(job),
      options_(options),
      layout_(std::make_unique<Layout>(static_cast<int>(group.ranks.size()), options)),
      closed_by_(group.ranks.size()),
      messages_sent_(group.ranks.size()),
      messages_received_(group.ranks.size()) {
  const BoardHead& head = *reinterpret_cast<BoardHead*>(memory_);
  if (head.group != group.id() || head.size != group.ranks.size()) {
    throw IoError(
        "group \"{}\": rank {} creates another group at this place than its peers; every rank must create "
        "the same groups in the same order",
        group.name, group.ranks[as_index(group.rank)]);
  }
  wait_probe_ = job_.add_wait_probe([this](int rank, int peer, Communicator::Driver elsewhere) -> std::string {
    const auto& ranks = group_.ranks;
    const auto at = std::find(ranks.begin(), ranks.end(), peer);
    const bool is_ours = rank == ranks[as_index(group_.rank)] && at != ranks.end() && rank != peer;
    return is_ours ? wait_of(static_cast<int>(at - ranks.begin()), elsewhere) : "";
  });
}

Board::~Board() { job_.remove_wait_probe(wait_probe_); }

uint32_t Board::open(const CallHeader& header) {
  header_ = header;
  digest_ = header.digest();
  ++step_;
  // Our posts are used in turn: nobody may still read the last but one. Mostly the peers' posts have said so.
  if (step_ > 2) {
    for (int p = 0; p < static_cast<int>(group_.ranks.size()); ++p) {
      const bool is_known = static_cast<int32_t>(closed_by_[as_index(p)] - (step_ - 2)) >= 0;
      if (p != group_.rank && !is_known) wait(area(p).done, step_ - 2, p);
    }
  }
  return step_;
}

void Board::offer(uint32_t step, int peer, const BoardPart& part) { post_of(group_.rank, step).parts()[peer] = part; }

int64_t Board::slot_bytes() const { return static_cast<int64_t>(layout_->slot_bytes); }

std::byte* Board::slot(int rank, uint32_t step) { return memory_ + layout_->slot(rank, step); }

void Board::post(uint32_t step, const CallHeader& header) {
  Post& post = post_of(group_.rank, step);
  header_of(group_.rank, step) = header;
  post.posted = {digest_, closed_, header.num_rounds, header.is_direct};
  post.posted_at_ns = options_.link.is_instant() ? 0 : now_ns();
  area(group_.rank).last_sequence.store(header.sequence, std::memory_order_relaxed);
  area(group_.rank).core.store(sched_getcpu(), std::memory_order_relaxed);
  area(group_.rank).ready.set(step);
}

const Posted& Board::await_post(uint32_t step, int peer) {
  wait(area(peer).ready, step, peer);
  const Post& post = post_of(peer, step);
  if (post.posted.call != digest_) check_same_call(header_, header_of(peer, step), group_, peer, job_);
  closed_by_[as_index(peer)] = post.posted.closed;
  return post.posted;
}

const BoardPart& Board::part_from(uint32_t step, int peer) { return post_of(peer, step).parts()[group_.rank]; }

// Sequentially consistent with abandon(): either we see that the peer has gone, or it sees that we work.
void Board::begin_work() {
  area(group_.rank).is_working.store(true);
  for (int p = 0; p < static_cast<int>(group_.ranks.size()); ++p) {
    if (area(p).has_abandoned.load()) throw_abandoned(p);
  }
}

void Board::end_work() { area(group_.rank).is_working.store(false, std::memory_order_release); }

void Board::close(uint32_t step) {
  end_work();
  closed_ = step;
  area(group_.rank).done.set(step);
}

void Board::abandon() {
  end_work();
  area(group_.rank).has_abandoned.store(true);
  const int64_t start = now_ns();
  for (int p = 0; p < static_cast<int>(group_.ranks.size()); ++p) {
    while (area(p).is_working.load()) {
      // A process that was killed or stopped in its work does not end it, and one that goes on must find the memory
      // there. A thread always ends it.
      if (now_ns() - start >= kAbandonNs && addresses_->keep_for_peers()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

void Board::throw_abandoned(int peer) {
  end_work();
  // The job knows the reason soon, if there is one that all should know.
  for (const int64_t start = now_ns(); !job_.failed() && now_ns() - start < kAbandonNs;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (job_.failed()) throw_peer_failure(header_, group_, job_);
  throw IoError("{} of group \"{}\": rank {} has given the group up after an error", header_.label(), group_.name,
                group_.ranks[as_index(peer)]);
}

void Board::await_close(uint32_t step, int peer) { wait(area(peer).done, step, peer); }

void Board::pass_link(uint32_t step, int peer, int64_t bytes) {
  pass_link_since(post_of(peer, step).posted_at_ns, bytes);
}

void Board::pass_link_from_now(int64_t bytes) {
  if (!options_.link.is_instant()) pass_link_since(now_ns(), bytes);
}

void Board::send_message(const CallHeader& call, int to, const void* data, int64_t bytes) {
  CallHeader header = call;
  const auto address = addresses_->publish(data, bytes);
  header.is_direct = address.has_value() || bytes == 0;
  header_ = header;
  uint32_t& number = messages_sent_[as_index(to)];
  // What the receiver reads where it lies needs no room: one letter, for which both sides wait once.
  const int64_t slice = header.is_direct ? kUnlimited : max_message_bytes();
  for (int64_t begin = 0; begin == 0 || begin < bytes; begin += slice) {
    ++number;
    wait(mailbox(group_.rank, to).done, number - 2, to);
    Mailbox::Letter& letter = mailbox(group_.rank, to).letters[number % 2];
    letter.header = header;
    letter.part.bytes = std::min(slice, bytes - begin);
    if (address) {
      letter.part.address = *address + static_cast<uint64_t>(begin);
    } else if (letter.part.bytes > 0) {
      letter.part.address = layout_->message(group_.rank, to, number);
      std::memcpy(memory_ + letter.part.address, static_cast<const std::byte*>(data) + begin,
                  static_cast<size_t>(letter.part.bytes));
    }
    letter.posted_at_ns = options_.link.is_instant() ? 0 : now_ns();
    mailbox(group_.rank, to).ready.set(number);
  }
  wait(mailbox(group_.rank, to).done, number, to);
}

void Board::receive_message(const CallHeader& header, int from, void* data, int64_t bytes) {
  // Between pieces we see whether the sender has abandoned the group: its memory goes soon after.
  const auto take = [this, data](const std::byte* sent, int64_t begin, int64_t count) {
    auto* const to = static_cast<std::byte*>(data) + begin;
    for (int64_t at = 0; at < count; at += kPieceBytes) {
      if (at > 0) begin_work();
      std::memcpy(to + at, sent + at, static_cast<size_t>(std::min(kPieceBytes, count - at)));
    }
  };
  receive_message(header, from, take, bytes);
}

void Board::receive_message(const CallHeader& header, int from, const StretchReceiver::Take& take, int64_t bytes) {
  header_ = header;
  uint32_t& number = messages_received_[as_index(from)];
  int64_t slice = kUnlimited;
  for (int64_t begin = 0; begin == 0 || begin < bytes; begin += slice) {
    ++number;
    wait(mailbox(from, group_.rank).ready, number, from);
    const Mailbox::Letter& letter = mailbox(from, group_.rank).letters[number % 2];
    check_message(header, letter.header, group_, from, job_);
    slice = letter.header.is_direct ? kUnlimited : max_message_bytes();
    check_same_bytes(header, group_, from, std::min(slice, bytes - begin), letter.part.bytes);
    if (letter.part.bytes > 0) {
      pass_link_since(letter.posted_at_ns, letter.part.bytes);
      if (letter.header.is_direct) begin_work();
      const std::byte* sent = letter.header.is_direct ? resolve(from, letter.part.address, letter.part.bytes)
                                                      : memory_ + letter.part.address;
      take(sent, begin, letter.part.bytes);
      end_work();
    }
    mailbox(from, group_.rank).done.set(number);
  }
}

Board::RankArea& Board::area(int rank) { return *reinterpret_cast<RankArea*>(memory_ + layout_->rank_area(rank)); }

Board::Post& Board::post_of(int rank, uint32_t step) {
  return *reinterpret_cast<Post*>(memory_ + layout_->post(rank, step));
}

CallHeader& Board::header_of(int rank, uint32_t step) {
  return *reinterpret_cast<CallHeader*>(memory_ + layout_->post(rank, step) + layout_->header_in_post);
}

Board::Mailbox& Board::mailbox(int from, int to) {
  return *reinterpret_cast<Mailbox*>(memory_ + layout_->mailbox(from, to));
}

int64_t Board::max_message_bytes() const { return options_.message_bytes > 0 ? options_.message_bytes : kUnlimited; }

void Board::pass_link_since(int64_t posted_at_ns, int64_t bytes) {
  if (options_.link.is_instant()) return;
  const auto latency = static_cast<int64_t>(options_.link.latency_us * 1e3);
  const double rate = options_.link.gigabytes_per_second;
  const auto transfer = rate > 0 ? static_cast<int64_t>(static_cast<double>(bytes) / rate) : int64_t{0};
  link_free_at_ns_ = std::max(link_free_at_ns_, posted_at_ns + latency) + transfer;
  std::this_thread::sleep_until(std::chrono::steady_clock::time_point(std::chrono::nanoseconds(link_free_at_ns_)));
}

void Board::wait(Signal& signal, uint32_t target, int peer) {
  if (signal.reached(target)) return;
  const int64_t start = now_ns();
  const auto& core_of_peer = area(peer).core;
  const auto is_apart = [&] { return core_of_peer.load(std::memory_order_relaxed) != sched_getcpu(); };
  if (options_.wait.spin && is_apart()) {
    waits_together_ = 0;
    separation_ = std::max(separation_ - 1, kFirstSeparation);
  } else if (options_.wait.spin && ++waits_together_ == separation_) {
    waits_together_ = 0;
    separation_ = std::min(2 * separation_, kLastSeparation);
    leave_core();
  }
  while (options_.wait.spin && is_apart() && now_ns() - start < kSpinNs) {
    for (int i = 0; i < kSpins; ++i) {
      if (signal.reached(target)) return;
    }
    __builtin_ia32_pause();
  }
  // Where other programs keep the cores busy each turn may take tens of milliseconds: what the job says of a rank that
  // fails must not wait for all of them.
  const auto is_hopeless = [&] { return job_.failed() || job_.has_left(group_.ranks[as_index(peer)]); };
  WatchedWait watch(header_, group_, peer, options_.wait.timeout_ms, job_);
  for (int i = 0; !options_.wait.spin && i < kYields && !is_hopeless(); ++i) {
    sched_yield();
    if (signal.reached(target)) return;
    watch.look((now_ns() - start) / 1'000'000);
  }
  struct Said {
    std::atomic<int>& waits_for;
    ~Said() { waits_for.store(-1, std::memory_order_release); }
  } const said{area(group_.rank).waits_for};
  while (true) {
    const bool failed = job_.failed();
    const bool left = job_.has_left(group_.ranks[as_index(peer)]);
    const int64_t waited_ms = (now_ns() - start) / 1'000'000;
    signal.num_waiters.fetch_add(1);
    const uint32_t seen = signal.value.load();
    const bool reached = static_cast<int32_t>(seen - target) >= 0;
    const bool is_over = reached || failed || left || waited_ms >= options_.wait.timeout_ms;
    if (!is_over) futex_wait(signal.value, seen);
    signal.num_waiters.fetch_sub(1);
    if (reached) return watch.set_waited(waited_ms);
    if (failed) throw_peer_failure(header_, group_, job_);
    if (left) throw_left(header_, group_, peer);
    if (is_over) throw_late(header_, group_, peer, waited_ms, last_call_of(peer));
    if (waited_ms >= kLongWaitMs) {
      said.waits_for.store(peer, std::memory_order_release);
      look_for_crossed_wait(peer);
    }
    watch.look(waited_ms);
  }
}

void Board::look_for_crossed_wait(int peer) {
  const auto driver = driver_.load();
  if (driver == Communicator::Driver::kUnknown) return;
  const auto found = job_.find_wait(group_.ranks[as_index(group_.rank)], group_.ranks[as_index(peer)], driver);
  if (!found.empty()) throw_crossed(header_, group_, peer, found);
}

std::string Board::wait_of(int peer, Communicator::Driver elsewhere) {
  // Two driven groups may have threads of their own; what a main group waits for stands in one order with all others.
  const auto driver = driver_.load();
  const bool is_ordered = driver != Communicator::Driver::kUnknown && driver != elsewhere;
  const int waits_for = area(peer).waits_for.load(std::memory_order_acquire);
  if (!is_ordered || waits_for < 0) return {};
  if (area(peer).last_sequence.load() <= area(group_.rank).last_sequence.load()) return {};
  const CallHeader& header = header_of(peer, area(peer).ready.value.load());
  // Whoever it names, a call that needs all ranks needs this one.
  if (waits_for != group_.rank && header.kind == CallKind::kBroadcast) return {};
  return fmt::format("{} of group \"{}\"", header.label(), group_.name);
}

std::string Board::last_call_of(int peer) {
  const uint64_t last = area(peer).last_sequence.load(std::memory_order_relaxed);
  if (last == 0) return "it has made no call in this group yet";
  return fmt::format("its last call in this group was #{}", last);
}

void Signal::set(uint32_t next) {
  // Sequentially consistent with the waiter, who first counts itself and then reads the value: one of us sees the
  // other.
  value.store(next);
  if (num_waiters.load() != 0) {
    syscall(SYS_futex, futex_word(value), FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
  }
}

size_t board_bytes(int size, const BoardOptions& options) { return Board::Layout(size, options).end; }

void initialize_board(void* memory, const GroupInfo& group, const BoardOptions& options) {
  const auto size = static_cast<int>(group.ranks.size());
  const Board::Layout layout(size, options);
  auto* bytes = static_cast<std::byte*>(memory);
  for (int r = 0; r < size; ++r) {
    new (bytes + layout.rank_area(r)) Board::RankArea;
    for (uint32_t step = 0; step < 2; ++step) {
      new (bytes + layout.post(r, step)) Board::Post;
      new (bytes + layout.post(r, step) + layout.header_in_post) CallHeader;
    }
    for (int q = 0; q < size; ++q) new (bytes + layout.mailbox(r, q)) Board::Mailbox;
  }
  new (memory) BoardHead{group.id(), group.ranks.size()};
}

}  // namespace tessera::comm
