#include "tessera/mesh/redistribution/redistribution_search.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "tessera/base/integers.h"
#include "tessera/mesh/redistribution/search_space.h"
#include "tessera/mesh/redistribution/search_table.h"

namespace tessera::mesh {
namespace {

// A search that has seen so many states, on some ten axes with several partial, would go on for seconds.
constexpr int kMaxStates = 200'000;

class Search {
 public:
  explicit Search(const RedistributionProblem& problem) : problem_(problem), space_(problem) {}

  FoundSteps run() {
    const int root = table_.insert({space_.pack(problem_.from), {}, {}, -1, {}});
    table_[root].ahead = space_.estimate(table_[root].state);
    const int plain = plain_path(root);
    if (plain >= 0) limit_ = space_.total(table_[plain].cost);
    push(root, {});
    while (!queue_.empty() && table_.size() < kMaxStates) {
      const Entry entry = queue_.top();
      queue_.pop();
      if (!(table_[entry.node].cost == entry.reached_at)) continue;  // a cheaper way was found since
      if (entry.exchanges_next) {
        const auto [cost, move] = exchange_step(table_[entry.node].state);
        reach(space_.target(), cost, entry.node, move);
      } else if (table_[entry.node].state == space_.target()) {
        return path_to(entry.node, true);
      } else {
        expand(entry.node);
      }
    }
    return path_to(best_known(plain), false);
  }

 private:
  struct Entry {
    MoveCost cost;  // reached and ahead
    double total;
    double ahead;  // of equals, the one that is nearer goes first
    MoveCost reached_at;
    int node;
    int order;
    bool exchanges_next;
    bool operator<(const Entry& other) const {  // the queue's top is the largest
      return std::tie(other.total, other.cost.elements, other.cost.exchanges, other.cost.steps, other.ahead,
                      other.order) < std::tie(total, cost.elements, cost.exchanges, cost.steps, ahead, order);
    }
  };

  void push(int node, const MoveCost& surplus, bool exchanges_next = false) {
    const SearchNode& n = table_[node];
    const MoveCost ahead = n.ahead + surplus;
    const MoveCost cost = n.cost + ahead;
    queue_.push({cost, space_.total(cost), space_.total(ahead), n.cost, node, num_pushed_++, exchanges_next});
  }

  void reach(const ShardingState& state, const MoveCost& step, int parent, Move move) {
    const MoveCost cost = table_[parent].cost + step;
    if (limit_ >= 0 && space_.total(cost) > limit_) return;
    move.elements = step.elements;
    int node = table_.find(state);
    if (node < 0 && table_.size() >= kMaxStates && !(state == space_.target())) return;
    if (node >= 0) {
      SearchNode& known = table_[node];
      if (!space_.is_cheaper(cost, known.cost)) return;
      known.cost = cost;
      known.parent = parent;
      known.move = move;
    } else {
      node = table_.insert({state, cost, space_.estimate(state), parent, move});
    }
    if (limit_ >= 0 && space_.total(cost + table_[node].ahead) > limit_) return;
    if (state == space_.target()) limit_ = limit_ < 0 ? space_.total(cost) : std::min(limit_, space_.total(cost));
    push(node, {});
  }

  // --- the steps from a state ---

  void expand(int node) {
    const SearchNode from = table_[node];  // by value: the table grows
    const UnpackedState state = space_.unpack(from.state);
    const bool whole = state.partial == 0;
    if (whole && space_.is_within_mesh() && from.ahead.latencies == 0) {
      reach(space_.target(), {}, node, {MoveKind::kSlice});
      return;
    }
    const bool may_exchange = !space_.is_within_mesh() || problem_.enable_alltoall;
    const bool just_completed =
        from.parent < 0 || from.move.kind == MoveKind::kReduceScatter || from.move.kind == MoveKind::kAllReduce;
    // An exchange gets each rank exactly what it lacks, so nothing that moves whole values is worth doing before it.
    if (whole && may_exchange && just_completed) push_exchange(node);
    if (whole && !space_.is_within_mesh()) return;
    slice(node, from, state);
    if (space_.is_within_mesh()) {
      gather(node, from, state);
      if (problem_.enable_alltoall) move_between_dims(node, from, state);
    }
    if (whole) return;
    std::array<uint8_t, kMaxSearchAxes> chosen{};
    all_reduce(node, from, state);
    reduce_scatter(node, from, state, chosen, 0, 1);
  }

  // Slices commute: of those in a row, the ones onto lower dims are made first.
  void slice(int node, const SearchNode& from, const UnpackedState& state) {
    const int first_dim = from.parent >= 0 && from.move.kind == MoveKind::kSlice ? from.move.dim : 0;
    for (int axis = 0; axis < space_.num_axes(); ++axis) {
      if ((state.unused >> axis & 1) == 0) continue;
      for (int d = first_dim; d < space_.ndim(); ++d) {
        ShardingState next = from.state;
        next.places[as_index(axis)] = ShardingState::place(d, state.num_axes[as_index(d)]);
        reach(next, {}, node, {MoveKind::kSlice, d});
      }
    }
  }

  void gather(int node, const SearchNode& from, const UnpackedState& state) {
    for (int d = 0; d < space_.ndim(); ++d) {
      ShardingState next = from.state;
      int64_t ways = 1;
      for (int i = state.num_axes[as_index(d)] - 1; i >= 0; --i) {
        const int axis = state.axes[as_index(d)][as_index(i)];
        next.places[as_index(axis)] = ShardingState::kUnused;
        ways *= space_.axis_size(axis);
        reach(next, collective_cost(space_.gathered_elements(state, d, ways)), node, {MoveKind::kAllGather, d});
      }
    }
  }

  void move_between_dims(int node, const SearchNode& from, const UnpackedState& state) {
    for (int d = 0; d < space_.ndim(); ++d) {
      for (int i = state.num_axes[as_index(d)] - 1; i >= 0; --i) {
        for (int to = 0; to < space_.ndim(); ++to) {
          if (to == d) continue;
          ShardingState next = from.state;
          for (int k = i; k < state.num_axes[as_index(d)]; ++k) {
            next.places[state.axes[as_index(d)][as_index(k)]] =
                ShardingState::place(to, state.num_axes[as_index(to)] + k - i);
          }
          const int64_t elements = space_.moved_elements(state, d, i, to);
          reach(next, collective_cost(elements), node, {MoveKind::kAllToAll, d, to});
        }
      }
    }
  }

  // Every ordered choice of partial axes, onto every dim; of very many axes there are more than can be looked at.
  void reduce_scatter(int node, const SearchNode& from, const UnpackedState& state,
                      std::array<uint8_t, kMaxSearchAxes>& chosen, int num_chosen, int64_t ways) {
    for (int axis = 0; axis < space_.num_axes(); ++axis) {
      const auto end = chosen.begin() + num_chosen;
      if ((state.partial >> axis & 1) == 0 || std::find(chosen.begin(), end, axis) != end) continue;
      if (table_.size() >= kMaxStates) return;
      chosen[as_index(num_chosen)] = static_cast<uint8_t>(axis);
      const int64_t wider = ways * space_.axis_size(axis);
      for (int d = 0; d < space_.ndim(); ++d) {
        ShardingState next = from.state;
        for (int i = 0; i <= num_chosen; ++i) {
          next.places[chosen[as_index(i)]] = ShardingState::place(d, state.num_axes[as_index(d)] + i);
        }
        const int64_t elements = space_.scattered_elements(state, d, wider);
        reach(next, collective_cost(elements), node, {MoveKind::kReduceScatter, d});
      }
      reduce_scatter(node, from, state, chosen, num_chosen + 1, wider);
    }
  }

  void all_reduce(int node, const SearchNode& from, const UnpackedState& state) {
    for (uint32_t axes = 1; axes <= state.partial; ++axes) {
      if ((axes & state.partial) != axes) continue;
      ShardingState next = from.state;
      for (int axis = 0; axis < space_.num_axes(); ++axis) {
        if ((axes >> axis & 1) != 0) next.places[as_index(axis)] = ShardingState::kUnused;
      }
      const int64_t elements = space_.all_reduced_elements(state, space_.product_of(axes));
      reach(next, collective_cost(elements), node, {MoveKind::kAllReduce});
    }
  }

  // An exchange waits in the queue with a lower bound of its cost: what it moves exactly takes longer to find out.
  void push_exchange(int node) {
    const MoveCost& ahead = table_[node].ahead;
    if (!space_.is_within_mesh()) {
      push(node, {}, true);  // may turn out to move nothing
    } else {
      const MoveCost exchange = exchange_cost(0);
      push(node, {0, exchange.latencies - ahead.latencies, exchange.exchanges, exchange.steps - ahead.steps}, true);
    }
  }

  std::pair<MoveCost, Move> exchange_step(const ShardingState& state) const {
    const int64_t elements = space_.exchanged_elements(state);
    if (!space_.is_within_mesh() && elements == 0) return {MoveCost{}, Move{MoveKind::kSlice}};
    return {exchange_cost(elements), Move{MoveKind::kExchange}};
  }

  // --- paths that are always there; their nodes are not to be found by state ---

  // One all_reduce, one gather per dim that changes, slices: its cost trims the search. -1 towards another mesh.
  int plain_path(int root) {
    if (!space_.is_within_mesh()) return -1;
    int node = complete(root);
    for (int d = 0; d < space_.ndim(); ++d) {
      const UnpackedState state = space_.unpack(table_[node].state);
      const auto overlap = space_.compare(state, d);
      if (overlap.extends_to_target) continue;
      ShardingState next = table_[node].state;
      int64_t ways = 1;
      for (int i = overlap.common; i < state.num_axes[as_index(d)]; ++i) {
        const int axis = state.axes[as_index(d)][as_index(i)];
        next.places[as_index(axis)] = ShardingState::kUnused;
        ways *= space_.axis_size(axis);
      }
      node = append(node, next, collective_cost(space_.gathered_elements(state, d, ways)), {MoveKind::kAllGather, d});
    }
    if (table_[node].state == space_.target()) return node;
    return append(node, space_.target(), {}, {MoveKind::kSlice});
  }

  int complete(int root) {
    const UnpackedState state = space_.unpack(table_[root].state);
    if (state.partial == 0) return root;
    ShardingState next = table_[root].state;
    for (auto& place : next.places) {
      if (place == ShardingState::kPartial) place = ShardingState::kUnused;
    }
    const int64_t elements = space_.all_reduced_elements(state, space_.product_of(state.partial));
    return append(root, next, collective_cost(elements), {MoveKind::kAllReduce});
  }

  int append(int parent, const ShardingState& state, const MoveCost& step, Move move) {
    move.elements = step.elements;
    return table_.append({state, table_[parent].cost + step, {}, parent, move});
  }

  int best_known(int plain) {
    int best = plain;
    if (!space_.is_within_mesh() || problem_.enable_alltoall) {
      const int whole = complete(0);
      const auto [cost, move] = exchange_step(table_[whole].state);
      const int exchanged = append(whole, space_.target(), cost, move);
      if (best < 0 || space_.is_cheaper(table_[exchanged].cost, table_[best].cost)) best = exchanged;
    }
    const int found = table_.find(space_.target());
    if (found >= 0 && space_.is_cheaper(table_[found].cost, table_[best].cost)) best = found;
    return best;
  }

  FoundSteps path_to(int node, bool optimal) const {
    FoundSteps result{{}, table_[node].cost.latencies, optimal};
    for (; table_[node].parent >= 0; node = table_[node].parent) {
      const SearchNode& n = table_[node];
      // Slices in a row are one step.
      const bool continues =
          n.move.kind == MoveKind::kSlice && !result.steps.empty() && result.steps.back().kind == MoveKind::kSlice;
      if (continues) continue;
      RedistributionStep step;
      step.kind = n.move.kind;
      step.dim = n.move.dim;
      step.to_dim = n.move.to_dim;
      step.reduction = space_.reduction();
      step.bytes = n.move.elements * problem_.element_bytes;
      if (space_.is_within_mesh() || !(n.state == space_.target())) step.after = space_.sharding_of(n.state);
      result.steps.push_back(std::move(step));
    }
    std::reverse(result.steps.begin(), result.steps.end());
    return result;
  }

  const RedistributionProblem& problem_;
  const SearchSpace space_;
  SearchTable table_;
  double limit_ = -1;  // the cost of the best path known; -1: none
  std::priority_queue<Entry> queue_;
  int num_pushed_ = 0;
};

}  // namespace

FoundSteps search(const RedistributionProblem& problem) { return Search(problem).run(); }

}  // namespace tessera::mesh
