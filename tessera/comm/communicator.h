// Communicator: one rank's end of an ordered group of ranks, with the collectives that the group can do together.
//
// Every rank of the group must make the same calls in the same order; each call has a sequence number, and a peer that
// makes another call, or none before the deadline, is named in an IoError: who waited for whom, in which group, at
// which number and operator. After an error the communicator is broken: every later call throws the same error at once.
// A call blocks until this rank's part is done. Used from one thread at a time; different communicators may be used
// from different threads.
//
// Reductions add in the order of the group's ranks within a host, then by host: a result's bits depend on no transport
// and no run; bf16 and f16 are added in f32, rounded once for each. Buffers are dense; counts are elements, may differ
// between ranks and be 0. No call allocates after the first of its kind and size.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/reduce_op.h"

namespace tessera::comm {

class JobState;

using tessera::parse_reduce_op;
using tessera::ReduceOp;

class Communicator {
 public:
  virtual ~Communicator() = default;

  const std::string& name() const { return name_; }
  int rank() const { return rank_; }  // within the group
  int size() const { return static_cast<int>(ranks_.size()); }
  const std::vector<int>& ranks() const { return ranks_; }  // world rank of each group rank

  // Works in place: data[i] becomes the reduction over the ranks of data[i]. `who` names the operator in errors; in
  // collectives it is equal on all ranks, as the counts and types are, and its first 59 bytes are compared.
  virtual void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, std::string_view who) = 0;
  // out = the ranks' inputs one after the other; counts[r] elements come from group rank r. `in` may lie at its own
  // place in `out`.
  virtual void all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                          std::string_view who) = 0;
  // out = this rank's part (counts[rank] elements) of the reduction of all inputs (sum of counts elements each). `out`
  // may lie at its own place in `in`.
  virtual void reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype, ReduceOp op,
                              std::string_view who) = 0;
  // Works in place: every rank gets root's data.
  virtual void broadcast(void* data, int64_t count, DType dtype, int root, std::string_view who) = 0;
  // Part r of `in` (in_counts[r] elements, parts one after the other) goes to group rank r; out receives likewise.
  virtual void all_to_all(const void* in, std::span<const int64_t> in_counts, void* out,
                          std::span<const int64_t> out_counts, DType dtype, std::string_view who) = 0;
  // These two go from one rank to another; they are matched in order per pair of ranks.
  virtual void send(const void* data, int64_t count, DType dtype, int to, std::string_view who) = 0;
  virtual void receive(void* data, int64_t count, DType dtype, int from, std::string_view who) = 0;
  virtual void barrier(std::string_view who) = 0;

  // The calls come from a thread beside those that compute: while it waits for a peer, the core is theirs.
  virtual void share_core() {}

  // From now on a wait of this group ends when the peer answers, fails or leaves, however long that takes, and nobody
  // speaks of it: a peer may have nothing to say for as long as it likes. To be called before the group's first call.
  // Returns the deadline that waits had, in milliseconds; 0 where nobody is waited for.
  virtual int64_t wait_without_deadline() { return 0; }
  // The deadline that waits have, in milliseconds; 0 where nobody is waited for.
  virtual int64_t deadline_ms() const { return 0; }

  // What this process knows of the job's other ranks, for waits that are no call of a group; null in a group of one
  // rank.
  virtual JobState* job() { return nullptr; }

  // Who makes a rank's calls, so that ranks which wait for each other in two groups hear of it. Those of a main group
  // come from one thread of the rank; those of a driven group from that thread, or from others for which it waits
  // before it makes its next call in a main group.
  enum class Driver { kUnknown, kMain, kDriven };
  virtual void set_driver(Driver) {}

 protected:
  Communicator(std::string name, int rank, std::vector<int> ranks)
      : name_(std::move(name)), rank_(rank), ranks_(std::move(ranks)) {}

 private:
  std::string name_;
  int rank_;
  std::vector<int> ranks_;
};

}  // namespace tessera::comm
