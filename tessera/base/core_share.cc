#include "tessera/base/core_share.h"

#include <omp.h>

#include <algorithm>

namespace tessera {

int concurrent_threads(int num_threads) {
  static const int num_cores = omp_get_num_procs();
  return std::clamp(num_threads, 1, std::max(num_cores, 1));
}

}  // namespace tessera
