// A reduced problem laid out for computing: arrays instead of nodes that own vectors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/solver/problem.h"

namespace tessera::solver {

struct Instance {
  // An edge as one of its ends sees it.
  struct Incidence {
    int edge;
    int other;      // the node at the other end
    bool is_first;  // this end is the edge's u
  };

  // `problem` as reduce() leaves it; it may go afterwards.
  explicit Instance(const Problem& problem);

  int num_nodes() const { return static_cast<int>(first_choice.size()) - 1; }
  int num_edges() const { return static_cast<int>(u.size()); }
  int num_choices(int node) const { return at(first_choice, node + 1) - at(first_choice, node); }
  std::span<const double> costs_of(int node) const {
    return {&cost[index(node)], static_cast<size_t>(num_choices(node))};
  }
  std::span<const int64_t> usages_of(int node) const {
    return {&usage[index(node)], static_cast<size_t>(num_choices(node))};
  }
  std::span<const Incidence> edges_of(int node) const {
    const auto begin = static_cast<size_t>(at(first_incidence, node));
    return {incidences.data() + begin, static_cast<size_t>(at(first_incidence, node + 1)) - begin};
  }
  // Costs beside choice i of u, one for each choice of v; and the other way round.
  const double* row(int edge, int i) const {
    return &by_u[first_pair[static_cast<size_t>(edge)] + static_cast<size_t>(i * num_choices(at(v, edge)))];
  }
  const double* column(int edge, int j) const {
    return &by_v[first_pair[static_cast<size_t>(edge)] + static_cast<size_t>(j * num_choices(at(u, edge)))];
  }
  // What the far end's choices cost beside choice i of the end that `incidence` is of.
  const double* beside(const Incidence& incidence, int i) const {
    return incidence.is_first ? row(incidence.edge, i) : column(incidence.edge, i);
  }
  // Whether the node takes part in the limit.
  bool is_limited(int node) const { return at(first_point, node) < at(last_point, node); }

  std::vector<int> first_choice;  // of each node and behind the last: where its choices begin in cost and usage
  std::vector<double> cost;
  std::vector<int64_t> usage;
  std::vector<int> first_point, last_point;  // of each node, as TimePoints::ranges
  int num_points = 0;
  int64_t usage_limit = kNoLimit;

  std::vector<int> u, v;           // of each edge, u < v
  std::vector<size_t> first_pair;  // of each edge
  std::vector<double> by_u, by_v;  // row-major by the choices of u, and by those of v

  std::vector<int> first_incidence;
  std::vector<Incidence> incidences;

 private:
  template <typename T>
  static T at(const std::vector<T>& values, int i) {
    return values[static_cast<size_t>(i)];
  }
  size_t index(int node) const { return static_cast<size_t>(at(first_choice, node)); }
};

}  // namespace tessera::solver
