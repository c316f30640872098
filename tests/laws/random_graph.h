// Random graphs for laws that must hold for every graph: the same for the same seed, on every machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tessera/ir/graph.h"
#include "tessera/tensor/tensor.h"

namespace tessera::laws {

struct RandomGraphOptions {
  int num_nodes = 25;
  DType dtype = DType::kF32;
  // Of the data inputs; everything else follows.
  int64_t rows = 4;
  // Two parameters that are updated, and a result "loss".
  bool with_updates = true;
  // Of values whose dims are then split unevenly, which cannot be done by each rank on its own.
  bool with_reshapes = true;
};

// Elementwise chains (which may work in place), products of matrices, reductions, changes of shape, slices, selections;
// inputs x and y [rows,6], several results.
ir::Graph random_graph(uint64_t seed, const RandomGraphOptions& options = {});

// Seeded values of all inputs of a graph; parameters and states, too.
std::map<std::string, Tensor> random_inputs(const ir::Graph& graph, uint64_t seed);

}  // namespace tessera::laws
