// A lower bound on the cost of a graph's choices: costs are moved between nodes and edges so that what is least at each
// of them alone adds up to as much as possible.
//
// Block-coordinate ascent along the order of nodes (SRMP: Kolmogorov, "A new look at reweighted message passing", PAMI
// 2015; on pairs of nodes it has the fixed points of TRW-S).
#pragma once

#include <vector>

#include "tessera/solver/problem/cost_graph.h"
#include "tessera/solver/problem/problem.h"

namespace tessera::solver {

class Dual {
 public:
  // Where costs are: what is left at each node, by choice, and what was moved onto each edge, by the choices of u, then
  // by those of v, edge after edge.
  struct State {
    std::vector<double> node;
    std::vector<double> moved;
  };

  // The graph must outlive the dual.
  explicit Dual(const CostGraph& graph);
  Dual(const CostGraph& graph, State state);

  // One pass over the nodes forth and back. The forward pass also chooses, node by node, what is best beside the nodes
  // before it and the bound of those behind it: choices(). Choices that are part of no solution below `limit` are
  // marked, as far as is seen on the way.
  void pass(double limit = kForbidden);
  // The bound of the last pass: no solution costs less.
  double bound() const { return bound_; }
  const std::vector<int>& choices() const { return choices_; }
  // Whether a pass has marked a choice, by choice.
  const std::vector<bool>& is_out() const { return is_out_; }

  // Costs change: `more` at each choice of a node, and a constant beside all of them. The bound is that of the next
  // pass.
  void add(int node, const double* more);
  void set_constant(double constant);

  // The cost of a choice or pair of choices, with costs moved as they are now, such that constant() + these over all
  // nodes and edges is the whole cost, and each is at least what least() says of its node; edges are at least zero.
  double node_cost(int node, int choice) const;
  double edge_cost(int edge, int i, int j) const;
  double least(int node) const;
  // constant() + least() of all nodes: the bound, once a pass was made, of the costs as they are.
  double sum_of_least() const;
  double constant() const { return constant_; }
  const State& state() const { return state_; }
  // Where the state has what was moved onto an edge: by the choices of u; those of v follow.
  size_t first_moved(int edge) const { return first_at_u_[static_cast<size_t>(edge)]; }

 private:
  void collect(const CostGraph::Incidence& incidence, int node);
  void distribute(int node, bool forward);
  void choose(int node);
  void go_back(double limit);
  void mark(int node, double bound, double limit);

  const CostGraph& graph_;
  State state_;
  std::vector<size_t> first_at_u_;  // the first entry of each edge
  std::vector<size_t> first_at_v_;
  std::vector<int> before_, behind_;  // neighbours of each node in the order
  double constant_ = 0;
  double bound_ = -kForbidden;
  bool is_prepared_ = false;  // the forward pass relies on what a backward pass leaves behind
  bool is_current_ = false;   // the bound is that of the costs as they are
  std::vector<int> choices_;
  std::vector<bool> is_out_;
  std::vector<double> local_;  // work space of collect and choose
};

}  // namespace tessera::solver
