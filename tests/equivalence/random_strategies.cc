#include "tests/equivalence/random_strategies.h"

#include <algorithm>
#include <map>
#include <vector>

#include "tessera/base/random.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::equivalence {
namespace {

using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::ValueId;

class Dice {
 public:
  explicit Dice(uint64_t seed) : at_{.seed = seed, .stream = 3, .step = 0} {}
  size_t below(size_t limit) { return static_cast<size_t>(random_below(at_, next_++, static_cast<int64_t>(limit))); }

 private:
  RandomStream at_;
  uint64_t next_ = 0;
};

// The nodes that the result "loss" depends on, gradients aside.
std::vector<bool> forward_nodes(const Graph& graph) {
  std::vector<bool> wanted(static_cast<size_t>(graph.num_nodes()));
  std::vector<ValueId> open = {graph.find_output("loss")->value};
  while (!open.empty()) {
    const NodeId n = graph.info(open.back()).node;
    open.pop_back();
    if (n == ir::kNone || wanted[static_cast<size_t>(n)]) continue;
    wanted[static_cast<size_t>(n)] = true;
    for (const ValueId v : graph.node(n).inputs) open.push_back(v);
  }
  return wanted;
}

int64_t smallest_factor(int64_t n) {
  int64_t factor = 2;
  while (n % factor != 0) ++factor;
  return factor;
}

using Counts = std::map<std::string, int64_t>;  // by factor of the rule

Counts draw_counts(const ops::IndexRule& rule, int num_ranks, Dice& dice) {
  std::vector<std::string> factors;
  for (const auto& dims : rule.inputs) {
    for (const auto& factor : dims) {
      if (!factor.empty() && std::find(factors.begin(), factors.end(), factor) == factors.end()) {
        factors.push_back(factor);
      }
    }
  }
  Counts counts;
  if (factors.empty()) return counts;
  for (int64_t left = num_ranks; left > 1;) {
    const int64_t parts = smallest_factor(left);
    left /= parts;
    if (dice.below(4) == 0) continue;  // these ranks repeat
    counts.try_emplace(factors[dice.below(factors.size())], 1).first->second *= parts;
  }
  return counts;
}

mesh::Strategy strategy_of(const ops::IndexRule& rule, const Counts& counts) {
  mesh::Strategy strategy;
  for (const auto& dims : rule.inputs) {
    auto& tuple = strategy.emplace_back();
    for (const auto& factor : dims) tuple.push_back(counts.contains(factor) ? counts.at(factor) : 1);
  }
  return strategy;
}

}  // namespace

int add_random_strategies(Graph& graph, int num_ranks, uint64_t seed) {
  Dice dice(seed);
  std::map<ValueId, NodeId> user_of;  // of parameters: the first operator that splits it
  const auto wanted = forward_nodes(graph);
  int count = 0;
  for (NodeId n = 0; n < graph.num_nodes(); ++n) {
    Node& node = graph.mutable_node(n);
    if (!wanted[static_cast<size_t>(n)] || dice.below(5) == 0) continue;
    bool shares = false;
    for (const ValueId v : node.inputs) {
      if (graph.info(v).node == ir::kNone) shares = shares || user_of.emplace(v, n).first->second != n;
    }
    if (shares) continue;
    const auto rule = ops::rule_of(graph, n);
    const auto counts = draw_counts(rule, num_ranks, dice);
    if (counts.empty()) continue;
    node.strategy = strategy_of(rule, counts);
    ++count;
  }
  return count;
}

}  // namespace tessera::equivalence
