// How partition makes the collectives of a step: in which buckets they travel, how far ahead they begin, by which way
// values are moved.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tessera/mesh/redistribution/redistribution.h"

namespace tessera::compiler {

// Which collectives of one kind travel together. Never changes a result, only where buckets end.
struct Fusion {
  enum class Mode {
    kAuto,   // a bucket is closed when it holds PartitionOptions::bucket_bytes
    kSize,   // ... when it holds `bytes`
    kIndex,  // ... before the gradients (or parameters) of these numbers, counted in the order in which they are ready
    kOff     // each on its own
  };
  Mode mode = Mode::kAuto;
  int64_t bytes = 0;
  std::vector<int64_t> index = {};
};

// Small enough that the first bucket is on its way while backward runs.
inline constexpr int64_t kDefaultBucketBytes = 8 << 20;

struct PartitionOptions {
  // 0: kDefaultBucketBytes; a session then takes what suits the speed of its ranks' links.
  int64_t bucket_bytes = 0;
  Fusion all_reduce_fusion = {};
  Fusion all_gather_fusion = {};
  Fusion reduce_scatter_fusion = {};
  // An id for each parameter: its collectives share buckets only with collectives of an equal id; 0: with none. Others
  // have id 1.
  std::map<std::string, int> fusion_ids = {};
  // Parameters are gathered ahead of their first use, as long as less than this waits to be used.
  int64_t prefetch_bytes = 16 << 20;
  mesh::RedistributionOptions redistribution;
};

}  // namespace tessera::compiler
