// Gpu: what the kernels of this folder ask of a device: it compiles their text and launches it. A CudaDevice is one,
// and so is the emulated device of the tests, which needs no hardware.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/tensor/device.h"

namespace tessera::cuda {

class Gpu {
 public:
  // A kernel that is ready to be launched.
  class Function {
   public:
    virtual ~Function() = default;
  };

  virtual ~Gpu() = default;
  // The kernels of these names in a text of CUDA C++, as device_program.h makes it. A text is compiled once, perhaps
  // beside the caller: then the first launch waits for it, and throws InternalError with what the compiler says where
  // that failed.
  virtual std::vector<std::shared_ptr<const Function>> compile(const std::string& text,
                                                               std::span<const std::string> names) = 0;
  // Has the function run in the queue, which is this device's, in so many blocks of `threads`. All its arguments are
  // addresses; behind these comes that of the guard, as Queue::launch was given it.
  virtual void launch(Queue& queue, const Function& function, int64_t blocks, int threads,
                      std::span<const void* const> arguments) = 0;
  // How many blocks compute at the same time, each on a processor of its own.
  virtual int num_multiprocessors() const = 0;
};

}  // namespace tessera::cuda
