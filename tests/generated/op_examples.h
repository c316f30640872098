// What the generated tests share: the calls that the operators' definitions give as examples, with seeded inputs.
#pragma once

#include <string>
#include <vector>

#include "tessera/ops/registry/op_def.h"
#include "tessera/tensor/tensor.h"

namespace tessera::generated {

struct OpCall {
  const ops::OpDef* def = nullptr;
  ops::Example example;
  int number = 0;
  std::string name() const;  // "matmul_2"
};

// Every example of every operator that is not a collective, in the registry's order.
std::vector<OpCall> all_calls();

// Input i of an example: drawn from its domain, the same for the same (operator, example, input).
Tensor make_input(const OpCall& call, size_t i, DType dtype);

// The operator as a graph with data inputs in0, in1, ... and results out0, out1, ...
ir::Graph make_graph(const OpCall& call, DType floating_dtype, bool keep_dtypes);

}  // namespace tessera::generated
