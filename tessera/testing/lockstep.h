// Lockstep: the local graphs of all ranks of a job in one thread, node by node, with the reference kernels; a
// specification of what the ranks compute together, without sessions, threads or an arena.
//
// Every value has memory of its own, filled with NaN (-1, true) before a kernel writes it. A collective is computed
// from its members' operands once all of them have arrived at it. A rank that arrives at another one, or ends early, is
// reported by name: that is the check that the ranks' lists of collectives agree.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "tessera/ir/graph.h"
#include "tessera/mesh/mesh.h"
#include "tessera/tensor/tensor.h"

namespace tessera::testing_support {

using NamedTensors = std::map<std::string, Tensor>;

struct LocalProgram {
  int rank = 0;  // in the world; what the attribute `ranks` of collectives names
  ir::Graph graph;
  NamedTensors inputs;
};

// The results of every program, by name, in the order of the programs. Throws InvalidArgument naming an input that is
// missing or of another type than the graph says, a node without a reference kernel, and InternalError naming, by
// rank, operator and source, the collectives at which ranks that should do the same one do not.
std::vector<NamedTensors> run_lockstep(std::span<const LocalProgram> programs);

// The results of one graph without collectives.
NamedTensors run_alone(const ir::Graph& graph, const NamedTensors& inputs);

// The piece of a global tensor that `rank` holds. Where the value is a partial sum or product, the first rank along the
// axis has it, the others zero or one; a partial maximum or minimum is the value itself on all.
Tensor cut(const Tensor& whole, const mesh::Sharding& sharding, const mesh::Mesh& mesh, int rank);

// The global tensor that the ranks' pieces, in the order of mesh.ranks(), make up; what is partial is completed. Throws
// InternalError naming the first two ranks that should hold equal pieces and differ in a bit, and the rank whose piece
// is of another type than the sharding says.
Tensor assemble(const Type& type, const mesh::Sharding& sharding, const mesh::Mesh& mesh,
                std::span<const Tensor> pieces);

}  // namespace tessera::testing_support
