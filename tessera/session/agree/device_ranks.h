// DeviceRanks: which ranks of a job compute on devices that communicate with each other by themselves, and how: each on
// a device of its own, or all on one.
#pragma once

#include <string>
#include <vector>

#include "tessera/cluster/ranks/context.h"
#include "tessera/tensor/attributes.h"
#include "tessera/tensor/device_communicator.h"

namespace tessera::session {

class DeviceRanks {
 public:
  // What this rank's backend brings: `apart` connects devices, `within` ranks on one device. Both null: what this rank
  // tells others goes through the host's memory, and so it does on all ranks. Else every rank of the job makes one, and
  // they tell each other on what they are. Where what connects devices is not here, or ranks on one device do not reach
  // each other, a warning says so.
  DeviceRanks(cluster::Context& context, DeviceCommunicators* apart, DeviceCommunicators* within = nullptr);

  // What connects these ranks, of which this one is one: each on a device of its own, or all on one, connected by the
  // same. Null: nothing does. Null or not alike on all ranks.
  DeviceCommunicators* connecting(const Ints& ranks) const;

 private:
  struct DeviceOfRank {
    std::string apart;   // the name of what connects the device with others; "" where nothing does
    std::string within;  // of what connects ranks on it
    std::string device;
  };
  // Ranks on one device that do not reach each other go through the host.
  void try_shared_devices(cluster::Context& context);

  DeviceCommunicators* apart_;
  DeviceCommunicators* within_;
  bool is_alone_ = false;              // a job of one rank: asked when a step has a collective
  std::vector<DeviceOfRank> devices_;  // by rank; none: nothing connects devices
};

}  // namespace tessera::session
