// SharedFake: a fake device that several ranks share, which tell each other through its memory.
#pragma once

#include <cstdint>

#include "tessera/kernels/sharing/shared_device.h"
#include "tessera/testing/devices/fake_device.h"

namespace tessera::devices {

struct SharedFake {
  explicit SharedFake(uint64_t seed, bool plain_loops = false, int64_t slot_bytes = int64_t{64} << 10)
      : device(seed),
        backend(fake_backend(device, plain_loops)),
        shared(blocks, {.place = "the fake device", .registries = backend.registries, .slot_bytes = slot_bytes}) {
    backend.within_device = &shared;
  }

  FakeDevice device;
  kernels::BlocksOfProcess blocks{device};
  kernels::Backend backend;
  kernels::SharedDevice shared;
};

}  // namespace tessera::devices
