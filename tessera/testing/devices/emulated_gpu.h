// EmulatedGpu: kernels written for a GPU, run by the host, for tests where there is none. A compiler of the host makes
// a library of each text; a launch runs its blocks one after another, and the threads of a block in turns, each from
// one barrier to the next. What it cannot show is a race: threads meet at barriers in one order only.
//
// Its memory and queues are the fake device's, which are late and cannot be read by the host.
#pragma once

#include <map>
#include <mutex>

#include "tessera/kernels/backend.h"
#include "tessera/kernels/cuda/core/gpu.h"
#include "tessera/testing/devices/fake_device.h"

namespace tessera {

class EmulatedGpu final : public cuda::Gpu {
 public:
  // `directory`: where compiled libraries are kept for later runs; it is made. Kernels are written for so many
  // multiprocessors.
  explicit EmulatedGpu(std::string directory, int num_multiprocessors = 2);
  ~EmulatedGpu() override;

  std::vector<std::shared_ptr<const Function>> compile(const std::string& text,
                                                       std::span<const std::string> names) override;
  void launch(Queue& queue, const Function& function, int64_t blocks, int threads,
              std::span<const void* const> arguments) override;
  int num_multiprocessors() const override { return num_multiprocessors_; }

 private:
  struct Module;
  std::string directory_;
  int num_multiprocessors_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Module>> modules_;  // by text
};

// The usual one of a test program, and what its networks are computed on: generated kernels only.
EmulatedGpu& emulated_gpu();
kernels::Backend emulated_backend(FakeDevice& device);

}  // namespace tessera
