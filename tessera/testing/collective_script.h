// A fixed sequence of collectives for the tests of transports: its checksum is the same on every transport.
#pragma once

#include <cstdint>

#include "tessera/cluster/ranks/context.h"

namespace tessera {

// Runs every collective for several types, reductions, counts (empty, uneven, larger than any staging buffer), in the
// world and in two groups, and point to point. Returns a hash of all bytes received, combined over all ranks. Every
// rank of the world calls it and gets the same number.
uint64_t run_collective_script(cluster::Context& context);

}  // namespace tessera
