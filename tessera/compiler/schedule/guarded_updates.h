// Updates that hold only where a guard does (ir::kUpdateGuard): written as select(guard, new, old), they need no select
// where the schedule can leave out the steps that write them.
#pragma once

#include <set>
#include <string>

#include "tessera/ir/graph.h"

namespace tessera::compiler {

struct GuardedUpdates {
  ir::Graph graph;              // the outputs of `names` are the new values themselves
  std::set<std::string> names;  // the parameters and states that are written only where the guard holds
};
// Takes the selects away whose results nobody else reads. A graph without a guard comes back as it is.
GuardedUpdates find_guarded_updates(const ir::Graph& local);

}  // namespace tessera::compiler
