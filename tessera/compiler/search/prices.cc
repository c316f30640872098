#include "tessera/compiler/search/prices.h"

#include <algorithm>

#include "tessera/compiler/cost/collective_time.h"
#include "tessera/compiler/partition/wide_sums.h"
#include "tessera/solver/problem/problem.h"

namespace tessera::compiler {
namespace {

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
int rounds_of(mesh::StepKind kind) {
  switch (kind) {
    case mesh::StepKind::kRelabel:
    case mesh::StepKind::kSlice: return 0;
    case mesh::StepKind::kAllReduce: return 2;
    case mesh::StepKind::kAllGather:
    case mesh::StepKind::kAllToAll:
    case mesh::StepKind::kReduceScatter:
    case mesh::StepKind::kExchange: return 1;
  }
  return 1;
}

// What is copied into one piece, or out of it, where `received` bytes come from the others of n ranks.
int64_t packed_by(const mesh::Step& step, int64_t received, int64_t n) {
  const int64_t whole = n > 1 ? received * n / (n - 1) : 0;
  switch (step.kind) {
    case mesh::StepKind::kAllGather:
    case mesh::StepKind::kReduceScatter: return step.dim == 0 ? 0 : whole;
    case mesh::StepKind::kAllToAll: return 2 * whole;
    case mesh::StepKind::kExchange: return 2 * received;
    case mesh::StepKind::kRelabel:
    case mesh::StepKind::kSlice:
    case mesh::StepKind::kAllReduce: return 0;
  }
  return 0;
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
  for (const auto& step : way.steps) {
    const auto& mesh = way.meshes[static_cast<size_t>(step.mesh)];
    if (step.kind == mesh::StepKind::kSlice) {
      const Type part = largest_part(type, mesh, step.after);
      price.seconds +=
          profile.work_seconds("strided_slice", part.dtype, 0, 2.0 * static_cast<double>(part.size_bytes()));
    }
    const int rounds = rounds_of(step.kind);
    if (rounds == 0) continue;
    const int rank = mesh.ranks()[0];
    const bool among_all = step.kind == mesh::StepKind::kExchange;
    const GroupMembers group(among_all ? mesh.ranks() : mesh::ordered_group(mesh, rank, step.axes), rank, profile);
    auto received = group.from_all(step.bytes, rounds);
    received.packed = packed_by(step, step.bytes, group.size());
    price.seconds += group.seconds_of(received);
  }
  return price;
}

}  // namespace tessera::compiler
