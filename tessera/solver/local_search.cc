#include "tessera/solver/local_search.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/integers.h"
#include "tessera/solver/bounds/usage_prices.h"

namespace tessera::solver {
namespace {

constexpr int64_t kSmallTree = 3;
constexpr int64_t kLargeTree = 1000;
constexpr int64_t kRepairWork = 10'000'000;  // costs looked at before a repair is given up
constexpr int kMostSweeps = 40;
// What is looked at while a beginning is made feasible, in all the instance's costs: in total, and for forbidden pairs
// after each sweep.
constexpr int64_t kSettleWork = 60;
constexpr int64_t kMendWork = 4;
constexpr int kSweepSizes = 10;  // trees of a sweep have kSmallTree nodes times a power of two below this one

}  // namespace

LocalSearch::LocalSearch(const Instance& instance, uint64_t seed, const Deadline& deadline)
    : instance_(instance),
      seed_(seed),
      deadline_(deadline),
      choices_(as_index(instance.num_nodes()), 0),
      usage_(instance.num_points),
      price_sums_(as_index(instance.num_points) + 1, 0.0),
      place_(as_index(instance.num_nodes()), -1),
      neighbours_in_(as_index(instance.num_nodes()), 0),
      changes_(as_index(instance.num_nodes()), false),
      sweep_of_(as_index(instance.num_nodes()), -1) {
  for (int n = 0; n < instance.num_nodes(); ++n) {
    usage_.add(instance.first_point[as_index(n)], instance.last_point[as_index(n)], instance.usages_of(n)[0]);
  }
}

// What another choice of one node costs more.
double LocalSearch::node_delta(int node, int choice) const {
  const int now = choices_[as_index(node)];
  const auto costs = instance_.costs_of(node);
  double delta = costs[as_index(choice)] - costs[as_index(now)];
  for (const auto& incidence : instance_.edges_of(node)) {
    const int other = choices_[as_index(incidence.other)];
    delta += soft(instance_.beside(incidence, choice)[other]) - soft(instance_.beside(incidence, now)[other]);
  }
  return delta;
}

void LocalSearch::set(int node, int choice) {
  const auto usages = instance_.usages_of(node);
  int& now = choices_[as_index(node)];
  usage_.add(instance_.first_point[as_index(node)], instance_.last_point[as_index(node)],
             usages[as_index(choice)] - usages[as_index(now)]);
  now = choice;
}

void LocalSearch::add_up() {
  sum_ = {};
  for (int n = 0; n < instance_.num_nodes(); ++n) sum_.add(instance_.costs_of(n)[as_index(choices_[as_index(n)])]);
  for (int e = 0; e < instance_.num_edges(); ++e) {
    sum_.add(
        instance_.row(e, choices_[as_index(instance_.u[as_index(e)])])[choices_[as_index(instance_.v[as_index(e)])]]);
  }
}

void LocalSearch::begin(const std::vector<int>& choices, const std::vector<double>& prices) {
  for (int n = 0; n < instance_.num_nodes(); ++n) set(n, choices[as_index(n)]);
  add_up();
  dear_ = std::max(dear_, 2 * std::abs(sum_.cost));
  settle(prices);
  repair(prices);
  add_up();
  keep_best();
}

void LocalSearch::sum_prices(const std::vector<double>& prices, double scale) {
  for (size_t p = 0; p < prices.size(); ++p) price_sums_[p + 1] = price_sums_[p] + scale * prices[p];
}

void LocalSearch::settle(std::vector<double> prices) {
  const auto costs = static_cast<int64_t>(instance_.num_pairs + instance_.cost.size());
  int64_t work = 0;
  for (int sweeps = 0; sweeps < kMostSweeps && work < kSettleWork * costs; ++sweeps) {
    if (sum_.forbidden == 0 && is_within_limit()) return;
    if (deadline_.is_over()) return;
    raise_prices(instance_, choices_, prices);
    sum_prices(prices, 1);
    sweep(work);
    mend_forbidden(work, kMendWork * costs);
    add_up();
  }
}

// Chooses each node anew, in one of the trees that all nodes are cut into.
void LocalSearch::sweep(int64_t& work) {
  const int number = num_sweeps_++;
  const int nodes = instance_.num_nodes();
  const int start = below(nodes);
  constexpr int kTreesPerQuestion = 64;
  int trees = 0;
  for (int k = 0; k < nodes; ++k) {
    const int node = (start + k) % nodes;
    if (sweep_of_[as_index(node)] == number) continue;
    grow(node, kSmallTree << below(kSweepSizes), number);
    for (const Member& member : members_) sweep_of_[as_index(member.node)] = number;
    for (const Change& change : choose_tree(work)) set(change.node, change.choice);
    if (++trees % kTreesPerQuestion == 0 && deadline_.is_over()) return;
  }
}

bool LocalSearch::is_forbidden(int edge) const {
  const int i = choices_[as_index(instance_.u[as_index(edge)])];
  return instance_.row(edge, i)[choices_[as_index(instance_.v[as_index(edge)])]] == kForbidden;
}

// Trees around forbidden pairs, the larger the longer a pair stays: around a node with many neighbours all of them may
// have to change with it.
void LocalSearch::mend_forbidden(int64_t& work, int64_t share) {
  const int64_t most = work + share;
  for (int e = 0; e < instance_.num_edges() && work < most; ++e) {
    for (int64_t size = 10; is_forbidden(e) && work < most && size < int64_t{4} * instance_.num_nodes(); size *= 4) {
      if (deadline_.is_over()) return;
      grow(below(2) == 0 ? instance_.u[as_index(e)] : instance_.v[as_index(e)], size);
      for (const Change& change : choose_tree(work)) set(change.node, change.choice);
    }
  }
}

void LocalSearch::repair(const std::vector<double>& prices) {
  // Prices that stand for the limit are raised where it is still broken, and trees around what lives there chosen anew.
  std::vector<double> raised = prices;
  double scale = 0;
  for (const double price : prices) scale = std::max(scale, price);
  if (scale == 0) {
    double costs = 0;
    for (int n = 0; n < instance_.num_nodes(); ++n) costs += std::abs(instance_.costs_of(n)[0]);
    scale = (costs + 1) / (static_cast<double>(instance_.usage_limit) + 1);
  }
  int64_t work = 0;
  while (work < kRepairWork && !is_within_limit() && !deadline_.is_over()) {
    work += instance_.num_nodes();
    const int point = usage_.where();
    // The single changes that bring this point down, by what they cost for what they save.
    struct Option {
      double rate;
      int node, choice;
    };
    std::vector<Option> options;
    for (int n = 0; n < instance_.num_nodes(); ++n) {
      if (instance_.first_point[as_index(n)] > point || instance_.last_point[as_index(n)] <= point) continue;
      const auto usages = instance_.usages_of(n);
      const int64_t now = usages[as_index(choices_[as_index(n)])];
      for (int i = 0; i < instance_.num_choices(n); ++i) {
        if (usages[as_index(i)] >= now) continue;
        const double delta = node_delta(n, i);
        work += 1 + static_cast<int64_t>(instance_.edges_of(n).size());
        options.push_back({delta / static_cast<double>(now - usages[as_index(i)]), n, i});
      }
    }
    std::sort(options.begin(), options.end(), [](const Option& a, const Option& b) { return a.rate < b.rate; });
    bool any = false;
    for (const Option& option : options) {
      if (usage_.at(point) <= instance_.usage_limit) break;
      const auto usages = instance_.usages_of(option.node);
      if (usages[as_index(option.choice)] >= usages[as_index(choices_[as_index(option.node)])]) continue;
      if (node_delta(option.node, option.choice) >= dear_) continue;  // it would be beside a forbidden choice
      set(option.node, option.choice);
      any = true;
    }
    if (usage_.at(point) <= instance_.usage_limit && any) continue;
    // Single changes are forbidden by neighbours: change them together, usage at this point being dear.
    raised[as_index(point)] = std::max(2 * raised[as_index(point)], scale);
    sum_prices(raised, 1);
    for (int n = 0; n < instance_.num_nodes(); ++n) {
      if (usage_.at(point) <= instance_.usage_limit || work >= kRepairWork) break;
      if (instance_.first_point[as_index(n)] > point || instance_.last_point[as_index(n)] <= point) continue;
      grow(n, 60);
      for (const Change& change : choose_tree(work)) set(change.node, change.choice);
    }
  }
}

void LocalSearch::keep_best() {
  if (sum_.forbidden == 0 && sum_.cost < best_cost_ && is_within_limit()) {
    best_cost_ = sum_.cost;
    best_ = choices_;
  }
}

void LocalSearch::restart() {
  if (!has_solution()) return;
  for (int n = 0; n < instance_.num_nodes(); ++n) {
    if (choices_[as_index(n)] != best_[as_index(n)]) set(n, best_[as_index(n)]);
  }
  sum_ = {best_cost_, 0};
}

// Makes members_ a tree of up to `size` nodes around the root, with no other edge between them; without those that a
// sweep, where one is given, has chosen.
void LocalSearch::grow(int root, int64_t size, int sweep) {
  for (const Member& member : members_) {
    place_[as_index(member.node)] = -1;
    for (const auto& incidence : instance_.edges_of(member.node)) neighbours_in_[as_index(incidence.other)] = 0;
  }
  members_.clear();
  const auto add = [&](int node, int parent, const Instance::Incidence& up) {
    place_[as_index(node)] = static_cast<int>(members_.size());
    members_.push_back({node, parent, up});
    for (const auto& incidence : instance_.edges_of(node)) ++neighbours_in_[as_index(incidence.other)];
  };
  add(root, -1, {});
  // A random member's neighbours next: members are taken in the order in which they came, or the newest first.
  const bool deep = uniform() < 0.5;
  std::vector<int> open{0};
  size_t head = 0;
  while (static_cast<int64_t>(members_.size()) < size && head < open.size()) {
    int member = 0;
    if (deep) {
      member = open.back();
      open.pop_back();
    } else {
      member = open[head++];
    }
    const int node = members_[as_index(member)].node;
    const auto edges = instance_.edges_of(node);
    if (edges.empty()) continue;
    const auto start = as_index(below(static_cast<int>(edges.size())));
    for (size_t k = 0; k < edges.size() && static_cast<int64_t>(members_.size()) < size; ++k) {
      const auto& incidence = edges[(start + k) % edges.size()];
      const int other = incidence.other;
      if (sweep >= 0 && sweep_of_[as_index(other)] == sweep) continue;
      if (place_[as_index(other)] >= 0 || neighbours_in_[as_index(other)] != 1) continue;
      open.push_back(static_cast<int>(members_.size()));
      add(other, member, {incidence.edge, node, !incidence.is_first});
    }
  }
}

// The price of a unit of usage over the node's life.
double LocalSearch::price_of(int node) const {
  const int first = instance_.first_point[as_index(node)];
  const int last = instance_.last_point[as_index(node)];
  const double price = price_sums_[as_index(last)] - price_sums_[as_index(first)];
  return first <= dear_point_ && dear_point_ < last ? price + dear_price_ : price;
}

// The choices of members_ that are best for what surrounds them, usage priced by price_sums_: those that change.
std::vector<LocalSearch::Change> LocalSearch::choose_tree(int64_t& work) {
  size_t next = 0;
  first_taken_.clear();
  size_t next_taken = 0;
  for (Member& member : members_) {
    member.first = next;
    next += as_index(instance_.num_choices(member.node));
    first_taken_.push_back(next_taken);
    if (member.parent >= 0) {
      next_taken += as_index(instance_.num_choices(members_[as_index(member.parent)].node));
    }
  }
  if (table_.size() < next) table_.resize(next);
  if (taken_.size() < next_taken) taken_.resize(next_taken);
  for (const Member& member : members_) {
    double* costs = &table_[member.first];
    const auto own = instance_.costs_of(member.node);
    std::copy(own.begin(), own.end(), costs);
    if (instance_.is_limited(member.node)) {
      const double price = price_of(member.node);
      const auto usages = instance_.usages_of(member.node);
      for (size_t i = 0; i < usages.size(); ++i) costs[i] += price * static_cast<double>(usages[i]);
    }
    for (const auto& incidence : instance_.edges_of(member.node)) {
      if (place_[as_index(incidence.other)] >= 0) continue;
      const Instance::Incidence opposite{incidence.edge, member.node, !incidence.is_first};
      const double* beside = instance_.beside(opposite, choices_[as_index(incidence.other)]);
      for (size_t i = 0; i < own.size(); ++i) costs[i] += soft(beside[i]);
    }
    work += static_cast<int64_t>(own.size() * (1 + instance_.edges_of(member.node).size()));
  }
  for (size_t m = members_.size(); m-- > 1;) {
    const Member& member = members_[m];
    const int choices = instance_.num_choices(member.node);
    const Member& parent = members_[as_index(member.parent)];
    const Instance::Incidence down{member.up.edge, member.node, !member.up.is_first};
    const double* costs = &table_[member.first];
    for (int j = 0; j < instance_.num_choices(parent.node); ++j) {
      const double* beside = instance_.beside(down, j);
      double least = kForbidden;
      int taken = 0;
      for (int i = 0; i < choices; ++i) {
        const double cost = costs[i] + soft(beside[i]);
        if (cost < least) {
          least = cost;
          taken = i;
        }
      }
      table_[parent.first + as_index(j)] += least;
      taken_[first_taken_[m] + as_index(j)] = taken;
    }
    work += static_cast<int64_t>(choices) * instance_.num_choices(parent.node);
  }
  std::vector<Change> changes;
  std::vector<int> chosen(members_.size());
  for (size_t m = 0; m < members_.size(); ++m) {
    const Member& member = members_[m];
    if (member.parent < 0) {
      const double* costs = &table_[member.first];
      const double* least = std::min_element(costs, costs + instance_.num_choices(member.node));
      const int now = choices_[as_index(member.node)];
      chosen[m] = costs[now] == *least ? now : static_cast<int>(least - costs);
    } else {
      chosen[m] = taken_[first_taken_[m] + as_index(chosen[as_index(member.parent)])];
    }
    if (chosen[m] != choices_[as_index(member.node)]) changes.push_back({member.node, chosen[m]});
  }
  return changes;
}

// What the nodes of `changes` and the edges around them cost now.
LocalSearch::Sum LocalSearch::sum_around(const std::vector<Change>& changes) const {
  Sum sum;
  for (const Change& change : changes) {
    const int choice = choices_[as_index(change.node)];
    sum.add(instance_.costs_of(change.node)[as_index(choice)]);
    for (const auto& incidence : instance_.edges_of(change.node)) {
      // An edge between two that change is counted once.
      if (changes_[as_index(incidence.other)] && incidence.other < change.node) continue;
      sum.add(instance_.beside(incidence, choice)[choices_[as_index(incidence.other)]]);
    }
  }
  return sum;
}

// Makes the changes and keeps them where they cost no more and break the limit no further, or break it less.
LocalSearch::Outcome LocalSearch::try_changes(const std::vector<Change>& changes) {
  const int64_t excess_before = std::max<int64_t>(usage_.largest() - instance_.usage_limit, 0);
  for (const Change& change : changes) changes_[as_index(change.node)] = true;
  const Sum before = sum_around(changes);
  std::vector<Change> undo;
  undo.reserve(changes.size());
  for (const Change& change : changes) {
    undo.push_back({change.node, choices_[as_index(change.node)]});
    set(change.node, change.choice);
  }
  const Sum after = sum_around(changes);
  for (const Change& change : changes) changes_[as_index(change.node)] = false;
  const int forbidden = after.forbidden - before.forbidden;
  Outcome outcome{.more = after.cost - before.cost + dear_ * forbidden,
                  .excess = usage_.largest() - instance_.usage_limit,
                  .point = usage_.where(),
                  .kept = false};
  const int64_t excess = std::max<int64_t>(outcome.excess, 0);
  outcome.kept = excess < excess_before || (excess == excess_before && outcome.more <= 0);
  if (outcome.kept) {
    sum_.cost += after.cost - before.cost;
    sum_.forbidden += forbidden;
  } else {
    for (const Change& change : undo) set(change.node, change.choice);
  }
  return outcome;
}

// A random node, where the limit is broken one that lives there.
int LocalSearch::root_for(int point) {
  int node = below(instance_.num_nodes());
  for (int i = 0; point >= 0 && i < instance_.num_nodes(); ++i) {
    if (instance_.first_point[as_index(node)] <= point && point < instance_.last_point[as_index(node)]) break;
    node = (node + 1) % instance_.num_nodes();
  }
  return node;
}

void LocalSearch::improve(const std::vector<double>& prices, int64_t work) {
  if (instance_.num_nodes() == 0) return;
  constexpr double kScales[] = {0.0, 0.5, 0.8, 1.0, 1.0, 1.25, 2.0};
  constexpr int kTreesPerScale = 50;
  constexpr int kRetries = 4;
  int64_t done = 0;
  while (done < work && !deadline_.is_over()) {
    const double scale = kScales[below(static_cast<int>(std::size(kScales)))];
    sum_prices(prices, scale);
    done += static_cast<int64_t>(prices.size());
    for (int tree = 0; tree < kTreesPerScale && done < work && !deadline_.is_over(); ++tree) {
      const double size = static_cast<double>(kSmallTree) *
                          std::pow(static_cast<double>(kLargeTree) / static_cast<double>(kSmallTree), uniform());
      dear_point_ = is_within_limit() ? -1 : usage_.where();
      const double usual = std::max(std::abs(sum_.cost), 1.0) / instance_.num_nodes();
      if (dear_point_ >= 0) {
        dear_price_ =
            usual * std::pow(10.0, 4 * uniform() - 2) / static_cast<double>(usage_.largest() - instance_.usage_limit);
      }
      grow(root_for(dear_point_), static_cast<int64_t>(size));
      for (int retry = 0; retry <= kRetries; ++retry) {
        const auto changes = choose_tree(done);
        if (changes.empty()) break;
        const Outcome outcome = try_changes(changes);
        if (outcome.kept || outcome.excess <= 0) break;
        // Too much at some point: the same tree once more, usage there being dear.
        if (outcome.point == dear_point_) {
          dear_price_ *= 4;
        } else {
          dear_point_ = outcome.point;
          dear_price_ = std::max(-outcome.more, 1e-3 * usual) / static_cast<double>(outcome.excess);
        }
      }
      dear_point_ = -1;
    }
  }
  keep_best();
}

}  // namespace tessera::solver
