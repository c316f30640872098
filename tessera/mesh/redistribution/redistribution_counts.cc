#include "tessera/mesh/redistribution/redistribution_counts.h"

#include <algorithm>

#include "tessera/mesh/box.h"

namespace tessera::mesh {
std::vector<Sharding> all_shardings(const Mesh& mesh, int ndim, Reduction reduction) {
  std::vector<Sharding> result{Sharding::replicated(ndim)};
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    std::vector<Sharding> next;
    for (const auto& sharding : result) {
      next.push_back(sharding);
      next.push_back(sharding);
      next.back().partial.push_back({axis, reduction});
      for (size_t d = 0; d < sharding.dims.size(); ++d) {
        for (size_t depth = 0; depth <= sharding.dims[d].size(); ++depth) {
          next.push_back(sharding);
          auto& axes = next.back().dims[d];
          axes.insert(axes.begin() + static_cast<std::ptrdiff_t>(depth), axis);
        }
      }
    }
    result = std::move(next);
  }
  return result;
}

int64_t missing_elements(const Shape& shape, const Layout& from, const Layout& to) {
  int64_t most = 0;
  for (const int rank : to.mesh.ranks()) {
    const auto need = slice_of(shape, to.sharding, to.mesh, rank);
    int64_t missing = num_elements(need);
    if (std::find(from.mesh.ranks().begin(), from.mesh.ranks().end(), rank) != from.mesh.ranks().end()) {
      const auto have = slice_of(shape, from.sharding, from.mesh, rank);
      int64_t both = 1;
      for (size_t d = 0; d < need.size(); ++d) {
        const int64_t begin = std::max(need[d].offset, have[d].offset);
        const int64_t end = std::min(need[d].offset + need[d].size, have[d].offset + have[d].size);
        both *= std::max<int64_t>(0, end - begin);
      }
      missing -= both;
    }
    most = std::max(most, missing);
  }
  return most;
}

int64_t largest_local(const Shape& shape, const Layout& layout) {
  int64_t most = 0;
  for (const int rank : layout.mesh.ranks()) {
    most = std::max(most, num_elements(slice_of(shape, layout.sharding, layout.mesh, rank)));
  }
  return most;
}

int64_t all_reduced_elements(const Shape& shape, const Layout& layout, const std::vector<int>& axes) {
  int64_t most = 0;
  for (const int rank : layout.mesh.ranks()) {
    const auto members = static_cast<int>(ordered_group(layout.mesh, rank, axes).size());
    const int64_t elements = num_elements(slice_of(shape, layout.sharding, layout.mesh, rank));
    for (int i = 0; i < members; ++i) {
      const int64_t own = balanced_part(elements, members, i).size;
      most = std::max(most, (members - 1) * own + elements - own);
    }
  }
  return most;
}

int64_t gather_then_slice_elements(const Shape& shape, const Layout& from, const Layout& to) {
  Layout now = from;
  const bool one_mesh = from.mesh == to.mesh;
  std::vector<int> completed;
  std::erase_if(now.sharding.partial, [&](const Partial& p) {
    const auto& kept = to.sharding.partial;
    if (one_mesh && std::find(kept.begin(), kept.end(), p) != kept.end()) return false;
    completed.push_back(p.axis);
    return true;
  });
  int64_t elements = completed.empty() ? 0 : all_reduced_elements(shape, from, completed);
  for (size_t d = 0; d < now.sharding.dims.size(); ++d) {
    const Layout before = now;
    auto& have = now.sharding.dims[d];
    const auto& want = to.sharding.dims[d];
    const auto common = std::mismatch(have.begin(), have.end(), want.begin(), want.end()).first;
    have.erase(one_mesh ? common : have.begin(), have.end());
    elements += missing_elements(shape, before, now);
  }
  return elements;
}

bool stays_partial(const Sharding& from, const Sharding& to) {
  return std::all_of(to.partial.begin(), to.partial.end(), [&](const Partial& p) {
    return std::find(from.partial.begin(), from.partial.end(), p) != from.partial.end();
  });
}

Mesh mesh_of(const std::vector<int>& sizes, std::vector<int> ranks) {
  std::vector<Axis> axes;
  for (const int size : sizes) axes.push_back({std::string(1, static_cast<char>('a' + axes.size())), size});
  return Mesh(std::move(axes), std::move(ranks));
}

}  // namespace tessera::mesh
