// DeviceGroup: a group of ranks whose values lie in the memory of devices: a Communicator whose calls give their work
// to a queue of this rank's device and return. Whoever waits for that queue looks at the group meanwhile (check,
// require_in_time): a rank that fails, or does not come, ends the wait with the error that a group in the host's memory
// has. What the group's results are then, nobody knows.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tessera/comm/communicator.h"
#include "tessera/comm/transport.h"
#include "tessera/comm/watched_wait.h"
#include "tessera/tensor/device_communicator.h"

namespace tessera::comm {

// The pauses between two questions whether a device has come to a place: awake at first, then asleep, for 50 us each.
class DevicePauses {
 public:
  void next();

 private:
  int num_passed_ = 0;
};

class DeviceGroup final : public Communicator {
 public:
  // Connects the devices of the group's ranks, which find each other through `on_host`: every rank of it makes one, at
  // the same place among its calls. All that is given outlives this. Throws IoError as the devices' library says, or
  // where another rank fails or does not come before the deadline.
  DeviceGroup(Communicator& on_host, DeviceCommunicators& devices);

  // Whether calls may be recorded; see DeviceCommunicator::is_recordable.
  bool is_recordable() const { return communicator_->is_recordable(); }
  // Where calls go from now on.
  void set_queue(Queue& queue) { queue_ = &queue; }

  void all_reduce(void* data, int64_t count, DType dtype, ReduceOp op, std::string_view who) override;
  void all_gather(const void* in, void* out, std::span<const int64_t> counts, DType dtype,
                  std::string_view who) override;
  void reduce_scatter(const void* in, void* out, std::span<const int64_t> counts, DType dtype, ReduceOp op,
                      std::string_view who) override;
  void broadcast(void* data, int64_t count, DType dtype, int root, std::string_view who) override;
  void all_to_all(const void* in, std::span<const int64_t> in_counts, void* out, std::span<const int64_t> out_counts,
                  DType dtype, std::string_view who) override;
  void send(const void* data, int64_t count, DType dtype, int to, std::string_view who) override;
  void receive(void* data, int64_t count, DType dtype, int from, std::string_view who) override;
  // Throws InternalError: queues wait for each other by events.
  void barrier(std::string_view who) override;
  JobState* job() override { return job_; }
  int64_t deadline_ms() const override { return timeout_ms_; }

  // A call as messages have it, and whom it waits for: a rank of the group; -1: all others.
  struct Call {
    CallHeader header;
    int peer = -1;
  };
  // What was given last. Where calls may be recorded its number is 0: what was given once may be done as often as one
  // likes.
  const Call& last_call() const { return call_; }
  const GroupInfo& info() const { return info_; }
  // Calls that have been done.
  uint64_t num_done() const { return num_done_; }
  void add_done(uint64_t calls) { num_done_ += calls; }

  // Throws where a rank of the job has failed, or the device says that something is wrong, and names that call; from
  // then on the group is broken. Returns at once where all is well.
  void check(const Call& call);
  // Throws, and breaks the group, where this rank has waited so long in that call that nobody comes any more: longer
  // than its deadline, or for a rank that has ended.
  void require_in_time(const Call& call, int64_t waited_ms);
  // From now on every call throws this error, and what is under way ends, whoever may be waited for.
  void break_off(std::exception_ptr error);

 private:
  Call call_of(CallKind kind, int64_t count, DType dtype, std::string_view who) const;
  // Gives the work of a call.
  template <typename F>
  void give(const Call& call, F&& work);
  // Called now and then while the device's library waits for other ranks.
  void look();
  [[noreturn]] void throw_failure(const Call& call, std::exception_ptr of_device);

  GroupInfo info_;
  JobState* job_;
  int64_t timeout_ms_;
  Queue* queue_ = nullptr;
  Call call_;
  uint64_t num_done_ = 0;
  uint64_t num_given_ = 0;        // calls that are not recorded
  WatchedWait* watch_ = nullptr;  // of the call that is being given
  int64_t since_ns_ = 0;          // it is
  std::exception_ptr broken_;
  std::unique_ptr<DeviceCommunicator> communicator_;
};

}  // namespace tessera::comm
