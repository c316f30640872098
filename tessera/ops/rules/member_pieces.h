// The pieces that the members of a group have of one value, and the blocks of a second buffer through which those pass
// that do not lie together: what definitions of collectives are written with.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/ops/registry/collective_def.h"

namespace tessera::ops {

// By place in the group: a piece of a value, and as large a block of a buffer.
struct MemberPieces {
  std::vector<TensorView> strided;
  std::vector<TensorView> blocks;
  std::vector<int64_t> counts;  // elements
};

// What each member has along a dim: the attribute "sizes", else equal parts of the whole.
Ints member_sizes(const Attributes& attributes, int64_t whole);
// The piece [offset, offset + size) along `dim`: of a shape as a box, and of a view.
mesh::Box slab(const Shape& shape, int dim, int64_t offset, int64_t size);
TensorView slab(const TensorView& view, int dim, int64_t offset, int64_t size);
// One slab behind the other.
std::vector<mesh::Box> slabs(const Shape& shape, int dim, const Ints& sizes);
// These have no elements; a value without dims may have such boxes, too.
std::vector<mesh::Box> nothings(int64_t group_size);
std::vector<mesh::Box> wholes(const Shape& shape, int64_t group_size);

// The pieces of one value along a dim.
MemberPieces cut(const TensorView& whole, int dim, const Ints& sizes, void* staging);
// Of several values at once: member by member, their pieces side by side. `call` has "dims" and "sizes" of all of them.
MemberPieces cut_packed(std::span<const TensorView> wholes, const Attributes& call, int group_size, void* staging);
// The boxes of all members but `own`; those without elements have a count only.
MemberPieces cut_boxes(const TensorView& whole, const std::vector<mesh::Box>& boxes, int own, void* staging);

// The bytes that lie together in a dense value where it is cut along `dim` into parts of `part` each.
int64_t piece_bytes(const Type& whole, int dim, int64_t part);
// What copying takes of a value that is cut along a dim into equal parts.
Packed packed_along(const Type& whole, int64_t dim, int64_t group_size);
// Of boxes of a value, those without elements left out.
std::vector<Packed> packed_boxes(const Type& whole, const std::vector<mesh::Box>& boxes);

}  // namespace tessera::ops
