// GroupCalls: what the communicators of all transports have in common. It checks arguments, numbers the calls, and
// after an error fails every further call alike; how bytes move is a transport's own business, below.
#pragma once

#include <exception>
#include <vector>

#include "tessera/base/integers.h"
#include "tessera/comm/communicator.h"
#include "tessera/comm/stretch_receiver.h"
#include "tessera/comm/transport.h"

namespace tessera::comm {

class GroupCalls : public Communicator {
 public:
  explicit GroupCalls(const GroupInfo& group);

  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, std::string_view who) final;
  void all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype, std::string_view who) final;
  void reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype, ReduceOp op,
                      std::string_view who) final;
  void broadcast(void* data, int64_t count, DType dtype, int root, std::string_view who) final;
  void all_to_all(const void* in, std::span<const int64_t> in_counts, void* out, std::span<const int64_t> out_counts,
                  DType dtype, std::string_view who) final;
  void send(const void* data, int64_t count, DType dtype, int to, std::string_view who) final;
  void receive(void* data, int64_t count, DType dtype, int from, std::string_view who) final;
  void barrier(std::string_view who) final;

 protected:
  // The calls of a group of several ranks, as Communicator says; arguments are right, the header is filled. What a
  // rank keeps of its own part is copied here and not there.
  virtual void run_all_reduce(CallHeader& header, void* data, int64_t count) = 0;
  virtual void run_all_gather(CallHeader& header, const void* in, void* out, std::span<const int64_t> counts) = 0;
  virtual void run_reduce_scatter(CallHeader& header, const void* in, void* out, std::span<const int64_t> counts) = 0;
  virtual void run_broadcast(CallHeader& header, void* data, int64_t count) = 0;
  virtual void run_all_to_all(CallHeader& header, const void* in, std::span<const int64_t> in_counts, void* out,
                              std::span<const int64_t> out_counts) = 0;
  virtual void run_barrier(CallHeader& header) = 0;
  virtual void run_send(CallHeader& header, int to, const void* data, int64_t bytes) = 0;
  virtual void run_receive(CallHeader& header, int from, void* data, int64_t bytes) = 0;
  // After a call has failed, before its error is thrown: no peer may use this rank's memory from here on.
  virtual void abandon() {}
  // For communicators that are a StretchReceiver: receive_stretches(), and the transport's part of it.
  void receive_taken(const StretchReceiver::Take& take, int64_t count, DType dtype, int from, std::string_view who);
  virtual void run_receive_taken(CallHeader& header, int from, const StretchReceiver::Take& take, int64_t bytes);

 private:
  CallHeader make_header(CallKind kind, int64_t count, DType dtype, std::string_view who) const;
  void check_count(int64_t count, std::string_view who) const;
  void check_counts(std::span<const int64_t> counts, std::string_view who) const;
  void check_rank(int rank, std::string_view role, std::string_view who) const;
  void check_peer(int peer, std::string_view who) const;
  CallHeader begin_receive(int64_t count, DType dtype, int from, std::string_view who);
  template <typename F>
  void guard(F&& body);
  template <typename F>
  void run(CallHeader& header, F&& body);

  uint64_t id_;
  uint64_t sequence_ = 0;
  std::exception_ptr broken_;
  std::vector<uint64_t> sent_;
  std::vector<uint64_t> received_;
};

// A group of one rank, which has nobody to talk to.
std::unique_ptr<Communicator> make_single_communicator(const GroupInfo& group);

// Helpers of the transports' collectives -----------------------------------------------------------------------------

// Elements of all ranks together, and of those before `rank`.
int64_t total(std::span<const int64_t> counts);
inline int64_t offset_of(std::span<const int64_t> counts, int rank) { return total(counts.first(as_index(rank))); }
// Pieces of `slice` bytes that `bytes` are moved in; at least one.
uint32_t num_rounds(int64_t bytes, int64_t slice);
// Bytes of a part of `bytes` that lie in [begin, begin + slice).
int64_t part_bytes(int64_t bytes, int64_t begin, int64_t slice);
// data + offset; an empty buffer may be null.
const std::byte* at(const void* data, int64_t offset);
std::byte* at(void* data, int64_t offset);
void copy_bytes(void* to, const void* from, int64_t bytes);

// The balanced share [begin, end) of `count` elements that a rank of `size` reduces. Borders lie on whole cache lines
// of a buffer that begins on one, so that no two ranks write one line.
struct Share {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t count() const { return end - begin; }
};
Share share_of(int64_t count, int size, int rank);

}  // namespace tessera::comm
