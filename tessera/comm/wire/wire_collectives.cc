// The collectives of ranks that can only send each other messages. A large all_reduce is a reduce_scatter and an
// all_gather over balanced shares: each rank reduces its own share from all peers' bytes in rank order, so each element
// is added once, in one order.
#include <algorithm>

#include "tessera/base/integers.h"
#include "tessera/comm/group_calls.h"
#include "tessera/comm/reduce.h"
#include "tessera/comm/wire/wire_channel.h"

namespace tessera::comm {
namespace {

// Up to here every rank reads everything and reduces it all: one exchange instead of two.
constexpr int64_t kSmallBytes = 16 * 1024;

class WireCommunicator final : public GroupCalls {
 public:
  WireCommunicator(const GroupInfo& group, std::unique_ptr<Channel> channel)
      : GroupCalls(group),
        channel_(std::move(channel)),
        parts_(group.ranks.size()),
        expected_(group.ranks.size()),
        sources_(group.ranks.size()),
        small_(kSmallBytes) {}

  int64_t wait_without_deadline() override { return channel_->wait_without_deadline(); }
  int64_t deadline_ms() const override { return channel_->deadline_ms(); }
  JobState* job() override { return channel_->job(); }

 protected:
  void run_all_reduce(CallHeader& header, void* data, int64_t count) override {
    if (count * element(header) <= kSmallBytes) {
      all_reduce_small(header, data, count);
    } else {
      all_reduce_shares(header, data, count);
    }
  }

  void run_all_gather(CallHeader& header, const void* in, void* out, std::span<const int64_t> counts) override {
    const int64_t slice = channel_->max_exchange_bytes();
    header.num_rounds = num_rounds(*std::max_element(counts.begin(), counts.end()) * element(header), slice);
    for (uint32_t round = 0; round < header.num_rounds; ++round) {
      const int64_t begin = round * slice;
      const auto slice_of = [&](int r) { return part_bytes(counts[as_index(r)] * element(header), begin, slice); };
      int64_t offset = 0;
      for (int p = 0; p < size(); ++p) {
        parts_[as_index(p)] = {at(in, begin), slice_of(rank())};
        expected_[as_index(p)] = {slice_of(p), at(out, offset + begin)};
        offset += counts[as_index(p)] * element(header);
      }
      exchange(header);
      receive_from_all();
      channel_->end();
    }
  }

  void run_reduce_scatter(CallHeader& header, const void* in, void* out, std::span<const int64_t> counts) override {
    const int64_t mine = counts[as_index(rank())] * element(header);
    const int64_t offset = offset_of(counts, rank()) * element(header);
    const int64_t slice = per_peer_slice();
    header.num_rounds = num_rounds(*std::max_element(counts.begin(), counts.end()) * element(header), slice);
    for (uint32_t round = 0; round < header.num_rounds; ++round) {
      const int64_t begin = round * slice;
      const int64_t bytes = part_bytes(mine, begin, slice);
      int64_t part_offset = 0;
      for (int p = 0; p < size(); ++p) {
        const int64_t part = counts[as_index(p)] * element(header);
        parts_[as_index(p)] = {at(in, part_offset + begin), part_bytes(part, begin, slice)};
        expected_[as_index(p)] = {bytes};
        part_offset += part;
      }
      exchange(header);
      reduce_received(header, at(in, offset + begin), at(out, begin), bytes / element(header));
      channel_->end();
    }
  }

  void run_broadcast(CallHeader& header, void* data, int64_t count) override {
    const int root = header.root;
    const int64_t bytes = count * element(header);
    const int64_t slice = channel_->max_exchange_bytes();
    header.num_rounds = num_rounds(bytes, slice);
    for (uint32_t round = 0; round < header.num_rounds; ++round) {
      const int64_t begin = round * slice;
      const int64_t length = part_bytes(bytes, begin, slice);
      for (int p = 0; p < size(); ++p) {
        parts_[as_index(p)] = rank() == root ? Channel::Outgoing{at(data, begin), length} : Channel::Outgoing{};
        expected_[as_index(p)] = p == root ? Channel::Expected{length, at(data, begin)} : Channel::Expected{};
      }
      exchange(header);
      if (rank() != root) channel_->receive(root);
      channel_->end();
    }
  }

  void run_all_to_all(CallHeader& header, const void* in, std::span<const int64_t> in_counts, void* out,
                      std::span<const int64_t> out_counts) override {
    const int64_t largest = std::max(*std::max_element(in_counts.begin(), in_counts.end()),
                                     *std::max_element(out_counts.begin(), out_counts.end()));
    const int64_t slice = per_peer_slice();
    header.num_rounds = num_rounds(largest * element(header), slice);
    // Other pairs may have more to move than this rank; all ranks take part in as many exchanges as the longest needs.
    uint32_t rounds = header.num_rounds;
    for (uint32_t round = 0; round < rounds; ++round) {
      const int64_t begin = round * slice;
      int64_t in_offset = 0;
      int64_t out_offset = 0;
      for (int p = 0; p < size(); ++p) {
        const int64_t sent = in_counts[as_index(p)] * element(header);
        const int64_t received = out_counts[as_index(p)] * element(header);
        parts_[as_index(p)] = {at(in, in_offset + begin), part_bytes(sent, begin, slice)};
        expected_[as_index(p)] = {part_bytes(received, begin, slice), at(out, out_offset + begin)};
        in_offset += sent;
        out_offset += received;
      }
      exchange(header);
      receive_from_all();
      for (int p = 0; p < size(); ++p) {
        if (p != rank()) rounds = std::max(rounds, channel_->header_of(p).num_rounds);
      }
      channel_->end();
    }
  }

  void run_send(CallHeader& header, int to, const void* data, int64_t bytes) override {
    channel_->send_message(header, to, data, bytes);
  }

  void run_receive(CallHeader& header, int from, void* data, int64_t bytes) override {
    channel_->receive_message(header, from, data, bytes);
  }

  void run_barrier(CallHeader& header) override {
    all_parts(nullptr, 0);
    exchange(header);
    for (int p = 0; p < size(); ++p) {
      if (p != rank()) channel_->receive_view(p);
    }
    channel_->end();
  }

 private:
  static int64_t element(const CallHeader& header) { return static_cast<int64_t>(size_bytes(header.dtype)); }
  // What may go to each peer when all parts differ; whole for every element size.
  int64_t per_peer_slice() const { return channel_->max_exchange_bytes() / size() / 64 * 64; }

  void all_parts(const void* data, int64_t bytes) {
    for (int p = 0; p < size(); ++p) {
      parts_[as_index(p)] = {data, bytes};
      expected_[as_index(p)] = {bytes};
    }
  }
  // Starts with the next rank, so that not all read from the first one at once.
  void receive_from_all() {
    for (int i = 1; i < size(); ++i) channel_->receive((rank() + i) % size());
  }
  void exchange(const CallHeader& header) { channel_->begin(header, parts_, expected_); }

  void reduce_received(const CallHeader& header, const void* own, void* out, int64_t count) {
    for (int p = 0; p < size(); ++p) sources_[as_index(p)] = p == rank() ? own : channel_->receive_view(p);
    reduce_in_order(out, sources_, count, header.dtype, header.op);
  }

  void all_reduce_small(const CallHeader& header, void* data, int64_t count) {
    all_parts(data, count * element(header));
    exchange(header);
    reduce_received(header, data, small_.data(), count);
    channel_->end();  // our data has been sent and may now be replaced
    copy_bytes(data, small_.data(), count * element(header));
  }

  void all_reduce_shares(const CallHeader& header, void* data, int64_t count) {
    const int64_t slice = channel_->max_exchange_bytes() / element(header);
    for (int64_t begin = 0; begin < count; begin += slice) {
      const int64_t length = std::min(slice, count - begin);
      const auto offset = [&](int p) { return (begin + share_of(length, size(), p).begin) * element(header); };
      const auto bytes = [&](int p) { return share_of(length, size(), p).count() * element(header); };
      const int64_t mine = bytes(rank());
      std::byte* own = at(data, offset(rank()));
      for (int p = 0; p < size(); ++p) {
        parts_[as_index(p)] = {at(data, offset(p)), bytes(p)};
        expected_[as_index(p)] = {mine};
      }
      exchange(header);
      reduce_received(header, own, own, mine / element(header));
      channel_->end();
      for (int p = 0; p < size(); ++p) {
        parts_[as_index(p)] = {own, mine};
        expected_[as_index(p)] = {bytes(p), at(data, offset(p))};
      }
      exchange(header);
      receive_from_all();
      channel_->end();
    }
  }

  std::unique_ptr<Channel> channel_;
  std::vector<Channel::Outgoing> parts_;
  std::vector<Channel::Expected> expected_;
  std::vector<const void*> sources_;
  std::vector<std::byte> small_;  // no more than kSmallBytes are reduced in it
};

}  // namespace

std::unique_ptr<Communicator> make_wire_communicator(const GroupInfo& group, std::unique_ptr<Channel> channel) {
  return std::make_unique<WireCommunicator>(group, std::move(channel));
}

}  // namespace tessera::comm
