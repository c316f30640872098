// How the sharding that a value has differs from the one that is said or wanted of it, in words for error messages.
// Internal to the compiler.
#pragma once

#include <string>

#include "tessera/mesh/layout.h"
#include "tessera/tensor/type.h"

namespace tessera::compiler {

// How the sharding is partial over an axis; null where it is not.
const mesh::Partial* find_partial(const mesh::Sharding& sharding, int axis);

// Why ranks that hold `had` may not be said to hold `said`, axis by axis: "; along data the ranks hold different
// parts". Empty where they may.
std::string difference(const mesh::Mesh& mesh, const mesh::Sharding& had, const mesh::Sharding& said);

// What makes the one of the other: "; insert: all_reduce over data". Empty where nothing does.
std::string way_between(const Type& type, const mesh::Mesh& mesh, const mesh::Sharding& had,
                        const mesh::Sharding& wanted);

}  // namespace tessera::compiler
