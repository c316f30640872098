// Which of several kernels computes a request fastest on this machine: each is run and timed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/base/core_watch.h"
#include "tessera/tensor/kernel.h"

namespace tessera::executor {

struct TimedKernel {
  std::string name;
  double microseconds = 0;  // the fastest of its runs that nothing disturbed, or of all where each was disturbed
  bool operator==(const TimedKernel&) const = default;
};

// The kernel to take: the first, which is the usual one, unless another is faster by more than the noise of a
// measurement.
const std::string& fastest(const std::vector<TimedKernel>& candidates);

// What was found out about one request.
struct KernelMeasurement {
  KernelRequest request;
  std::vector<TimedKernel> candidates = {};  // the usual kernel first; none where there is no choice
  std::string chosen = {};                   // the name of one of them, or of the only kernel
  // How many times in a row a candidate had no run without losing a core to another process; 0: the times hold.
  int num_disturbed = 0;
};

// Times kernels on memory of its own, which is kept between requests.
class KernelTimer {
 public:
  // A run during which `count_preemptions` grows was disturbed: its time says nothing about the kernel.
  explicit KernelTimer(Clock& clock, std::function<int64_t()> count_preemptions = tessera::count_preemptions)
      : clock_(clock), count_preemptions_(std::move(count_preemptions)) {}

  // Times the kernel that `registry` usually takes and the other candidates. A candidate that is much slower than the
  // best so far is run once, the others a few times, for some tens of milliseconds in all; disturbed runs are repeated
  // a few times. The usual one is chosen unless another is faster by more than the noise of a measurement. Where there
  // is nothing to choose from, nothing is run.
  KernelMeasurement measure(const KernelRegistry& registry, const KernelRequest& request);

  // Gives the memory back.
  void release() { memory_ = {}; }

 private:
  struct Run {
    int64_t ns = 0;
    bool disturbed = false;
  };
  Run run(const PreparedKernel& kernel, const KernelRequest& request, std::span<std::byte> scratch,
          const ParallelFor& parallel_for);
  // The request on this timer's memory; the rest of the memory is scratch.
  std::span<std::byte> place(KernelRequest& request, int64_t scratch_bytes);

  Clock& clock_;
  std::function<int64_t()> count_preemptions_;
  Tensor memory_;
};

}  // namespace tessera::executor
