#include "tessera/solver/bounds/partners.h"
#include "tessera/base/integers.h"

#include <algorithm>
#include <tuple>

namespace tessera::solver {
namespace {

// What the dual's choices cost at each edge beyond the bound. Where chains of neighbours agree on nothing around a
// cycle, it shows where the cycle is closed.
class Loss {
 public:
  // `most`: no edge counts more.
  Loss(const CostGraph& graph, const Dual& dual, double most) : of_edge_(as_index(graph.num_edges())) {
    const auto& choices = dual.choices();
    const auto share = [&](int node) {
      return (dual.node_cost(node, choices[as_index(node)]) - dual.least(node)) /
             static_cast<double>(graph.edges_of(node).size());
    };
    for (int e = 0; e < graph.num_edges(); ++e) {
      const int u = graph.u[as_index(e)];
      const int v = graph.v[as_index(e)];
      const double beyond = dual.edge_cost(e, choices[as_index(u)], choices[as_index(v)]) + share(u) + share(v);
      of_edge_[as_index(e)] = std::clamp(beyond, 0.0, std::max(most, 0.0));
      usual += of_edge_[as_index(e)];
    }
    usual = (usual + 1e-9 * std::max(most, 1.0)) / static_cast<double>(graph.num_edges() + 1);
  }
  double at(int edge) const { return of_edge_[as_index(edge)]; }

  double usual = 0;  // of an edge

 private:
  std::vector<double> of_edge_;
};

}  // namespace

std::vector<int> choose_partners(const Relaxation& relaxation, const Dual& dual, const std::vector<bool>& is_out,
                                 double most, const PartnerLimits& limits) {
  const CostGraph& graph = *relaxation.graph;
  const auto nodes = as_index(graph.num_nodes());
  std::vector<std::vector<int>> kept(nodes);
  for (size_t n = 0; n < nodes; ++n) {
    for (int i = graph.first_choice[n]; i < graph.first_choice[n + 1]; ++i) {
      if (!is_out[as_index(i)]) kept[n].push_back(i - graph.first_choice[n]);
    }
  }
  std::vector<double> size(nodes);
  for (size_t n = 0; n < nodes; ++n) size[n] = static_cast<double>(kept[n].size());
  double pairs = 0;
  std::vector<double> width(nodes, 0.0);  // of its neighbours together
  for (int e = 0; e < graph.num_edges(); ++e) {
    const auto u = as_index(graph.u[as_index(e)]);
    const auto v = as_index(graph.v[as_index(e)]);
    pairs += size[u] * size[v];
    width[u] += size[v];
    width[v] += size[u];
  }
  struct Option {
    double rate;
    double more;  // pairs of the graph
    int u, v;
    double choices;
  };
  const Loss loss(graph, dual, most);
  std::vector<Option> options;
  std::vector<int> seen(nodes, -1);
  for (int e = 0; e < graph.num_edges(); ++e) {
    const int u = graph.u[as_index(e)];
    const int v = graph.v[as_index(e)];
    const auto n = as_index(u);
    const auto m = as_index(v);
    if (size[n] * size[m] > 50.0 * static_cast<double>(limits.choices)) continue;
    const double highest = most + dual.least(u) + dual.least(v);
    double choices = 0;
    for (const int i : kept[n]) {
      for (const int j : kept[m]) {
        const double cost = dual.node_cost(u, i) + dual.node_cost(v, j) + dual.edge_cost(e, i, j);
        if (cost <= highest && cost != kForbidden) ++choices;
      }
    }
    if (choices > static_cast<double>(limits.choices)) continue;
    double common = 0;
    double common_width = 0;
    for (const auto& incidence : graph.edges_of(u)) seen[as_index(incidence.other)] = e;
    for (const auto& incidence : graph.edges_of(v)) {
      if (seen[as_index(incidence.other)] != e) continue;
      ++common;
      common_width += size[as_index(incidence.other)];
    }
    const double around = width[n] + width[m] - size[n] - size[m] - common_width;
    const double before = size[n] * width[n] + size[m] * width[m] - size[n] * size[m];
    const double more = choices * around - before;
    const double rate = more <= 0 ? more : (more + choices) / ((1 + common) * (loss.at(e) + loss.usual));
    options.push_back({rate, more, u, v, choices});
  }
  std::sort(options.begin(), options.end(),
            [](const Option& a, const Option& b) { return std::tie(a.rate, a.u, a.v) < std::tie(b.rate, b.u, b.v); });
  std::vector<int> partner(nodes, -1);
  std::vector<bool> is_near(nodes, false);  // what was computed of it does not hold any more
  for (const Option& option : options) {
    const auto n = as_index(option.u);
    const auto m = as_index(option.v);
    if (is_near[n] || is_near[m]) continue;
    if (option.more > 0 && pairs + option.more > static_cast<double>(limits.pairs)) continue;
    pairs += option.more;
    partner[n] = option.v;
    partner[m] = option.u;
    for (const int end : {option.u, option.v}) {
      is_near[as_index(end)] = true;
      for (const auto& incidence : graph.edges_of(end)) is_near[as_index(incidence.other)] = true;
    }
  }
  return partner;
}

}  // namespace tessera::solver
