// The facts of a job's hosts, of which each is asked for its own, and each pair measured.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/tessera.h"
#include "tessera/tools/check/facts.h"

namespace tessera::tools {

struct MeasureOptions {
  std::string version;                // of this program
  int64_t bytes = int64_t{16} << 20;  // of a message whose time is taken
  int num_messages = 5;               // whose median counts, and ten times as many short ones
};

// What a rank tells the others of its host, before they have met.
std::string words_of_host(int rank, const MeasureOptions& options);

// Every rank calls it, and all get the same. Of each two hosts their lowest ranks send each other messages, so that
// each host is in one pair at a time; where there is one host, its first two ranks do.
ClusterFacts measure_cluster(cluster::Context& context, const MeasureOptions& options);

}  // namespace tessera::tools
