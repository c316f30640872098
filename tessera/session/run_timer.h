// RunTimer: how long something takes that all ranks do at once, and whether others wanted the cores meanwhile.
#pragma once

#include <cstdint>
#include <functional>

#include "tessera/base/core_watch.h"
#include "tessera/base/function_ref.h"
#include "tessera/cluster/ranks/context.h"

namespace tessera::session {

// Every rank of the context has one, and uses it at the same time, as in a job: together they are slower than one
// alone. What is measured is the time of the slowest rank, and the same on all of them.
class RunTimer {
 public:
  // A run during which `count_preemptions` grows on any rank was disturbed.
  explicit RunTimer(cluster::Context& context, std::function<int64_t()> count_preemptions = tessera::count_preemptions)
      : context_(context), count_preemptions_(std::move(count_preemptions)) {}

  cluster::Context& context() { return context_; }

  // From when all ranks have come until the last is done, at best of `num_runs` that nothing disturbed. Disturbed ones
  // are repeated, so often and so long as kPatience says; where none was undisturbed, the best of all counts. The first
  // run touches the memory and does not count. Of what takes longer than half a second one undisturbed run is
  // enough, or two seconds of disturbed ones. `prepare` is
  // called before each run and not timed.
  double fastest_seconds(FunctionRef<void()> run, int num_runs = 5, const std::function<void()>& prepare = {});

  int num_measured() const { return num_measured_; }
  // How many of these had no run without losing a core to another process.
  int num_disturbed() const { return num_disturbed_; }
  double disturbed_share() const { return num_measured_ > 0 ? static_cast<double>(num_disturbed_) / num_measured_ : 0; }

 private:
  struct Run {
    double seconds = 0;
    bool is_disturbed = false;
  };
  Run time(FunctionRef<void()> run, const std::function<void()>& prepare);

  cluster::Context& context_;
  std::function<int64_t()> count_preemptions_;
  int num_measured_ = 0;
  int num_disturbed_ = 0;
};

}  // namespace tessera::session
