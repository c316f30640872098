#include "tessera/testing/contest_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/base/random.h"

namespace tessera::testing {
namespace {

using solver::kForbidden;

constexpr std::array<int, 2> kMesh{8, 4};
constexpr double kOverLeast = 1.1;  // the limit, of the least that can be in use: as the contest's are

// The dim that each axis of the mesh splits, -1: none. Dims are named across operands: m, n, k, ... of a product.
using Split = std::array<int, 2>;

struct Choice {
  Split split;   // of the result
  Split wanted;  // of all names, as its operands are wanted
  double cost;   // of partial sums made whole
};

// Nodes of one kind share their choices, pairs of kinds the costs of edges.
struct Kind {
  std::vector<Choice> choices;
  double bytes;
};

int parts(const Split& split) {
  int product = 1;
  for (size_t axis = 0; axis < kMesh.size(); ++axis) product *= split[axis] >= 0 ? kMesh[axis] : 1;
  return product;
}

// The names among `dims`, by their places there.
Split place(const Split& split, const std::vector<int>& dims) {
  Split placed{-1, -1};
  for (size_t axis = 0; axis < split.size(); ++axis) {
    const auto at = std::find(dims.begin(), dims.end(), split[axis]);
    if (at != dims.end()) placed[axis] = static_cast<int>(at - dims.begin());
  }
  return placed;
}

// What it costs to have a value otherwise split: an all_gather or all_to_all along each axis that changes.
double price(const Split& from, const Split& to, double bytes) {
  double cost = 0;
  for (size_t axis = 0; axis < kMesh.size(); ++axis) {
    if (from[axis] == to[axis] || from[axis] < 0) continue;  // a part of what is there costs nothing
    const double share = 1 - 1.0 / kMesh[axis];
    cost += std::floor(bytes * share / (to[axis] < 0 ? parts(to) : parts(from) * kMesh[axis])) + 1024;
  }
  return cost;
}

class Generator {
 public:
  Generator(int num_nodes, uint64_t seed) : seed_(seed), num_nodes_(num_nodes) {
    problem_.name = fmt::format("like the contest's, {} nodes, seed {}", num_nodes, seed);
  }

  solver::Problem run() {
    // A layer is about 400 nodes; widths change along the network so that edges have some thousand matrices.
    constexpr int kPerLayer = 400;
    constants_begin();
    const int layers = std::max(1, (num_nodes_ - num_made()) / kPerLayer);
    int x = add(value_kind(2, 1 << 24), 0);
    std::vector<std::vector<Step>> steps(static_cast<size_t>(layers));
    for (int l = 0; l < layers; ++l) {
      width_ = std::exp2(20 + static_cast<double>(l * 5 / layers)) * (1 + 0.25 * static_cast<double>(below(12)));
      parameters_begin();
      x = forward(x, steps[static_cast<size_t>(l)], kPerLayer / 4);
    }
    int gradient = add(value_kind(2, width_), 0);
    edge(x, gradient, {0, 1}, false);
    for (int l = layers - 1; l >= 0; --l) gradient = backward(gradient, steps[static_cast<size_t>(l)]);
    finish();
    return std::move(problem_);
  }

 private:
  // A node of the forward pass that has a gradient.
  struct Step {
    int node;
    int parameter;  // -1: none
    int rank;
  };

  int64_t below(int64_t n) { return random_below({.seed = seed_}, draws_++, n); }
  bool chance(double p) { return random_open_uniform({.seed = seed_}, draws_++) < p; }
  int num_made() const { return static_cast<int>(problem_.nodes.size()); }

  // A value of `rank` dims that is split as its operands are. Names: 0, 1, ...
  int value_kind(int rank, double bytes) {
    const auto [known, is_new] = value_kinds_.try_emplace({rank, bytes}, static_cast<int>(kinds_.size()));
    if (!is_new) return known->second;
    Kind kind{{}, bytes};
    for (int a = -1; a < rank; ++a) {
      for (int b = -1; b < rank; ++b) kind.choices.push_back({{a, b}, {a, b}, 0});
    }
    std::reverse(kind.choices.begin(), kind.choices.end());  // the file's first choices are no good ones, nor bad
    kinds_.push_back(std::move(kind));
    return known->second;
  }
  // A product with names 0 and 1 in its result and `summed` more that are summed over.
  int product_kind(int summed, double bytes) {
    const auto [known, is_new] = product_kinds_.try_emplace({summed, bytes}, static_cast<int>(kinds_.size()));
    if (!is_new) return known->second;
    Kind kind{{}, bytes};
    const int names = 2 + summed;
    for (int a = -1; a < names; ++a) {
      for (int b = -1; b < names; ++b) {
        Choice choice{{a < 2 ? a : -1, b < 2 ? b : -1}, {a, b}, 0};
        const double local = bytes / parts(choice.split);
        if (a >= 2) choice.cost += std::floor(2 * local * (1 - 1.0 / kMesh[0])) + 1;
        if (b >= 2) choice.cost += std::floor(2 * local * (1 - 1.0 / kMesh[1])) + 1;
        if (a < 0 && b < 0 && bytes > (1 << 22)) choice.cost = kForbidden;  // too much to be computed everywhere
        kind.choices.push_back(choice);
      }
    }
    kinds_.push_back(std::move(kind));
    return known->second;
  }

  // Lives from now on for a few nodes, or for what `stays` and hold() say.
  int add(int kind, int64_t life) {
    const Kind& of = kinds_[static_cast<size_t>(kind)];
    solver::ProblemNode node{.begin = time_, .end = time_ + life, .costs = {}, .usages = {}};
    for (const Choice& choice : of.choices) {
      node.costs.push_back(choice.cost);
      node.usages.push_back(std::max<int64_t>(1, static_cast<int64_t>(of.bytes) / parts(choice.split)));
    }
    problem_.nodes.push_back(std::move(node));
    kind_of_.push_back(kind);
    time_ += chance(0.85) ? 1 : 0;
    return num_made() - 1;
  }
  int64_t short_life() { return chance(0.14) ? 0 : 1 + below(6); }
  void hold(int node) {
    auto& end = problem_.nodes[static_cast<size_t>(node)].end;
    end = std::max(end, time_ + 1);
  }

  // `dims`: the user's names of the dims of what it uses. Strict: it takes it only as it is.
  void edge(int from, int to, const std::vector<int>& dims, bool strict) {
    const auto key = std::tuple(kind_of_[static_cast<size_t>(from)], kind_of_[static_cast<size_t>(to)], dims, strict);
    const auto [known, is_new] = costs_.try_emplace(key);
    if (is_new) {
      const Kind& producer = kinds_[static_cast<size_t>(std::get<0>(key))];
      const Kind& user = kinds_[static_cast<size_t>(std::get<1>(key))];
      std::vector<double> costs;
      for (const Choice& a : producer.choices) {
        for (const Choice& b : user.choices) {
          const Split wanted = place(b.wanted, dims);
          const bool is_forbidden = strict && a.split != wanted;
          costs.push_back(is_forbidden ? kForbidden : price(a.split, wanted, producer.bytes));
        }
      }
      known->second = std::move(costs);
    }
    problem_.edges.push_back({from, to, known->second});
  }

  void constants_begin() {
    for (int i = 0; i < std::max(2, num_nodes_ / 400); ++i) constants_.push_back(add(value_kind(1, 4096), 3));
  }
  // Some constants are used by hundreds, most by few.
  void use_constant(int node, int dim) {
    const double u = random_open_uniform({.seed = seed_}, draws_++);
    const auto i = static_cast<size_t>(std::pow(u, 6) * static_cast<double>(constants_.size()));
    edge(constants_[i], node, {dim}, false);
  }

  void parameters_begin() {
    weights_.clear();
    for (int i = 0; i < 8; ++i) weights_.push_back(add(value_kind(2, 4 * width_), 1));
  }

  int forward(int x, std::vector<Step>& steps, int count) {
    std::vector<int> recent{x};
    for (int made = 0; made < count; ++made) {
      const double what = random_open_uniform({.seed = seed_}, draws_++);
      if (what < 0.05) {
        const int weight = weights_[static_cast<size_t>(below(static_cast<int64_t>(weights_.size())))];
        const int node = add(product_kind(chance(0.05) ? 9 : 1, width_), short_life());
        edge(x, node, {0, 2}, false);
        edge(weight, node, {2, 1}, false);
        hold(x);
        hold(weight);
        steps.push_back({node, weight, 2});
        x = node;
      } else if (what < 0.13) {
        // There and back over a value of another rank.
        const int rank = chance(0.5) ? 1 : 3;
        const int node = add(value_kind(rank, rank == 1 ? width_ / 1024 : width_), short_life());
        edge(x, node, rank == 1 ? std::vector<int>{0, -2} : std::vector<int>{0, 1}, rank == 3);
        const int back = add(value_kind(2, width_), short_life());
        edge(node, back, rank == 1 ? std::vector<int>{0} : std::vector<int>{0, 1, -2}, rank == 3 && chance(0.5));
        edge(x, back, {0, 1}, chance(0.3));
        steps.push_back({back, -1, 2});
        made += 1;
        x = back;
      } else {
        const int node = add(value_kind(2, width_), short_life());
        edge(x, node, chance(0.02) ? std::vector<int>{1, 0} : std::vector<int>{0, 1}, chance(0.55));
        if (chance(0.25))
          edge(recent[static_cast<size_t>(below(static_cast<int64_t>(recent.size())))], node, {0, 1}, false);
        if (chance(0.35)) use_constant(node, static_cast<int>(below(2)));
        steps.push_back({node, -1, 2});
        x = node;
      }
      if (chance(0.8)) side_value(x);
      recent.push_back(x);
      if (recent.size() > 12) recent.erase(recent.begin());
    }
    return x;
  }
  // A value that nothing but its neighbour knows: half of all nodes have one edge.
  void side_value(int of) {
    const int rank = chance(0.8) ? 1 : 2;
    const int node = add(value_kind(rank, rank == 1 ? 16384 : width_), short_life());
    edge(of, node, rank == 1 ? std::vector<int>{0, -2} : std::vector<int>{0, 1}, false);
  }

  int backward(int gradient, const std::vector<Step>& steps) {
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      const double bytes = kinds_[static_cast<size_t>(kind_of_[static_cast<size_t>(step->node)])].bytes;
      const int node = add(step->parameter >= 0 ? product_kind(1, bytes) : value_kind(2, bytes), short_life());
      edge(gradient, node, step->parameter >= 0 ? std::vector<int>{0, 2} : std::vector<int>{0, 1}, chance(0.5));
      if (step->parameter >= 0 || chance(0.12)) {
        // The activation lives until its gradient is known.
        edge(step->node, node, {0, 1}, false);
        hold(step->node);
      }
      if (chance(0.25)) use_constant(node, 0);
      if (chance(0.6)) side_value(node);
      if (step->parameter >= 0) update(step->parameter, gradient, step->node);
      gradient = node;
    }
    return gradient;
  }
  // The gradient of a parameter, its means, which live all the time, and the new value.
  void update(int parameter, int gradient, int activation) {
    const double bytes = kinds_[static_cast<size_t>(kind_of_[static_cast<size_t>(parameter)])].bytes;
    int node = add(product_kind(1, bytes), short_life());
    edge(gradient, node, {2, 1}, false);
    edge(activation, node, {2, 0}, false);
    const int mean = add(value_kind(2, bytes), 0);
    means_.push_back(mean);
    for (int i = 0; i < 12; ++i) {
      const int next = add(value_kind(2, bytes), short_life());
      edge(node, next, {0, 1}, i > 0 && chance(0.6));
      if (i == 3) edge(mean, next, {0, 1}, false);
      if (i == 9) edge(parameter, next, {0, 1}, false);
      if (chance(0.4)) use_constant(next, 0);
      node = next;
    }
    hold(parameter);
    edge(mean, node, {0, 1}, true);
  }

  void finish() {
    for (const int mean : means_) {
      problem_.nodes[static_cast<size_t>(mean)].begin = 0;
      problem_.nodes[static_cast<size_t>(mean)].end = time_ + 1;
    }
    std::map<int64_t, int64_t> changes;
    for (const auto& node : problem_.nodes) {
      const int64_t least = *std::min_element(node.usages.begin(), node.usages.end());
      if (node.begin >= node.end) continue;
      changes[node.begin] += least;
      changes[node.end] -= least;
    }
    int64_t usage = 0;
    int64_t most = 0;
    for (const auto& [time, change] : changes) most = std::max(most, usage += change);
    problem_.usage_limit = static_cast<int64_t>(kOverLeast * static_cast<double>(most));
  }

  uint64_t seed_;
  int num_nodes_;
  uint64_t draws_ = 0;
  int64_t time_ = 0;
  double width_ = 0;
  solver::Problem problem_;
  std::vector<Kind> kinds_;
  std::vector<int> kind_of_;  // of each node
  std::map<std::pair<int, double>, int> value_kinds_, product_kinds_;
  std::map<std::tuple<int, int, std::vector<int>, bool>, solver::SharedCosts> costs_;
  std::vector<int> constants_, weights_, means_;
};

}  // namespace

solver::Problem contest_problem(int num_nodes, uint64_t seed) { return Generator(num_nodes, seed).run(); }

}  // namespace tessera::testing
