// DeviceCommunicator: one rank's end of an ordered group of ranks whose values lie in the memory of devices: what
// comm::Communicator does in the host's memory, done in a queue.
//
// Buffers are dense and counts are elements, as there. In what order a reduction adds is the device's own affair: it is
// the same in every run of the same calls on the same devices.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "tessera/tensor/dtype.h"
#include "tessera/tensor/reduce_op.h"

namespace tessera {

class Queue;

// A call gives its work to the queue, which may be recording (is_recordable), and returns; what it works on must stay
// until that is done. Every rank of the group gives the same calls in the same order, and has them done in that order.
// One thread of the host at a time, where nothing else is said. A call throws IoError where the device does not take
// it.
class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;

  // Works in place.
  virtual void all_reduce(Queue& queue, void* data, int64_t count, DType dtype, ReduceOp op) = 0;
  // counts[r] elements come from group rank r. `in` may lie at its own place in `out`.
  virtual void all_gather(Queue& queue, const void* in, void* out, std::span<const int64_t> counts, DType dtype) = 0;
  // `out` may lie at its own place in `in`.
  virtual void reduce_scatter(Queue& queue, const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                              ReduceOp op) = 0;
  // Works in place.
  virtual void broadcast(Queue& queue, void* data, int64_t count, DType dtype, int root) = 0;
  virtual void all_to_all(Queue& queue, const void* in, std::span<const int64_t> in_counts, void* out,
                          std::span<const int64_t> out_counts, DType dtype) = 0;
  virtual void send(Queue& queue, const void* data, int64_t count, DType dtype, int to) = 0;
  virtual void receive(Queue& queue, void* data, int64_t count, DType dtype, int from) = 0;

  // Whether a call may be given to a queue that records. Where it may not, a call waits on the host for the other ranks
  // and for its own work: what it has read and written may be used when it returns.
  virtual bool is_recordable() const { return true; }

  // Throws IoError where something has gone wrong with the group since, as far as the device knows. Returns at once.
  virtual void check() = 0;
  // Ends all that is under way, whatever other ranks do: queues go on, with results that nobody may use. Later calls
  // throw IoError. Returns soon.
  virtual void abort() = 0;
};

// What connects the devices of ranks.
class DeviceCommunicators {
 public:
  virtual ~DeviceCommunicators() = default;
  // What does it, with its version: "nccl 2.27.3". Ranks with equal names can be in one group. Throws IoError, which
  // says why, where it is not here.
  virtual std::string name() = 0;
  // Names the device among those of all hosts. Whether ranks with the same one, or with others, can be in one group is
  // for whoever brings it to say (kernels::Backend).
  virtual std::string place() = 0;
  // Of what connects ranks on one device: what another rank needs to try whether it reaches this one, before the first
  // group is made. try_offer() throws IoError, which says why, where the rank that has offered it is not reached.
  virtual std::string offer() { return ""; }
  virtual void try_offer(const std::string& /*offer*/) {}
  // By which the ranks of a new group find each other: one of them makes it and tells the others.
  virtual std::string make_id() = 0;
  // One rank's end of the group with that id. Returns when all ranks have come. `waiting` is called now and then, here
  // and in calls that wait for other ranks; it may throw, which ends the wait. It must stay as long as the
  // communicator.
  virtual std::unique_ptr<DeviceCommunicator> join(const std::string& id, int rank, int size,
                                                   std::function<void()> waiting) = 0;
};

}  // namespace tessera
