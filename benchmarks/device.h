// Where a benchmark computes: --device.
#pragma once

#include <string>

#include "tessera/session/session_options.h"
#include "tessera/testing/dry_gpu.h"

namespace tessera::benchmarks {

// "dry" is a device that compiles and does not compute; any other text is a session's.
inline void use_device(const std::string& device, session::SessionOptions& options) {
  if (device == "dry") {
    options.backend = &dry_backend();
    options.kernel_choice = session::KernelChoice::kFixed;
  } else {
    options.device = device;
  }
}

}  // namespace tessera::benchmarks
