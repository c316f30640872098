// Board: memory that all ranks of a group can reach, where they post what they offer and note what they have read. It
// is the whole protocol of ranks that share memory, be they threads of a process or processes of a host.
//
// Per rank: two posts, each with a slot for copied bytes, used in turn, and two counters, `ready` (exchanges posted)
// and `done` (exchanges read). A rank may post exchange s when all others are done with s - 2. Per ordered pair of
// ranks: a mailbox of the same kind for point-to-point messages. Waits spin for a moment, then sleep on a futex; where
// ranks outnumber cores they yield instead of spinning, since whoever is waited for needs the core.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/stretch_receiver.h"
#include "tessera/comm/transport.h"

namespace tessera::comm {

// A counter that processes can wait for.
struct Signal {
  std::atomic<uint32_t> value{0};
  std::atomic<uint32_t> num_waiters{0};

  // Sets the counter and wakes who waits for it.
  void set(uint32_t next);
  bool reached(uint32_t target) const {
    return static_cast<int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }
};

// What a rank offers to a peer in one exchange.
struct BoardPart {
  uint64_t address = 0;  // in the terms of the address space; of bytes that were copied, their place in the slot
  int64_t bytes = 0;
};

// A simulated link: a message is there `latency_us` after it was posted and passes at `gigabytes_per_second` (0: at
// once); messages to one rank of a group pass one after the other.
struct SimulatedLink {
  double latency_us = 0;
  double gigabytes_per_second = 0;
  bool is_instant() const { return latency_us <= 0 && gigabytes_per_second <= 0; }
};

// PeerAddresses say how ranks name bytes of their own memory to each other.
class PeerAddresses {
 public:
  virtual ~PeerAddresses() = default;
  // The address under which peers reach [data, data + bytes), or nothing where they cannot. Neighbouring bytes have
  // neighbouring addresses.
  virtual std::optional<uint64_t> publish(const void* data, int64_t bytes) = 0;
  // Where `bytes` bytes lie here whose address the rank `peer` of the world has told. Throws IoError where its memory
  // ends before they do.
  virtual std::byte* resolve(int peer, uint64_t address, int64_t bytes) = 0;
  // From now on this rank's memory stays as long as a peer may read and write it, also when its owner gives it up.
  // False: it cannot, and the owner has to wait for whoever works in it.
  virtual bool keep_for_peers() { return false; }
};

// Threads of one process: a pointer is an address.
class PointerSpace final : public PeerAddresses {
 public:
  std::optional<uint64_t> publish(const void* data, int64_t) override { return reinterpret_cast<uint64_t>(data); }
  std::byte* resolve(int, uint64_t address, int64_t) override { return reinterpret_cast<std::byte*>(address); }
};

struct BoardOptions {
  WaitOptions wait;
  SimulatedLink link;
  // Bytes of a slot, and of a message's copy. Slots hold at least kMinSlotBytes; 0 for messages: none is copied.
  int64_t slot_bytes = 0;
  int64_t message_bytes = 0;
};
inline constexpr int64_t kMinSlotBytes = 16 * 1024;

// Bytes of a board for `size` ranks.
size_t board_bytes(int size, const BoardOptions& options);
// Makes the board in zeroed memory; called by one rank before any other uses it.
void initialize_board(void* memory, const GroupInfo& group, const BoardOptions& options);

// A Posted is the head of a post. What else its header says is read only where the calls differ.
struct Posted {
  uint64_t call = 0;    // CallHeader::digest()
  uint32_t closed = 0;  // the last exchange that the peer had closed by then
  uint32_t num_rounds = 1;
  bool is_direct = false;
};

// A Board is one rank's end of a group's board. Waits throw IoError at the deadline, PeerFailure when a rank of the job
// failed.
class Board {
 public:
  // `job` outlives the board; `memory` holds a board of the group and lives as long as `keep`. Throws IoError when it
  // belongs to another group.
  Board(const GroupInfo& group, void* memory, std::shared_ptr<void> keep, std::shared_ptr<PeerAddresses> addresses,
        JobState& job, const BoardOptions& options);
  ~Board();

  // An exchange: open, offer and fill the slot, post; for each peer await_post and read; close. Exchanges are numbered
  // alike on all ranks; a rank may be one ahead of its peers, and may have two open.
  //
  // Returns the number of the next exchange once its post and slot may be written.
  uint32_t open(const CallHeader& header);
  void offer(uint32_t step, int peer, const BoardPart& part);
  int64_t slot_bytes() const;
  std::byte* slot(int rank, uint32_t step);
  void post(uint32_t step, const CallHeader& header);
  // What `peer` posted. Throws IoError when it is another call than ours.
  const Posted& await_post(uint32_t step, int peer);
  const BoardPart& part_from(uint32_t step, int peer);
  // Between these two a rank reads, and may write, what its peers offer where it lies. begin_work() throws IoError when
  // one of them has abandoned the group: its memory may be gone. What lies on the board stays, so that a call which
  // needs no more is done once all have posted, whatever becomes of them afterwards. await_close() returns when `peer`
  // has closed, and so is out of our memory.
  void begin_work();
  void close(uint32_t step);
  void await_close(uint32_t step, int peer);
  JobState& job() { return job_; }
  // From now on waits leave the core to others at once.
  void share_core() { options_.wait.spin = false; }
  // Does what a Communicator's does.
  int64_t wait_without_deadline() { return std::exchange(options_.wait.timeout_ms, kNoDeadlineMs); }
  int64_t deadline_ms() const { return options_.wait.timeout_ms; }
  // From now on a long wait looks whether the peer waits for this rank in another group; see Communicator::Driver.
  void set_driver(Communicator::Driver driver) { driver_.store(driver); }
  // After an error: returns when no peer works, or will work, in this rank's memory, or when that stays for those that
  // do: it may then be given up.
  void abandon();
  // Lets as much time pass as a simulated link takes: for bytes that were on their way since the peer's post, or since
  // now.
  void pass_link(uint32_t step, int peer, int64_t bytes);
  void pass_link_from_now(int64_t bytes);

  std::optional<uint64_t> publish(const void* data, int64_t bytes) { return addresses_->publish(data, bytes); }
  std::byte* resolve(int peer, uint64_t address, int64_t bytes) {
    return addresses_->resolve(group_.ranks[static_cast<size_t>(peer)], address, bytes);
  }

  // Point to point, in order per pair; both calls block until the bytes have been taken.
  void send_message(const CallHeader& header, int to, const void* data, int64_t bytes);
  void receive_message(const CallHeader& header, int from, void* data, int64_t bytes);
  void receive_message(const CallHeader& header, int from, const StretchReceiver::Take& take, int64_t bytes);

 private:
  struct Layout;
  struct RankArea;
  struct Post;
  struct Mailbox;
  friend size_t board_bytes(int size, const BoardOptions& options);
  friend void initialize_board(void* memory, const GroupInfo& group, const BoardOptions& options);

  RankArea& area(int rank);
  Post& post_of(int rank, uint32_t step);
  CallHeader& header_of(int rank, uint32_t step);
  Mailbox& mailbox(int from, int to);
  int64_t max_message_bytes() const;
  void pass_link_since(int64_t posted_at_ns, int64_t bytes);
  void end_work();
  [[noreturn]] void throw_abandoned(int peer);
  void wait(Signal& signal, uint32_t target, int peer);
  std::string last_call_of(int peer);
  // Throws IoError where the peer waits for us elsewhere, in a call that we cannot come to.
  void look_for_crossed_wait(int peer);
  // In which call the peer waits for us here, which we have not made; "" where it does not.
  std::string wait_of(int peer, Communicator::Driver elsewhere);

  GroupInfo group_;
  std::byte* memory_;
  std::shared_ptr<void> keep_;
  std::shared_ptr<PeerAddresses> addresses_;
  JobState& job_;
  BoardOptions options_;
  std::atomic<Communicator::Driver> driver_{Communicator::Driver::kUnknown};
  int wait_probe_ = 0;
  std::unique_ptr<Layout> layout_;
  CallHeader header_;    // the header of the call under way
  uint64_t digest_ = 0;  // the digest of header_
  uint32_t step_ = 0;
  uint32_t closed_ = 0;              // our last exchange that is closed
  std::vector<uint32_t> closed_by_;  // by peer, as far as we know
  static constexpr int64_t kFirstSeparation = 8;
  static constexpr int64_t kLastSeparation = int64_t{1} << 24;
  int64_t waits_together_ = 0;             // in a row, with the peer on our core
  int64_t separation_ = kFirstSeparation;  // so many of them until we leave it
  int64_t link_free_at_ns_ = 0;
  std::vector<uint32_t> messages_sent_;
  std::vector<uint32_t> messages_received_;
};

// The collectives over a board.
std::unique_ptr<Communicator> make_board_communicator(const GroupInfo& group, std::unique_ptr<Board> board);

}  // namespace tessera::comm
