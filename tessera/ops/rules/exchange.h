// The boxes of an `exchange`: which piece of its operand a rank sends to each rank of the group, and where in its
// result it puts what each of them sends. A box without elements is not sent.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "tessera/mesh/box.h"
#include "tessera/ops/registry/collective_def.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

using mesh::Box;

// Reads the attributes of an exchange node. Throws InvalidArgument when they are no boxes of `ndim` dims, or none for
// some rank.
ExchangeBoxes exchange_boxes(const Attributes& attributes, int ndim);
ExchangeBoxes no_boxes(size_t num_ranks, int ndim);
// Adds what makes the attributes of a group those of an exchange with a result of this shape.
void set_exchange(Attributes& group, const ExchangeBoxes& boxes, const Shape& result);
// Every rank of a group holds a box of a value; this rank wants `wanted[own]`, the others theirs. Each piece comes from
// the wanting rank itself if it has it, else from the first holder after it in the group, so that replicas share the
// work. What no rank holds is filled with zeros. The node is there even where nothing moves: other groups' pieces may,
// and all ranks must make the same list of collectives.
// `held` and `wanted` are by rank of the group, in coordinates of the whole value; boxes that are held either are equal
// or do not meet.
Value exchange(Value x, const Attributes& group, std::span<const Box> held, std::span<const Box> wanted);
// The attributes of the node that it adds: equal for all values that lie so.
Attributes exchange_attributes(const Attributes& group, std::span<const Box> held, std::span<const Box> wanted);

}  // namespace tessera::ops
