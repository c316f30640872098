#include "tessera/mesh/redistribution_search.h"

#include <algorithm>
#include <bit>
#include <queue>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/mesh/sharding_state.h"

namespace tessera::mesh {
namespace {

// A search that has not ended here, on some ten axes with several partial, would take seconds.
constexpr int kMaxExpansions = 20000;

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Cost {
  int64_t elements = 0;
  int32_t latencies = 0;
  int32_t exchanges = 0;
  int32_t steps = 0;  // that communicate

  Cost operator+(const Cost& other) const {
    return {elements + other.elements, latencies + other.latencies, exchanges + other.exchanges, steps + other.steps};
  }
  bool operator==(const Cost&) const = default;
};
constexpr Cost kExchange{0, 2, 1, 1};

// How a state was reached from its parent.
struct Move {
  StepKind kind = StepKind::kRelabel;
  int8_t dim = -1;
  int8_t to_dim = -1;
  int64_t elements = 0;
};

class Search {
 public:
  explicit Search(const SearchProblem& problem) : problem_(problem), shape_(problem.shape), ndim_(shape_.ndim()) {
    for (int axis = 0; axis < problem.mesh.num_axes(); ++axis) {
      const auto is_axis = [axis](const Partial& p) { return p.axis == axis; };
      const auto& kept = problem.to != nullptr ? problem.to->partial : std::vector<Partial>{};
      if (problem.mesh.axis(axis).size == 1 || std::any_of(kept.begin(), kept.end(), is_axis)) continue;
      mesh_axis_.push_back(axis);
      sizes_.push_back(problem.mesh.axis(axis).size);
      num_ranks_ *= sizes_.back();
    }
    num_axes_ = static_cast<int>(sizes_.size());
    if (num_axes_ > kMaxSearchAxes) {
      throw InvalidArgument("redistribution on mesh {}: at most {} axes larger than 1 are supported",
                            problem.mesh.to_string(), kMaxSearchAxes);
    }
    reduction_ = problem.from.is_partial() ? problem.from.partial[0].reduction : Reduction::kSum;
    num_elements_ = shape_.num_elements();
    if (problem.to != nullptr) {
      target_ = pack(*problem.to);
      unpack(target_, target_dims_);
      for (int d = 0; d < ndim_; ++d) largest_need_ *= divide_up(shape_[d], target_dims_.parts[at(d)]);
    } else {
      target_.places.fill(0x7F);  // no state of this mesh
      largest_need_ = problem.largest_slice;
    }
    slots_.assign(1024, -1);
  }

  SearchResult run() {
    const int root = insert(pack(problem_.from), {}, -1, {});
    nodes_[0].ahead = estimate(nodes_[0].state);
    const int plain = plain_path(root);
    limit_ = plain >= 0 ? total(nodes_[at(plain)].cost) : -1;
    push(root, false);
    int num_expanded = 0;
    while (!queue_.empty()) {
      const Entry entry = queue_.top();
      queue_.pop();
      if (!(nodes_[at(entry.node)].cost == entry.reached_at)) continue;  // a cheaper way was found since
      if (entry.exchanges_next) {
        exchange_from(entry.node);
      } else if (nodes_[at(entry.node)].state == target_) {
        return path_to(entry.node, true);
      } else if (num_expanded++ == kMaxExpansions) {
        break;
      } else {
        expand(entry.node);
      }
    }
    return path_to(best_known(plain), false);
  }

 private:
  struct Node {
    ShardingState state;
    Cost cost;
    Cost ahead;  // a lower bound of what follows
    int parent = -1;
    Move move;
  };
  struct Entry {
    double total;
    Cost cost;  // reached and ahead
    Cost reached_at;
    int node;
    int order;
    bool exchanges_next;
    bool operator<(const Entry& other) const {  // the queue's top is the largest
      return std::tie(other.total, other.cost.elements, other.cost.exchanges, other.cost.steps, other.order) <
             std::tie(total, cost.elements, cost.exchanges, cost.steps, order);
    }
  };

  static size_t at(int index) { return static_cast<size_t>(index); }
  double total(const Cost& cost) const {
    return static_cast<double>(cost.elements) * static_cast<double>(problem_.element_bytes) +
           problem_.latency_bytes * cost.latencies;
  }
  bool is_cheaper(const Cost& a, const Cost& b) const {
    const double total_a = total(a);
    const double total_b = total(b);
    return std::tie(total_a, a.elements, a.exchanges, a.steps) < std::tie(total_b, b.elements, b.exchanges, b.steps);
  }

  // --- states ---

  int number_of(int mesh_axis) const {
    return static_cast<int>(std::find(mesh_axis_.begin(), mesh_axis_.end(), mesh_axis) - mesh_axis_.begin());
  }

  ShardingState pack(const Sharding& sharding) const {
    ShardingState state;
    for (size_t dim = 0; dim < sharding.dims.size(); ++dim) {
      for (size_t depth = 0; depth < sharding.dims[dim].size(); ++depth) {
        state.places[at(number_of(sharding.dims[dim][depth]))] =
            ShardingState::place(static_cast<int>(dim), static_cast<int>(depth));
      }
    }
    for (const auto& partial : sharding.partial) {
      if (const int axis = number_of(partial.axis); axis < num_axes_) state.places[at(axis)] = ShardingState::kPartial;
    }
    return state;
  }

  void unpack(const ShardingState& state, UnpackedState& result) const {
    result.unused = result.partial = 0;
    for (int d = 0; d < ndim_; ++d) {
      result.num_axes[at(d)] = 0;
      result.parts[at(d)] = 1;
    }
    for (int axis = 0; axis < num_axes_; ++axis) {
      const uint8_t place = state.places[at(axis)];
      if (place == ShardingState::kUnused) {
        result.unused |= 1u << axis;
      } else if (place == ShardingState::kPartial) {
        result.partial |= 1u << axis;
      } else {
        const auto dim = static_cast<size_t>(place >> 4 & 7);
        result.axes[dim][place & 15] = static_cast<uint8_t>(axis);
        ++result.num_axes[dim];
        result.parts[dim] *= sizes_[at(axis)];
      }
    }
  }

  Sharding sharding_of(const ShardingState& state) const {
    UnpackedState dims;
    unpack(state, dims);
    Sharding sharding = Sharding::replicated(ndim_);
    for (int d = 0; d < ndim_; ++d) {
      for (int i = 0; i < dims.num_axes[at(d)]; ++i) {
        sharding.dims[at(d)].push_back(mesh_axis_[dims.axes[at(d)][at(i)]]);
      }
    }
    if (problem_.to != nullptr) sharding.partial = problem_.to->partial;
    for (int axis = 0; axis < num_axes_; ++axis) {
      if ((dims.partial >> axis & 1) != 0) sharding.partial.push_back({mesh_axis_[at(axis)], reduction_});
    }
    std::sort(sharding.partial.begin(), sharding.partial.end(),
              [](const Partial& a, const Partial& b) { return a.axis < b.axis; });
    return sharding;
  }

  int64_t product_of(uint32_t axes) const {
    int64_t product = 1;
    for (; axes != 0; axes &= axes - 1) product *= sizes_[at(std::countr_zero(axes))];
    return product;
  }

  // The largest local size of a dim: nested balanced splits round up once, whatever their order.
  int64_t local_size(const UnpackedState& state, int dim) const { return divide_up(shape_[dim], state.parts[at(dim)]); }
  int64_t local_elements(const UnpackedState& state, int but = -1, int and_but = -1) const {
    int64_t elements = 1;
    for (int d = 0; d < ndim_; ++d) {
      if (d != but && d != and_but) elements *= local_size(state, d);
    }
    return elements;
  }

  // How a dim of a state relates to the target's: split alike at the outside, one may go on where the other ends.
  struct Overlap {
    bool equal;
    bool extends_to_target;  // by slicing
    bool conflict;           // both go on, differently
  };
  Overlap compare(const UnpackedState& state, int dim) const {
    const int have = state.num_axes[at(dim)];
    const int want = target_dims_.num_axes[at(dim)];
    int common = 0;
    while (common < have && common < want &&
           state.axes[at(dim)][at(common)] == target_dims_.axes[at(dim)][at(common)]) {
      ++common;
    }
    return {common == have && common == want, common == have, common < have && common < want};
  }

  // --- lower bounds ---

  Cost estimate(const ShardingState& state) {
    if (state == target_) return {};
    unpack(state, scratch_);
    if (scratch_.partial != 0) {
      const int64_t contributions = product_of(scratch_.partial);
      const int64_t mean =
          problem_.to == nullptr ? problem_.mean_elements(contributions) : mean_elements(contributions);
      return {std::max(largest_need_, mean), 1, 0, 1};
    }
    if (problem_.to == nullptr) return {};
    return whole_bound(scratch_);
  }

  // See lower_bound_bytes: n contributions, k ranks that need the sum.
  int64_t mean_elements(int64_t contributions) const {
    int64_t target_parts = 1;
    for (int d = 0; d < ndim_; ++d) target_parts *= target_dims_.parts[at(d)];
    const __int128 received = static_cast<__int128>(num_elements_) * (contributions + num_ranks_ / target_parts - 2);
    return static_cast<int64_t>((received + num_ranks_ - 1) / num_ranks_);
  }

  // Of whole values, two ranks are asked what they need and lack: the first, and, where a dim is split by different
  // axes, one that has nothing of what it needs; that one may need as little as the smallest slice.
  Cost whole_bound(const UnpackedState& state) const {
    bool sliceable = true;
    bool conflict = false;
    int64_t present = 1;
    int64_t smallest = 1;
    for (int d = 0; d < ndim_; ++d) {
      const Overlap overlap = compare(state, d);
      sliceable = sliceable && overlap.extends_to_target;
      conflict = conflict || overlap.conflict;
      present *= divide_up(shape_[d], std::max(state.parts[at(d)], target_dims_.parts[at(d)]));
      smallest *= shape_[d] / target_dims_.parts[at(d)];
    }
    if (sliceable) return {};
    return {std::max(largest_need_ - present, conflict ? smallest : 0), 1, 0, 1};
  }

  // --- the graph of steps ---

  int insert(const ShardingState& state, const Cost& cost, int parent, Move move) {
    const int node = static_cast<int>(nodes_.size());
    nodes_.push_back({state, cost, {}, parent, move});
    if (nodes_.size() * 2 > slots_.size()) {
      std::vector<int> old(slots_.size() * 4, -1);
      old.swap(slots_);
      for (const int known : old) {
        if (known >= 0) slots_[slot_of(nodes_[at(known)].state)] = known;
      }
    }
    slots_[slot_of(state)] = node;
    return node;
  }

  size_t slot_of(const ShardingState& state) const {
    size_t slot = state.hash() & (slots_.size() - 1);
    while (slots_[slot] >= 0 && !(nodes_[at(slots_[slot])].state == state)) slot = (slot + 1) & (slots_.size() - 1);
    return slot;
  }

  void push(int node, bool exchanges_next) {
    const Node& n = nodes_[at(node)];
    const Cost cost = n.cost + n.ahead + (exchanges_next ? exchange_surplus(n.ahead) : Cost{});
    queue_.push({total(cost), cost, n.cost, node, num_pushed_++, exchanges_next});
  }
  // What an exchange costs beyond the estimate for a whole state.
  Cost exchange_surplus(const Cost& ahead) const {
    if (problem_.to == nullptr) return {};  // may turn out to move nothing
    return {0, kExchange.latencies - ahead.latencies, kExchange.exchanges, kExchange.steps - ahead.steps};
  }

  void reach(const ShardingState& state, const Cost& step, int parent, Move move) {
    const Cost cost = nodes_[at(parent)].cost + step;
    move.elements = step.elements;
    if (limit_ >= 0 && total(cost) > limit_) return;
    const size_t slot = slot_of(state);
    int node = slots_[slot];
    if (node >= 0) {
      Node& known = nodes_[at(node)];
      if (!is_cheaper(cost, known.cost)) return;
      known.cost = cost;
      known.parent = parent;
      known.move = move;
    } else {
      const Cost ahead = estimate(state);
      if (limit_ >= 0 && total(cost + ahead) > limit_) return;
      node = insert(state, cost, parent, move);
      nodes_[at(node)].ahead = ahead;
    }
    if (state == target_) limit_ = limit_ < 0 ? total(cost) : std::min(limit_, total(cost));
    push(node, false);
  }

  void expand(int node) {
    const Node from = nodes_[at(node)];  // by value: nodes_ grows
    UnpackedState state;
    unpack(from.state, state);
    const bool whole = state.partial == 0;
    const bool may_exchange = problem_.to == nullptr || problem_.enable_alltoall;
    const bool just_completed =
        from.parent < 0 || from.move.kind == StepKind::kReduceScatter || from.move.kind == StepKind::kAllReduce;
    // An exchange gets each rank exactly what it lacks, so nothing that moves whole values is worth doing before it.
    const bool needs_more = problem_.to == nullptr || from.ahead.latencies > 0;
    if (whole && may_exchange && just_completed && needs_more) push(node, true);
    if (whole && problem_.to == nullptr) return;
    slice(node, from, state);
    if (problem_.to != nullptr) {
      gather(node, from, state);
      if (problem_.enable_alltoall) move_between_dims(node, from, state);
    }
    if (whole) return;
    std::array<uint8_t, kMaxSearchAxes> chosen{};
    reduce_scatter(node, from, state, chosen, 0, 1);
    all_reduce(node, from, state);
  }

  void slice(int node, const Node& from, const UnpackedState& state) {
    for (int axis = 0; axis < num_axes_; ++axis) {
      if ((state.unused >> axis & 1) == 0) continue;
      for (int d = 0; d < ndim_; ++d) {
        ShardingState next = from.state;
        next.places[at(axis)] = ShardingState::place(d, state.num_axes[at(d)]);
        reach(next, {}, node, {StepKind::kSlice, static_cast<int8_t>(d), -1});
      }
    }
  }

  // The elements that the busiest rank receives when the innermost axes of a dim, `ways` in all, are gathered.
  int64_t gathered_elements(const UnpackedState& state, int dim, int64_t ways) const {
    const int64_t outer = divide_up(shape_[dim], state.parts[at(dim)] / ways);
    return (outer - outer / ways) * local_elements(state, dim);
  }

  void gather(int node, const Node& from, const UnpackedState& state) {
    for (int d = 0; d < ndim_; ++d) {
      ShardingState next = from.state;
      int64_t ways = 1;
      for (int i = state.num_axes[at(d)] - 1; i >= 0; --i) {
        const int axis = state.axes[at(d)][at(i)];
        next.places[at(axis)] = ShardingState::kUnused;
        ways *= sizes_[at(axis)];
        reach(next, Cost{gathered_elements(state, d, ways), 1, 0, 1}, node,
              {StepKind::kAllGather, static_cast<int8_t>(d), -1});
      }
    }
  }

  void move_between_dims(int node, const Node& from, const UnpackedState& state) {
    for (int d = 0; d < ndim_; ++d) {
      for (int i = state.num_axes[at(d)] - 1; i >= 0; --i) {
        for (int to = 0; to < ndim_; ++to) {
          if (to == d) continue;
          ShardingState next = from.state;
          for (int k = i; k < state.num_axes[at(d)]; ++k) {
            next.places[state.axes[at(d)][at(k)]] = ShardingState::place(to, state.num_axes[at(to)] + k - i);
          }
          const int64_t elements = moved_elements(state, d, i, to);
          reach(next, Cost{elements, 1, 0, 1}, node,
                {StepKind::kAllToAll, static_cast<int8_t>(d), static_cast<int8_t>(to)});
        }
      }
    }
  }

  // Of an all_to_all of the axes of `dim` from depth `first` on. A rank gets its part of `to` and what it lacks of its
  // outer slice of `dim`; where both are uneven the two pull apart: a larger part of one may come with one of the
  // other.
  int64_t moved_elements(const UnpackedState& state, int dim, int first, int to) const {
    int64_t ways = 1;
    for (int k = first; k < state.num_axes[at(dim)]; ++k) ways *= sizes_[state.axes[at(dim)][at(k)]];
    const int64_t outer = divide_up(shape_[dim], state.parts[at(dim)] / ways);
    const int64_t target = local_size(state, to);
    int64_t most = 0;
    if (outer % ways == 0) {
      most = divide_up(target, ways) * (outer - outer / ways);
    } else if (target % ways == 0) {
      most = target / ways * (outer - outer / ways);
    } else {
      for (int64_t part = 0; part < ways; ++part) {
        int64_t own = outer;
        int64_t wanted = target;
        int64_t stride = ways;
        for (int k = first; k < state.num_axes[at(dim)]; ++k) {
          const int64_t size = sizes_[state.axes[at(dim)][at(k)]];
          stride /= size;
          const int64_t index = part / stride % size;
          own = own / size + (index < own % size ? 1 : 0);
          wanted = wanted / size + (index < wanted % size ? 1 : 0);
        }
        most = std::max(most, wanted * (outer - own));
      }
    }
    return most * local_elements(state, dim, to);
  }

  // Every ordered choice of partial axes, onto every dim; a rank gets its part from each of the others.
  void reduce_scatter(int node, const Node& from, const UnpackedState& state,
                      std::array<uint8_t, kMaxSearchAxes>& chosen, int num_chosen, int64_t ways) {
    for (int axis = 0; axis < num_axes_; ++axis) {
      const auto end = chosen.begin() + num_chosen;
      if ((state.partial >> axis & 1) == 0 || std::find(chosen.begin(), end, axis) != end) continue;
      chosen[at(num_chosen)] = static_cast<uint8_t>(axis);
      const int64_t wider = ways * sizes_[at(axis)];
      for (int d = 0; d < ndim_; ++d) {
        ShardingState next = from.state;
        for (int i = 0; i <= num_chosen; ++i) {
          next.places[chosen[at(i)]] = ShardingState::place(d, state.num_axes[at(d)] + i);
        }
        const int64_t part = divide_up(shape_[d], state.parts[at(d)] * wider) * local_elements(state, d);
        reach(next, Cost{part * (wider - 1), 1, 0, 1}, node, {StepKind::kReduceScatter, static_cast<int8_t>(d), -1});
      }
      reduce_scatter(node, from, state, chosen, num_chosen + 1, wider);
    }
  }

  // A rank adds up its stretch of the flattened value, received from each of the others, then gets the rest.
  int64_t all_reduced_elements(const UnpackedState& state, int64_t ways) const {
    const int64_t elements = local_elements(state);
    return (ways - 2) * divide_up(elements, ways) + elements;
  }

  void all_reduce(int node, const Node& from, const UnpackedState& state) {
    for (uint32_t axes = 1; axes <= state.partial; ++axes) {
      if ((axes & state.partial) != axes) continue;
      ShardingState next = from.state;
      for (int axis = 0; axis < num_axes_; ++axis) {
        if ((axes >> axis & 1) != 0) next.places[at(axis)] = ShardingState::kUnused;
      }
      const int64_t elements = all_reduced_elements(state, product_of(axes));
      reach(next, Cost{elements, 1, 0, 1}, node, {StepKind::kAllReduce, -1, -1});
    }
  }

  // --- exchanges ---

  Cost exchange_cost(const ShardingState& state) {
    if (problem_.to == nullptr) {
      const int64_t elements = problem_.exchange_elements(sharding_of(state));
      return elements == 0 ? Cost{} : Cost{elements, 0, 0, 0} + kExchange;
    }
    unpack(state, scratch_);
    bool even = true;
    for (int d = 0; d < ndim_; ++d) {
      even = even && shape_[d] % scratch_.parts[at(d)] == 0 && shape_[d] % target_dims_.parts[at(d)] == 0;
    }
    const int64_t elements =
        even ? whole_bound(scratch_).elements
             : exchange_elements(shape_, problem_.mesh, sharding_of(state), problem_.mesh, *problem_.to);
    return Cost{elements, 0, 0, 0} + kExchange;
  }

  void exchange_from(int node) {
    const Cost cost = exchange_cost(nodes_[at(node)].state);
    const StepKind kind = cost.exchanges == 0 ? StepKind::kSlice : StepKind::kExchange;
    reach(target_, cost, node, {kind, -1, -1});
  }

  // --- a path that is always there ---

  // One all_reduce, one gather per dim that changes, slices: an upper bound that trims the search. Nodes of it stand
  // outside the table. -1 towards another mesh.
  int plain_path(int root) {
    if (problem_.to == nullptr) return -1;
    int node = complete(root);
    for (int d = 0; d < ndim_; ++d) {
      UnpackedState state;
      unpack(nodes_[at(node)].state, state);
      if (compare(state, d).extends_to_target) continue;
      ShardingState next = nodes_[at(node)].state;
      int64_t ways = 1;
      for (int i = state.num_axes[at(d)] - 1; i >= 0; --i) {
        const int axis = state.axes[at(d)][at(i)];
        const bool common = next.places[at(axis)] == target_.places[at(axis)] && is_common(state, d, i);
        if (common) break;
        next.places[at(axis)] = ShardingState::kUnused;
        ways *= sizes_[at(axis)];
      }
      node = append(node, next, {gathered_elements(state, d, ways), 1, 0, 1},
                    {StepKind::kAllGather, static_cast<int8_t>(d), -1});
    }
    if (nodes_[at(node)].state == target_) return node;
    return append(node, target_, {}, {StepKind::kSlice, -1, -1});
  }
  bool is_common(const UnpackedState& state, int dim, int depth) const {
    return depth < target_dims_.num_axes[at(dim)] &&
           std::equal(state.axes[at(dim)].begin(), state.axes[at(dim)].begin() + depth + 1,
                      target_dims_.axes[at(dim)].begin());
  }
  int complete(int root) {
    UnpackedState state;
    unpack(nodes_[at(root)].state, state);
    if (state.partial == 0) return root;
    ShardingState next = nodes_[at(root)].state;
    for (auto& place : next.places) {
      if (place == ShardingState::kPartial) place = ShardingState::kUnused;
    }
    return append(root, next, {all_reduced_elements(state, product_of(state.partial)), 1, 0, 1},
                  {StepKind::kAllReduce, -1, -1});
  }
  int append(int parent, const ShardingState& state, const Cost& step, Move move) {
    move.elements = step.elements;
    nodes_.push_back({state, nodes_[at(parent)].cost + step, {}, parent, move});
    return static_cast<int>(nodes_.size()) - 1;
  }

  int best_known(int plain) {
    int best = plain;
    if (problem_.to == nullptr || problem_.enable_alltoall) {
      const int whole = complete(0);
      const Cost cost = exchange_cost(nodes_[at(whole)].state);
      const StepKind kind = cost.exchanges == 0 ? StepKind::kSlice : StepKind::kExchange;
      const int exchanged = append(whole, target_, cost, {kind, -1, -1});
      if (best < 0 || is_cheaper(nodes_[at(exchanged)].cost, nodes_[at(best)].cost)) best = exchanged;
    }
    const int found = slots_[slot_of(target_)];
    if (found >= 0 && is_cheaper(nodes_[at(found)].cost, nodes_[at(best)].cost)) best = found;
    return best;
  }

  // --- the result ---

  SearchResult path_to(int node, bool optimal) {
    SearchResult result{{}, nodes_[at(node)].cost.latencies, optimal};
    for (; nodes_[at(node)].parent >= 0; node = nodes_[at(node)].parent) {
      const Node& n = nodes_[at(node)];
      const bool continues =
          n.move.kind == StepKind::kSlice && !result.steps.empty() && result.steps.back().kind == StepKind::kSlice;
      if (continues) continue;  // its axes are found from what holds before and after
      Step step;
      step.kind = n.move.kind;
      step.dim = n.move.dim;
      step.to_dim = n.move.to_dim;
      step.reduction = reduction_;
      step.bytes = n.move.elements * problem_.element_bytes;
      if (!(n.state == target_ && problem_.to == nullptr)) step.after = sharding_of(n.state);
      result.steps.push_back(std::move(step));
    }
    std::reverse(result.steps.begin(), result.steps.end());
    return result;
  }

  const SearchProblem& problem_;
  const Shape& shape_;
  int ndim_;
  std::vector<int> mesh_axis_;  // by number
  std::vector<int64_t> sizes_;
  int num_axes_ = 0;
  int64_t num_ranks_ = 1;  // that share a value
  int64_t num_elements_ = 0;
  int64_t largest_need_ = 1;
  Reduction reduction_ = Reduction::kSum;
  ShardingState target_;
  UnpackedState target_dims_;
  UnpackedState scratch_;
  double limit_ = -1;  // the cost of the best path known
  std::vector<Node> nodes_;
  std::vector<int> slots_;  // hash table of node numbers, open addressing
  std::priority_queue<Entry> queue_;
  int num_pushed_ = 0;
};

}  // namespace

SearchResult search(const SearchProblem& problem) { return Search(problem).run(); }

}  // namespace tessera::mesh
