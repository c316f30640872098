// What the programs of benchmarks/run collectives share: a rank's part of measuring all_reduce, whatever library does
// it. Between rounds ranks must not spin: the other sides are being measured.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "benchmarks/protocol.h"
#include "tessera/base/clock.h"
#include "tessera/base/error.h"

namespace tessera::benchmarks {

struct AllReduceSide {
  int rank = 0;
  int num_ranks = 1;
  std::string about;
  float* data = nullptr;
  int64_t count = 0;
  // Replaces the data by the sum over the ranks.
  std::function<void()> all_reduce;
  // The largest of the ranks' values, on all of them.
  std::function<double(double)> largest;
};

// Checks the sum, warms up, then has rank 0 serve rounds: GB/s of one rank's buffer, by the time of the slowest rank.
inline void serve_all_reduce(const AllReduceSide& side) {
  const auto seconds_of = [&](int64_t iterations) {
    side.largest(0);  // all are here
    const int64_t begin = Clock::system().monotonic_ns();
    for (int64_t i = 0; i < iterations; ++i) side.all_reduce();
    return side.largest(static_cast<double>(Clock::system().monotonic_ns() - begin) / 1e9);
  };
  for (int64_t i = 0; i < side.count; ++i) side.data[i] = static_cast<float>((side.rank + 1) * (i % 8 + 1));
  side.all_reduce();
  const int rank_sum = side.num_ranks * (side.num_ranks + 1) / 2;
  for (int64_t i = 0; i < side.count; ++i) {
    if (side.data[i] != static_cast<float>(rank_sum * (i % 8 + 1))) throw Error("the sum is wrong");
  }
  std::fill_n(side.data, side.count, 0.0F);
  seconds_of(3);
  const auto iterations = static_cast<int64_t>(std::clamp(0.03 / (seconds_of(5) / 5), 3.0, 20000.0));
  seconds_of(iterations);

  // Rank 0 brings 1 for a round, 0 at the end.
  if (side.rank > 0) {
    while (side.largest(0) > 0) seconds_of(iterations);
    return;
  }
  const double bytes = static_cast<double>(side.count) * sizeof(float) * static_cast<double>(iterations);
  serve_rounds("GB/s", side.about, [&] {
    side.largest(1);
    return bytes / seconds_of(iterations) / 1e9;
  });
  side.largest(0);
}

}  // namespace tessera::benchmarks
