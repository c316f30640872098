// Channel: one rank's end of a group's exchanges over a wire. All bytes travel under a CallHeader, which the receiver
// compares with its own call: a rank that does something else is found at the first byte.
//
// An exchange is: begin, then receive_* for every expected peer, then end. Exchanges are numbered alike on all ranks of
// the group: each rank of the group begins every one of them. Waits throw IoError at the deadline, PeerFailure when a
// rank of the job failed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "tessera/comm/transport.h"

namespace tessera::comm {

class Channel {
 public:
  struct Outgoing {
    const void* data = nullptr;
    int64_t bytes = -1;  // -1: nothing goes to this peer, not even a header
  };
  struct Expected {
    int64_t bytes = -1;    // -1: nothing comes from this peer
    void* into = nullptr;  // where receive() puts it; null: it stays with the channel, for receive_view()
  };

  virtual ~Channel() = default;

  // Bytes that one exchange can carry from one rank: parts at the same address count once. It is at least 64 KiB.
  virtual int64_t max_exchange_bytes() const = 0;

  // Offers parts[p] to group rank p and expects expected[p] from it. The parts stay unchanged until end(). Entries of
  // this rank itself are ignored.
  virtual void begin(const CallHeader& header, std::span<const Outgoing> parts, std::span<const Expected> expected) = 0;
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

  // These do what a Communicator's do.
  virtual int64_t wait_without_deadline() = 0;
  virtual int64_t deadline_ms() const = 0;
  virtual JobState* job() = 0;
};

// The collectives over a channel.
std::unique_ptr<Communicator> make_wire_communicator(const GroupInfo& group, std::unique_ptr<Channel> channel);

}  // namespace tessera::comm
