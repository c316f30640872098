// Backend: what a kind of device brings so that networks are computed on it. A session picks one for all its graphs.
#pragma once

#include <string>
#include <vector>

#include "tessera/kernels/machine.h"
#include "tessera/kernels/registry.h"
#include "tessera/tensor/device.h"
#include "tessera/tensor/device_communicator.h"

namespace tessera::kernels {

struct Backend {
  std::string name;  // "cpu", for messages
  // Asked in this order. What none of them takes is refused when a graph is compiled, unless a session was told that
  // the host may compute it instead (SessionOptions::cpu_fallback). A backend with a device also has the kernel "copy",
  // of one operand in any strides, without scratch memory.
  std::vector<const KernelRegistry*> registries = {};
  // Where its kernels compute; null: in the memory of the host.
  Device* device = nullptr;
  // Connects its device with those of other ranks, so that collectives are done in their queues: in groups whose ranks
  // have a device each. Null: what ranks tell each other goes through the host's memory.
  DeviceCommunicators* communicators = nullptr;
  // The same for groups whose ranks are all on this device.
  DeviceCommunicators* within_device = nullptr;
  // The fusions whose nodes it has kernels for, as compiler::parse_fusions reads them.
  std::string fusions = "all";
  // Whether its kernels like images channels-last; otherwise they are row-major, too.
  bool likes_channels_last = true;
  // Its queues do pieces of a step at the same time: memory lies idle for so many steps before it is used again.
  int idle_steps = 0;
  // All that the speeds of its kernels depend on, in one line: what a table of measured kernels is for. Null: its
  // kernels are not chosen by measuring.
  std::string (*machine)() = nullptr;
};

// Has the fast kernels of the CPU, and the plain loops for what those decline.
inline Backend cpu_backend() {
  return {.name = "cpu", .registries = {&cpu_kernels(), &reference_kernels()}, .machine = machine_description};
}
// Has only plain loops.
inline Backend reference_backend() { return {.name = "cpu, plain loops", .registries = {&reference_kernels()}}; }

}  // namespace tessera::kernels
