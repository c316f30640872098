// What redistributions move, counted rank by rank from slice_of, for comparison with the closed forms. Tests use it.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/mesh/layout.h"

namespace tessera::mesh {

// Every sharding of an ndim-dim tensor on the mesh, with any axes partial in `reduction`.
std::vector<Sharding> all_shardings(const Mesh& mesh, int ndim, Reduction reduction);

// What the busiest rank receives: needs less has.
int64_t missing_elements(const Shape& shape, const Layout& from, const Layout& to);
int64_t largest_local(const Shape& shape, const Layout& layout);
// Counts an all_reduce over `axes` whose ranks take stretches of the flattened value, by balanced_part.
int64_t all_reduced_elements(const Shape& shape, const Layout& layout, const std::vector<int>& axes);
// All_reduce of what must be completed, a gather of every dim that the target splits otherwise, slices.
int64_t gather_then_slice_elements(const Shape& shape, const Layout& from, const Layout& to);

// Whether every partial axis of `to` is one of `from`.
bool stays_partial(const Sharding& from, const Sharding& to);

// Axes "a", "b", ... of the given sizes.
Mesh mesh_of(const std::vector<int>& sizes, std::vector<int> ranks = {});

}  // namespace tessera::mesh
