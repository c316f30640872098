// Redistribution: the cheapest way of a tensor from one layout to another, as a list of steps. It follows from global
// shapes only: every rank finds the same steps and no rank is named in them.
//
// The cost of a step is what its busiest rank receives, in bytes, uneven shards counted as they are, plus a latency.
// Direct algorithms are assumed: an all_reduce is a reduce_scatter and an all_gather of the flattened value in one
// step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/mesh/exchange_plan.h"
#include "tessera/mesh/layout.h"

namespace tessera::mesh {

enum class MoveKind {
  kRelabel,        // nothing moves: the same slices in the terms of another mesh, or without axes of size 1
  kSlice,          // local: each rank keeps a part of what it holds
  kAllGather,      // the innermost axes of dim `dim` go
  kAllToAll,       // the innermost axes of dim `dim` become the innermost of `to_dim`
  kReduceScatter,  // partial axes are completed and become the innermost of `dim`
  kAllReduce,      // partial axes are completed
  kExchange,       // point to point, see exchange_plan()
};
const char* to_string(MoveKind kind);  // "all_gather"

struct RedistributionStep {
  MoveKind kind = MoveKind::kRelabel;
  // Axes of the mesh, outer first: the members of a group in the order of their parts are ordered_group(mesh, rank,
  // axes), the sizes of the parts part_sizes(). A slice lists those added, dim by dim; relabel and exchange none.
  std::vector<int> axes;
  int dim = -1;  // the dim of a slice, only where it is one dim
  int to_dim = -1;
  Reduction reduction = Reduction::kSum;
  int mesh = 0;    // in Redistribution::meshes, after the step
  Sharding after;  // on that mesh
  int64_t bytes = 0;
};

struct Redistribution {
  // The first is that of the source, the last that of the target. Only relabel, exchange and slice steps go from one to
  // the next; groups and axes of the other steps belong to the one mesh they stay on.
  std::vector<Mesh> meshes;
  std::vector<RedistributionStep> steps;  // none when the layouts are equal
  int64_t bytes = 0;                      // sum over steps
  double cost = 0;                        // bytes plus latencies, in bytes
  bool optimal = true;                    // false when the search gave up: on a mesh with very many axes
};

struct RedistributionOptions {
  // What the latency of one communicating step is worth. An exchange counts as two: its messages differ from rank to
  // rank, and a collective that costs the same is preferred to it.
  double latency_bytes = 16 << 10;
  // Where it is off, only gathers and slices move whole values. Only where the ranks themselves differ is there still
  // an exchange.
  bool enable_alltoall = true;
};

// Partial axes of both layouts stay partial, others are completed. On one mesh, or where refine() finds one, the steps
// are the cheapest of all sequences of steps of the kinds above in which an exchange comes last; else partial values
// are completed on the source's mesh, at least total cost, and one exchange follows (without enable_alltoall: gathers
// and slices). Never more bytes than all_reduce, all_gather of every dim that changes, slice. Among equal costs: fewer
// bytes, then fewer exchanges, then fewer communicating steps, then the sequence that the search meets first, which
// tries slices, all_gathers, all_to_alls, reduce_scatters and all_reduces in this order, lower axes and dims first.
//
// Where both layouts split a dim in different blocks, partial axes are completed first, and an exchange follows, or,
// without enable_alltoall, a gather of those dims and slices.
//
// Throws InvalidArgument when a layout does not fit the shape, `to` is partial where `from` is not, `from` mixes
// reductions (they do not commute), or partial values would have to stay so between meshes that refine() cannot relate
// or, in different blocks, between any two.
Redistribution redistribute(const Shape& shape, int64_t element_bytes, const Layout& from, const Layout& to,
                            const RedistributionOptions& options = {});

// The bytes that some rank receives in any redistribution, by any means. For whole values it is what a rank needs and
// has not. For partial values a rank receives at least one value per element that it needs; and the n contributions to
// an element must meet before a first rank has their sum, for which n - 1 values are received, n if none of the k ranks
// that need it contributes, and k - 1 more by the others: some rank receives at least the mean over all ranks. Looks at
// every rank.
int64_t lower_bound_bytes(const Shape& shape, int64_t element_bytes, const Layout& from, const Layout& to);

// One line per step: "all_gather dim 0 over model -> [data,_] 4096 B". Empty when there is none.
std::string to_string(const Redistribution& redistribution);

}  // namespace tessera::mesh
