#include "tessera/session/run_timer.h"

#include <algorithm>
#include <array>
#include <limits>

namespace tessera::session {
namespace {

constexpr double kTooLong = 0.5;
// What the clock cannot see still takes time.
constexpr double kLeastSeconds = 1e-9;
// So many times the runs that are wanted, and so many seconds, are spent on waiting for undisturbed ones.
constexpr int kPatience = 6;
constexpr double kPatienceSeconds = 0.5;
// Of what takes longer than half a second alone.
constexpr double kLongPatienceSeconds = 2.0;
// After so many measurements in vain the machine is busy: others are not waited for any more.
constexpr int kBusy = 10;

}  // namespace

RunTimer::Run RunTimer::time(FunctionRef<void()> run, const std::function<void()>& prepare) {
  if (prepare) prepare();
  context_.world().barrier("measuring the machine");
  const int64_t preemptions = count_preemptions_();
  const int64_t begin = context_.clock().monotonic_ns();
  run();
  const double seconds = static_cast<double>(context_.clock().monotonic_ns() - begin) / 1e9;
  std::array<double, 2> figures = {std::max(seconds, kLeastSeconds), count_preemptions_() != preemptions ? 1.0 : 0.0};
  context_.world().all_reduce(figures.data(), std::ssize(figures), DType::kF64, comm::ReduceOp::kMax,
                              "measuring the machine");
  return {figures[0], figures[1] > 0};
}

double RunTimer::fastest_seconds(FunctionRef<void()> run, int num_runs, const std::function<void()>& prepare) {
  double best = std::numeric_limits<double>::infinity();
  double best_disturbed = best;
  double spent = 0;
  int undisturbed = 0;
  const int most = num_disturbed_ < kBusy ? kPatience * num_runs : num_runs;
  for (int i = 0; i <= most && undisturbed < num_runs; ++i) {
    const Run once = time(run, prepare);
    const bool is_long = once.seconds > kTooLong;
    // The first run touches the memory; of what takes long it is near enough.
    if (i == 0 && !is_long) continue;
    spent += once.seconds;
    if (once.is_disturbed) {
      best_disturbed = std::min(best_disturbed, once.seconds);
    } else {
      best = std::min(best, once.seconds);
      ++undisturbed;
    }
    if (is_long && (undisturbed > 0 || spent > kLongPatienceSeconds)) break;
    if (i >= num_runs && spent > kPatienceSeconds) break;
  }
  ++num_measured_;
  if (undisturbed == 0) ++num_disturbed_;
  return undisturbed > 0 ? best : best_disturbed;
}

}  // namespace tessera::session
