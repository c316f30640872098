#include "tessera/mesh/redistribution/redistribution.h"

#include <algorithm>
#include <unordered_set>

#include "tessera/base/error.h"
#include "tessera/mesh/redistribution/redistribution_search.h"

namespace tessera::mesh {
namespace {

bool lists(const std::vector<Partial>& partial, int axis) {
  return std::any_of(partial.begin(), partial.end(), [axis](const Partial& p) { return p.axis == axis; });
}

// An axis of size 1 splits nothing and leaves nothing partial.
Sharding without_unit_axes(const Sharding& sharding, const Mesh& mesh) {
  Sharding result = sharding;
  for (auto& axes : result.dims) std::erase_if(axes, [&](int axis) { return mesh.axis(axis).size == 1; });
  std::erase_if(result.partial, [&](const Partial& p) { return mesh.axis(p.axis).size == 1; });
  return result;
}

void check_one_reduction(const Layout& from, const Sharding& sharding) {
  for (const auto& partial : sharding.partial) {
    if (partial.reduction != sharding.partial[0].reduction) {
      throw InvalidArgument("redistribution from {}: partial values of several reductions do not commute",
                            from.to_string());
    }
  }
}

// Both without axes of size 1, on one mesh.
void check_stays_partial(const Sharding& from, const Sharding& to, const Layout& from_layout, const Layout& to_layout) {
  for (const auto& partial : to.partial) {
    if (std::find(from.partial.begin(), from.partial.end(), partial) == from.partial.end()) {
      throw InvalidArgument("redistribution from {} to {}: a whole value cannot become partial",
                            from_layout.to_string(), to_layout.to_string());
    }
  }
}

// Fills in what follows from the shardings before and after each step.
void name_axes(const Sharding& start, std::vector<RedistributionStep>& steps) {
  const Sharding* before = &start;
  for (auto& step : steps) {
    const auto& old_dims = before->dims;
    const auto& new_dims = step.after.dims;
    const auto dim = static_cast<size_t>(step.dim);
    switch (step.kind) {
      case MoveKind::kSlice: {
        int num_dims = 0;
        for (size_t d = 0; d < old_dims.size(); ++d) {
          if (new_dims[d].size() == old_dims[d].size()) continue;
          step.axes.insert(step.axes.end(), new_dims[d].begin() + static_cast<std::ptrdiff_t>(old_dims[d].size()),
                           new_dims[d].end());
          step.dim = num_dims++ == 0 ? static_cast<int>(d) : -1;
        }
        break;
      }
      case MoveKind::kAllGather:
      case MoveKind::kAllToAll:
        step.axes.assign(old_dims[dim].begin() + static_cast<std::ptrdiff_t>(new_dims[dim].size()),
                         old_dims[dim].end());
        break;
      case MoveKind::kReduceScatter:
        step.axes.assign(new_dims[dim].begin() + static_cast<std::ptrdiff_t>(old_dims[dim].size()),
                         new_dims[dim].end());
        break;
      case MoveKind::kAllReduce:
        for (const auto& partial : before->partial) {
          if (!lists(step.after.partial, partial.axis)) step.axes.push_back(partial.axis);
        }
        break;
      case MoveKind::kRelabel:
      case MoveKind::kExchange: break;
    }
    before = &step.after;
  }
}

class Builder {
 public:
  Builder(const Shape& shape, int64_t element_bytes, const Layout& from, const Layout& to,
          const RedistributionOptions& options)
      : shape_(shape), element_bytes_(element_bytes), from_(from), to_(to), options_(options) {
    result_.meshes.push_back(from.mesh);
    start_ = without_unit_axes(from.sharding, from.mesh);
    goal_ = without_unit_axes(to.sharding, to.mesh);
    check_one_reduction(from, start_);
  }

  Redistribution build() {
    if (from_.mesh == to_.mesh) {
      check_stays_partial(start_, goal_, from_, to_);
      run(start_, &goal_);
      end_on_target();
    } else if (const auto refined = refine(shape_, {from_.mesh, start_}, {to_.mesh, goal_})) {
      check_stays_partial(refined->from, refined->to, from_, to_);
      if (!(refined->from == refined->to)) {
        if (!(refined->mesh == from_.mesh)) relabel(refined->mesh, refined->from);
        run(refined->from, &refined->to);
      }
      end_on_target();
    } else if (goal_.is_partial()) {
      throw InvalidArgument("redistribution from {} to {}: values cannot stay partial between unrelated meshes",
                            from_.to_string(), to_.to_string());
    } else if (!options_.enable_alltoall && has_same_ranks()) {
      const auto replicated = Sharding::replicated(shape_.ndim());
      run(start_, &replicated);
      relabel(to_.mesh, replicated);
      run(replicated, &goal_);
      end_on_target();
    } else {
      run_to_other_mesh();
    }
    for (const auto& step : result_.steps) result_.bytes += step.bytes;
    result_.cost = static_cast<double>(result_.bytes) + options_.latency_bytes * static_cast<double>(latencies_);
    return std::move(result_);
  }

 private:
  // Appends the steps between two shardings of the current mesh, both without axes of size 1.
  void run(const Sharding& from, const Sharding* to) {
    const Mesh& mesh = result_.meshes.back();
    append(
        search({shape_, mesh, from, to, element_bytes_, options_.latency_bytes, options_.enable_alltoall, {}, 0, {}}),
        from);
  }

  void run_to_other_mesh() {
    int64_t target_parts = 1;
    int64_t largest_slice = 1;
    for (int d = 0; d < shape_.ndim(); ++d) {
      int64_t parts = 1;
      for (const int axis : goal_.dims[static_cast<size_t>(d)]) parts *= to_.mesh.axis(axis).size;
      target_parts *= parts;
      largest_slice *= (shape_[d] + parts - 1) / parts;
    }
    std::unordered_set<int> ranks(from_.mesh.ranks().begin(), from_.mesh.ranks().end());
    ranks.insert(to_.mesh.ranks().begin(), to_.mesh.ranks().end());
    const auto num_ranks = static_cast<int64_t>(ranks.size());
    const int64_t num_needing = to_.mesh.size() / target_parts;
    const auto mean = [&, elements = shape_.num_elements()](int64_t contributions) {
      const __int128 received = static_cast<__int128>(elements) * (contributions + num_needing - 2);
      return static_cast<int64_t>((received + num_ranks - 1) / num_ranks);
    };
    const auto exchanged = [&](const Sharding& whole) {
      return exchange_elements(shape_, from_.mesh, whole, to_.mesh, goal_);
    };
    auto found = search({shape_, from_.mesh, start_, nullptr, element_bytes_, options_.latency_bytes, true, exchanged,
                         largest_slice, mean});
    RedistributionStep last = std::move(found.steps.back());
    found.steps.pop_back();
    append(std::move(found), start_);
    result_.meshes.push_back(to_.mesh);
    last.mesh = static_cast<int>(result_.meshes.size()) - 1;
    last.after = to_.sharding;
    result_.steps.push_back(std::move(last));
  }

  void append(FoundSteps found, const Sharding& start) {
    name_axes(start, found.steps);
    for (auto& step : found.steps) {
      step.mesh = static_cast<int>(result_.meshes.size()) - 1;
      result_.steps.push_back(std::move(step));
    }
    latencies_ += found.latencies;
    result_.optimal = result_.optimal && found.optimal;
  }

  void relabel(const Mesh& mesh, const Sharding& sharding) {
    result_.meshes.push_back(mesh);
    RedistributionStep step;
    step.mesh = static_cast<int>(result_.meshes.size()) - 1;
    step.after = sharding;
    result_.steps.push_back(std::move(step));
  }

  // The last step ends in `to` as it was written.
  void end_on_target() {
    const bool on_target_mesh = result_.meshes.back() == to_.mesh;
    const Sharding& now = result_.steps.empty() ? from_.sharding : result_.steps.back().after;
    if (!on_target_mesh) {
      relabel(to_.mesh, to_.sharding);
    } else if (!(now == to_.sharding)) {
      if (result_.steps.empty()) {
        result_.steps.emplace_back().after = to_.sharding;
      } else {
        result_.steps.back().after = to_.sharding;
      }
    }
  }

  bool has_same_ranks() const {
    auto a = from_.mesh.ranks();
    auto b = to_.mesh.ranks();
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    return a == b;
  }

  const Shape& shape_;
  const int64_t element_bytes_;
  const Layout& from_;
  const Layout& to_;
  const RedistributionOptions& options_;
  Sharding start_;
  Sharding goal_;
  int64_t latencies_ = 0;
  Redistribution result_;
};

// What an all_reduce moves whose ranks add up stretches of elements, not of blocks.
int64_t all_reduce_bytes(const Shape& shape, int64_t element_bytes, const Mesh& mesh, const RedistributionStep& step) {
  int64_t members = 1;
  for (const int axis : step.axes) members *= mesh.axis(axis).size;
  const int64_t elements = local_shape(shape, step.after, mesh, mesh.ranks()[0]).num_elements();
  return ((members - 2) * ((elements + members - 1) / members) + elements) * element_bytes;
}

// In units of blocks: the same deal, of fewer and larger elements.
Redistribution redistribute_blocks(const Shape& shape, int64_t element_bytes, Layout from, Layout to,
                                   const std::vector<int64_t>& blocks, const RedistributionOptions& options) {
  Shape units = shape;
  int64_t unit_bytes = element_bytes;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    units[dim] /= blocks[static_cast<size_t>(dim)];
    unit_bytes *= blocks[static_cast<size_t>(dim)];
  }
  const Sharding target = to.sharding;
  from.sharding.blocks.clear();
  to.sharding.blocks.clear();
  auto result = Builder(units, unit_bytes, from, to, options).build();
  for (RedistributionStep& step : result.steps) {
    const Mesh& mesh = result.meshes[static_cast<size_t>(step.mesh)];
    step.after = with_blocks(shape, mesh, std::move(step.after), blocks);
    if (step.kind != MoveKind::kAllReduce) continue;
    const int64_t bytes = all_reduce_bytes(shape, element_bytes, mesh, step);
    result.bytes += bytes - step.bytes;
    result.cost += static_cast<double>(bytes - step.bytes);
    step.bytes = bytes;
  }
  if (!result.steps.empty()) result.steps.back().after = target;
  return result;
}

// `first`, then `second`, which begins where that ends.
Redistribution joined(Redistribution first, const Redistribution& second) {
  const int shift = static_cast<int>(first.meshes.size()) - 1;
  first.meshes.insert(first.meshes.end(), second.meshes.begin() + 1, second.meshes.end());
  for (RedistributionStep step : second.steps) {
    step.mesh += shift;
    first.steps.push_back(std::move(step));
  }
  first.bytes += second.bytes;
  first.cost += second.cost;
  first.optimal = first.optimal && second.optimal;
  return first;
}

// How a layout deals one of its dims.
Layout only_dim(const Layout& layout, int dim) {
  Sharding sharding{{layout.sharding.dims[static_cast<size_t>(dim)]}, {}};
  if (layout.sharding.block(dim) > 1) sharding.blocks = {layout.sharding.block(dim)};
  return {layout.mesh, sharding};
}

// Sums are completed in the source's blocks; then every rank fetches what it lacks, or, where nothing may go from point
// to point, the split dims that differ are gathered and sliced.
Redistribution redistribute_to_other_blocks(const Shape& shape, int64_t element_bytes, const Layout& from,
                                            const Layout& to, const RedistributionOptions& options) {
  if (to.sharding.is_partial() && !(from.mesh == to.mesh)) {
    throw InvalidArgument("redistribution from {} to {}: values cannot stay partial between meshes in other blocks",
                          from.to_string(), to.to_string());
  }
  Layout completed = from;
  completed.sharding.partial = to.sharding.partial;
  const bool same_ranks = std::is_permutation(from.mesh.ranks().begin(), from.mesh.ranks().end(),
                                              to.mesh.ranks().begin(), to.mesh.ranks().end());
  if (!options.enable_alltoall && same_ranks) {
    Layout gathered = completed;
    for (int dim = 0; dim < shape.ndim(); ++dim) {
      if (common_blocks({shape[dim]}, only_dim(completed, dim), only_dim(to, dim))) continue;
      gathered.sharding.dims[static_cast<size_t>(dim)].clear();
      if (!gathered.sharding.blocks.empty()) gathered.sharding.blocks[static_cast<size_t>(dim)] = 1;
    }
    if (std::ranges::all_of(gathered.sharding.blocks, [](int64_t block) { return block == 1; })) {
      gathered.sharding.blocks.clear();
    }
    return joined(redistribute(shape, element_bytes, from, gathered, options),
                  redistribute(shape, element_bytes, gathered, to, options));
  }
  auto result = redistribute(shape, element_bytes, from, completed, options);
  if (!(result.meshes.back() == to.mesh)) result.meshes.push_back(to.mesh);
  RedistributionStep& last = result.steps.emplace_back();
  last.kind = MoveKind::kExchange;
  last.mesh = static_cast<int>(result.meshes.size()) - 1;
  last.after = to.sharding;
  last.bytes = element_bytes * exchange_elements(shape, completed.mesh, completed.sharding, to.mesh, to.sharding);
  result.bytes += last.bytes;
  result.cost += static_cast<double>(last.bytes) + 2 * options.latency_bytes;
  return result;
}

std::string join_axes(const std::vector<int>& axes, const Mesh& mesh) {
  std::string text;
  for (const int axis : axes) text += (text.empty() ? "" : "*") + mesh.axis(axis).name;
  return text;
}

}  // namespace

const char* to_string(MoveKind kind) {
  switch (kind) {
    case MoveKind::kRelabel: return "relabel";
    case MoveKind::kSlice: return "slice";
    case MoveKind::kAllGather: return "all_gather";
    case MoveKind::kAllToAll: return "all_to_all";
    case MoveKind::kReduceScatter: return "reduce_scatter";
    case MoveKind::kAllReduce: return "all_reduce";
    case MoveKind::kExchange: return "exchange";
  }
  return "?";
}

Redistribution redistribute(const Shape& shape, int64_t element_bytes, const Layout& from, const Layout& to,
                            const RedistributionOptions& options) {
  validate(shape, from);
  validate(shape, to);
  if (element_bytes < 1)
    throw InvalidArgument("redistribution: element_bytes must be at least 1, got {}", element_bytes);
  if (!(options.latency_bytes >= 0)) {
    throw InvalidArgument("redistribution: latency_bytes must be at least 0, got {}", options.latency_bytes);
  }
  if (from == to) return {{from.mesh}, {}, 0, 0, true};
  if (from.sharding.blocks.empty() && to.sharding.blocks.empty()) {
    return Builder(shape, element_bytes, from, to, options).build();
  }
  if (const auto blocks = common_blocks(shape, from, to)) {
    return redistribute_blocks(shape, element_bytes, from, to, *blocks, options);
  }
  return redistribute_to_other_blocks(shape, element_bytes, from, to, options);
}

std::string to_string(const Redistribution& redistribution) {
  std::string text;
  int mesh = 0;
  for (const auto& step : redistribution.steps) {
    const Mesh& on = redistribution.meshes[static_cast<size_t>(step.mesh)];
    text += to_string(step.kind);
    if (step.reduction != Reduction::kSum &&
        (step.kind == MoveKind::kAllReduce || step.kind == MoveKind::kReduceScatter)) {
      text += std::string(":") + to_string(step.reduction);
    }
    if (step.dim >= 0) text += fmt::format(" dim {}", step.dim);
    if (step.to_dim >= 0) text += fmt::format(" to {}", step.to_dim);
    if (!step.axes.empty()) text += " over " + join_axes(step.axes, on);
    text += " -> " + step.after.to_string(on);
    if (step.mesh != mesh) text += " on " + on.to_string();
    if (step.bytes > 0) text += fmt::format(" {} B", step.bytes);
    text += "\n";
    mesh = step.mesh;
  }
  return text;
}

}  // namespace tessera::mesh
