// DeviceRanks: which ranks of a job compute on devices that communicate with each other by themselves.
#pragma once

#include <string>
#include <vector>

#include "tessera/cluster/ranks/context.h"
#include "tessera/tensor/attributes.h"
#include "tessera/tensor/device_communicator.h"

namespace tessera::session {

class DeviceRanks {
 public:
  // `communicators` are this rank's; null: what it tells other ranks goes through the host's memory, and so it does on
  // all ranks. Else every rank of the job makes one, and they tell each other on what they are. Where what connects
  // devices is not here, a warning says so.
  DeviceRanks(cluster::Context& context, DeviceCommunicators* communicators);

  // Whether the devices of these ranks, of which this one is one, can be in one group: each on a device of its own,
  // connected by the same. Alike on all ranks.
  bool communicate(const Ints& ranks) const;

 private:
  struct DeviceOfRank {
    std::string name;  // of what connects the device; "" where nothing does
    std::string device;
  };
  DeviceCommunicators* alone_ = nullptr;  // of a job of one rank: asked when a step has a collective
  std::vector<DeviceOfRank> devices_;     // by rank; none: nothing connects devices
};

}  // namespace tessera::session
