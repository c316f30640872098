// Lowering of redistributions: the steps from one layout to another as nodes of one rank's graph.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/redistribution/redistribution.h"

namespace tessera::compiler {

// Writes into a local graph what `rank` does in redistributions, and remembers what only all ranks together know: the
// groups they communicate in and the sizes of what they reduce.
class RedistributionLowering {
 public:
  RedistributionLowering(ir::Graph& local, int rank, const mesh::RedistributionOptions& options)
      : local_(local), rank_(rank), options_(options) {}

  // `value`, this rank's slice of a tensor of `type` laid out as `from`, as a slice of it laid out as `to`. A part of a
  // sum of a half type may be f32; it is rounded when it is whole.
  ir::Value redistribute(ir::Value value, const Type& type, const mesh::Layout& from, const mesh::Layout& to);

  // The attributes of a collective between the ranks that differ from this one along these axes only.
  Attributes group_over(const mesh::Mesh& mesh, const std::vector<int>& axes);

  // The world ranks of the groups in which any rank communicates, each in its order.
  std::set<std::vector<int>> groups() const;

  // For each all_reduce, all_gather and reduce_scatter that was written, the bytes of the largest buffer on any rank.
  const std::map<ir::NodeId, int64_t>& collective_bytes() const { return collective_bytes_; }

 private:
  // What this rank sends and receives from one layout to another.
  struct Exchange {
    mesh::Layout before;
    mesh::Layout after;
    Attributes attributes;
  };
  const Attributes& exchange_for(const mesh::RedistributionStep& step, const Shape& shape, const mesh::Layout& before,
                                 const mesh::Layout& after);
  const mesh::Redistribution& find_way(const Type& type, const mesh::Layout& from, const mesh::Layout& to);
  ir::Value lower(const mesh::RedistributionStep& step, const Shape& shape, ir::Value value, const mesh::Layout& before,
                  const mesh::Layout& after);
  ir::Value slice(const Shape& shape, ir::Value value, const mesh::Layout& before, const mesh::Layout& after) const;
  Attributes swap_slices(const mesh::RedistributionStep& step, const Shape& shape, const mesh::Layout& before,
                         const mesh::Layout& after);
  Attributes exchange(const Shape& shape, const mesh::Layout& before, const mesh::Layout& after);

  ir::Graph& local_;
  int rank_;
  const mesh::RedistributionOptions& options_;
  std::map<std::string, mesh::Redistribution> ways_;
  // Of exchanges, by the step: layers that are alike move alike, and who sends what to whom takes long to find among a
  // thousand ranks.
  std::map<std::string, std::vector<Exchange>> exchanges_;
  std::vector<std::pair<mesh::Mesh, std::vector<int>>> used_groups_;
  std::map<ir::NodeId, int64_t> collective_bytes_;
};

}  // namespace tessera::compiler
