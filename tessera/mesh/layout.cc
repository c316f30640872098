#include "tessera/mesh/layout.h"

#include <algorithm>
#include <unordered_map>

#include "tessera/base/error.h"
#include "tessera/mesh/strategy.h"

namespace tessera::mesh {
namespace {

// The distance in the rank list between neighbours along each axis.
std::vector<int64_t> strides_of(const Mesh& mesh) {
  std::vector<int64_t> strides(static_cast<size_t>(mesh.num_axes()));
  int64_t stride = 1;
  for (int axis = mesh.num_axes() - 1; axis >= 0; --axis) {
    strides[static_cast<size_t>(axis)] = stride;
    stride *= mesh.axis(axis).size;
  }
  return strides;
}

// `extent` neighbours along one direction of the second mesh's grid, and how far apart they lie in either rank list.
struct Block {
  int64_t extent;
  int64_t to_stride;
  int64_t from_stride;
};

// The second rank list as a transposed grid over the first: blocks, innermost first; nullopt where it is none.
std::optional<std::vector<Block>> find_blocks(const Mesh& from, const Mesh& to) {
  const auto num_ranks = static_cast<int64_t>(from.size());
  if (to.size() != from.size()) return std::nullopt;
  std::vector<int64_t> position;  // in the first list, by position in the second
  if (from.ranks() == to.ranks()) {
    if (num_ranks == 1) return std::vector<Block>{};
    return std::vector<Block>{{num_ranks, 1, 1}};
  }
  std::unordered_map<int, int64_t> position_of;
  for (int64_t i = 0; i < num_ranks; ++i) position_of[from.ranks()[static_cast<size_t>(i)]] = i;
  for (const int rank : to.ranks()) {
    const auto it = position_of.find(rank);
    if (it == position_of.end()) return std::nullopt;
    position.push_back(it->second);
  }
  const auto at = [&](int64_t i) { return position[static_cast<size_t>(i)]; };
  std::vector<Block> blocks;
  for (int64_t stride = 1; stride < num_ranks; stride *= blocks.back().extent) {
    int64_t extent = 2;
    while (extent * stride < num_ranks && at(extent * stride) == extent * at(stride)) ++extent;
    if (num_ranks % (extent * stride) != 0) return std::nullopt;
    blocks.push_back({extent, stride, at(stride)});
  }
  for (int64_t i = 0; i < num_ranks; ++i) {
    int64_t expected = 0;
    for (const auto& block : blocks) expected += i / block.to_stride % block.extent * block.from_stride;
    if (expected != at(i)) return std::nullopt;
  }
  return blocks;
}

// The axes of the refined mesh that lie between two strides of the first rank list, outer first.
class RefinedAxes {
 public:
  // `cuts` ends with 1 and begins with the number of ranks, each a multiple of the next.
  explicit RefinedAxes(std::vector<int64_t> cuts) : cuts_(std::move(cuts)) {}
  int count() const { return static_cast<int>(cuts_.size()) - 1; }
  int64_t stride(int axis) const { return cuts_[static_cast<size_t>(axis) + 1]; }
  int size(int axis) const { return static_cast<int>(cuts_[static_cast<size_t>(axis)] / stride(axis)); }
  void append_between(int64_t begin, int64_t end, std::vector<int>& axes) const {
    for (int axis = 0; axis < count(); ++axis) {
      if (stride(axis) >= begin && stride(axis) < end) axes.push_back(axis);
    }
  }

 private:
  std::vector<int64_t> cuts_;
};

using Factors = std::vector<std::vector<int>>;  // by axis of a mesh: its refined axes, outer first

Sharding restate(const Sharding& sharding, const Factors& factors) {
  Sharding result;
  result.blocks = sharding.blocks;
  for (const auto& axes : sharding.dims) {
    auto& dim = result.dims.emplace_back();
    for (const int axis : axes) {
      const auto& fine = factors[static_cast<size_t>(axis)];
      dim.insert(dim.end(), fine.begin(), fine.end());
    }
  }
  for (const auto& partial : sharding.partial) {
    for (const int axis : factors[static_cast<size_t>(partial.axis)])
      result.partial.push_back({axis, partial.reduction});
  }
  std::sort(result.partial.begin(), result.partial.end(),
            [](const Partial& a, const Partial& b) { return a.axis < b.axis; });
  return result;
}

bool keeps_slices(const Shape& shape, const Layout& layout, const Factors& factors, const RefinedAxes& refined) {
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    std::vector<int64_t> coarse;
    std::vector<int64_t> fine;
    for (const int axis : layout.sharding.dims[static_cast<size_t>(dim)]) {
      coarse.push_back(layout.mesh.axis(axis).size);
      for (const int factor : factors[static_cast<size_t>(axis)]) fine.push_back(refined.size(factor));
    }
    if (!refines_exactly(shape[dim] / layout.sharding.block(dim), coarse, fine)) return false;
  }
  return true;
}

// Names each refined axis after the axis of `mesh` that it is, or is a factor of.
std::vector<Axis> name_axes(const Mesh& mesh, const Factors& factors, const RefinedAxes& refined) {
  std::vector<Axis> axes(static_cast<size_t>(refined.count()));
  for (int a = 0; a < mesh.num_axes(); ++a) {
    const auto& fine = factors[static_cast<size_t>(a)];
    for (size_t i = 0; i < fine.size(); ++i) {
      std::string name = mesh.axis(a).name;
      if (fine.size() > 1) name += "." + std::to_string(i);
      const auto taken = [&](const Axis& axis) { return axis.name == name; };
      while (std::any_of(axes.begin(), axes.end(), taken)) name += "'";
      axes[static_cast<size_t>(fine[i])] = {name, refined.size(fine[i])};
    }
  }
  return axes;
}

}  // namespace

void check_blocks(const Shape& shape, const Sharding& sharding, const Mesh& mesh) {
  if (sharding.blocks.empty()) return;
  bool fits = static_cast<int>(sharding.blocks.size()) == shape.ndim();
  for (int dim = 0; fits && dim < shape.ndim(); ++dim) {
    const int64_t block = sharding.block(dim);
    fits = block > 0 && block <= std::max<int64_t>(shape[dim], 1) && shape[dim] % block == 0;
  }
  if (!fits) throw InvalidArgument("sharding {} has blocks that do not divide {}", sharding.to_string(mesh), shape);
}

bool is_dealt_evenly(int64_t size, const Mesh& mesh, const std::vector<int>& axes, int64_t block) {
  int64_t parts = 1;
  for (const int axis : axes) parts *= mesh.axis(axis).size;
  return parts == 1 || (size % block == 0 && size / block % parts == 0);
}

void validate(const Shape& shape, const Layout& layout) {
  const auto& dims = layout.sharding.dims;
  const auto& partial = layout.sharding.partial;
  if (static_cast<int>(dims.size()) != shape.ndim()) {
    throw InvalidArgument("sharding with {} dims does not fit the tensor {}, which has {}", dims.size(), shape,
                          shape.ndim());
  }
  std::vector<bool> used(static_cast<size_t>(layout.mesh.num_axes()));
  const auto use = [&](int axis) {
    if (axis < 0 || axis >= layout.mesh.num_axes()) {
      throw InvalidArgument("sharding names axis {}, mesh {} has {}", axis, layout.mesh.to_string(), used.size());
    }
    if (used[static_cast<size_t>(axis)]) {
      throw InvalidArgument("sharding {} uses axis {} more than once", layout.to_string(), layout.mesh.axis(axis).name);
    }
    used[static_cast<size_t>(axis)] = true;
  };
  for (const auto& axes : dims) {
    for (const int axis : axes) use(axis);
  }
  for (size_t i = 0; i < partial.size(); ++i) {
    use(partial[i].axis);
    if (i > 0 && partial[i - 1].axis > partial[i].axis) {
      throw InvalidArgument("sharding {} does not list its partial axes in order", layout.to_string());
    }
  }
  check_blocks(shape, layout.sharding, layout.mesh);
}

Sharding with_blocks(const Shape& shape, const Mesh& mesh, Sharding sharding, const std::vector<int64_t>& blocks) {
  sharding.blocks.clear();
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    const int64_t block = blocks[static_cast<size_t>(dim)];
    if (block <= 1 || shape[dim] % block != 0) continue;
    if (is_dealt_evenly(shape[dim], mesh, sharding.dims[static_cast<size_t>(dim)], block)) continue;
    sharding.blocks.resize(static_cast<size_t>(shape.ndim()), 1);
    sharding.blocks[static_cast<size_t>(dim)] = block;
  }
  return sharding;
}

std::optional<std::vector<int64_t>> common_blocks(const Shape& shape, const Layout& from, const Layout& to) {
  std::vector<int64_t> blocks;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    const int64_t block = std::max(from.sharding.block(dim), to.sharding.block(dim));
    for (const Layout* layout : {&from, &to}) {
      if (layout->sharding.block(dim) == block) continue;
      // What is dealt evenly is dealt in these blocks, too.
      const auto& axes = layout->sharding.dims[static_cast<size_t>(dim)];
      if (!is_dealt_evenly(shape[dim], layout->mesh, axes, block)) return std::nullopt;
    }
    blocks.push_back(block);
  }
  return blocks;
}

std::vector<int> ordered_group(const Mesh& mesh, int rank, const std::vector<int>& axes) {
  const auto strides = strides_of(mesh);
  int64_t first = mesh.position_of(rank);
  for (const int axis : axes) {
    const int64_t stride = strides[static_cast<size_t>(axis)];
    first -= first / stride % mesh.axis(axis).size * stride;
  }
  std::vector<int64_t> positions{first};
  for (const int axis : axes) {
    std::vector<int64_t> split;
    for (const int64_t position : positions) {
      for (int i = 0; i < mesh.axis(axis).size; ++i) split.push_back(position + i * strides[static_cast<size_t>(axis)]);
    }
    positions = std::move(split);
  }
  std::vector<int> group;
  for (const int64_t position : positions) group.push_back(mesh.ranks()[static_cast<size_t>(position)]);
  return group;
}

std::vector<int64_t> part_sizes(int64_t size, const Mesh& mesh, const std::vector<int>& axes, int64_t block) {
  std::vector<int64_t> sizes{size / block};
  for (const int axis : axes) {
    std::vector<int64_t> split;
    for (const int64_t outer : sizes) {
      for (const int64_t part : balanced_sizes(outer, mesh.axis(axis).size)) split.push_back(part);
    }
    sizes = std::move(split);
  }
  for (int64_t& part : sizes) part *= block;
  return sizes;
}

std::vector<Range> all_slices(const Shape& shape, const Mesh& mesh, const Sharding& sharding) {
  const auto strides = strides_of(mesh);
  std::vector<Range> slices;
  slices.reserve(static_cast<size_t>(mesh.size()) * static_cast<size_t>(shape.ndim()));
  for (int64_t position = 0; position < mesh.size(); ++position) {
    for (int dim = 0; dim < shape.ndim(); ++dim) {
      Range range{0, shape[dim]};
      const int64_t block = sharding.block(dim);
      for (const int axis : sharding.dims[static_cast<size_t>(dim)]) {
        const int size = mesh.axis(axis).size;
        const auto part = balanced_part(range.size / block, size,
                                        static_cast<int>(position / strides[static_cast<size_t>(axis)] % size));
        range = {range.offset + part.offset * block, part.size * block};
      }
      slices.push_back(range);
    }
  }
  return slices;
}

std::optional<Refinement> refine(const Shape& shape, const Layout& from, const Layout& to) {
  const auto blocks = find_blocks(from.mesh, to.mesh);
  if (!blocks) return std::nullopt;
  std::vector<int64_t> cuts = strides_of(from.mesh);
  cuts.push_back(1);
  cuts.push_back(from.mesh.size());
  for (const auto& block : *blocks) cuts.push_back(block.from_stride);
  for (const int64_t cut : strides_of(to.mesh)) {
    for (const auto& block : *blocks) {
      if (cut < block.to_stride || cut >= block.to_stride * block.extent) continue;
      const int64_t inside = cut / block.to_stride;
      if (cut % block.to_stride != 0 || block.extent % inside != 0) return std::nullopt;
      cuts.push_back(block.from_stride * inside);
    }
  }
  std::sort(cuts.begin(), cuts.end(), std::greater<>());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    if (cuts[i] % cuts[i + 1] != 0) return std::nullopt;
  }
  const RefinedAxes refined(cuts);

  Factors from_factors;
  Factors to_factors;
  const auto from_strides = strides_of(from.mesh);
  for (size_t a = 0; a < from_strides.size(); ++a) {
    const int64_t end = from_strides[a] * from.mesh.axis(static_cast<int>(a)).size;
    refined.append_between(from_strides[a], end, from_factors.emplace_back());
  }
  const auto to_strides = strides_of(to.mesh);
  for (size_t a = 0; a < to_strides.size(); ++a) {
    auto& factors = to_factors.emplace_back();
    for (auto block = blocks->rbegin(); block != blocks->rend(); ++block) {  // outer first
      const int64_t begin = std::max(to_strides[a], block->to_stride) / block->to_stride;
      const int64_t end =
          std::min(to_strides[a] * to.mesh.axis(static_cast<int>(a)).size, block->to_stride * block->extent) /
          block->to_stride;
      refined.append_between(begin * block->from_stride, end * block->from_stride, factors);
    }
  }
  if (!keeps_slices(shape, from, from_factors, refined) || !keeps_slices(shape, to, to_factors, refined)) {
    return std::nullopt;
  }
  return Refinement{Mesh(name_axes(from.mesh, from_factors, refined), from.mesh.ranks()),
                    restate(from.sharding, from_factors), restate(to.sharding, to_factors)};
}

}  // namespace tessera::mesh
