// The collectives of ranks that share memory. Bytes that peers can reach are read, and the results of an all_reduce
// written, where they lie: each rank reduces its share from all buffers in rank order into all buffers. Other bytes
// pass through the slots of the board in rounds; a rank fills the next round's slot before it waits for its peers.
#include <unistd.h>

#include <algorithm>

#include "tessera/base/integers.h"
#include "tessera/comm/group_calls.h"
#include "tessera/comm/memory/board.h"
#include "tessera/comm/reduce.h"

namespace tessera::comm {
namespace {

// Up to here all bytes go through the slots in one round: waiting once costs less than reading in place.
constexpr int64_t kSmallBytes = kMinSlotBytes;

// Buffers that together do not fit into the last cache are written past it. While they fit, the next to read a result
// finds it there: on a machine with a large cache this is three times as fast.
int64_t last_cache_bytes() {
  const int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? bytes : int64_t{32} << 20;
}

class BoardCommunicator final : public GroupCalls, public StretchReceiver {
 public:
  BoardCommunicator(const GroupInfo& group, std::unique_ptr<Board> board)
      : GroupCalls(group),
        group_(group),
        board_(std::move(board)),
        peers_(group.ranks.size()),
        sources_(group.ranks.size()),
        outs_(group.ranks.size()) {}

  void share_core() override { board_->share_core(); }
  int64_t wait_without_deadline() override { return board_->wait_without_deadline(); }
  int64_t deadline_ms() const override { return board_->deadline_ms(); }
  JobState* job() override { return &board_->job(); }
  void set_driver(Driver driver) override { board_->set_driver(driver); }
  bool is_in_reach(const void* data, int64_t bytes) const override { return board_->publish(data, bytes).has_value(); }
  void receive_stretches(const Take& take, int64_t count, DType dtype, int from, std::string_view who) override {
    receive_taken(take, count, dtype, from, who);
  }

 protected:
  void run_all_reduce(CallHeader& header, void* data, int64_t count) override {
    if (count * element(header) <= kSmallBytes) {
      all_reduce_small(header, data, count);
    } else {
      all_reduce_shares(header, data, count);
    }
  }

  void run_all_gather(CallHeader& header, const void* in, void* out, std::span<const int64_t> counts) override {
    const int64_t own = counts[as_index(rank())] * element(header);
    const int64_t largest = *std::max_element(counts.begin(), counts.end()) * element(header);
    slice_ = board_->slot_bytes();
    header.num_rounds = num_rounds(largest, slice_);
    const uint64_t address = largest <= kSmallBytes ? stage(header) : publish(header, in, own);
    exchange(
        header,
        [&](uint32_t step, uint32_t round) {
          BoardPart part{address, own};
          if (!header.is_direct) {
            part = {0, part_bytes(own, round * slice_, slice_)};
            copy_bytes(board_->slot(rank(), step), at(in, round * slice_), part.bytes);
          }
          for (int p = 0; p < size(); ++p) board_->offer(step, p, part);
        },
        [&](uint32_t step, uint32_t round) {
          for (int i = 1; i < size(); ++i) {
            const int p = (rank() + i) % size();
            fetch(header, step, round, p, at(out, offset_of(counts, p) * element(header)),
                  counts[as_index(p)] * element(header));
          }
          board_->close(step);
        });
    if (header.is_direct) await_close_of_all();
  }

  void run_reduce_scatter(CallHeader& header, const void* in, void* out, std::span<const int64_t> counts) override {
    const int64_t own = counts[as_index(rank())] * element(header);
    const int64_t own_offset = offset_of(counts, rank()) * element(header);
    const int64_t all = total(counts) * element(header);
    slice_ = per_peer_slice();
    header.num_rounds = num_rounds(*std::max_element(counts.begin(), counts.end()) * element(header), slice_);
    const bool is_small = all <= kSmallBytes && header.num_rounds == 1;
    const uint64_t address = is_small ? stage(header) : publish(header, in, all);
    exchange(
        header,
        [&](uint32_t step, uint32_t round) {
          offer_parts(header, step, round, in, address, [&](int p) { return counts[as_index(p)] * element(header); });
        },
        [&](uint32_t step, uint32_t round) {
          const Range range = range_of(own, round);
          for (int p = 0; p < size(); ++p) {
            sources_[as_index(p)] = p == rank() ? at(in, own_offset + range.begin) : view(header, step, round, p, own);
          }
          outs_[0] = at(out, range.begin);
          reduce_in_order(std::span(outs_).first(1), sources_, range.bytes / element(header), header.dtype, header.op);
          board_->close(step);
        });
    if (header.is_direct) await_close_of_all();
  }

  void run_broadcast(CallHeader& header, void* data, int64_t count) override {
    const int64_t bytes = count * element(header);
    const bool is_root = rank() == header.root;
    slice_ = board_->slot_bytes();
    header.num_rounds = num_rounds(bytes, slice_);
    header.is_direct = true;  // of those who offer nothing
    uint64_t address = 0;
    if (is_root) address = bytes <= kSmallBytes ? stage(header) : publish(header, data, bytes);
    exchange(
        header,
        [&](uint32_t step, uint32_t round) {
          BoardPart part{address, is_root ? bytes : 0};
          if (!header.is_direct) {
            part = {0, part_bytes(bytes, round * slice_, slice_)};
            copy_bytes(board_->slot(rank(), step), at(data, round * slice_), part.bytes);
          }
          for (int p = 0; p < size(); ++p) board_->offer(step, p, part);
        },
        [&](uint32_t step, uint32_t round) {
          if (!is_root) fetch(header, step, round, header.root, data, bytes);
          board_->close(step);
        });
    if (is_root && header.is_direct) await_close_of_all();
  }

  void run_all_to_all(CallHeader& header, const void* in, std::span<const int64_t> in_counts, void* out,
                      std::span<const int64_t> out_counts) override {
    const int64_t largest = *std::max_element(in_counts.begin(), in_counts.end()) * element(header);
    slice_ = per_peer_slice();
    // Other ranks may have more to move; all take part in as many rounds as the longest needs.
    header.num_rounds = num_rounds(largest, slice_);
    const uint64_t address = publish(header, in, total(in_counts) * element(header));
    exchange(
        header,
        [&](uint32_t step, uint32_t round) {
          offer_parts(header, step, round, in, address,
                      [&](int p) { return in_counts[as_index(p)] * element(header); });
        },
        [&](uint32_t step, uint32_t round) {
          for (int i = 1; i < size(); ++i) {
            const int p = (rank() + i) % size();
            fetch(header, step, round, p, at(out, offset_of(out_counts, p) * element(header)),
                  out_counts[as_index(p)] * element(header));
          }
          board_->close(step);
        });
    if (header.is_direct) await_close_of_all();
  }

  void run_barrier(CallHeader& header) override {
    exchange(
        header, [](uint32_t, uint32_t) {}, [&](uint32_t step, uint32_t) { board_->close(step); });
  }

  void abandon() override { board_->abandon(); }

  void run_send(CallHeader& header, int to, const void* data, int64_t bytes) override {
    board_->send_message(header, to, data, bytes);
  }

  void run_receive(CallHeader& header, int from, void* data, int64_t bytes) override {
    board_->receive_message(header, from, data, bytes);
  }

  void run_receive_taken(CallHeader& header, int from, const Take& take, int64_t bytes) override {
    board_->receive_message(header, from, take, bytes);
  }

 private:
  struct Peer {
    bool is_direct = false;
    std::byte* bytes = nullptr;  // of one that is direct: what it offers us
  };
  // Bytes of a part that move in one round.
  struct Range {
    int64_t begin = 0;
    int64_t bytes = 0;
  };

  static int64_t element(const CallHeader& header) { return static_cast<int64_t>(size_bytes(header.dtype)); }
  // What a slot holds for each peer when all parts differ; whole for every element size.
  int64_t per_peer_slice() const { return board_->slot_bytes() / size() / 64 * 64; }

  // Sets whether peers reach the bytes where they lie, and gives their address.
  uint64_t publish(CallHeader& header, const void* data, int64_t bytes) {
    const auto address = bytes == 0 ? std::optional<uint64_t>(0) : board_->publish(data, bytes);
    header.is_direct = address.has_value();
    return address.value_or(0);
  }
  static uint64_t stage(CallHeader& header) {
    header.is_direct = false;
    return 0;
  }

  // All rounds of a call. `fill(step, round)` offers this rank's bytes and fills its slot where they are copied;
  // `use(step, round)` takes what the peers offer and closes the step. Where all ranks are direct one round moves all.
  template <typename Fill, typename Use>
  void exchange(const CallHeader& header, Fill&& fill, Use&& use) {
    uint32_t num_posted = 0;
    const auto post = [&] {
      const uint32_t step = board_->open(header);
      fill(step, num_posted++);
      board_->post(step, header);
      return step;
    };
    uint32_t rounds = header.num_rounds;
    all_direct_ = header.is_direct;
    bool any_direct = false;  // of the peers
    last_step_ = post();
    for (uint32_t round = 0;; ++round) {
      const uint32_t step = last_step_;
      if (!header.is_direct && num_posted < header.num_rounds) last_step_ = post();
      for (int i = 1; i < size(); ++i) {
        const int p = (rank() + i) % size();
        const Posted& theirs = board_->await_post(step, p);
        if (round > 0) continue;
        peers_[as_index(p)].is_direct = theirs.is_direct;
        all_direct_ = all_direct_ && theirs.is_direct;
        any_direct = any_direct || theirs.is_direct;
        rounds = std::max(rounds, theirs.num_rounds);
      }
      if (all_direct_) rounds = 1;
      if (num_posted <= round + 1 && num_posted < rounds) last_step_ = post();
      if (any_direct) board_->begin_work();
      use(step, round);
      if (round + 1 >= rounds) return;
    }
  }

  Range range_of(int64_t bytes, uint32_t round) const {
    if (all_direct_) return {0, bytes};
    const int64_t begin = std::min(bytes, round * slice_);
    return {begin, part_bytes(bytes, begin, slice_)};
  }

  // What `peer` offers us in this round, of `bytes` altogether.
  std::byte* view(const CallHeader& header, uint32_t step, uint32_t round, int peer, int64_t bytes) {
    Peer& from = peers_[as_index(peer)];
    const BoardPart& part = board_->part_from(step, peer);
    const Range range = range_of(bytes, round);
    if (!from.is_direct) {
      check_same_bytes(header, group_, peer, range.bytes, part.bytes);
      board_->pass_link(step, peer, range.bytes);
      return board_->slot(peer, step) + part.address;
    }
    if (round == 0) {
      check_same_bytes(header, group_, peer, bytes, part.bytes);
      from.bytes = bytes == 0 ? nullptr : board_->resolve(peer, part.address, bytes);
    }
    board_->pass_link(step, peer, range.bytes);
    return at(from.bytes, range.begin);
  }

  void fetch(const CallHeader& header, uint32_t step, uint32_t round, int peer, void* into, int64_t bytes) {
    const Range range = range_of(bytes, round);
    const std::byte* from = view(header, step, round, peer, bytes);
    copy_bytes(at(into, range.begin), from, range.bytes);
  }

  // A part for each peer, one after the other in `data`.
  template <typename Bytes>
  void offer_parts(const CallHeader& header, uint32_t step, uint32_t round, const void* data, uint64_t address,
                   Bytes&& bytes_for) {
    int64_t offset = 0;
    for (int p = 0; p < size(); ++p) {
      const int64_t bytes = bytes_for(p);
      BoardPart part{address + static_cast<uint64_t>(offset), bytes};
      if (!header.is_direct) {
        part = {static_cast<uint64_t>(p * slice_), part_bytes(bytes, round * slice_, slice_)};
        if (p != rank()) {
          copy_bytes(board_->slot(rank(), step) + part.address, at(data, offset + round * slice_), part.bytes);
        }
      }
      board_->offer(step, p, part);
      offset += bytes;
    }
  }

  void await_close_of_all() {
    for (int i = 1; i < size(); ++i) board_->await_close(last_step_, (rank() + i) % size());
  }

  void all_reduce_small(CallHeader& header, void* data, int64_t count) {
    const int64_t bytes = count * element(header);
    slice_ = board_->slot_bytes();
    stage(header);
    exchange(
        header,
        [&](uint32_t step, uint32_t) {
          copy_bytes(board_->slot(rank(), step), data, bytes);
          for (int p = 0; p < size(); ++p) board_->offer(step, p, {0, bytes});
        },
        [&](uint32_t step, uint32_t round) {
          for (int p = 0; p < size(); ++p) {
            sources_[as_index(p)] = p == rank() ? board_->slot(p, step) : view(header, step, round, p, bytes);
          }
          reduce_in_order(data, sources_, count, header.dtype, header.op);
          board_->close(step);
        });
  }

  void all_reduce_shares(CallHeader& header, void* data, int64_t count) {
    const int64_t bytes = count * element(header);
    slice_ = board_->slot_bytes();
    header.num_rounds = num_rounds(bytes, slice_);
    const uint64_t address = publish(header, data, bytes);
    // Of a range, the bytes that this rank reduces.
    const auto own_of = [&](const Range& range) {
      const Share share = share_of(range.bytes / element(header), size(), rank());
      return Range{share.begin * element(header), share.count() * element(header)};
    };
    // The shares of the others, between this rank's bytes of a range and its slot.
    const auto copy_others = [&](void* to, const void* from, const Range& range) {
      const Range own = own_of(range);
      const int64_t end = own.begin + own.bytes;
      copy_bytes(to, from, own.begin);
      copy_bytes(at(to, end), at(from, end), range.bytes - end);
    };
    const auto slice_range = [&](uint32_t round) {
      return Range{round * slice_, part_bytes(bytes, round * slice_, slice_)};
    };
    exchange(
        header,
        [&](uint32_t step, uint32_t round) {
          BoardPart part{address, bytes};
          if (!header.is_direct) {
            const Range range = slice_range(round);
            part = {0, range.bytes};
            copy_others(board_->slot(rank(), step), at(data, range.begin), range);
          }
          for (int p = 0; p < size(); ++p) board_->offer(step, p, part);
        },
        [&](uint32_t step, uint32_t round) {
          const Range range = range_of(bytes, round);
          const Range own = own_of(range);
          for (int p = 0; p < size(); ++p) {
            std::byte* from = p == rank() ? at(data, range.begin) : view(header, step, round, p, bytes);
            outs_[as_index(p)] = from + own.begin;
            sources_[as_index(p)] = outs_[as_index(p)];
          }
          reduce_in_order(outs_, sources_, own.bytes / element(header), header.dtype, header.op,
                          range.bytes > cache_bytes_ / size());
          board_->close(step);
          for (int i = 1; i < size(); ++i) board_->await_close(step, (rank() + i) % size());
          board_->pass_link_from_now(range.bytes - own.bytes);
          if (!header.is_direct) copy_others(at(data, range.begin), board_->slot(rank(), step), range);
        });
  }

  GroupInfo group_;
  std::unique_ptr<Board> board_;
  std::vector<Peer> peers_;
  std::vector<const void*> sources_;
  std::vector<void*> outs_;
  const int64_t cache_bytes_ = last_cache_bytes();
  // Of the call under way.
  int64_t slice_ = 0;
  bool all_direct_ = false;
  uint32_t last_step_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_board_communicator(const GroupInfo& group, std::unique_ptr<Board> board) {
  return std::make_unique<BoardCommunicator>(group, std::move(board));
}

}  // namespace tessera::comm
