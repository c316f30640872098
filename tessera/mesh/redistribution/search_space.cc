#include "tessera/mesh/redistribution/search_space.h"

#include <algorithm>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"

namespace tessera::mesh {
namespace {}  // namespace

SearchSpace::SearchSpace(const RedistributionProblem& problem)
    : problem_(problem), shape_(problem.shape), num_elements_(problem.shape.num_elements()) {
  for (int axis = 0; axis < problem.mesh.num_axes(); ++axis) {
    const auto stays_partial = [&] {
      return is_within_mesh() && std::any_of(problem.to->partial.begin(), problem.to->partial.end(),
                                             [axis](const Partial& p) { return p.axis == axis; });
    };
    if (problem.mesh.axis(axis).size == 1 || stays_partial()) continue;
    mesh_axis_.push_back(axis);
    sizes_.push_back(problem.mesh.axis(axis).size);
    num_ranks_ *= sizes_.back();
  }
  num_axes_ = static_cast<int>(sizes_.size());
  if (num_axes_ > kMaxSearchAxes) {
    throw InvalidArgument("redistribution on mesh {}: at most {} axes larger than 1 are supported",
                          problem.mesh.to_string(), kMaxSearchAxes);
  }
  if (problem.from.is_partial()) reduction_ = problem.from.partial[0].reduction;
  if (is_within_mesh()) {
    target_ = pack(*problem.to);
    target_dims_ = unpack(target_);
    for (int d = 0; d < ndim(); ++d) largest_need_ *= divide_up(shape_[d], target_dims_.parts[as_index(d)]);
  } else {
    target_.places.fill(0x7F);
    largest_need_ = problem.largest_slice;
  }
}

// --- states ---

int SearchSpace::number_of(int mesh_axis) const {
  return static_cast<int>(std::find(mesh_axis_.begin(), mesh_axis_.end(), mesh_axis) - mesh_axis_.begin());
}

ShardingState SearchSpace::pack(const Sharding& sharding) const {
  ShardingState state;
  for (size_t dim = 0; dim < sharding.dims.size(); ++dim) {
    for (size_t depth = 0; depth < sharding.dims[dim].size(); ++depth) {
      state.places[as_index(number_of(sharding.dims[dim][depth]))] =
          ShardingState::place(static_cast<int>(dim), static_cast<int>(depth));
    }
  }
  for (const auto& partial : sharding.partial) {
    if (const int axis = number_of(partial.axis); axis < num_axes_)
      state.places[as_index(axis)] = ShardingState::kPartial;
  }
  return state;
}

UnpackedState SearchSpace::unpack(const ShardingState& state) const {
  UnpackedState result;
  result.parts.fill(1);
  for (int axis = 0; axis < num_axes_; ++axis) {
    const uint8_t place = state.places[as_index(axis)];
    if (place == ShardingState::kUnused) {
      result.unused |= 1u << axis;
    } else if (place == ShardingState::kPartial) {
      result.partial |= 1u << axis;
    } else {
      const auto dim = static_cast<size_t>(place >> 4 & 7);
      result.axes[dim][place & 15] = static_cast<uint8_t>(axis);
      ++result.num_axes[dim];
      result.parts[dim] *= sizes_[as_index(axis)];
    }
  }
  return result;
}

Sharding SearchSpace::sharding_of(const ShardingState& state) const {
  const UnpackedState dims = unpack(state);
  Sharding sharding = Sharding::replicated(ndim());
  for (int d = 0; d < ndim(); ++d) {
    for (int i = 0; i < dims.num_axes[as_index(d)]; ++i) {
      sharding.dims[as_index(d)].push_back(mesh_axis_[dims.axes[as_index(d)][as_index(i)]]);
    }
  }
  if (is_within_mesh()) sharding.partial = problem_.to->partial;
  for (int axis = 0; axis < num_axes_; ++axis) {
    if ((dims.partial >> axis & 1) != 0) sharding.partial.push_back({mesh_axis_[as_index(axis)], reduction_});
  }
  std::sort(sharding.partial.begin(), sharding.partial.end(),
            [](const Partial& a, const Partial& b) { return a.axis < b.axis; });
  return sharding;
}

SearchSpace::Overlap SearchSpace::compare(const UnpackedState& state, int dim) const {
  const int have = state.num_axes[as_index(dim)];
  const int want = target_dims_.num_axes[as_index(dim)];
  int common = 0;
  while (common < std::min(have, want) &&
         state.axes[as_index(dim)][as_index(common)] == target_dims_.axes[as_index(dim)][as_index(common)]) {
    ++common;
  }
  return {common, common == have, common < have && common < want};
}

// --- lower bounds ---

MoveCost SearchSpace::estimate(const ShardingState& state) const {
  if (state == target_) return {};
  const UnpackedState dims = unpack(state);
  if (dims.partial != 0) return estimate_partial(dims);
  return is_within_mesh() ? estimate_whole(dims) : MoveCost{};
}

// A state is one step from the target, or at least two; and each dim to be split less takes a step of its own, or an
// exchange, which counts as two.
MoveCost SearchSpace::estimate_partial(const UnpackedState& state) const {
  const int64_t contributions = product_of(state.partial);
  if (!is_within_mesh()) {
    return collective_cost(std::max(largest_need_, problem_.mean_elements(contributions)));
  }
  int num_shrinking = 0;
  for (int d = 0; d < ndim(); ++d) num_shrinking += compare(state, d).extends_to_target ? 0 : 1;
  MoveCost bound{std::max(largest_need_, mean_elements(contributions)), 2, 0, 2};
  if (num_shrinking > 0) {
    bound.latencies = 1 + std::min(num_shrinking, 2);
    return bound;
  }
  const MoveCost one_step = collective_cost(std::max(bound.elements, one_step_elements(state)));
  return is_cheaper(one_step, bound) ? one_step : bound;
}

// Of the way to the target by slices, one completion, slices, where dims only have to be split further: what can be
// sliced before is.
int64_t SearchSpace::one_step_elements(const UnpackedState& state) const {
  const int64_t ways = product_of(state.partial);
  int64_t sliced = 1;             // the largest local size of the value when it is reduced
  int64_t largest_scattered = 1;  // and after a reduce_scatter
  int num_dims = 0;               // whose target splits by partial axes
  bool in_one_block = true;
  uint32_t found = 0;
  for (int d = 0; d < ndim(); ++d) {
    int64_t before = 1;
    int64_t through = 1;  // with the partial axes
    bool begun = false;
    bool ended = false;
    for (int i = 0; i < target_dims_.num_axes[as_index(d)]; ++i) {
      const int axis = target_dims_.axes[as_index(d)][as_index(i)];
      const bool is_partial = (state.partial >> axis & 1) != 0;
      if (is_partial) {
        if (ended) in_one_block = false;
        begun = true;
        found |= 1u << axis;
        through *= sizes_[as_index(axis)];
      } else if (!begun) {
        before *= sizes_[as_index(axis)];
      } else {
        ended = true;
      }
    }
    num_dims += begun ? 1 : 0;
    sliced *= divide_up(shape_[d], before);
    largest_scattered *= divide_up(shape_[d], before * through);
  }
  const int64_t all_reduced = (ways - 2) * divide_up(sliced, ways) + sliced;
  if (num_dims != 1 || !in_one_block || found != state.partial) return all_reduced;
  return std::min(all_reduced, largest_scattered * (ways - 1));
}

// See lower_bound_bytes: n contributions, k ranks that need the sum.
int64_t SearchSpace::mean_elements(int64_t contributions) const {
  int64_t target_parts = 1;
  for (int d = 0; d < ndim(); ++d) target_parts *= target_dims_.parts[as_index(d)];
  const __int128 received = static_cast<__int128>(num_elements_) * (contributions + num_ranks_ / target_parts - 2);
  return static_cast<int64_t>((received + num_ranks_ - 1) / num_ranks_);
}

// Two ranks are asked what they need and lack: the first, and, where a dim is split by different axes, one that has
// nothing of what it needs; that one may need as little as the smallest slice. Exact where all sizes divide.
MoveCost SearchSpace::estimate_whole(const UnpackedState& state) const {
  int num_shrinking = 0;
  bool conflict = false;
  int64_t present = 1;
  int64_t smallest = 1;
  for (int d = 0; d < ndim(); ++d) {
    const Overlap overlap = compare(state, d);
    num_shrinking += overlap.extends_to_target ? 0 : 1;
    conflict = conflict || overlap.conflict;
    present *= divide_up(shape_[d], std::max(state.parts[as_index(d)], target_dims_.parts[as_index(d)]));
    smallest *= shape_[d] / target_dims_.parts[as_index(d)];
  }
  if (num_shrinking == 0) return {};
  return {std::max(largest_need_ - present, conflict ? smallest : 0), std::min(num_shrinking, 2), 0, 1};
}

}  // namespace tessera::mesh
