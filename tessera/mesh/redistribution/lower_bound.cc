#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "tessera/mesh/redistribution/redistribution.h"

namespace tessera::mesh {
namespace {

// The elements that some rank both needs and holds a contribution to. Distinct pairs of a slice held and a slice needed
// meet in disjoint boxes, so each pair that some rank has counts once.
int64_t contributed_where_needed(const Shape& shape, const Layout& from, const Layout& to) {
  const auto ndim = static_cast<size_t>(shape.ndim());
  const auto held = all_slices(shape, from.mesh, from.sharding);
  const auto needed = all_slices(shape, to.mesh, to.sharding);
  std::unordered_map<int, size_t> position_of;
  for (size_t i = 0; i < from.mesh.ranks().size(); ++i) position_of[from.mesh.ranks()[i]] = i;
  std::set<std::vector<int64_t>> pairs;
  int64_t elements = 0;
  for (size_t i = 0; i < to.mesh.ranks().size(); ++i) {
    const auto it = position_of.find(to.mesh.ranks()[i]);
    if (it == position_of.end()) continue;
    std::vector<int64_t> pair;
    int64_t both = 1;
    for (size_t d = 0; d < ndim; ++d) {
      const Range& have = held[it->second * ndim + d];
      const Range& need = needed[i * ndim + d];
      for (const Range& range : {have, need}) pair.insert(pair.end(), {range.offset, range.size});
      const int64_t end = std::min(have.offset + have.size, need.offset + need.size);
      both *= std::max<int64_t>(0, end - std::max(have.offset, need.offset));
    }
    if (both > 0 && pairs.insert(std::move(pair)).second) elements += both;
  }
  return elements;
}

}  // namespace

int64_t lower_bound_bytes(const Shape& shape, int64_t element_bytes, const Layout& from, const Layout& to) {
  validate(shape, from);
  validate(shape, to);
  int64_t contributions = 1;  // to an element, each held by one rank or more
  int64_t num_values = 1;     // one per coordinate on the axes that stay partial
  for (const auto& partial : from.sharding.partial) contributions *= from.mesh.axis(partial.axis).size;
  for (const auto& partial : to.sharding.partial) num_values *= to.mesh.axis(partial.axis).size;
  contributions /= num_values;
  if (contributions <= 1) {
    return exchange_elements(shape, from.mesh, from.sharding, to.mesh, to.sharding) * element_bytes;
  }
  int64_t target_parts = 1;
  int64_t largest_slice = 1;
  for (int d = 0; d < shape.ndim(); ++d) {
    int64_t parts = 1;
    for (const int axis : to.sharding.dims[static_cast<size_t>(d)]) parts *= to.mesh.axis(axis).size;
    target_parts *= parts;
    largest_slice *= (shape[d] + parts - 1) / parts;
  }
  std::unordered_set<int> ranks(from.mesh.ranks().begin(), from.mesh.ranks().end());
  ranks.insert(to.mesh.ranks().begin(), to.mesh.ranks().end());
  const auto num_ranks = static_cast<int64_t>(ranks.size());
  const int64_t num_needing = to.mesh.size() / target_parts / num_values;
  const int64_t num_elements = shape.num_elements();
  __int128 received = static_cast<__int128>(num_elements) * (contributions + num_needing - 2);
  received += num_elements - contributed_where_needed(shape, from, to);
  received *= num_values;
  return std::max(largest_slice, static_cast<int64_t>((received + num_ranks - 1) / num_ranks)) * element_bytes;
}

}  // namespace tessera::mesh
