#include "tessera/kernels/sharing/shared_device.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <numeric>
#include <span>
#include <thread>
#include <utility>

#include "tessera/base/clock.h"
#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/base/random.h"
#include "tessera/kernels/sharing/device_meeting.h"
#include "tessera/kernels/sharing/rank_reductions.h"
#include "tessera/tensor/device.h"

namespace tessera::kernels {
namespace {

constexpr int64_t kOfferedBytes = 256;
// So long a rank that leaves waits for those who still read its block.
constexpr int64_t kEndNs = 1'000'000'000;

// What kind of call it is, where all ranks must make the same.
enum class Kind : uint64_t { kAllReduce = 1, kAllGather, kReduceScatter, kBroadcast, kAllToAll };

// A call in one number, which tells different ones apart.
uint64_t number_of(Kind kind, DType dtype, uint64_t detail, std::span<const int64_t> counts) {
  return hash_name(
      fmt::format("{} {} {} {}", static_cast<uint64_t>(kind), to_string(dtype), detail, fmt::join(counts, " ")));
}

// What is empty may be null.
const std::byte* at(const void* data, int64_t offset) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + offset;
}
std::byte* at(void* data, int64_t offset) { return data == nullptr ? nullptr : static_cast<std::byte*>(data) + offset; }

std::string to_hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    unsigned byte = 0;
    const char* const digits = text.data() + i;
    if (std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2) {
      throw IoError("a device that ranks share: \"{}\" is no handle of its memory", text);
    }
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

}  // namespace

// One rank's end of a group. In its block lie two slots, in turn for one exchange after the other, two results of
// reductions, and a message for each rank.
class SharedDevice::Group final : public DeviceCommunicator {
 public:
  Group(SharedDevice& device, const std::string& id, int rank, int size, std::function<void()> waiting)
      : device_(device),
        rank_(rank),
        size_(size),
        slot_bytes_(device.options_.slot_bytes),
        part_bytes_(static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(slot_bytes_ / size)))),
        waiting_(std::move(waiting)),
        meeting_(DeviceMeeting::find(id)),
        own_(device.blocks_.take(5 * slot_bytes_)),
        reductions_(device.options_.registries, device.blocks_),
        sources_(as_index(size)) {
    // A handle may not be had, which counts only where a rank is in another process.
    std::string handle;
    std::string refused;
    try {
      handle = device.blocks_.handle_of(own_.get());
    } catch (const IoError& error) {
      refused = error.what();
    }
    meeting_->enter(rank_, own_, handle);
    meeting_->await_all(size_, waiting_);
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) {
        blocks_.push_back(own_);
      } else if (meeting_->is_of_this_process(peer)) {
        blocks_.push_back(meeting_->block_of(peer));
      } else if (!refused.empty()) {
        throw IoError(refused);
      } else {
        blocks_.push_back(device.blocks_.open(meeting_->handle_of(peer)));
      }
    }
  }

  // The others may still read what this rank has told them.
  ~Group() override {
    const int64_t begin_ns = Clock::system().monotonic_ns();
    for (int peer = 0; peer < size_; ++peer) {
      while (meeting_->given_up_by() < 0 && meeting_->done_of(peer) < num_exchanges_ &&
             Clock::system().monotonic_ns() - begin_ns < kEndNs) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  bool is_recordable() const override { return false; }

  void all_reduce(Queue& queue, void* data, int64_t count, DType dtype, ReduceOp op) override {
    begin_call();
    const int64_t width = width_of(dtype);
    const uint64_t call = number_of(Kind::kAllReduce, dtype, static_cast<uint64_t>(op), {&count, 1});
    const int64_t most = slot_bytes_ / width;
    for (int64_t first = 0; size_ > 1 && first < count; first += most) {
      const int64_t num = std::min(most, count - first);
      std::byte* const here = at(data, first * width);
      copy(queue, next_slot(), here, num * width);
      exchange(queue, {.call = call});
      copy(queue, here, reduced(queue, 0, num, dtype, op), num * width);
    }
    end_call(queue);
  }

  void all_gather(Queue& queue, const void* in, void* out, std::span<const int64_t> counts, DType dtype) override {
    begin_call();
    const int64_t width = width_of(dtype);
    const uint64_t call = number_of(Kind::kAllGather, dtype, 0, counts);
    const int64_t own_bytes = counts[as_index(rank_)] * width;
    std::byte* const place = at(out, before(counts, rank_) * width);
    if (place != in) copy(queue, place, in, own_bytes);
    const int64_t largest = *std::ranges::max_element(counts) * width;
    for (int64_t first = 0; size_ > 1 && first < largest; first += slot_bytes_) {
      copy(queue, next_slot(), at(in, first), piece(own_bytes, first, slot_bytes_));
      exchange(queue, {.call = call});
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        copy(queue, at(out, before(counts, peer) * width + first), slot_of(peer),
             piece(counts[as_index(peer)] * width, first, slot_bytes_));
      }
    }
    end_call(queue);
  }

  void reduce_scatter(Queue& queue, const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                      ReduceOp op) override {
    begin_call();
    const int64_t width = width_of(dtype);
    const uint64_t call = number_of(Kind::kReduceScatter, dtype, static_cast<uint64_t>(op), counts);
    const int64_t largest = *std::ranges::max_element(counts) * width;
    if (size_ == 1 && in != out) copy(queue, out, in, largest);
    for (int64_t first = 0; size_ > 1 && first < largest; first += part_bytes_) {
      for (int peer = 0; peer < size_; ++peer) {
        copy(queue, at(next_slot(), peer * part_bytes_), at(in, before(counts, peer) * width + first),
             piece(counts[as_index(peer)] * width, first, part_bytes_));
      }
      exchange(queue, {.call = call});
      const int64_t bytes = piece(counts[as_index(rank_)] * width, first, part_bytes_);
      if (bytes == 0) continue;
      copy(queue, at(out, first), reduced(queue, rank_ * part_bytes_, bytes / width, dtype, op), bytes);
    }
    end_call(queue);
  }

  void broadcast(Queue& queue, void* data, int64_t count, DType dtype, int root) override {
    begin_call();
    const uint64_t call = number_of(Kind::kBroadcast, dtype, static_cast<uint64_t>(root), {&count, 1});
    const int64_t bytes = count * width_of(dtype);
    for (int64_t first = 0; size_ > 1 && first < bytes; first += slot_bytes_) {
      const int64_t num = piece(bytes, first, slot_bytes_);
      if (rank_ == root) copy(queue, next_slot(), at(data, first), num);
      exchange(queue, {.call = call});
      if (rank_ != root) copy(queue, at(data, first), slot_of(root), num);
    }
    end_call(queue);
  }

  // What others have for each other a rank does not know: it learns from them how many exchanges there are.
  void all_to_all(Queue& queue, const void* in, std::span<const int64_t> in_counts, void* out,
                  std::span<const int64_t> out_counts, DType dtype) override {
    begin_call();
    const int64_t width = width_of(dtype);
    const auto own = as_index(rank_);
    copy(queue, at(out, before(out_counts, rank_) * width), at(in, before(in_counts, rank_) * width),
         in_counts[own] * width);
    const int64_t largest =
        std::max(*std::ranges::max_element(in_counts), *std::ranges::max_element(out_counts)) * width;
    const PostedExchange posted{
        .call = number_of(Kind::kAllToAll, dtype, 0, {}),
        .num_rounds = static_cast<uint64_t>(std::max<int64_t>(1, divide_up(largest, part_bytes_)))};
    uint64_t num_rounds = size_ > 1 ? 1 : 0;
    for (uint64_t round = 0; round < num_rounds; ++round) {
      const int64_t first = static_cast<int64_t>(round) * part_bytes_;
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        copy(queue, at(next_slot(), peer * part_bytes_), at(in, before(in_counts, peer) * width + first),
             piece(in_counts[as_index(peer)] * width, first, part_bytes_));
      }
      num_rounds = exchange(queue, posted);
      for (int peer = 0; peer < size_; ++peer) {
        if (peer == rank_) continue;
        copy(queue, at(out, before(out_counts, peer) * width + first), at(slot_of(peer), rank_ * part_bytes_),
             piece(out_counts[as_index(peer)] * width, first, part_bytes_));
      }
    }
    end_call(queue);
  }

  void send(Queue& queue, const void* data, int64_t count, DType dtype, int to) override {
    begin_call();
    const int64_t bytes = count * width_of(dtype);
    for (int64_t first = 0; first < bytes; first += part_bytes_) {
      meeting_->await_taken(rank_, to, waiting_);
      copy(queue, message(rank_, to), at(data, first), piece(bytes, first, part_bytes_));
      queue.synchronize();
      meeting_->set_sent(rank_, to);
    }
    if (bytes > 0) meeting_->await_taken(rank_, to, waiting_);
  }

  void receive(Queue& queue, void* data, int64_t count, DType dtype, int from) override {
    begin_call();
    const int64_t bytes = count * width_of(dtype);
    for (int64_t first = 0; first < bytes; first += part_bytes_) {
      meeting_->await_sent(from, rank_, waiting_);
      copy(queue, at(data, first), message(from, rank_), piece(bytes, first, part_bytes_));
      queue.synchronize();
      meeting_->set_taken(from, rank_);
    }
  }

  void check() override {
    const int by = meeting_->given_up_by();
    if (by >= 0) throw IoError("a device that ranks share: rank {} of the group of {} has given it up", by, size_);
  }
  void abort() override {
    is_aborted_ = true;
    meeting_->give_up(rank_);
  }

 private:
  static int64_t width_of(DType dtype) { return static_cast<int64_t>(size_bytes(dtype)); }
  static int64_t before(std::span<const int64_t> counts, int rank) {
    return std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  }
  // Of `bytes`, those in [first, first + most).
  static int64_t piece(int64_t bytes, int64_t first, int64_t most) {
    return std::clamp<int64_t>(bytes - first, 0, most);
  }
  static void copy(Queue& queue, void* to, const void* from, int64_t bytes) {
    if (bytes > 0) queue.copy(to, from, bytes, CopyWay::kWithin);
  }

  std::byte* slot(int rank, uint64_t exchange) const {
    return blocks_[as_index(rank)].get() + static_cast<int64_t>(exchange % 2) * slot_bytes_;
  }
  // Of this rank, for the next exchange; of any, in the last one.
  std::byte* next_slot() const { return slot(rank_, num_exchanges_ + 1); }
  std::byte* slot_of(int rank) const { return slot(rank, num_exchanges_); }
  std::byte* message(int from, int to) const {
    return blocks_[as_index(from)].get() + 4 * slot_bytes_ + to * part_bytes_;
  }

  // What lies at `offset` in the slots of all ranks, reduced.
  const std::byte* reduced(Queue& queue, int64_t offset, int64_t count, DType dtype, ReduceOp op) {
    for (int rank = 0; rank < size_; ++rank) sources_[as_index(rank)] = slot_of(rank) + offset;
    return reductions_.reduce(queue, sources_, {own_.get() + 2 * slot_bytes_, own_.get() + 3 * slot_bytes_}, count,
                              dtype, op);
  }

  // What another rank has given up may still be done, or ends in a wait, which hears of the reason.
  void begin_call() {
    if (is_aborted_) {
      throw IoError("a device that ranks share: rank {} of the group of {} has given it up", rank_, size_);
    }
    ++device_.num_calls_;
  }
  void end_call(Queue& queue) {
    queue.synchronize();
    meeting_->set_done(rank_, num_exchanges_);
  }

  // Shows the others this rank's next slot, and returns when theirs are to be read: how many exchanges the call takes.
  uint64_t exchange(Queue& queue, const PostedExchange& posted) {
    // This rank's slot is full, and what it read before is read.
    queue.synchronize();
    meeting_->post(rank_, ++num_exchanges_, posted);
    uint64_t num_rounds = posted.num_rounds;
    for (int peer = 0; peer < size_; ++peer) {
      const PostedExchange theirs = meeting_->await_post(peer, num_exchanges_, waiting_);
      if (theirs.call != posted.call) {
        throw IoError(
            "a device that ranks share: rank {} of the group of {} makes another call than rank {}: every rank must "
            "make the same calls in the same order",
            peer, size_, rank_);
      }
      num_rounds = std::max(num_rounds, theirs.num_rounds);
    }
    return num_rounds;
  }

  SharedDevice& device_;
  int rank_;
  int size_;
  int64_t slot_bytes_;
  int64_t part_bytes_;  // of a slot, what is one rank's; a power of two
  std::function<void()> waiting_;
  std::shared_ptr<DeviceMeeting> meeting_;
  std::shared_ptr<std::byte> own_;
  std::vector<std::shared_ptr<std::byte>> blocks_;  // of all ranks
  RankReductions reductions_;
  std::vector<const std::byte*> sources_;
  uint64_t num_exchanges_ = 0;
  bool is_aborted_ = false;
};

SharedDevice::SharedDevice(DeviceBlocks& blocks, Options options) : blocks_(blocks), options_(std::move(options)) {
  tessera::check(std::has_single_bit(static_cast<uint64_t>(options_.slot_bytes)) && options_.slot_bytes >= 64 * 1024,
                 "a slot is a power of two from 64 KiB on");
}

std::string SharedDevice::offer() {
  const std::lock_guard lock(mutex_);
  if (!offer_.empty()) return offer_;
  offered_ = blocks_.take(kOfferedBytes);
  std::string handle;
  try {
    handle = to_hex(blocks_.handle_of(offered_.get()));
  } catch (const IoError& error) {
    handle = "!" + std::string(error.what());
  }
  offer_ = name_of_process() + "\n" + DeviceMeeting::make() + "\n" + handle;
  return offer_;
}

void SharedDevice::try_offer(const std::string& offer) {
  const size_t first = offer.find('\n');
  const size_t second = first == std::string::npos ? first : offer.find('\n', first + 1);
  if (second == std::string::npos) throw IoError("a device that ranks share: another rank offers nothing of it");
  // Threads of a process reach all of its memory.
  if (offer.substr(0, first) == name_of_process()) return;
  const std::string handle = offer.substr(second + 1);
  if (handle.starts_with('!')) throw IoError(handle.substr(1));
  DeviceMeeting::find(offer.substr(first + 1, second - first - 1));
  blocks_.open(from_hex(handle));
}

std::string SharedDevice::make_id() { return DeviceMeeting::make(); }

std::unique_ptr<DeviceCommunicator> SharedDevice::join(const std::string& id, int rank, int size,
                                                       std::function<void()> waiting) {
  if (size > DeviceMeeting::kMostRanks) {
    throw IoError("a device that ranks share: {} ranks are in a group, and {} may be", size, DeviceMeeting::kMostRanks);
  }
  // By whichever way it ends, nobody comes any more.
  const std::shared_ptr<void> comes(nullptr, [&](void*) {
    if (rank == 0) DeviceMeeting::dismiss(id);
  });
  return std::make_unique<Group>(*this, id, rank, size, std::move(waiting));
}

}  // namespace tessera::kernels
