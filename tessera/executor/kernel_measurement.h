// Which of several kernels computes a request fastest on this machine: each is run and timed.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/tensor/kernel.h"

namespace tessera::executor {

struct TimedKernel {
  std::string name;
  double microseconds = 0;  // the fastest of its runs
  bool operator==(const TimedKernel&) const = default;
};

// What was found out about one request.
struct KernelMeasurement {
  KernelRequest request;
  std::vector<TimedKernel> candidates = {};  // the usual kernel first; none where there is no choice
  std::string chosen = {};                   // the name of one of them, or of the only kernel
};

// Times kernels on memory of its own, which is kept between requests.
class KernelTimer {
 public:
  explicit KernelTimer(Clock& clock) : clock_(clock) {}

  // Times the kernel that `registry` usually takes and the other candidates. A candidate that is much slower than the
  // best so far is run once, the others a few times, for some tens of milliseconds in all. The usual one is chosen
  // unless another is faster by more than the noise of a measurement. Without anything to choose from nothing is run.
  KernelMeasurement measure(const KernelRegistry& registry, const KernelRequest& request);

  // Gives the memory back.
  void release() { memory_ = {}; }

 private:
  double run(const PreparedKernel& kernel, const KernelRequest& request, std::span<std::byte> scratch,
             const ParallelFor& parallel_for);

  Clock& clock_;
  Tensor memory_;
};

}  // namespace tessera::executor
