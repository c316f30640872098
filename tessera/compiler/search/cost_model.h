// What a search adds up: seconds of a node's own work and of a value's way from one sharding to another, bytes of what
// it leaves in memory. The costs follow from a machine profile and global shapes only, and are equal on all ranks.
//
// A node takes the longer of its arithmetic and its reading and writing. A way takes, step by step, a latency and the
// bytes that the busiest rank receives, at the speed of the slowest links between the members of the step's group.
// Both rise with sizes. Nothing overlaps: what lanes hide is for a simulation to say (compiler/simulate.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/compiler/cost/machine_profile.h"
#include "tessera/compiler/partition/partition.h"
#include "tessera/compiler/plan/plan.h"

namespace tessera::compiler {

// A ShardingTable has the shardings of values of one type, by number.
struct ShardingTable {
  Type type;
  std::vector<mesh::Sharding> shardings;
  std::vector<int64_t> bytes;                // the bytes of the largest slice
  std::map<std::string, int> numbers;        // the numbers by the text
  std::unordered_map<int64_t, double> ways;  // seconds, by from and to
};

// All that a node may choose, with what it costs. Shared by all nodes that cannot be told apart.
struct NodeOptions {
  std::vector<NodeChoice> choices;
  std::vector<std::vector<int>> operands;     // by operand and choice: the sharding it is wanted in
  std::vector<std::vector<int>> results;      // by result and choice: the one that it leaves
  std::vector<double> compute_seconds;        // by choice
  std::vector<double> communication_seconds;  // within the operator: halos, statistics
  std::vector<int64_t> result_bytes;          // the bytes of all results
};

class CostModel {
 public:
  CostModel(const mesh::Mesh& mesh, const MachineProfile& profile, const PartitionOptions& options = {});

  const mesh::Mesh& mesh() const { return mesh_; }
  const MachineProfile& profile() const { return profile_; }

  // The table for values of a type.
  ShardingTable& shardings_of(const Type& type);
  // The sharding's number in the table, where it is put if it is new.
  int number_of(ShardingTable& table, const mesh::Sharding& sharding) const;
  // How long the way from one sharding to another takes; kForbidden of the solver (infinity) where there is none.
  double way_seconds(ShardingTable& table, int from, int to) const;
  // Everything that the node can choose. Throws as possible_choices does.
  const NodeOptions& options_of(const ir::Graph& graph, ir::NodeId node);

 private:
  NodeOptions make_options(const ir::Graph& graph, ir::NodeId node);
  double compute_seconds(const ir::Graph& graph, ir::NodeId node, const NodeOptions& options, size_t choice);
  double communication_seconds(const ir::Graph& graph, ir::NodeId node, const NodeChoice& choice) const;

  mesh::Mesh mesh_;
  MachineProfile profile_;
  PartitionOptions options_;
  std::unordered_map<std::string, std::unique_ptr<ShardingTable>> tables_;  // by the type's text
  std::unordered_map<std::string, std::unique_ptr<NodeOptions>> nodes_;     // by all that tells nodes apart
};

}  // namespace tessera::compiler
