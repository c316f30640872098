// What a user is told of an index that stopped a step: where in the data it lies, and which ones its operator has.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tessera/compiler/pipeline.h"
#include "tessera/executor/executor.h"

namespace tessera::session {

// The piece of a global data input that this rank has: one range per dim.
using InputSlice = std::function<std::vector<mesh::Range>(const std::string& input)>;

// `column "tokens": row 5 holds 50257 at [5, 17]; an index of gather "embedding" must be from 0 to 50256`, in places of
// the global input, where operators that only move elements lead from a data input to the index; else
// `gather "embedding": an index is 7; it must be from 0 to 4`. `noun`: what a data input is called.
std::string describe_bad_index(const compiler::Compiled& compiled, const executor::BadIndex& bad,
                               const InputSlice& slice, const std::string& noun);

}  // namespace tessera::session
