#include "tessera/mesh/mesh.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <span>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"
#include "tessera/mesh/layout.h"
#include "tessera/mesh/rank_limits.h"

namespace tessera::mesh {

Mesh::Mesh(std::vector<Axis> axes, std::vector<int> ranks) : axes_(std::move(axes)) {
  int64_t product = 1;
  std::set<std::string> names;
  for (const auto& axis : axes_) {
    if (axis.size < 1) throw InvalidArgument("mesh axis {} must have size at least 1, got {}", axis.name, axis.size);
    if (!names.insert(axis.name).second) throw InvalidArgument("mesh axis {} is named twice", axis.name);
    product *= axis.size;
    if (product > kMaxRanks)
      throw InvalidArgument("mesh {} has more than {} ranks, the most there may be", to_string(), kMaxRanks);
  }
  if (ranks.empty()) {
    ranks.resize(static_cast<size_t>(product));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  if (static_cast<int64_t>(ranks.size()) != product) {
    throw InvalidArgument("mesh {} needs {} ranks, {} were given", to_string(), product, ranks.size());
  }
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) {
    throw InvalidArgument("mesh {} names a rank twice", to_string());
  }
  ranks_ = std::make_shared<const std::vector<int>>(std::move(ranks));
}

int Mesh::axis_index(std::string_view name) const {
  for (int i = 0; i < num_axes(); ++i) {
    if (axis(i).name == name) return i;
  }
  throw InvalidArgument("mesh {} has no axis \"{}\"", to_string(), name);
}

int Mesh::position_of(int rank) const {
  // Most meshes list the ranks from 0 on.
  if (rank >= 0 && rank < size() && ranks()[static_cast<size_t>(rank)] == rank) return rank;
  const auto at = std::find(ranks().begin(), ranks().end(), rank);
  if (at == ranks().end()) throw InvalidArgument("rank {} is not in mesh {}", rank, to_string());
  return static_cast<int>(at - ranks().begin());
}

std::vector<int> Mesh::coordinates(int rank) const {
  int position = position_of(rank);
  std::vector<int> result(axes_.size());
  for (int i = num_axes() - 1; i >= 0; --i) {
    result[static_cast<size_t>(i)] = position % axis(i).size;
    position /= axis(i).size;
  }
  return result;
}

std::vector<int> Mesh::group(int rank, const std::vector<int>& axes) const {
  const auto own = coordinates(rank);
  std::vector<int> members;
  for (const int candidate : ranks()) {
    const auto other = coordinates(candidate);
    bool same = true;
    for (int i = 0; i < num_axes(); ++i) {
      const auto at = static_cast<size_t>(i);
      if (own[at] != other[at] && std::find(axes.begin(), axes.end(), i) == axes.end()) same = false;
    }
    if (same) members.push_back(candidate);
  }
  return members;
}

std::string Mesh::to_string() const {
  std::string text = "[";
  for (const auto& axis : axes_) text += fmt::format("{}{}={}", text.size() > 1 ? ", " : "", axis.name, axis.size);
  return text + "]";
}

const char* to_string(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum: return "sum";
    case Reduction::kMax: return "max";
    case Reduction::kMin: return "min";
    case Reduction::kProd: return "prod";
  }
  return "?";
}

bool Sharding::is_replicated() const {
  return partial.empty() && std::all_of(dims.begin(), dims.end(), [](const auto& axes) { return axes.empty(); });
}

bool Sharding::splits(int axis) const {
  return std::any_of(dims.begin(), dims.end(),
                     [&](const auto& axes) { return std::find(axes.begin(), axes.end(), axis) != axes.end(); });
}

std::string Sharding::to_string(const Mesh& mesh) const {
  std::string text = "[";
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    if (dim > 0) text += ",";
    if (dims[dim].empty()) text += "_";
    for (size_t i = 0; i < dims[dim].size(); ++i) text += (i > 0 ? "*" : "") + mesh.axis(dims[dim][i]).name;
    if (const int64_t size = block(static_cast<int>(dim)); size > 1) text += fmt::format(":{}", size);
  }
  text += "]";
  for (const auto& p : partial) {
    text += " +" + mesh.axis(p.axis).name;
    if (p.reduction != Reduction::kSum) text += std::string(":") + mesh::to_string(p.reduction);
  }
  return text;
}

Sharding parse_sharding(std::string_view text, const Mesh& mesh) {
  const auto refuse = [&] {
    throw InvalidArgument("\"{}\" is no sharding: one is [data,_], or [_,model] +data for partial sums", text);
  };
  const auto pieces = split(text, '+');
  const auto dims = trim(pieces[0]);
  if (dims.size() < 2 || !dims.starts_with('[') || !dims.ends_with(']')) refuse();
  Sharding sharding;
  if (dims != "[]") {
    for (const auto dim : split(dims.substr(1, dims.size() - 2), ',')) {
      auto& axes = sharding.dims.emplace_back();
      if (dim == "_") continue;
      const auto words = split(dim, ':');
      for (const auto axis : split(words[0], '*')) axes.push_back(mesh.axis_index(axis));
      if (words.size() == 1) continue;
      if (words.size() > 2) refuse();
      const int64_t block = parse_int(words[1], "the block of a sharding");
      if (block < 1) refuse();
      if (block == 1) continue;  // no block at all
      sharding.blocks.resize(sharding.dims.size(), 1);
      sharding.blocks.back() = block;
    }
  }
  if (!sharding.blocks.empty()) sharding.blocks.resize(sharding.dims.size(), 1);
  for (const auto piece : std::span(pieces).subspan(1)) {
    const auto words = split(trim(piece), ':');
    Partial partial{mesh.axis_index(words[0])};
    if (words.size() > 1) {
      const std::array known = {Reduction::kSum, Reduction::kMax, Reduction::kMin, Reduction::kProd};
      const auto found =
          std::find_if(known.begin(), known.end(), [&](Reduction r) { return to_string(r) == words[1]; });
      if (found == known.end() || words.size() > 2) refuse();
      partial.reduction = *found;
    }
    sharding.partial.push_back(partial);
  }
  return sharding;
}

Range balanced_part(int64_t size, int parts, int index) {
  const int64_t base = size / parts;
  const int64_t larger = size % parts;
  return {base * index + std::min<int64_t>(index, larger), base + (index < larger ? 1 : 0)};
}

std::vector<int64_t> balanced_sizes(int64_t size, int parts) {
  std::vector<int64_t> sizes;
  for (int i = 0; i < parts; ++i) sizes.push_back(balanced_part(size, parts, i).size);
  return sizes;
}

std::vector<Range> slice_of(const Shape& shape, const Sharding& sharding, const Mesh& mesh, int rank) {
  if (static_cast<int>(sharding.dims.size()) != shape.ndim()) {
    throw InvalidArgument("sharding {} has {} dims, the tensor {} has {}", sharding.to_string(mesh),
                          sharding.dims.size(), shape, shape.ndim());
  }
  check_blocks(shape, sharding, mesh);
  const auto at = mesh.coordinates(rank);
  std::vector<Range> slice;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    Range range{0, shape[dim]};
    const int64_t block = sharding.block(dim);
    for (const int axis : sharding.dims[static_cast<size_t>(dim)]) {
      const auto part = balanced_part(range.size / block, mesh.axis(axis).size, at[static_cast<size_t>(axis)]);
      range = {range.offset + part.offset * block, part.size * block};
    }
    slice.push_back(range);
  }
  return slice;
}

Shape local_shape(const Shape& shape, const Sharding& sharding, const Mesh& mesh, int rank) {
  Shape local = shape;
  const auto slice = slice_of(shape, sharding, mesh, rank);
  for (int dim = 0; dim < shape.ndim(); ++dim) local[dim] = slice[static_cast<size_t>(dim)].size;
  return local;
}

TensorView piece_of(const TensorView& whole, const std::vector<Range>& slice) {
  check_equal(slice.size(), static_cast<size_t>(whole.shape.ndim()), "ranges of a piece");
  TensorView piece = whole;
  int64_t offset = 0;
  for (int dim = 0; dim < whole.shape.ndim(); ++dim) {
    offset += slice[static_cast<size_t>(dim)].offset * whole.strides[dim];
    piece.shape[dim] = slice[static_cast<size_t>(dim)].size;
  }
  // What has no elements may have no address.
  if (piece.num_elements() == 0) return piece;
  piece.data = static_cast<std::byte*>(whole.data) + offset * static_cast<int64_t>(size_bytes(whole.dtype));
  return piece;
}

}  // namespace tessera::mesh
