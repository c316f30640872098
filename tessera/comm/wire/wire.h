// Wire: what a library that sends messages between processes (Gloo, MPI) has to offer: start an operation, wait for it.
// The channel over it is the same for all of them.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "tessera/comm/transport.h"
#include "tessera/comm/watched_wait.h"

namespace tessera::comm {

// A peer that has left may have sent its last bytes a moment ago: how long they are waited for.
inline constexpr int64_t kLeftGraceMs = 1000;

class Wire {
 public:
  enum class End {
    kDone,
    kLate,    // not done at the deadline
    kFailed,  // a rank of the job failed
    kLeft,    // the peer has ended its part of the job
    kLost,    // the connection is gone; reason() says how
  };
  // One operation under way; kept and used again, so that a warm channel allocates none.
  class Operation {
   public:
    virtual ~Operation() = default;
    // `peer` is a world rank. Operations of one pair and tag are matched in the order in which they are started; both
    // sides name the same number of bytes. The memory stays untouched until wait() gave kDone.
    virtual void send(const void* data, int64_t bytes, int peer, int tag) = 0;
    virtual void receive(void* data, int64_t bytes, int peer, int tag) = 0;
    // Lets `watch` look now and then. After anything but kDone the wire cannot be used any more.
    virtual End wait(int64_t timeout_ms, WatchedWait& watch) = 0;
    virtual std::string reason() const { return ""; }
  };

  virtual ~Wire() = default;
  virtual std::string name() const = 0;
  virtual std::unique_ptr<Operation> make_operation() = 0;
  // Tells the peers that nothing more comes from this rank, whose last operation is done. What it has sent still
  // arrives.
  virtual void leave() {}
  // Tags go from 0 up to here. A group takes four of them as long as it lives.
  virtual int max_tag() const { return std::numeric_limits<int>::max(); }
};

// `job` outlives the transport.
std::unique_ptr<Transport> make_wire_transport(std::shared_ptr<Wire> wire, JobState& job, const WaitOptions& wait);

}  // namespace tessera::comm
