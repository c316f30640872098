// The meshes that a graph is planned on: one, fine enough for the mesh that was asked for, for every strategy and for
// the shardings that values have already; more where these do not nest.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/layout.h"
#include "tessera/ops/registry/index_rule.h"

namespace tessera::compiler {

// The counts that a strategy gives the factors of a rule, in the order in which the operands name them: the device
// matrix of the operator, ones included.
struct FactorSplit {
  std::string factor;
  int64_t parts = 1;
};
// Throws InvalidArgument naming the node and both sides where the strategy does not fit: number of tuples, their
// lengths, counts below 1, a dim that cannot be split, a factor that two operands split differently, more parts than
// ranks or a number of parts that does not divide them.
std::vector<FactorSplit> factor_splits(const std::string& node_name, const ops::IndexRule& rule,
                                       std::span<const Type> inputs, const mesh::Strategy& strategy, int num_ranks);

// On which device matrix a node's strategy lies, and which entries of it split each of the rule's factors, outer first;
// factors that are not split are not there. As the strategy's grid says, else the entries are the factors' counts in
// order.
struct StrategyPlacement {
  std::vector<int64_t> matrix;
  std::vector<std::pair<std::string, std::vector<size_t>>> factors;
};
// Throws as factor_splits() does, and naming the node and its grid where that does not fit: a number of ranks that is
// not theirs, other tuples or dims than the strategy's, axes that it has not or that give another count, an index that
// two operands split along different axes, and an axis that splits two indices.
StrategyPlacement strategy_placement(const ir::Graph& graph, ir::NodeId node, int num_ranks);

// A Placed is a sharding on one of the meshes of a choice.
struct Placed {
  int mesh = 0;
  mesh::Sharding sharding;
};

class MeshChoice {
 public:
  // `base` itself where nothing asks for more. The strategies are those of a graph's nodes; null: none. What no one
  // grid holds together is dealt to several, each taken by the first that it nests with.
  MeshChoice(const mesh::Mesh& base, const ir::Graph* strategies, std::span<const mesh::Layout> present);

  const std::vector<mesh::Mesh>& meshes() const { return meshes_; }
  const mesh::Mesh& mesh(int index) const { return meshes_[static_cast<size_t>(index)]; }
  // The first mesh that holds a device matrix.
  int mesh_for(std::span<const int64_t> matrix) const;
  // The axes of a mesh that together are entry `index` of a device matrix that it holds.
  std::vector<int> axes_of(int mesh, std::span<const int64_t> matrix, size_t index) const;
  // The same slices on the first mesh that holds the layout's. Partial axes too.
  Placed restate(const mesh::Layout& layout) const;
  // Likewise on mesh `to`; nullopt where its axes cannot say it.
  std::optional<mesh::Sharding> restate(const Placed& placed, int to) const;

 private:
  std::optional<mesh::Sharding> restate(const mesh::Layout& layout, int to) const;

  std::vector<mesh::Mesh> meshes_;
};

}  // namespace tessera::compiler
