#include "tessera/solver/dual.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tessera::solver {
namespace {

// A new direction's share in the mean that prices follow.
constexpr double kShare = 0.1;
constexpr int kPatience = 20;  // follow_usage calls without a better bound until the step is made shorter
constexpr double kShorter = 0.7;

size_t as_index(int i) { return static_cast<size_t>(i); }

}  // namespace

Dual::Dual(const Instance& instance)
    : instance_(instance),
      node_(instance.cost),
      before_(as_index(instance.num_nodes()), 0),
      behind_(as_index(instance.num_nodes()), 0),
      prices_(as_index(instance.num_points), 0.0),
      mean_excess_(as_index(instance.num_points), 0.0),
      choices_(as_index(instance.num_nodes()), 0) {
  size_t next = 0;
  for (int e = 0; e < instance.num_edges(); ++e) {
    first_at_u_.push_back(next);
    next += as_index(instance.num_choices(instance.u[as_index(e)]));
    first_at_v_.push_back(next);
    next += as_index(instance.num_choices(instance.v[as_index(e)]));
    ++behind_[as_index(instance.u[as_index(e)])];
    ++before_[as_index(instance.v[as_index(e)])];
  }
  moved_.assign(next, 0.0);
  int most = 0;
  for (int n = 0; n < instance.num_nodes(); ++n) most = std::max(most, instance.num_choices(n));
  local_.resize(as_index(most));
  // The forward pass relies on what a backward pass leaves behind.
  for (int n = instance.num_nodes() - 1; n >= 0; --n) {
    for (const auto& incidence : instance.edges_of(n)) {
      if (incidence.is_first) collect(incidence, n);
    }
    distribute(n, false);
  }
}

// Moves to `node` the least that the edge costs beside each of its choices.
void Dual::collect(const Instance::Incidence& incidence, int node) {
  const auto edge = as_index(incidence.edge);
  const int own = instance_.num_choices(node);
  const int others = instance_.num_choices(incidence.other);
  const double* far = &moved_[incidence.is_first ? first_at_v_[edge] : first_at_u_[edge]];
  double* near = &moved_[incidence.is_first ? first_at_u_[edge] : first_at_v_[edge]];
  double* least = local_.data();
  std::fill_n(least, own, kForbidden);
  const Instance::Incidence opposite{incidence.edge, node, !incidence.is_first};
  for (int j = 0; j < others; ++j) {
    const double* costs = instance_.beside(opposite, j);
    const double moved = far[j];
    for (int i = 0; i < own; ++i) least[i] = std::min(least[i], costs[i] + moved);
  }
  double* left = &node_[as_index(instance_.first_choice[as_index(node)])];
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
  const int own = instance_.num_choices(node);
  double* left = &node_[as_index(instance_.first_choice[as_index(node)])];
  for (const auto& incidence : instance_.edges_of(node)) {
    if (incidence.is_first != forward) continue;
    const auto edge = as_index(incidence.edge);
    double* near = &moved_[incidence.is_first ? first_at_u_[edge] : first_at_v_[edge]];
    for (int i = 0; i < own; ++i) near[i] += share * left[i];
  }
  const double kept = count == std::max(before, behind) ? 0.0 : 1.0 - share * count;
  for (int i = 0; i < own; ++i) left[i] *= kept;
}

// The best choice beside those of the nodes before; of the nodes behind, the last backward pass has moved the least
// that they cost to this one.
void Dual::choose(int node) {
  const int own = instance_.num_choices(node);
  const double* left = &node_[as_index(instance_.first_choice[as_index(node)])];
  double* total = local_.data();
  std::copy_n(left, own, total);
  for (const auto& incidence : instance_.edges_of(node)) {
    if (incidence.is_first) continue;
    const auto edge = as_index(incidence.edge);
    const int chosen = choices_[as_index(incidence.other)];
    const double* costs = instance_.row(incidence.edge, chosen);
    const double* near = &moved_[first_at_v_[edge]];
    for (int i = 0; i < own; ++i) total[i] += costs[i] + near[i];
  }
  choices_[as_index(node)] = static_cast<int>(std::min_element(total, total + own) - total);
}

void Dual::pass() {
  const int nodes = instance_.num_nodes();
  for (int n = 0; n < nodes; ++n) {
    choose(n);
    for (const auto& incidence : instance_.edges_of(n)) {
      if (!incidence.is_first) collect(incidence, n);
    }
    distribute(n, true);
  }
  for (int n = nodes - 1; n >= 0; --n) {
    for (const auto& incidence : instance_.edges_of(n)) {
      if (incidence.is_first) collect(incidence, n);
    }
    distribute(n, false);
  }
  // Each edge was collected last at the end that comes first, so that its least is zero.
  bound_ = bound_constant();
  for (int n = 0; n < nodes; ++n) bound_ += least(n);
}

double Dual::least(int node) const {
  const double* left = &node_[as_index(instance_.first_choice[as_index(node)])];
  return *std::min_element(left, left + instance_.num_choices(node));
}

double Dual::node_cost(int node, int choice) const {
  return node_[as_index(instance_.first_choice[as_index(node)] + choice)];
}

double Dual::edge_cost(int edge, int i, int j) const {
  const auto e = as_index(edge);
  return instance_.row(edge, i)[j] + moved_[first_at_u_[e] + as_index(i)] + moved_[first_at_v_[e] + as_index(j)];
}

void Dual::follow_usage(double best) {
  if (instance_.num_points == 0) return;
  std::vector<double> excess(as_index(instance_.num_points) + 1, 0.0);
  for (int n = 0; n < instance_.num_nodes(); ++n) {
    if (!instance_.is_limited(n)) continue;
    const auto used = static_cast<double>(instance_.usages_of(n)[as_index(choices_[as_index(n)])]);
    excess[as_index(instance_.first_point[as_index(n)])] += used;
    excess[as_index(instance_.last_point[as_index(n)])] -= used;
  }
  double sum = 0;
  double norm = 0;
  for (size_t p = 0; p < prices_.size(); ++p) {
    sum += excess[p];
    mean_excess_[p] += kShare * (sum - static_cast<double>(instance_.usage_limit) - mean_excess_[p]);
    if (prices_[p] > 0 || mean_excess_[p] > 0) norm += mean_excess_[p] * mean_excess_[p];
  }
  if (bound_ > best_bound_ + 1e-9 * std::abs(best_bound_)) {
    best_bound_ = bound_;
    passes_without_gain_ = 0;
  } else if (++passes_without_gain_ >= kPatience) {
    step_ *= kShorter;
    passes_without_gain_ = 0;
  }
  if (norm == 0) return;
  // Polyak's step: how far the bound may still rise, by the square of the direction; where much is left, a part of it.
  const double usual = 0.05 * std::abs(bound_);
  const double room = std::clamp(best - bound_, 0.01 * usual, usual);
  const double length = step_ * room / norm;
  std::vector<double> prices = prices_;
  for (size_t p = 0; p < prices.size(); ++p) prices[p] = std::max(0.0, prices[p] + length * mean_excess_[p]);
  set_prices(std::move(prices));
}

void Dual::set_prices(std::vector<double> prices) {
  // What the change of prices costs up to each point.
  std::vector<double> change(prices.size() + 1, 0.0);
  for (size_t p = 0; p < prices.size(); ++p) change[p + 1] = change[p] + prices[p] - prices_[p];
  for (int n = 0; n < instance_.num_nodes(); ++n) {
    if (!instance_.is_limited(n)) continue;
    const double more =
        change[as_index(instance_.last_point[as_index(n)])] - change[as_index(instance_.first_point[as_index(n)])];
    if (more == 0) continue;
    const auto usages = instance_.usages_of(n);
    double* left = &node_[as_index(instance_.first_choice[as_index(n)])];
    for (size_t i = 0; i < usages.size(); ++i) left[i] += more * static_cast<double>(usages[i]);
  }
  limit_price_ = static_cast<double>(instance_.usage_limit) * std::accumulate(prices.begin(), prices.end(), 0.0);
  prices_ = std::move(prices);
}

}  // namespace tessera::solver
