// Board: memory that all ranks of a group can reach, where they post what they offer and note what they have read. It
// is the whole protocol of ranks that share memory, be they threads of a process or processes of a host.
//
// Per rank: two posts, used in turn, and two counters, `ready` (exchanges posted) and `done` (exchanges read). A rank
// may post exchange s when all others are done with s - 2. Per ordered pair of ranks: a mailbox of the same kind for
// point-to-point messages. Waits spin shortly, then yield, then sleep on a futex; a job of more ranks than cores sleeps
// soon, since whoever is waited for needs the core.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

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

struct BoardPart {
  uint64_t address = 0;  // where the bytes lie, in the terms of the address space
  int64_t bytes = -1;
};

// A simulated link: a message is there `latency_us` after it was posted and passes at `gigabytes_per_second` (0: at
// once); messages to one rank pass one after the other.
struct Link {
  double latency_us = 0;
  double gigabytes_per_second = 0;
  bool is_instant() const { return latency_us <= 0 && gigabytes_per_second <= 0; }
};

// How ranks name bytes of their own memory to each other.
class AddressSpace {
 public:
  virtual ~AddressSpace() = default;
  // The address under which peers reach [data, data + bytes), or nothing where they cannot: then the bytes are copied
  // into the board's staging area. The top bit of an address is the board's.
  virtual std::optional<uint64_t> publish(const void* data, int64_t bytes) = 0;
  // Where an address of the rank `peer` of the world lies here.
  virtual const void* resolve(int peer, uint64_t address) = 0;
};

// Threads of one process: a pointer is an address.
class PointerSpace final : public AddressSpace {
 public:
  std::optional<uint64_t> publish(const void* data, int64_t) override { return reinterpret_cast<uint64_t>(data); }
  const void* resolve(int, uint64_t address) override { return reinterpret_cast<const void*>(address); }
};

struct BoardOptions {
  WaitOptions wait;
  Link link;
  // Staging bytes per rank and exchange, and per pair and message; 0: every address is published directly.
  int64_t exchange_staging_bytes = 0;
  int64_t message_staging_bytes = 0;
};

// Bytes of a board for `size` ranks, staging included.
size_t board_bytes(int size, const BoardOptions& options);
// Makes the board in zeroed memory; called by one rank before any other uses it.
void initialize_board(void* memory, const GroupInfo& group, const BoardOptions& options);

// `job` outlives the channel; `memory` holds a board of the group and lives as long as `keep`. Throws IoError when the
// board belongs to another group.
std::unique_ptr<Channel> make_board_channel(const GroupInfo& group, void* memory, std::shared_ptr<void> keep,
                                            std::shared_ptr<AddressSpace> addresses, JobState& job,
                                            const BoardOptions& options);

}  // namespace tessera::comm
