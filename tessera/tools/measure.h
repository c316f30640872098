// How fast this machine is, for simulations of jobs on machines like it.
#pragma once

#include "tessera/tessera.h"

namespace tessera::tools {

// Takes seconds. Computing and memory are measured with a rank of so many threads, alone. Links are not: the ranks of a
// host are taken to share its memory, other hosts to be 10 Gbit/s and 50 us away; both are to be set by hand where they
// are known better, and so is the number of ranks per host, which is the cores' share of threads.
compiler::MachineProfile measure_machine(int num_threads);

}  // namespace tessera::tools
