// Every collective of every transport. A large all_reduce is a reduce_scatter and an all_gather over balanced chunks:
// each rank reduces its own chunk from all peers' bytes in rank order, so each element is added once, in one order.
#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/comm/reduce.h"
#include "tessera/comm/transport.h"

namespace tessera::comm {
namespace {

// Up to here every rank reads everything and reduces it all: one exchange instead of two.
constexpr int64_t kSmallBytes = 16 * 1024;
// Chunk borders lie on whole cache lines for every dtype, so that no two ranks write one line.
constexpr int64_t kChunkElements = 64;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// An empty buffer may be null.
const std::byte* at(const void* data, int64_t offset) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + offset;
}
std::byte* at(void* data, int64_t offset) { return data == nullptr ? nullptr : static_cast<std::byte*>(data) + offset; }

void copy(void* to, const void* from, int64_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, static_cast<size_t>(bytes));
}

uint64_t hash_counts(std::span<const int64_t> counts) {
  uint64_t hash = 0xCBF29CE484222325U;
  for (const int64_t count : counts) hash = (hash ^ static_cast<uint64_t>(count)) * 0x100000001B3U;
  return hash;
}

class GroupCommunicator final : public Communicator {
 public:
  GroupCommunicator(const GroupInfo& group, std::unique_ptr<Channel> channel)
      : Communicator(group.name, group.rank, group.ranks),
        channel_(std::move(channel)),
        id_(group.id()),
        parts_(group.ranks.size()),
        expected_(group.ranks.size()),
        sources_(group.ranks.size()),
        sent_(group.ranks.size()),
        received_(group.ranks.size()),
        small_(kSmallBytes) {}

  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, std::string_view who) override {
    check_reducible(dtype, op, who);
    check_count(count, who);
    CallHeader header = make_header(CallKind::kAllReduce, count, dtype, who);
    header.op = op;
    const auto element = static_cast<int64_t>(size_bytes(dtype));
    run(header, [&] {
      if (count * element <= kSmallBytes) {
        all_reduce_small(header, data, count, element);
      } else {
        header.is_direct = channel_->is_direct(data, count * element);
        all_reduce_chunks(header, data, count, element);
      }
    });
  }

  void all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                  std::string_view who) override {
    check_counts(counts, who);
    const auto element = static_cast<int64_t>(size_bytes(dtype));
    CallHeader header = make_header(CallKind::kAllGather, total(counts), dtype, who);
    header.counts_hash = hash_counts(counts);
    const int64_t largest = *std::max_element(counts.begin(), counts.end()) * element;
    const int64_t slice = channel_ ? channel_->max_exchange_bytes() : largest;
    header.num_rounds = num_rounds(largest, slice);
    run(header, [&] {
      for (uint32_t round = 0; round < header.num_rounds; ++round) {
        const int64_t begin = round * slice;
        const auto slice_of = [&](int r) { return part_bytes(counts[static_cast<size_t>(r)] * element, begin, slice); };
        int64_t offset = 0;
        for (int p = 0; p < size(); ++p) {
          parts_[index(p)] = {at(in, begin), slice_of(rank())};
          expected_[index(p)] = {slice_of(p), at(out, offset + begin)};
          offset += counts[index(p)] * element;
        }
        exchange(header);
        receive_from_all();
        channel_->end();
      }
    });
    copy(at(out, offset_of(counts, rank()) * element), in, counts[index(rank())] * element);
  }

  void reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype, ReduceOp op,
                      std::string_view who) override {
    check_reducible(dtype, op, who);
    check_counts(counts, who);
    const auto element = static_cast<int64_t>(size_bytes(dtype));
    CallHeader header = make_header(CallKind::kReduceScatter, total(counts), dtype, who);
    header.op = op;
    header.counts_hash = hash_counts(counts);
    const int64_t mine = counts[index(rank())];
    const int64_t offset = offset_of(counts, rank()) * element;
    if (size() == 1) {
      copy(out, in, mine * element);
      return;
    }
    const int64_t largest = *std::max_element(counts.begin(), counts.end()) * element;
    const int64_t slice = per_peer_slice();
    header.num_rounds = num_rounds(largest, slice);
    run(header, [&] {
      for (uint32_t round = 0; round < header.num_rounds; ++round) {
        const int64_t begin = round * slice;
        const int64_t bytes = part_bytes(mine * element, begin, slice);
        int64_t part_offset = 0;
        for (int p = 0; p < size(); ++p) {
          parts_[index(p)] = {at(in, part_offset + begin), part_bytes(counts[index(p)] * element, begin, slice)};
          expected_[index(p)] = {bytes};
          part_offset += counts[index(p)] * element;
        }
        exchange(header);
        reduce_received(at(in, offset + begin), at(out, begin), bytes / element, dtype, op);
        channel_->end();
      }
    });
  }

  void broadcast(void* data, int64_t count, DType dtype, int root, std::string_view who) override {
    check_count(count, who);
    check_rank(root, "root", who);
    CallHeader header = make_header(CallKind::kBroadcast, count, dtype, who);
    header.root = root;
    const int64_t bytes = count * static_cast<int64_t>(size_bytes(dtype));
    run(header, [&] {
      const int64_t slice = channel_->max_exchange_bytes();
      header.num_rounds = num_rounds(bytes, slice);
      for (uint32_t round = 0; round < header.num_rounds; ++round) {
        const int64_t begin = round * slice;
        const int64_t length = part_bytes(bytes, begin, slice);
        for (int p = 0; p < size(); ++p) {
          parts_[index(p)] = rank() == root ? Channel::Part{at(data, begin), length} : Channel::Part{};
          expected_[index(p)] = p == root ? Channel::Expected{length, at(data, begin)} : Channel::Expected{};
        }
        exchange(header);
        if (rank() != root) channel_->receive(root);
        channel_->end();
      }
    });
  }

  void all_to_all(const void* in, std::span<const int64_t> in_counts, void* out, std::span<const int64_t> out_counts,
                  DType dtype, std::string_view who) override {
    check_counts(in_counts, who);
    check_counts(out_counts, who);
    const int me = rank();
    if (in_counts[index(me)] != out_counts[index(me)]) {
      throw InvalidArgument("{}: rank {} of the group sends itself {} elements but expects {}", who, me,
                            in_counts[index(me)], out_counts[index(me)]);
    }
    const auto element = static_cast<int64_t>(size_bytes(dtype));
    CallHeader header = make_header(CallKind::kAllToAll, 0, dtype, who);
    const int64_t largest = std::max(*std::max_element(in_counts.begin(), in_counts.end()),
                                     *std::max_element(out_counts.begin(), out_counts.end())) *
                            element;
    run(header, [&] {
      const int64_t slice = per_peer_slice();
      header.num_rounds = num_rounds(largest, slice);
      // Other pairs may have more to move than this rank; all ranks take part in as many exchanges as the longest
      // needs.
      uint32_t rounds = header.num_rounds;
      for (uint32_t round = 0; round < rounds; ++round) {
        const int64_t begin = round * slice;
        int64_t in_offset = 0;
        int64_t out_offset = 0;
        for (int p = 0; p < size(); ++p) {
          parts_[index(p)] = {at(in, in_offset + begin), part_bytes(in_counts[index(p)] * element, begin, slice)};
          expected_[index(p)] = {part_bytes(out_counts[index(p)] * element, begin, slice), at(out, out_offset + begin)};
          in_offset += in_counts[index(p)] * element;
          out_offset += out_counts[index(p)] * element;
        }
        exchange(header);
        receive_from_all();
        for (int p = 0; p < size(); ++p) {
          if (p != me) rounds = std::max(rounds, channel_->header_of(p).num_rounds);
        }
        channel_->end();
      }
    });
    copy(at(out, offset_of(out_counts, me) * element), at(in, offset_of(in_counts, me) * element),
         in_counts[index(me)] * element);
  }

  void send(const void* data, int64_t count, DType dtype, int to, std::string_view who) override {
    check_count(count, who);
    check_peer(to, who);
    CallHeader header = make_header(CallKind::kSend, count, dtype, who.empty() ? "send" : who);
    header.sequence = ++sent_[index(to)];
    guard([&] { channel_->send_message(header, to, data, count * static_cast<int64_t>(size_bytes(dtype))); });
  }

  void receive(void* data, int64_t count, DType dtype, int from, std::string_view who) override {
    check_count(count, who);
    check_peer(from, who);
    CallHeader header = make_header(CallKind::kSend, count, dtype, who.empty() ? "receive" : who);
    header.sequence = ++received_[index(from)];
    guard([&] { channel_->receive_message(header, from, data, count * static_cast<int64_t>(size_bytes(dtype))); });
  }

  void barrier(std::string_view who) override {
    CallHeader header = make_header(CallKind::kBarrier, 0, DType::kU8, who);
    run(header, [&] {
      all_parts(nullptr, 0);
      exchange(header);
      for (int p = 0; p < size(); ++p) {
        if (p != rank()) channel_->receive_view(p);
      }
      channel_->end();
    });
  }

 private:
  static size_t index(int rank) { return static_cast<size_t>(rank); }
  static int64_t total(std::span<const int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), int64_t{0});
  }
  static int64_t offset_of(std::span<const int64_t> counts, int rank) { return total(counts.first(index(rank))); }
  static uint32_t num_rounds(int64_t bytes, int64_t slice) {
    return static_cast<uint32_t>(std::max<int64_t>(1, bytes == 0 ? 1 : divide_up(bytes, slice)));
  }
  // Bytes of a part of `bytes` that lie in [begin, begin + slice).
  static int64_t part_bytes(int64_t bytes, int64_t begin, int64_t slice) {
    return std::clamp<int64_t>(bytes - begin, 0, slice);
  }
  // What may go to each peer when all parts differ; whole for every element size.
  int64_t per_peer_slice() const { return channel_->max_exchange_bytes() / size() / 64 * 64; }

  CallHeader make_header(CallKind kind, int64_t count, DType dtype, std::string_view who) const {
    CallHeader header;
    header.group = id_;
    header.kind = kind;
    header.count = count;
    header.dtype = dtype;
    header.set_who(who);
    return header;
  }

  template <typename F>
  void guard(F&& body) {
    if (broken_) std::rethrow_exception(broken_);
    try {
      body();
    } catch (...) {
      broken_ = std::current_exception();
      throw;
    }
  }
  // Numbers the call; a group of one rank has nothing to exchange.
  template <typename F>
  void run(CallHeader& header, F&& body) {
    header.sequence = ++sequence_;
    if (size() == 1) return;
    guard(body);
  }

  void all_parts(const void* data, int64_t bytes) {
    for (int p = 0; p < size(); ++p) {
      parts_[index(p)] = {data, bytes};
      expected_[index(p)] = {bytes};
    }
  }
  // Starts with the next rank, so that not all read from the first one at once.
  void receive_from_all() {
    for (int i = 1; i < size(); ++i) channel_->receive((rank() + i) % size());
  }
  void exchange(const CallHeader& header) { channel_->begin(header, parts_, expected_); }

  void reduce_received(const void* own, void* out, int64_t count, DType dtype, ReduceOp op) {
    for (int p = 0; p < size(); ++p) sources_[index(p)] = p == rank() ? own : channel_->receive_view(p);
    reduce_in_order(out, sources_, count, dtype, op);
  }

  void all_reduce_small(const CallHeader& header, void* data, int64_t count, int64_t element) {
    all_parts(data, count * element);
    exchange(header);
    reduce_received(data, small_.data(), count, header.dtype, header.op);
    channel_->end();  // peers have read our data, which may now be replaced
    copy(data, small_.data(), count * element);
  }

  void all_reduce_chunks(const CallHeader& header, void* data, int64_t count, int64_t element) {
    const int64_t slice = std::min(count, channel_->max_exchange_bytes() / element / kChunkElements * kChunkElements);
    bool is_all_direct = header.is_direct;
    int64_t length = 0;
    for (int64_t begin = 0; begin < count; begin += length) {
      // Once the first slice has told that all ranks' data is direct, the rest needs no staging: one slice.
      length = begin > 0 && is_all_direct ? count - begin : std::min(slice, count - begin);
      const int64_t chunk = divide_up(divide_up(length, size()), kChunkElements) * kChunkElements;
      const auto offset = [&](int p) { return (begin + std::min(length, p * chunk)) * element; };
      const auto bytes = [&](int p) { return offset(p + 1) - offset(p); };
      const int64_t mine = bytes(rank());
      std::byte* own = at(data, offset(rank()));
      for (int p = 0; p < size(); ++p) {
        parts_[index(p)] = {at(data, offset(p)), bytes(p)};
        expected_[index(p)] = {mine};
      }
      exchange(header);
      reduce_received(own, own, mine / element, header.dtype, header.op);  // peers read the other chunks only
      for (int p = 0; p < size(); ++p) is_all_direct &= p == rank() || channel_->header_of(p).is_direct;
      channel_->end();
      for (int p = 0; p < size(); ++p) {
        parts_[index(p)] = {own, mine};
        expected_[index(p)] = {bytes(p), at(data, offset(p))};
      }
      exchange(header);
      receive_from_all();
      channel_->end();
    }
  }

  void check_count(int64_t count, std::string_view who) const {
    if (count < 0) throw InvalidArgument("{}: the count must not be negative, got {}", who, count);
  }
  void check_counts(std::span<const int64_t> counts, std::string_view who) const {
    if (counts.size() != ranks().size()) {
      throw InvalidArgument("{}: group \"{}\" has {} ranks, but {} counts are given", who, name(), size(),
                            counts.size());
    }
    for (const int64_t count : counts) check_count(count, who);
  }
  void check_rank(int rank, std::string_view role, std::string_view who) const {
    if (rank < 0 || rank >= size()) {
      throw InvalidArgument("{}: {} {} is no rank of group \"{}\", which has {}", who, role, rank, name(), size());
    }
  }
  void check_peer(int peer, std::string_view who) const {
    check_rank(peer, "peer", who);
    if (peer == rank()) throw InvalidArgument("{}: rank {} of group \"{}\" names itself as peer", who, peer, name());
  }

  std::unique_ptr<Channel> channel_;
  uint64_t id_;
  uint64_t sequence_ = 0;
  std::exception_ptr broken_;
  std::vector<Channel::Part> parts_;
  std::vector<Channel::Expected> expected_;
  std::vector<const void*> sources_;
  std::vector<uint64_t> sent_;
  std::vector<uint64_t> received_;
  std::vector<std::byte> small_;  // no more than kSmallBytes are reduced in it
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(const GroupInfo& group, std::unique_ptr<Channel> channel) {
  check(channel != nullptr || group.ranks.size() == 1, "a group of several ranks needs a channel");
  return std::make_unique<GroupCommunicator>(group, std::move(channel));
}

}  // namespace tessera::comm
