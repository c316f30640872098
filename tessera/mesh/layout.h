// Layout: a sharding with the mesh that its axes belong to; where each element of a tensor lies, on which ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/mesh/mesh.h"

namespace tessera::mesh {

struct Layout {
  Mesh mesh;
  Sharding sharding;

  std::string to_string() const { return sharding.to_string(mesh) + " on " + mesh.to_string(); }
  bool operator==(const Layout&) const = default;
};

// Throws InvalidArgument unless the sharding has one entry per dim of the shape, names axes of the mesh, each at most
// once, lists its partial axes in order, and has blocks, if any, that divide the dims that they are of.
void validate(const Shape& shape, const Layout& layout);

// Throws InvalidArgument where the sharding's blocks are not one for each dim, at least 1, that divides it.
void check_blocks(const Shape& shape, const Sharding& sharding, const Mesh& mesh);
// Whether all parts of a dim of `size` elements, dealt along the axes in blocks of `block`, have equally many.
bool is_dealt_evenly(int64_t size, const Mesh& mesh, const std::vector<int>& axes, int64_t block);
// The sharding with dims dealt in these blocks, by dim: of those that are split, where it makes a difference and the
// block divides the dim. So shardings with equal slices are equal.
Sharding with_blocks(const Shape& shape, const Mesh& mesh, Sharding sharding, const std::vector<int64_t>& blocks);
// The blocks in which both layouts deal, by dim; nullopt where they differ on a dim that both split.
std::optional<std::vector<int64_t>> common_blocks(const Shape& shape, const Layout& from, const Layout& to);

// The ranks that differ from `rank` only along `axes`, in the row-major order of `axes` as listed: for the axes of one
// dim, outer first, that is the order of the dim's parts. Mesh::group orders by mesh axes instead.
std::vector<int> ordered_group(const Mesh& mesh, int rank, const std::vector<int>& axes);
// The sizes of the parts of `size` elements split by `axes`, outer first, in the order of ordered_group; dealt in
// blocks of `block` elements, which must divide `size`.
std::vector<int64_t> part_sizes(int64_t size, const Mesh& mesh, const std::vector<int>& axes, int64_t block = 1);
// What each position of the mesh's rank list holds: ndim ranges per position, one position after the other.
std::vector<Range> all_slices(const Shape& shape, const Mesh& mesh, const Sharding& sharding);

// A Refinement restates two layouts of one tensor on one mesh.
struct Refinement {
  Mesh mesh;  // ranks in the order of the first layout's; an axis that is a factor of "data" is named "data.0", ...
  Sharding from;
  Sharding to;
};
// The coarsest mesh whose axes, in any order, are factors of both layouts' axes, where all slices stay what they are.
// nullopt where the ranks differ, the grids do not nest ([2,3] and [3,2]), or an uneven dim would be dealt differently.
std::optional<Refinement> refine(const Shape& shape, const Layout& from, const Layout& to);

}  // namespace tessera::mesh
