#include "tessera/solver/bounds/dual.h"
#include "tessera/base/integers.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tessera::solver {
namespace {

size_t num_moved(const CostGraph& graph) {
  size_t sum = 0;
  for (int e = 0; e < graph.num_edges(); ++e) {
    sum += as_index(graph.num_choices(graph.u[as_index(e)])) + as_index(graph.num_choices(graph.v[as_index(e)]));
  }
  return sum;
}

// Most of the time is spent here; the compiler makes a version for processors with wider registers beside the usual
// one.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
__attribute__((target_clones("avx2", "default")))
#endif
void lower(double* least, const double* costs, double moved, int count) {
#pragma omp simd
  for (int i = 0; i < count; ++i) {
    const double cost = costs[i] + moved;
    least[i] = cost < least[i] ? cost : least[i];
  }
}

}  // namespace

Dual::Dual(const CostGraph& graph) : Dual(graph, {graph.cost, std::vector<double>(num_moved(graph), 0.0)}) {}

Dual::Dual(const CostGraph& graph, State state)
    : graph_(graph),
      state_(std::move(state)),
      before_(as_index(graph.num_nodes()), 0),
      behind_(as_index(graph.num_nodes()), 0),
      choices_(as_index(graph.num_nodes()), 0),
      is_out_(graph.cost.size(), false) {
  size_t next = 0;
  for (int e = 0; e < graph.num_edges(); ++e) {
    first_at_u_.push_back(next);
    next += as_index(graph.num_choices(graph.u[as_index(e)]));
    first_at_v_.push_back(next);
    next += as_index(graph.num_choices(graph.v[as_index(e)]));
    ++behind_[as_index(graph.u[as_index(e)])];
    ++before_[as_index(graph.v[as_index(e)])];
  }
  int most = 0;
  for (int n = 0; n < graph.num_nodes(); ++n) most = std::max(most, graph.num_choices(n));
  local_.resize(as_index(most));
}

// Moves to `node` the least that the edge costs beside each of its choices.
void Dual::collect(const CostGraph::Incidence& incidence, int node) {
  const auto edge = as_index(incidence.edge);
  const int own = graph_.num_choices(node);
  const int others = graph_.num_choices(incidence.other);
  const double* far = &state_.moved[incidence.is_first ? first_at_v_[edge] : first_at_u_[edge]];
  double* near = &state_.moved[incidence.is_first ? first_at_u_[edge] : first_at_v_[edge]];
  double* least = local_.data();
  std::fill_n(least, own, kForbidden);
  const CostGraph::Incidence opposite{incidence.edge, node, !incidence.is_first};
  for (int j = 0; j < others; ++j) {
    lower(least, graph_.beside(opposite, j), far[j], own);
  }
  double* left = &state_.node[as_index(graph_.first_choice[as_index(node)])];
  for (int i = 0; i < own; ++i) {
    left[i] += near[i] + least[i];
    near[i] = -least[i];
  }
}

// Hands out shares of what the node has to the edges behind it (forward) or before it; the node keeps its own share
// where chains end at it.
void Dual::distribute(int node, bool forward) {
  const int before = before_[as_index(node)];
  const int behind = behind_[as_index(node)];
  const int count = forward ? behind : before;
  if (count == 0) return;
  const double share = 1.0 / std::max(before, behind);
  const int own = graph_.num_choices(node);
  double* left = &state_.node[as_index(graph_.first_choice[as_index(node)])];
  for (const auto& incidence : graph_.edges_of(node)) {
    if (incidence.is_first != forward) continue;
    const auto edge = as_index(incidence.edge);
    double* near = &state_.moved[incidence.is_first ? first_at_u_[edge] : first_at_v_[edge]];
    for (int i = 0; i < own; ++i) near[i] += share * left[i];
  }
  const double kept = count == std::max(before, behind) ? 0.0 : 1.0 - share * count;
  for (int i = 0; i < own; ++i) left[i] *= kept;
}

// The best choice beside those of the nodes before; of the nodes behind, the last backward pass has moved the least
// that they cost to this one.
void Dual::choose(int node) {
  const int own = graph_.num_choices(node);
  const double* left = &state_.node[as_index(graph_.first_choice[as_index(node)])];
  double* total = local_.data();
  std::copy_n(left, own, total);
  for (const auto& incidence : graph_.edges_of(node)) {
    if (incidence.is_first) continue;
    const auto edge = as_index(incidence.edge);
    const int chosen = choices_[as_index(incidence.other)];
    const double* costs = graph_.row(incidence.edge, chosen);
    const double* near = &state_.moved[first_at_v_[edge]];
    for (int i = 0; i < own; ++i) total[i] += costs[i] + near[i];
  }
  choices_[as_index(node)] = static_cast<int>(std::min_element(total, total + own) - total);
}

// All steps of a pass leave the bound as it is or raise it. With a choice in place of the best one it is higher by what
// the choice costs more at its node; that is most where the node has collected from both sides.
void Dual::mark(int node, double bound, double limit) {
  const auto first = as_index(graph_.first_choice[as_index(node)]);
  // A little above: sums of doubles are not exact.
  const double most = limit - bound + 1e-9 * std::abs(limit) + least(node);
  for (size_t i = first; i < first + as_index(graph_.num_choices(node)); ++i) {
    if (state_.node[i] > most) is_out_[i] = true;
  }
}

void Dual::go_back(double limit) {
  const bool marks = is_current_ && limit != kForbidden;
  for (int n = graph_.num_nodes() - 1; n >= 0; --n) {
    for (const auto& incidence : graph_.edges_of(n)) {
      if (incidence.is_first) collect(incidence, n);
    }
    if (marks) mark(n, bound_, limit);
    distribute(n, false);
  }
}

void Dual::pass(double limit) {
  const int nodes = graph_.num_nodes();
  if (!is_prepared_) go_back(kForbidden);
  is_prepared_ = true;
  for (int n = 0; n < nodes; ++n) {
    choose(n);
    for (const auto& incidence : graph_.edges_of(n)) {
      if (!incidence.is_first) collect(incidence, n);
    }
    distribute(n, true);
  }
  go_back(limit);
  // Each edge was collected last at the end that comes first, so that its least is zero.
  bound_ = sum_of_least();
  is_current_ = true;
}

void Dual::add(int node, const double* more) {
  double* left = &state_.node[as_index(graph_.first_choice[as_index(node)])];
  for (int i = 0; i < graph_.num_choices(node); ++i) left[i] += more[i];
  is_current_ = false;
}

void Dual::set_constant(double constant) {
  constant_ = constant;
  is_current_ = false;
}

double Dual::sum_of_least() const {
  double sum = constant_;
  for (int n = 0; n < graph_.num_nodes(); ++n) sum += least(n);
  return sum;
}

double Dual::least(int node) const {
  const double* left = &state_.node[as_index(graph_.first_choice[as_index(node)])];
  return *std::min_element(left, left + graph_.num_choices(node));
}

double Dual::node_cost(int node, int choice) const {
  return state_.node[as_index(graph_.first_choice[as_index(node)] + choice)];
}

double Dual::edge_cost(int edge, int i, int j) const {
  const auto e = as_index(edge);
  return graph_.row(edge, i)[j] + state_.moved[first_at_u_[e] + as_index(i)] +
         state_.moved[first_at_v_[e] + as_index(j)];
}

}  // namespace tessera::solver
