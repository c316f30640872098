// How fast a device is, measured through its queues by its own clock, with the kernels that a backend has for it: what
// a compiler::MachineProfile says of a rank on such a device.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/kernels/backend.h"

namespace tessera::session {

// How measure_device() goes about it.
struct DeviceSpeedOptions {
  // Sizes grow until the work takes so long, or its values would take more of the device's memory.
  double enough_seconds = 0.002;
  int64_t most_bytes = int64_t{4} << 30;
  int64_t num_channels = 256;  // of the images that convolutions read and make
  // What convolutions of these sizes reach of the speed of large ones is measured in bf16, with windows of 3x3 and 1x1
  // pixels, with and without strides; where one of the lists is empty, of none. Pixels are those of the results of all
  // images, multiples of 64.
  std::vector<int64_t> in_channels = {16, 64, 256};
  std::vector<int64_t> out_channels = {16, 64, 256};
  std::vector<int64_t> pixels = {1024, 16384, 262144};
  int num_kernels = 1000;  // of the recording that tells what one kernel costs
  int num_runs = 5;        // the fastest of them counts
  // The same device where products and convolutions of f32 may be rounded to TF32; null: it knows no such.
  const kernels::Backend* tf32 = nullptr;
  std::function<void(const std::string& figure)> tell = {};  // is told of each figure; may be empty
};

// All that a profile says of the backend's device itself: the speeds of products and convolutions by dtype, the shares
// of small convolutions, the speeds of other operators, of its memory and caches, of copies; what a kernel of a
// recorded step costs beside its work, and the link to the host. The name is the backend's; the memory, the ranks of a
// host, and the links among ranks are left to the caller. Values are neither zero nor alike, because a GPU multiplies
// such ones faster. Throws InvalidArgument for a backend without a device, IoError where the device has no events that
// tell the time or not enough memory, and what its kernels throw.
compiler::MachineProfile measure_device(const kernels::Backend& backend, const DeviceSpeedOptions& options = {});

}  // namespace tessera::session
