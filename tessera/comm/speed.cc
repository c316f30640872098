#include "tessera/comm/speed.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "tessera/base/clock.h"

namespace tessera::comm {
namespace {

constexpr double kLatencyShare = 1.0 / 50;

// The median, which a run that something else disturbed does not move.
double seconds_of(Communicator& group, std::vector<float>& data, int64_t count, int num_runs) {
  std::vector<double> seconds;
  for (int run = 0; run <= num_runs; ++run) {
    const int64_t begin = Clock::system().monotonic_ns();
    group.all_reduce(data.data(), count, DType::kF32, ReduceOp::kMax, "measure speed");
    // The first one touches memory.
    if (run > 0) seconds.push_back(static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9);
  }
  const auto middle = seconds.begin() + num_runs / 2;
  std::nth_element(seconds.begin(), middle, seconds.end());
  return std::max(*middle, 1e-9);
}

}  // namespace

GroupSpeed measure_speed(Communicator& group, const SpeedOptions& options) {
  std::vector<float> data(static_cast<size_t>(options.large_bytes) / sizeof(float));
  double figures[2] = {seconds_of(group, data, 1, options.num_runs),
                       seconds_of(group, data, std::ssize(data), options.num_runs)};
  group.broadcast(figures, 2, DType::kF64, 0, "measure speed");
  return {figures[0], static_cast<double>(options.large_bytes) / figures[1]};
}

int64_t choose_bucket_bytes(const GroupSpeed& speed) {
  constexpr double kLeast = 1 << 20;
  constexpr double kMost = 64 << 20;
  const double bytes = std::clamp(speed.latency_seconds / kLatencyShare * speed.bytes_per_second, kLeast, kMost);
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
}

}  // namespace tessera::comm
