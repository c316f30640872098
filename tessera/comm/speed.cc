#include "tessera/comm/speed.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "tessera/base/clock.h"

namespace tessera::comm {
namespace {

constexpr int kRuns = 9;
constexpr int64_t kLargeCount = int64_t{1} << 18;  // f32: 1 MiB
constexpr double kLatencyShare = 1.0 / 50;

// The median, which a run that something else disturbed does not move.
double seconds_of(Communicator& group, float* data, int64_t count) {
  std::vector<double> seconds;
  for (int run = 0; run <= kRuns; ++run) {
    const int64_t begin = Clock::system().monotonic_ns();
    group.all_reduce(data, count, DType::kF32, ReduceOp::kMax, "measure speed");
    // The first one touches memory.
    if (run > 0) seconds.push_back(static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return std::max(seconds[kRuns / 2], 1e-9);
}

}  // namespace

GroupSpeed measure_speed(Communicator& group) {
  std::vector<float> data(static_cast<size_t>(kLargeCount));
  double figures[2] = {seconds_of(group, data.data(), 1), seconds_of(group, data.data(), kLargeCount)};
  group.broadcast(figures, 2, DType::kF64, 0, "measure speed");
  return {figures[0], static_cast<double>(kLargeCount) * sizeof(float) / figures[1]};
}

int64_t choose_bucket_bytes(const GroupSpeed& speed) {
  constexpr double kLeast = 1 << 20;
  constexpr double kMost = 64 << 20;
  const double bytes = std::clamp(speed.latency_seconds / kLatencyShare * speed.bytes_per_second, kLeast, kMost);
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(bytes)));
}

}  // namespace tessera::comm
