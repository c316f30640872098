// The costs of steps; see search_space.h.
#include "tessera/base/integers.h"
#include "tessera/mesh/redistribution/search_space.h"

#include <algorithm>
#include <bit>

namespace tessera::mesh {
namespace {}  // namespace

int64_t SearchSpace::product_of(uint32_t axes) const {
  int64_t product = 1;
  for (; axes != 0; axes &= axes - 1) product *= sizes_[as_index(std::countr_zero(axes))];
  return product;
}

// The largest: nested balanced splits round up once, whatever their order.
int64_t SearchSpace::local_size(const UnpackedState& state, int dim) const {
  return divide_up(shape_[dim], state.parts[as_index(dim)]);
}

int64_t SearchSpace::local_elements(const UnpackedState& state, int but, int and_but) const {
  int64_t elements = 1;
  for (int d = 0; d < ndim(); ++d) {
    if (d != but && d != and_but) elements *= local_size(state, d);
  }
  return elements;
}

int64_t SearchSpace::gathered_elements(const UnpackedState& state, int dim, int64_t ways) const {
  const int64_t outer = divide_up(shape_[dim], state.parts[as_index(dim)] / ways);
  return (outer - outer / ways) * local_elements(state, dim);
}

// A rank gets, of its part of `to_dim`, what it lacks of its outer slice of `dim`. Where both are uneven the two pull
// apart: a larger part of one may come with a larger part of the other.
int64_t SearchSpace::moved_elements(const UnpackedState& state, int dim, int first, int to_dim) const {
  int64_t ways = 1;
  for (int k = first; k < state.num_axes[as_index(dim)]; ++k) ways *= sizes_[state.axes[as_index(dim)][as_index(k)]];
  const int64_t outer = divide_up(shape_[dim], state.parts[as_index(dim)] / ways);
  const int64_t target = local_size(state, to_dim);
  int64_t most = 0;
  if (outer % ways == 0 || target % ways == 0) {
    most = divide_up(target, ways) * (outer - outer / ways);
  } else {
    for (int64_t part = 0; part < ways; ++part) {
      int64_t own = outer;
      int64_t wanted = target;
      int64_t stride = ways;
      for (int k = first; k < state.num_axes[as_index(dim)]; ++k) {
        const int64_t size = sizes_[state.axes[as_index(dim)][as_index(k)]];
        stride /= size;
        const int64_t index = part / stride % size;
        own = own / size + (index < own % size ? 1 : 0);
        wanted = wanted / size + (index < wanted % size ? 1 : 0);
      }
      most = std::max(most, wanted * (outer - own));
    }
  }
  return most * local_elements(state, dim, to_dim);
}

// A rank gets its part from each of the others.
int64_t SearchSpace::scattered_elements(const UnpackedState& state, int dim, int64_t ways) const {
  return divide_up(shape_[dim], state.parts[as_index(dim)] * ways) * local_elements(state, dim) * (ways - 1);
}

// A rank adds up its stretch of the flattened value, received from each of the others, then gets the rest.
int64_t SearchSpace::all_reduced_elements(const UnpackedState& state, int64_t ways) const {
  const int64_t elements = local_elements(state);
  return (ways - 2) * divide_up(elements, ways) + elements;
}

int64_t SearchSpace::exchanged_elements(const ShardingState& state) const {
  if (!is_within_mesh()) return problem_.exchange_elements(sharding_of(state));
  const UnpackedState dims = unpack(state);
  for (int d = 0; d < ndim(); ++d) {
    if (shape_[d] % dims.parts[as_index(d)] != 0 || shape_[d] % target_dims_.parts[as_index(d)] != 0) {
      return uneven_exchanged_elements(dims);
    }
  }
  return estimate_whole(dims).elements;
}

int64_t SearchSpace::uneven_exchanged_elements(const UnpackedState& state) const {
  // Per dim, what is needed and what of it is there, by the coordinates on the axes that split it here or there.
  struct Entry {
    int64_t needed;
    int64_t present;
  };
  std::array<std::vector<Entry>, kMaxNdim> tables;
  std::array<std::array<int64_t, kMaxSearchAxes>, kMaxNdim> strides{};  // into the tables
  uint32_t used = 0;
  for (int d = 0; d < ndim(); ++d) {
    std::vector<int> axes;
    int64_t num_entries = 1;
    for (const auto* side : {&state, &target_dims_}) {
      for (int i = 0; i < side->num_axes[as_index(d)]; ++i) {
        const int axis = side->axes[as_index(d)][as_index(i)];
        if (strides[as_index(d)][as_index(axis)] != 0) continue;
        strides[as_index(d)][as_index(axis)] = num_entries;
        num_entries *= sizes_[as_index(axis)];
        used |= 1u << axis;
      }
    }
    for (int64_t entry = 0; entry < num_entries; ++entry) {
      const auto range_in = [&](const UnpackedState& side) {
        Range range{0, shape_[d]};
        for (int i = 0; i < side.num_axes[as_index(d)]; ++i) {
          const int axis = side.axes[as_index(d)][as_index(i)];
          const auto size = static_cast<int>(sizes_[as_index(axis)]);
          const auto part =
              balanced_part(range.size, size, static_cast<int>(entry / strides[as_index(d)][as_index(axis)] % size));
          range = {range.offset + part.offset, part.size};
        }
        return range;
      };
      const Range have = range_in(state);
      const Range need = range_in(target_dims_);
      const int64_t end = std::min(have.offset + have.size, need.offset + need.size);
      tables[as_index(d)].push_back({need.size, std::max<int64_t>(0, end - std::max(have.offset, need.offset))});
    }
  }
  std::vector<int> axes;
  for (int axis = 0; axis < num_axes_; ++axis) {
    if ((used >> axis & 1) != 0) axes.push_back(axis);
  }
  std::array<int64_t, kMaxSearchAxes> coordinates{};
  std::array<int64_t, kMaxNdim> entries{};
  int64_t most = 0;
  while (true) {
    int64_t needed = 1;
    int64_t present = 1;
    for (int d = 0; d < ndim(); ++d) {
      const Entry& entry = tables[as_index(d)][static_cast<size_t>(entries[as_index(d)])];
      needed *= entry.needed;
      present *= entry.present;
    }
    most = std::max(most, needed - present);
    size_t next = 0;  // count up by one
    for (; next < axes.size(); ++next) {
      const auto axis = as_index(axes[next]);
      const bool wraps = ++coordinates[axis] == sizes_[axis];
      for (int d = 0; d < ndim(); ++d)
        entries[as_index(d)] += wraps ? -strides[as_index(d)][axis] * (sizes_[axis] - 1) : strides[as_index(d)][axis];
      if (!wraps) break;
      coordinates[axis] = 0;
    }
    if (next == axes.size()) return most;
  }
}

}  // namespace tessera::mesh
