#include "tessera/train/core/process_memory.h"

#include <unistd.h>

#include <fstream>

namespace tessera::train {

int64_t resident_bytes_of_process() {
  std::ifstream pages("/proc/self/statm");
  int64_t all = 0;
  int64_t resident = 0;
  return pages >> all >> resident ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

}  // namespace tessera::train
