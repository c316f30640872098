// Dropout: zeroes elements at random while training (Srivastava et al., JMLR 2014).
#pragma once

#include "tessera/nn/cell.h"

namespace tessera::nn {

// The number of the training step, a state i64[] of this name: what makes random operators differ from step to step. It
// is an input of the graph; who runs the graph counts it.
inline constexpr const char* kRandomStep = "random_step";
Value random_step(ir::Graph& graph);
// The stream of the next operator `op` that the cell being traced adds: its path and the number of them so far.
uint64_t random_stream(const ir::Graph& graph, const std::string& op);

// Training: each element is kept with probability keep_prob and divided by it, else 0. Evaluation: x itself. Which
// elements are dropped is a function of (seed, path of the cell, number of its calls in this trace, step, position).
class Dropout : public Cell {
 public:
  // Throws InvalidArgument unless 0 < keep_prob <= 1.
  explicit Dropout(double keep_prob = 0.5);
  using Cell::construct;
  Value construct(Value x) override;

 private:
  double keep_prob_;
};

}  // namespace tessera::nn
