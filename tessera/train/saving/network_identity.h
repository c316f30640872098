// What a network computes, in so few words that a checkpoint can carry them: two trainings whose parameters have equal
// names and shapes can still be of different networks.
#pragma once

#include <string>

#include "tessera/ir/graph.h"

namespace tessera::train {

struct NetworkIdentity {
  std::string hash;            // "1-" and sixteen hexadecimal digits, the 1 saying how it was made; "" when not known
  std::string operators = {};  // "add 2, matmul 2, relu 1": how often the forward pass and the loss have each operator
};

// The identity of the forward pass and the loss of a training step's logical graph. It depends on operators, their
// order, their settings and the parameters that they read; not on the size of the batch, on precision, on how anything
// is split, on gradients or on the optimizer.
NetworkIdentity identity_of(const ir::Graph& train_step);

// What tells two networks of different hashes apart: "relu: 1 there, 0 here; tanh: 0 there, 1 here".
std::string difference_of(const NetworkIdentity& there, const NetworkIdentity& here);

}  // namespace tessera::train
