// A Transport connects ranks: it makes the communicators of their groups. Each has ways of its own, so that groups can
// be used from different threads. Every call has a CallHeader, which its members compare: a rank that does something
// else is found at once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.h"
#include "tessera/comm/job_state.h"

namespace tessera::comm {

enum class CallKind : uint8_t { kAllReduce, kAllGather, kReduceScatter, kBroadcast, kAllToAll, kSend, kBarrier };
const char* to_string(CallKind kind);

// So many bytes of what a call is named by are kept.
inline constexpr size_t kMaxCallName = 59;

// Travels between processes: plain bytes, no pointers.
struct CallHeader {
  uint64_t group = 0;        // GroupInfo::id
  uint64_t sequence = 0;     // number of the call within the group, from 1; of the message within its pair for kSend
  int64_t count = 0;         // elements of the whole call
  uint64_t counts_hash = 0;  // a hash of the per-rank counts
  uint32_t num_rounds = 1;   // in which this rank's bytes move, where they are copied piece by piece
  CallKind kind = CallKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  bool is_direct = false;  // peers reach this rank's data where it lies
  int32_t root = 0;
  char who[kMaxCallName + 1] = {};

  void set_who(std::string_view text);
  // Equal for calls that check_same_call() takes for the same; of others it differs but for chance.
  uint64_t digest() const;
  // `all_reduce "fc.weight" #12`
  std::string label() const;
  // `all_reduce "fc.weight" #12 (sum of 1000 f32)`
  std::string description() const;
};

struct GroupInfo {
  std::string name;
  int number = 0;          // groups of a job are numbered in the order of their creation, alike on all ranks
  int part = 0;            // tells groups of one number apart: those that a group is made of
  int rank = 0;            // this rank within the group
  std::vector<int> ranks;  // world ranks
  uint64_t id() const;     // hash of name, number and ranks
};

// So long nobody waits: the deadline of waits that have none.
inline constexpr int64_t kNoDeadlineMs = int64_t{1} << 40;

struct WaitOptions {
  int64_t timeout_ms = 30000;
  bool spin = true;  // more cores than ranks: a short wait is cheaper awake
};

// Address space of this process on a page boundary; zeroed memory is taken as it is touched. Throws IoError when there
// is none.
std::shared_ptr<void> allocate_pages(size_t bytes);

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string name() const = 0;
  // Connects several ranks. Every rank of `group` calls it, in the same order on all of them.
  virtual std::unique_ptr<Communicator> create_communicator(const GroupInfo& group) = 0;
  // Address space in which peers reach this rank's bytes where they lie, as of allocate_pages(); null where no memory
  // is better for that than any other, or where the system has none of that size to share (ulimit -f).
  virtual std::shared_ptr<void> allocate(size_t bytes) {
    (void)bytes;
    return nullptr;
  }
  // Tells the peers, where they would not see it otherwise, that this rank makes no more calls, while its connections
  // stay. What it has sent still arrives. No communicator is used afterwards.
  virtual void leave() {}
};

// `all_reduce "fc.weight" #12 of group "world"`
std::string place_of(const CallHeader& call, const GroupInfo& group);

// What a transport throws. `peer` is a group rank.
[[noreturn]] void throw_late(const CallHeader& call, const GroupInfo& group, int peer, int64_t waited_ms,
                             std::string_view detail);
// `peer` waits for us in the call `other`, which we have not made.
[[noreturn]] void throw_crossed(const CallHeader& call, const GroupInfo& group, int peer, std::string_view other);
[[noreturn]] void throw_left(const CallHeader& call, const GroupInfo& group, int peer);
[[noreturn]] void throw_peer_failure(const CallHeader& call, const GroupInfo& group, const JobState& job);
// Throws IoError when the peer's call is not ours: other kind, number, type, counts or operator. The rank's notes in
// the job say so, too.
void check_same_call(const CallHeader& ours, const CallHeader& theirs, const GroupInfo& group, int peer,
                     const JobState& job);
// Throws IoError when the peer offers other bytes than we expect from it.
void check_same_bytes(const CallHeader& ours, const GroupInfo& group, int peer, int64_t expected, int64_t offered);
// Throws IoError unless a message from `peer` has our count and dtype; the rank's notes say so, too.
void check_message(const CallHeader& ours, const CallHeader& theirs, const GroupInfo& group, int peer,
                   const JobState& job);

}  // namespace tessera::comm
