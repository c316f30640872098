// The cases of the sharding laws: every example of every operator, and larger ones derived from it, split in every way
// that its rule allows on meshes of one to three axes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/compiler/plan/plan.h"
#include "tessera/ops/registry/op_def.h"
#include "tessera/testing/lockstep.h"

namespace tessera::laws {

// One call of an operator, with its results and the gradients of sum(weights * results) on one device. Floating
// operands are f64 wherever the operator takes that; examples in half types thereby become others and are left out, but
// for the operators that add up elements or products and round once.
struct LawExample {
  std::string name;  // "matmul f64[5,6] f64[6,8] {transpose_b}"
  ir::Graph graph;   // node 0 is the operator
  ops::IndexRule rule;
  std::vector<std::string> factors;  // of the rule, sorted
  testing_support::NamedTensors inputs;
  testing_support::NamedTensors expected;
};

// All examples of one operator. Derived ones scale the dims of each factor to 5, 6 and 8 in turn as far as shape
// inference allows: sizes that the meshes below split evenly and unevenly.
std::vector<LawExample> law_examples(const ops::OpDef& def);

// [2], [3], [4], [2,2], [2,3], [2,2,2].
const std::vector<mesh::Mesh>& law_meshes();

// Every assignment of the mesh's axes to factors, each to one or to none; several axes of one factor in every order.
std::vector<compiler::FactorAxes> factor_assignments(const std::vector<std::string>& factors, const mesh::Mesh& mesh);

enum class Arrival {
  kFitting,    // inputs arrive as the operator wants them
  kDrawn,      // in shardings drawn from the seed, partial sums among them
  kPropagated  // drawn, and the operator follows them instead of being split as given
};

struct ShardingCase {
  const LawExample* example = nullptr;
  const mesh::Mesh* mesh = nullptr;
  const compiler::FactorAxes* factors = nullptr;  // empty for kPropagated
  Arrival arrival = Arrival::kFitting;
  uint64_t seed = 0;

  std::string name() const;
};

struct OperatorCases {
  std::string op;
  std::vector<LawExample> examples;
  std::vector<ShardingCase> cases;
};

// Of every operator of the registry that is not a collective. What the cases point to lives as long as the result, and
// as the program.
std::vector<OperatorCases> all_sharding_cases(uint64_t seed);

// Leaves at most `count` cases in all, drawn from the seed, from each operator and each of its examples as many until
// it has no more.
void keep_sample(std::vector<OperatorCases>& operators, size_t count, uint64_t seed);

}  // namespace tessera::laws
