#include "tessera/compiler/search/prices.h"

#include <algorithm>
#include <utility>

#include "tessera/compiler/cost/collective_time.h"
#include "tessera/compiler/partition/wide_sums.h"
#include "tessera/ops/rules/member_pieces.h"
#include "tessera/solver/problem/problem.h"

namespace tessera::compiler {
namespace {

using ops::piece_bytes;

DType dtype_held(const Type& type, const mesh::Sharding& sharding) {
  return sharding.is_partial() ? dtype_of_parts(type.dtype) : type.dtype;
}

bool is_possible(const mesh::Sharding& from, const mesh::Sharding& to) {
  const bool is_mixed = std::any_of(from.partial.begin(), from.partial.end(),
                                    [&](const auto& p) { return p.reduction != from.partial[0].reduction; });
  return !is_mixed && std::all_of(to.partial.begin(), to.partial.end(), [&](const mesh::Partial& partial) {
    return std::find(from.partial.begin(), from.partial.end(), partial) != from.partial.end();
  });
}

// Rounds of messages.
int rounds_of(mesh::MoveKind kind) {
  switch (kind) {
    case mesh::MoveKind::kRelabel:
    case mesh::MoveKind::kSlice: return 0;
    case mesh::MoveKind::kAllReduce: return 2;
    case mesh::MoveKind::kAllGather:
    case mesh::MoveKind::kAllToAll:
    case mesh::MoveKind::kReduceScatter:
    case mesh::MoveKind::kExchange: return 1;
  }
  return 1;
}

// The bytes that lie together in both of two parts of one value: whole dims, and of the last that differs what the
// smaller one has.
int64_t common_piece(const Type& a, const Type& b) {
  int last = a.shape.ndim() - 1;
  while (last >= 0 && a.shape[last] == b.shape[last]) --last;
  if (last < 0) return std::min(a.size_bytes(), b.size_bytes());
  return piece_bytes(a, last, std::min(a.shape[last], b.shape[last]));
}

// What is copied into one piece, or out of it, where `received` bytes come from the others of n ranks and a rank has
// `before` and then `after`.
std::vector<Packed> packed_by(const mesh::RedistributionStep& step, const Type& before, const Type& after,
                              int64_t received, int64_t n) {
  const int64_t whole = n > 1 ? received * n / (n - 1) : 0;
  switch (step.kind) {
    case mesh::MoveKind::kAllGather:
      if (step.dim == 0) return {};
      return {{whole, piece_bytes(before, step.dim, before.shape[step.dim])}};
    case mesh::MoveKind::kReduceScatter:
      if (step.dim == 0) return {};
      return {{whole, piece_bytes(after, step.dim, after.shape[step.dim])}};
    case mesh::MoveKind::kAllToAll:
    case mesh::MoveKind::kExchange: {
      const int64_t copied = step.kind == mesh::MoveKind::kAllToAll ? whole : received;
      const int64_t piece = common_piece(before, after);
      return {{copied, piece}, {copied, piece}};
    }
    case mesh::MoveKind::kRelabel:
    case mesh::MoveKind::kSlice:
    case mesh::MoveKind::kAllReduce: return {};
  }
  return {};
}

}  // namespace

Type largest_part(const Type& type, const mesh::Mesh& mesh, const mesh::Sharding& sharding) {
  Type local{dtype_held(type, sharding), type.shape};
  for (int dim = 0; dim < type.shape.ndim(); ++dim) {
    int64_t blocks = local.shape[dim] / sharding.block(dim);
    for (const int axis : sharding.dims[static_cast<size_t>(dim)]) {
      const int64_t parts = mesh.axis(axis).size;
      blocks = (blocks + parts - 1) / parts;
    }
    local.shape[dim] = blocks * sharding.block(dim);
  }
  return local;
}

WayPrice price_of_way(const Type& type, const mesh::Layout& from, const mesh::Layout& to, const MachineProfile& profile,
                      const mesh::RedistributionOptions& options) {
  if (!is_possible(from.sharding, to.sharding)) return {solver::kForbidden, 0};
  // What stays partial does not change meshes and blocks at once.
  if (to.sharding.is_partial() && !(from.mesh == to.mesh) && !mesh::common_blocks(type.shape, from, to)) {
    return {solver::kForbidden, 0};
  }
  const auto element_bytes = static_cast<int64_t>(size_bytes(dtype_held(type, from.sharding)));
  const auto way = mesh::redistribute(type.shape, element_bytes, from, to, options);
  WayPrice price{0, way.bytes};
  Type before = largest_part(type, from.mesh, from.sharding);
  for (const auto& step : way.steps) {
    const Type after = largest_part(type, way.meshes[static_cast<size_t>(step.mesh)], step.after);
    const Type held = std::exchange(before, after);
    const auto& mesh = way.meshes[static_cast<size_t>(step.mesh)];
    if (step.kind == mesh::MoveKind::kSlice) {
      price.seconds +=
          profile.work_seconds("strided_slice", after.dtype, 0, 2.0 * static_cast<double>(after.size_bytes()));
    }
    const int rounds = rounds_of(step.kind);
    if (rounds == 0) continue;
    const int rank = mesh.ranks()[0];
    const bool among_all = step.kind == mesh::MoveKind::kExchange;
    const GroupMembers group(among_all ? mesh.ranks() : mesh::ordered_group(mesh, rank, step.axes), rank, profile);
    auto received = group.from_all(step.bytes, rounds);
    received.packed = packed_by(step, held, after, step.bytes, group.size());
    price.seconds += group.seconds_of(received);
  }
  return price;
}

}  // namespace tessera::compiler
