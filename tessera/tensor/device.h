// Device: a processor with memory of its own, which the host cannot read or write in place: a GPU, say. Its work goes
// through queues. Whatever computes in the host's own memory has no Device: where one may be given, null stands for the
// host, and host_queue() for its queue.
//
// Addresses in a device's memory are numbers to the host: it hands them to queues and never looks there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/tensor/kernel.h"

namespace tessera {

// Address space of a device, of which the first size_bytes() are memory. What lies there stays where it is when it
// grows.
class Memory {
 public:
  virtual ~Memory() = default;
  // Of the device, aligned to 64 bytes; may not be readable by the host.
  virtual std::byte* data() const = 0;
  virtual int64_t capacity_bytes() const = 0;
  // Grows, or gives back what lies behind. No work that touches the difference may be under way. Throws InvalidArgument
  // beyond the capacity, IoError where the device has no more.
  virtual void resize(int64_t size_bytes) = 0;
};

// A place in the order of a queue's work; see Queue::record.
class Event {
 public:
  virtual ~Event() = default;
  // Returns when the work before the place is done; at once before the first record. Any thread of the host.
  virtual void synchronize() = 0;
  // Whether the work before the place is done, for whoever looks at other things while it waits; true before the first
  // record. One that can only wait returns when it is. Any thread of the host.
  virtual bool has_come() {
    synchronize();
    return true;
  }
  // Of two timed events of one device whose places it has come to: the time from the earlier one's to this one's, by
  // the device's own clock. 0 for events that are not timed.
  virtual int64_t nanoseconds_since(const Event& /*earlier*/) const { return 0; }
};

// Work that a queue was given once, ready to be done again as often as one likes; see Queue::record.
class Recording {
 public:
  virtual ~Recording() = default;
};

// A piece of work that is to be recorded: kernels, copies and fills.
struct RecordedWork {
  std::function<void()> give;
  // The pieces, by number, that must be done before; all of them come earlier. Others may be done at the same time.
  std::vector<int> after;
  // It waits for other devices: no piece that need not follow it should stand behind it.
  bool waits_for_others = false;
};

enum class CopyWay { kToDevice, kToHost, kWithin };

// Does what it is given in order, sooner or later: a call returns before its work is done. One thread of the host uses
// a queue at a time. What a piece of work reads and writes, memory of the host included, must stay until it is done;
// addresses, shapes and strides are taken at the call. Two queues of a device have no order but that of their events.
class Queue {
 public:
  virtual ~Queue() = default;
  // Has the kernel compute. `guard`, in the device's memory, may be null: it is read when the kernel's turn comes, and
  // where it is false the kernel is left out. The attributes and the ParallelFor must stay until then, and so must the
  // kernel. args.queue is this queue.
  virtual void launch(const PreparedKernel& kernel, const KernelArgs& args, const bool* guard) = 0;
  // Copies so many bytes, which lie one after another.
  virtual void copy(void* to, const void* from, int64_t bytes, CopyWay way) = 0;
  // Writes the value into so many bytes of the device's memory.
  virtual void fill(void* to, std::byte value, int64_t bytes) = 0;
  // The event is now behind all work so far. It must be one of this queue's device. In work that is being recorded only
  // timed ones: each replay of it comes to their place anew, and nobody waits for them.
  virtual void record(Event& event) = 0;
  // What comes later waits for the place where the event is now, in whichever queue of the device.
  virtual void wait(Event& event) = 0;
  // Returns when all work is done. Throws what a kernel has thrown, once.
  virtual void synchronize() = 0;

  // Has work recorded, which is not done now: each piece is given to this queue by its give(). What it reads and
  // writes, and the kernels, must stay as long as the recording, as must this queue. Null: this queue cannot. Throws
  // IoError where the device does not take it, and what a give() throws.
  virtual std::unique_ptr<Recording> record(std::span<const RecordedWork> /*work*/) { return nullptr; }
  // Has all work of a recording of this queue done, which costs the host as much as one kernel.
  virtual void replay(const Recording& /*recording*/) {}
};

// The host's: all is done when a call returns, and what a kernel throws comes out of launch(). Events mean nothing to
// it. Any number of threads.
Queue& host_queue();

class Device {
 public:
  virtual ~Device() = default;
  // For messages: "cuda:0".
  virtual std::string name() const = 0;
  // Throws IoError where it cannot.
  virtual std::unique_ptr<Memory> reserve(int64_t capacity_bytes) = 0;
  // Memory of the host that copies to and from this device are fast with.
  virtual std::shared_ptr<std::byte> allocate_on_host(int64_t bytes) = 0;
  virtual std::unique_ptr<Queue> make_queue() = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  // An event that also knows when the device came to its place (Event::nanoseconds_since). Null: the device cannot
  // tell.
  virtual std::unique_ptr<Event> make_timed_event() { return nullptr; }
  // How many bytes of its memory nobody uses now. nullopt: the device cannot tell.
  virtual std::optional<int64_t> free_bytes() const { return std::nullopt; }
};

}  // namespace tessera
