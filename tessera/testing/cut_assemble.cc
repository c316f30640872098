#include <algorithm>
#include <map>

#include "tessera/base/error.h"
#include "tessera/testing/lockstep.h"
#include "tessera/testing/tensor_pieces.h"

namespace tessera::testing_support {
namespace {

using mesh::Box;

// Axes along which ranks hold different pieces: split or partial.
bool distinguishes(const mesh::Sharding& sharding, int axis) {
  return sharding.splits(axis) || std::any_of(sharding.partial.begin(), sharding.partial.end(),
                                              [axis](const mesh::Partial& p) { return p.axis == axis; });
}

}  // namespace

Tensor cut(const Tensor& whole, const mesh::Sharding& sharding, const mesh::Mesh& mesh, int rank) {
  const auto at = mesh.coordinates(rank);
  Tensor piece = Tensor::copy_of(mesh::piece_of(whole.view(), mesh::slice_of(whole.shape(), sharding, mesh, rank)));
  for (const auto& partial : sharding.partial) {
    if (at[static_cast<size_t>(partial.axis)] == 0) continue;
    if (partial.reduction == mesh::Reduction::kSum) return Tensor::zeros(piece.type());
    if (partial.reduction == mesh::Reduction::kProd) return Tensor::full(piece.type(), 1);
  }
  return piece;
}

Tensor assemble(const Type& type, const mesh::Sharding& sharding, const mesh::Mesh& mesh,
                std::span<const Tensor> pieces) {
  check_equal(pieces.size(), mesh.ranks().size(), "pieces of a mesh's ranks");
  Tensor whole = unwritten(type);
  // By the coordinates that matter: the first rank with them, by its place in the mesh.
  std::map<std::vector<int>, size_t> first;
  // By the coordinates that split: the pieces that are completed together.
  std::map<std::vector<int>, std::vector<const Tensor*>> parts;
  std::map<std::vector<int>, Box> boxes;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int rank = mesh.ranks()[i];
    const Box box = mesh::slice_of(type.shape, sharding, mesh, rank);
    if (!(pieces[i].type() == Type{type.dtype, mesh::shape_of(box)})) {
      throw InternalError(fmt::format("rank {} holds {} of {} {}, its slice has the shape {}", rank, pieces[i].type(),
                                      type, sharding.to_string(mesh), mesh::shape_of(box)));
    }
    auto distinct = mesh.coordinates(rank);
    auto split = distinct;
    for (int axis = 0; axis < mesh.num_axes(); ++axis) {
      if (!distinguishes(sharding, axis)) distinct[static_cast<size_t>(axis)] = 0;
      if (!sharding.splits(axis)) split[static_cast<size_t>(axis)] = 0;
    }
    const auto [it, is_new] = first.emplace(distinct, i);
    if (!is_new) {
      if (bit_equal(pieces[i], pieces[it->second])) continue;
      throw InternalError(fmt::format("ranks {} and {} should hold equal pieces of {} {} and do not",
                                      mesh.ranks()[it->second], rank, type, sharding.to_string(mesh)));
    }
    parts[split].push_back(&pieces[i]);
    boxes[split] = box;
  }
  for (const auto& [split, tensors] : parts) {
    const auto reduction = sharding.is_partial() ? sharding.partial[0].reduction : mesh::Reduction::kSum;
    for (const auto& partial : sharding.partial) {
      check(partial.reduction == reduction, "a value has partial axes of one reduction");
    }
    const Tensor piece = tensors.size() == 1 ? *tensors[0] : reduce(tensors, reduction);
    copy_box(piece.view(), mesh::piece_of(whole.view(), boxes[split]));
  }
  return whole;
}

}  // namespace tessera::testing_support
