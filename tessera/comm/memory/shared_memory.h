// Ranks that are processes of one host: every group has a Board in anonymous shared memory (memfd), which vanishes with
// the last process that holds it, however it ended. The kernel hands the memory over through /proc/<pid>/fd, so all
// ranks share one PID namespace and user.
#pragma once

#include <memory>

#include "tessera/comm/memory/board.h"
#include "tessera/comm/store.h"
#include "tessera/comm/transport.h"

namespace tessera::comm {

struct SharedMemoryOptions {
  WaitOptions wait;
  // Large enough that a round's two meetings cost little against its copies, small enough to stay in the cache.
  int64_t slot_bytes = int64_t{1} << 20;
  int64_t message_bytes = int64_t{1} << 18;
};

// `rank` is this rank of the world. `store` and `job` outlive the transport.
std::unique_ptr<Transport> make_shared_memory_transport(Store& store, JobState& job, int rank,
                                                        const SharedMemoryOptions& options = {});

}  // namespace tessera::comm
