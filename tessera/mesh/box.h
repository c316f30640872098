// Box: a block of a tensor, one range per dim: what a rank holds of it, what ranks send to each other. One without
// elements is empty.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/mesh/mesh.h"

namespace tessera::mesh {

using Box = std::vector<Range>;

// A box with offset 0 and size 0 in all dims.
Box empty_box(int ndim);
Shape shape_of(const Box& box);
int64_t num_elements(std::span<const Range> box);

// What is in both; of size 0 where they do not meet.
Range intersection(const Range& a, const Range& b);
// The elements in both; the empty_box() where they do not meet.
Box intersection(const Box& a, const Box& b);
// Whether there are any. Ranks look at pairs of boxes by the million: this allocates nothing.
bool meet(const Box& a, const Box& b);
// The box in coordinates that begin at `origin`. An empty box becomes the empty_box().
Box relative_to(const Box& box, const Box& origin);

}  // namespace tessera::mesh
