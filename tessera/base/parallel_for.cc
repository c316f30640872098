#include "tessera/base/parallel_for.h"

#include <omp.h>

#include <algorithm>
#include <exception>
#include <mutex>

#include "tessera/base/core_share.h"
#include "tessera/base/error.h"
#include "tessera/base/limits.h"

namespace tessera {

ParallelFor::ParallelFor(int num_threads) : num_threads_(num_threads) {
  if (num_threads < 1) throw InvalidArgument("number of compute threads must be at least 1, got {}", num_threads);
}

int ParallelFor::num_parts(int64_t n, int64_t grain) const {
  if (n <= 0) return 0;
  const int64_t parts = n / std::max<int64_t>(grain, 1);
  return static_cast<int>(std::clamp<int64_t>(parts, 1, num_threads_));
}

void ParallelFor::with_parts(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t, int)> body) const {
  const int parts = num_parts(n, grain);
  if (parts == 0) return;
  if (parts == 1) {
    body(0, n, 0);
    return;
  }
  require_threads_of_this_process();
  std::exception_ptr first_error;
  std::mutex error_mutex;
  // Part p runs on one thread, run after run. The team is always the same, even where there are fewer parts: GNU's
  // OpenMP ends the threads that a smaller team leaves over and starts new ones for the next larger team, which takes
  // longer than most kernels.
#pragma omp parallel num_threads(concurrent_threads(num_threads_))
  {
    // Where there are fewer cores than parts, or the system gives fewer threads, a thread takes several.
    for (int part = omp_get_thread_num(); part < parts; part += omp_get_num_threads()) {
      try {
        body(n * part / parts, n * (part + 1) / parts, part);
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!first_error) first_error = std::current_exception();
      }
    }
  }
  if (first_error) std::rethrow_exception(first_error);
}

void ParallelFor::operator()(int64_t n, int64_t grain, FunctionRef<void(int64_t, int64_t)> body) const {
  with_parts(n, grain, [&](int64_t begin, int64_t end, int) { body(begin, end); });
}

}  // namespace tessera
