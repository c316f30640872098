// How ranks do a part of the work each and learn of each other how it has ended: if one fails, all do.
#pragma once

#include <string>
#include <vector>

#include "tessera/base/function_ref.h"
#include "tessera/checkpoint/lock/barrier.h"

namespace tessera::checkpoint {

// Runs a part of the work on this rank, as long as a disk may take, and returns what each rank's returned, by rank.
// When it throws on any rank, nobody goes on: throws this rank's own error where it has one, else IoError naming the
// first rank that failed, what it could not do ("cannot save") and its reason.
std::vector<std::string> run_together(Barrier& barrier, const char* what_fails, FunctionRef<std::string()> part);
// Does the same with a part that uses the barrier itself.
std::vector<std::string> share_outcome(Barrier& barrier, const char* what_fails, FunctionRef<std::string()> part);

}  // namespace tessera::checkpoint
