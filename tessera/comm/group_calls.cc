#include "tessera/comm/group_calls.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/comm/reduce.h"

namespace tessera::comm {
namespace {

constexpr int64_t kShareElements = 64;

uint64_t hash_counts(std::span<const int64_t> counts) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const int64_t count : counts) hash = (hash ^ static_cast<uint64_t>(count)) * 0x100000001B3U;
  return hash;
}

class SingleCommunicator final : public GroupCalls {
 public:
  using GroupCalls::GroupCalls;

 protected:
  void run_all_reduce(CallHeader&, void*, int64_t) override {}
  void run_all_gather(CallHeader&, const void*, void*, std::span<const int64_t>) override {}
  void run_reduce_scatter(CallHeader&, const void*, void*, std::span<const int64_t>) override {}
  void run_broadcast(CallHeader&, void*, int64_t) override {}
  void run_all_to_all(CallHeader&, const void*, std::span<const int64_t>, void*, std::span<const int64_t>) override {}
  void run_barrier(CallHeader&) override {}
  void run_send(CallHeader&, int, const void*, int64_t) override {}
  void run_receive(CallHeader&, int, void*, int64_t) override {}
};

}  // namespace

GroupCalls::GroupCalls(const GroupInfo& group)
    : Communicator(group.name, group.rank, group.ranks),
      id_(group.id()),
      sent_(group.ranks.size()),
      received_(group.ranks.size()) {}

template <typename F>
void GroupCalls::guard(F&& body) {
  if (broken_) std::rethrow_exception(broken_);
  try {
    body();
  } catch (...) {
    broken_ = std::current_exception();
    abandon();
    throw;
  }
}

// Numbers the call; a group of one rank has nothing to exchange.
template <typename F>
void GroupCalls::run(CallHeader& header, F&& body) {
  header.sequence = ++sequence_;
  if (size() == 1) return;
  guard(body);
}

void GroupCalls::all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, std::string_view who) {
  check_reducible(dtype, op, who);
  check_count(count, who);
  CallHeader header = make_header(CallKind::kAllReduce, count, dtype, who);
  header.op = op;
  run(header, [&] { run_all_reduce(header, data, count); });
}

void GroupCalls::all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                            std::string_view who) {
  check_counts(counts, who);
  CallHeader header = make_header(CallKind::kAllGather, total(counts), dtype, who);
  header.counts_hash = hash_counts(counts);
  run(header, [&] { run_all_gather(header, in, out, counts); });
  const auto element = static_cast<int64_t>(size_bytes(dtype));
  copy_bytes(at(out, offset_of(counts, rank()) * element), in, counts[as_index(rank())] * element);
}

void GroupCalls::reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype, ReduceOp op,
                                std::string_view who) {
  check_reducible(dtype, op, who);
  check_counts(counts, who);
  CallHeader header = make_header(CallKind::kReduceScatter, total(counts), dtype, who);
  header.op = op;
  header.counts_hash = hash_counts(counts);
  run(header, [&] { run_reduce_scatter(header, in, out, counts); });
  if (size() == 1) copy_bytes(out, in, counts[0] * static_cast<int64_t>(size_bytes(dtype)));
}

void GroupCalls::broadcast(void* data, int64_t count, DType dtype, int root, std::string_view who) {
  check_count(count, who);
  check_rank(root, "root", who);
  CallHeader header = make_header(CallKind::kBroadcast, count, dtype, who);
  header.root = root;
  run(header, [&] { run_broadcast(header, data, count); });
}

void GroupCalls::all_to_all(const void* in, std::span<const int64_t> in_counts, void* out,
                            std::span<const int64_t> out_counts, DType dtype, std::string_view who) {
  check_counts(in_counts, who);
  check_counts(out_counts, who);
  const int me = rank();
  if (in_counts[as_index(me)] != out_counts[as_index(me)]) {
    throw InvalidArgument("{}: rank {} of the group sends itself {} elements but expects {}", who, me,
                          in_counts[as_index(me)], out_counts[as_index(me)]);
  }
  CallHeader header = make_header(CallKind::kAllToAll, 0, dtype, who);
  run(header, [&] { run_all_to_all(header, in, in_counts, out, out_counts); });
  const auto element = static_cast<int64_t>(size_bytes(dtype));
  copy_bytes(at(out, offset_of(out_counts, me) * element), at(in, offset_of(in_counts, me) * element),
             in_counts[as_index(me)] * element);
}

void GroupCalls::send(const void* data, int64_t count, DType dtype, int to, std::string_view who) {
  check_count(count, who);
  check_peer(to, who);
  CallHeader header = make_header(CallKind::kSend, count, dtype, who.empty() ? "send" : who);
  header.sequence = ++sent_[as_index(to)];
  guard([&] { run_send(header, to, data, count * static_cast<int64_t>(size_bytes(dtype))); });
}

void GroupCalls::receive(void* data, int64_t count, DType dtype, int from, std::string_view who) {
  CallHeader header = begin_receive(count, dtype, from, who);
  guard([&] { run_receive(header, from, data, count * static_cast<int64_t>(size_bytes(dtype))); });
}

void GroupCalls::receive_taken(const StretchReceiver::Take& take, int64_t count, DType dtype, int from,
                               std::string_view who) {
  CallHeader header = begin_receive(count, dtype, from, who);
  guard([&] { run_receive_taken(header, from, take, count * static_cast<int64_t>(size_bytes(dtype))); });
}

void GroupCalls::run_receive_taken(CallHeader&, int, const StretchReceiver::Take&, int64_t) {
  check(false, "a communicator hands over no stretches of messages");
}

CallHeader GroupCalls::begin_receive(int64_t count, DType dtype, int from, std::string_view who) {
  check_count(count, who);
  check_peer(from, who);
  CallHeader header = make_header(CallKind::kSend, count, dtype, who.empty() ? "receive" : who);
  header.sequence = ++received_[as_index(from)];
  return header;
}

void GroupCalls::barrier(std::string_view who) {
  CallHeader header = make_header(CallKind::kBarrier, 0, DType::kU8, who);
  run(header, [&] { run_barrier(header); });
}

CallHeader GroupCalls::make_header(CallKind kind, int64_t count, DType dtype, std::string_view who) const {
  CallHeader header;
  header.group = id_;
  header.kind = kind;
  header.count = count;
  header.dtype = dtype;
  header.set_who(who);
  return header;
}

void GroupCalls::check_count(int64_t count, std::string_view who) const {
  if (count < 0) throw InvalidArgument("{}: the count must not be negative, got {}", who, count);
}

void GroupCalls::check_counts(std::span<const int64_t> counts, std::string_view who) const {
  if (counts.size() != ranks().size()) {
    throw InvalidArgument("{}: group \"{}\" has {} ranks, but {} counts are given", who, name(), size(), counts.size());
  }
  for (const int64_t count : counts) check_count(count, who);
}

void GroupCalls::check_rank(int rank, std::string_view role, std::string_view who) const {
  if (rank < 0 || rank >= size()) {
    throw InvalidArgument("{}: {} {} is no rank of group \"{}\", which has {}", who, role, rank, name(), size());
  }
}

void GroupCalls::check_peer(int peer, std::string_view who) const {
  check_rank(peer, "peer", who);
  if (peer == rank()) throw InvalidArgument("{}: rank {} of group \"{}\" names itself as peer", who, peer, name());
}

std::unique_ptr<Communicator> make_single_communicator(const GroupInfo& group) {
  check(group.ranks.size() == 1, "a group of several ranks needs a transport");
  return std::make_unique<SingleCommunicator>(group);
}

int64_t total(std::span<const int64_t> counts) { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }

uint32_t num_rounds(int64_t bytes, int64_t slice) {
  return static_cast<uint32_t>(std::max<int64_t>(1, divide_up(bytes, slice)));
}

int64_t part_bytes(int64_t bytes, int64_t begin, int64_t slice) { return std::clamp<int64_t>(bytes - begin, 0, slice); }

const std::byte* at(const void* data, int64_t offset) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + offset;
}

std::byte* at(void* data, int64_t offset) { return data == nullptr ? nullptr : static_cast<std::byte*>(data) + offset; }

void copy_bytes(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

Share share_of(int64_t count, int size, int rank) {
  const int64_t length = divide_up(divide_up(count, size), kShareElements) * kShareElements;
  return {std::min(count, rank * length), std::min(count, (rank + 1) * length)};
}

}  // namespace tessera::comm
