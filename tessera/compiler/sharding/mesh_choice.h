// The one mesh that a graph is planned on: fine enough for the mesh that was asked for, for every strategy and for the
// shardings that values have already.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/layout.h"
#include "tessera/ops/index_rule.h"

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

class MeshChoice {
 public:
  // `base` itself where nothing asks for more. The strategies are those of a graph's nodes; null: none. Throws
  // InvalidArgument naming two that no grid of the ranks holds together.
  MeshChoice(const mesh::Mesh& base, const ir::Graph* strategies, std::span<const mesh::Layout> present);

  const mesh::Mesh& mesh() const { return mesh_; }
  // The axes of mesh() that together are entry `index` of a device matrix over all its ranks.
  std::vector<int> axes_of(std::span<const int64_t> matrix, size_t index) const;
  // The same slices on mesh(). Partial axes too.
  mesh::Sharding restate(const mesh::Layout& layout) const;

 private:
  mesh::Mesh mesh_;
};

}  // namespace tessera::compiler
