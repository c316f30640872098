// SharedDevice: connects ranks that compute on one device, through its memory. NCCL refuses two ranks on one device;
// this is for them, so that what several ranks do can be tried where there is one GPU.
//
// Each rank of a group has a block of the device's memory, which the others read. A call copies into it, waits on the
// host until the others have done so, and reads what they have: ranks wait for each other on the host and never on the
// device, where nothing promises that the work of two of them is done at the same time. So no recording has a call
// (DeviceCommunicator::is_recordable), and a step is recorded in pieces between them.
//
// Sums have the bits of those in the host's memory: in the order of the group's ranks, half types rounded once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tessera/kernels/sharing/device_blocks.h"
#include "tessera/tensor/device_communicator.h"
#include "tessera/tensor/kernel.h"

namespace tessera::kernels {

// Any thread may use it, and it outlives all that join() makes.
class SharedDevice final : public DeviceCommunicators {
 public:
  struct Options {
    std::string place;  // names the device among those of all hosts
    // Those of the device: elementwise operators and fused_elementwise.
    std::vector<const KernelRegistry*> registries;
    // What a call moves at a time, a power of two, from 64 KiB on.
    int64_t slot_bytes = int64_t{2} << 20;
  };
  // The blocks are the device's and outlive this, and so do the registries.
  SharedDevice(DeviceBlocks& blocks, Options options);

  std::string name() override { return "device memory 1"; }
  std::string place() override { return options_.place; }
  // Names this process, a page of its memory and a block of the device's.
  std::string offer() override;
  void try_offer(const std::string& offer) override;
  std::string make_id() override;
  // Throws IoError for more than 64 ranks, or where a rank's block is not reached.
  std::unique_ptr<DeviceCommunicator> join(const std::string& id, int rank, int size,
                                           std::function<void()> waiting) override;

  // Calls that all groups of this process have made so far.
  int64_t num_calls() const { return num_calls_; }

 private:
  class Group;

  DeviceBlocks& blocks_;
  Options options_;
  std::atomic<int64_t> num_calls_ = 0;
  std::mutex mutex_;
  std::shared_ptr<std::byte> offered_;  // made once, for whoever tries it
  std::string offer_;
};

}  // namespace tessera::kernels
