// Host copies: what a schedule needs on a device whose memory the host does not reach.
#pragma once

#include <functional>

#include "tessera/ir/schedule.h"

namespace tessera::compiler {

// The same schedule, in which the host reads and writes nothing but values in its own memory (MemorySpace::kHost), with
// the copies as steps: data inputs come from there when the step begins, the loss and the guard of updates are there as
// soon as a step has made them, other results when the step ends; collectives, the check of the loss, looks at indices
// and the steps that the host computes (Step::on_host) work there. Each such value has memory of its own. Collectives
// of ranks whose devices communicate by themselves, as `communicates_there` says, stay on the device; an empty one says
// so of none. Throws InternalError for a collective with operands that are not dense.
ir::Schedule with_host_copies(const ir::Schedule& schedule,
                              const std::function<bool(const Ints& ranks)>& communicates_there = {});

}  // namespace tessera::compiler
