// A Transport moves bytes between ranks; the collectives are written once, on top of it. Each group of ranks has a
// Channel of its own, so that groups can be used from different threads. All bytes travel under a CallHeader, which the
// receiver compares with its own call: a rank that does something else is found at the first byte.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/comm/job_state.h"

namespace tessera::comm {

enum class CallKind : uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll, kSend, kBarrier };
const char* to_string(CallKind kind);

// Travels between processes: plain bytes, no pointers.
struct CallHeader {
  uint64_t group = 0;        // GroupInfo::id
  uint64_t sequence = 0;     // number of the call within the group, from 1; of the message within its pair for kSend
  int64_t count = 0;         // elements of the whole call
  uint64_t counts_hash = 0;  // of the per-rank counts
  uint32_t num_rounds = 1;   // exchanges that this rank needs
  CallKind kind = CallKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  bool is_direct = false;  // this rank's data can be read where it lies
  int32_t root = 0;
  char who[60] = {};

  void set_who(std::string_view text);
  // `all_reduce "fc.weight" #12`
  std::string label() const;
  // `all_reduce "fc.weight" #12 (sum of 1000 f32)`
  std::string description() const;
};

struct GroupInfo {
  std::string name;
  int number = 0;          // groups of a job are numbered in the order of their creation, alike on all ranks
  int rank = 0;            // this rank within the group
  std::vector<int> ranks;  // world ranks
  uint64_t id() const;     // hash of name, number and ranks
};

struct WaitOptions {
  int64_t timeout_ms = 30000;
  bool spin = true;  // more cores than ranks: a short wait is cheaper awake
};

// One rank's end of a group's exchanges. An exchange is: begin, then receive_* for every expected peer, then end.
// Exchanges are numbered alike on all ranks of the group: each rank of the group begins every one of them.
// Waits throw IoError at the deadline, PeerFailure when a rank of the job failed.
class Channel {
 public:
  struct Part {
    const void* data = nullptr;
    int64_t bytes = -1;  // -1: nothing goes to this peer, not even a header
  };
  struct Expected {
    int64_t bytes = -1;    // -1: nothing comes from this peer
    void* into = nullptr;  // where receive() puts it; null: it stays with the channel, for receive_view()
  };

  virtual ~Channel() = default;

  // Bytes that one exchange can carry from one rank: parts at the same address count once. At least 64 KiB.
  virtual int64_t max_exchange_bytes() const = 0;
  // True when peers read these bytes where they lie; parts that are all direct may exceed max_exchange_bytes().
  virtual bool is_direct(const void* data, int64_t bytes) {
    (void)data, (void)bytes;
    return false;
  }

  // Offers parts[p] to group rank p and expects expected[p] from it. The parts stay unchanged until end(). Entries of
  // this rank itself are ignored.
  virtual void begin(const CallHeader& header, std::span<const Part> parts, std::span<const Expected> expected) = 0;
  // The header that came with p's part, once that was received; valid until end().
  virtual const CallHeader& header_of(int peer) = 0;
  // The bytes that p sent; valid until end(). Null when there are none.
  virtual const void* receive_view(int peer) = 0;
  // Puts them where begin() was told.
  virtual void receive(int peer) = 0;
  // Returns when the parts may be changed.
  virtual void end() = 0;

  // Point to point, in order per pair; both calls block until the bytes have been taken.
  virtual void send_message(const CallHeader& header, int to, const void* data, int64_t bytes) = 0;
  virtual void receive_message(const CallHeader& header, int from, void* data, int64_t bytes) = 0;
};

// Zeroed memory of this process on a page boundary. Throws IoError when there is none.
std::shared_ptr<void> allocate_pages(size_t bytes);

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;
  // Called by every rank of `group`, in the same order on all of them.
  virtual std::unique_ptr<Channel> create_channel(const GroupInfo& group) = 0;
  // Zeroed memory, on a page boundary, from which collectives copy the least.
  virtual std::shared_ptr<void> allocate(size_t bytes) { return allocate_pages(bytes); }
};

// The collectives over a channel.
std::unique_ptr<Communicator> make_communicator(const GroupInfo& group, std::unique_ptr<Channel> channel);

// What a channel throws. `peer` is a group rank.
[[noreturn]] void throw_late(const CallHeader& call, const GroupInfo& group, int peer, int64_t waited_ms,
                             std::string_view detail);
[[noreturn]] void throw_left(const CallHeader& call, const GroupInfo& group, int peer);
[[noreturn]] void throw_peer_failure(const CallHeader& call, const GroupInfo& group, const JobState& job);
// Throws IoError when the peer's call is not ours: other kind, number, type, counts or operator.
void check_same_call(const CallHeader& ours, const CallHeader& theirs, const GroupInfo& group, int peer);
// Throws IoError when the peer offers other bytes than we expect from it.
void check_same_bytes(const CallHeader& ours, const GroupInfo& group, int peer, int64_t expected, int64_t offered);
// Throws IoError unless a message from `peer` has our count and dtype.
void check_message(const CallHeader& ours, const CallHeader& theirs, const GroupInfo& group, int peer);

}  // namespace tessera::comm
