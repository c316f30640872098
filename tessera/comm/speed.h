// How fast a group communicates, measured, and what follows for the size of buckets.
#pragma once

#include <cstdint>

#include "tessera/comm/communicator.h"

namespace tessera::comm {

struct GroupSpeed {
  double latency_seconds = 0;   // what an all_reduce of one number takes
  double bytes_per_second = 0;  // what a large all_reduce reaches, in bytes of one rank's buffer
};

struct SpeedOptions {
  int64_t large_bytes = 1 << 20;
  int num_runs = 9;  // how often it is measured; the median counts
};
// Every rank of the group calls it. It takes a few milliseconds on one host by default; all ranks get the figures of
// rank 0.
GroupSpeed measure_speed(Communicator& group, const SpeedOptions& options = {});

// Small, so that the first bucket is early on its way and the last one short, but large enough that latency is at most
// a fiftieth of a bucket's time. A power of two from 1 MiB to 64 MiB: noise seldom changes it.
int64_t choose_bucket_bytes(const GroupSpeed& speed);

}  // namespace tessera::comm
