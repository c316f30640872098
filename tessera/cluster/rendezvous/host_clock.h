// The clock by which a scheduler tells which of two processes of one host is the newer one. The host's date would not
// do: it may be set back.
#pragma once

#include <cstdint>

namespace tessera::cluster::rendezvous {

// The time since the host was started, which all its processes have alike. Never 0.
uint64_t host_time_ns();

// Names the clock: processes with the same id have the same one. Another host has another clock, and so has this host
// when it was started again, or a container with a clock of its own. 0: the system does not tell.
uint64_t host_clock_id();

}  // namespace tessera::cluster::rendezvous
