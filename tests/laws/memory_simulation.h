// Runs a schedule with names in place of numbers: every 64 bytes of the arena remember which value of the graph lies
// there. What a step reads must be what the graph says it reads.
#pragma once

#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/ir/schedule.h"

namespace tessera::laws {

// Every violation, one line each: a value that was written over before its last reader, an operand of a collective
// that is touched while that is under way, a write to a parameter before the loss was checked, memory outside the
// arena, results that overlap. Empty: the memory is planned well.
std::vector<std::string> memory_faults(const ir::Graph& local, const ir::Schedule& schedule);

}  // namespace tessera::laws
