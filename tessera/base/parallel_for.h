// ParallelFor splits a loop over a rank's compute threads. The threads are OpenMP's, the ones oneDNN uses, so that one
// number says how many threads a rank has. Which thread gets which range depends only on (n, grain, num_threads).
#pragma once

#include <cstdint>

#include "tessera/base/function_ref.h"

namespace tessera {

class ParallelFor {
 public:
  // num_threads >= 1. A ParallelFor is used from one thread at a time.
  explicit ParallelFor(int num_threads = 1);

  int num_threads() const { return num_threads_; }

  // Calls body(begin, end) on disjoint ranges that cover [0, n), at most one per thread; none is called with fewer
  // than `grain` elements unless it is the only one. Returns when all have; rethrows the first exception.
  void operator()(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) const;

  // Calls body(begin, end, part) like above; `part` in [0, num_parts(n, grain)) names the range, for per-thread
  // accumulators that are combined in order of `part`.
  void with_parts(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> body) const;
  int num_parts(int64_t n, int64_t grain) const;

 private:
  int num_threads_;
};

}  // namespace tessera
