// What choices of nodes and pairs of choices of neighbours cost, laid out for computing: arrays instead of nodes that
// own vectors.
#pragma once

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

namespace tessera::solver {

struct CostGraph {
  // An edge as one of its ends sees it.
  struct Incidence {
    int edge;
    int other;      // the node at the other end
    bool is_first;  // this end is the edge's u
  };

  // Nodes first, then edges: of two nodes u < v at most one, costs row-major by the choices of u, then of v. Then
  // finish().
  void add_node(std::span<const double> costs);
  void add_edge(int from, int to, std::span<const double> costs);
  void finish();

  int num_nodes() const { return static_cast<int>(first_choice.size()) - 1; }
  int num_edges() const { return static_cast<int>(u.size()); }
  int num_choices(int node) const { return at(first_choice, node + 1) - at(first_choice, node); }
  std::span<const double> costs_of(int node) const {
    return {&cost[static_cast<size_t>(at(first_choice, node))], static_cast<size_t>(num_choices(node))};
  }
  std::span<const Incidence> edges_of(int node) const {
    const auto begin = static_cast<size_t>(at(first_incidence, node));
    return {incidences.data() + begin, static_cast<size_t>(at(first_incidence, node + 1)) - begin};
  }
  // Costs beside choice i of u, one for each choice of v; and the other way round.
  const double* row(int edge, int i) const {
    return &by_u[first_pair[static_cast<size_t>(edge)] +
                 static_cast<size_t>(i) * static_cast<size_t>(num_choices(at(v, edge)))];
  }
  const double* column(int edge, int j) const {
    return &by_v[first_pair[static_cast<size_t>(edge)] +
                 static_cast<size_t>(j) * static_cast<size_t>(num_choices(at(u, edge)))];
  }
  // What the far end's choices cost beside choice i of the end that `incidence` is of.
  const double* beside(const Incidence& incidence, int i) const {
    return incidence.is_first ? row(incidence.edge, i) : column(incidence.edge, i);
  }

  std::vector<int> first_choice{0};  // where the choices of each node begin in cost, and where the last ones end
  std::vector<double> cost;
  std::vector<int> u, v;           // the ends of each edge, u < v
  std::vector<size_t> first_pair;  // where the pairs of each edge begin; edges of equal costs have the same numbers
  std::vector<double> by_u, by_v;  // row-major by the choices of u, and by those of v
  size_t num_pairs = 0;            // over all edges
  std::vector<int> first_incidence;
  std::vector<Incidence> incidences;

 protected:
  template <typename T>
  static T at(const std::vector<T>& values, int i) {
    return values[static_cast<size_t>(i)];
  }

 private:
  std::unordered_map<size_t, std::vector<int>> alike_;  // edges by the hash of their costs, until finish()
};

}  // namespace tessera::solver
