// Collectives written by hand, for networks that see one rank's own shapes (hybrid parallel). Every rank of the group
// must call the same functions in the same order. Their gradients are true transposes: the loss is the sum of the
// ranks' losses.
#pragma once

#include <string>
#include <vector>

#include "tessera/mesh/mesh.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {

// An ordered group of ranks, as one of them sees it.
struct RankGroup {
  std::string name;
  std::vector<int> ranks;  // world ranks, in the order of the group
  int own = 0;             // this rank's place in `ranks`
};

// The collective of that name between the ranks of a group, with its own attributes.
Value collective(const std::string& op, Value x, const RankGroup& group, Attributes settings = {});

// The reduction of the group's x, of one shape, on every rank. bool: only kMax (any) and kMin (all).
Value all_reduce(Value x, const RankGroup& group, mesh::Reduction reduction = mesh::Reduction::kSum);
// The group's x one after the other along `dim`. `sizes`: of that dim per rank, where they are not all equal.
Value all_gather(Value x, const RankGroup& group, int64_t dim = 0, const Ints& sizes = {});
// This rank's piece along `dim` of the reduction. `sizes`: of the pieces per rank; else they must be equal. Only kSum
// has a gradient.
Value reduce_scatter(Value x, const RankGroup& group, int64_t dim = 0,
                     mesh::Reduction reduction = mesh::Reduction::kSum, const Ints& sizes = {});
// The x of the rank at place `root` of the group, on every rank.
Value broadcast(Value x, const RankGroup& group, int root = 0);
// Cut into equal parts along split_dim, part i goes to the group's rank i; what arrives is joined along concat_dim.
Value all_to_all(Value x, const RankGroup& group, int64_t split_dim, int64_t concat_dim);
// Sends x to the rank at place `peer`, and returns x; receive() is its other end, with the type that is sent.
Value send(Value x, const RankGroup& group, int peer);
Value receive(ir::Graph& graph, const RankGroup& group, int peer, const Type& type);

}  // namespace tessera::ops
