#include "tessera/pipeline/search/order_search.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "tessera/base/integers.h"
#include "tessera/base/random.h"

namespace tessera::pipeline {
namespace {

// Steps without a better schedule after which the search goes back to the best one.
constexpr int kMovesWithoutBetter = 400;
constexpr size_t kMemory = 20;  // of late acceptance

using Orders = std::vector<std::vector<int>>;

// Phases begin..end of a stage's order that follow each other without a pause.
struct Block {
  int stage = 0;
  int begin = 0;
  int end = 0;  // the last one
};

class Draws {
 public:
  explicit Draws(uint64_t seed) : stream_{.seed = seed, .stream = hash_name("pipeline order search")} {}
  int below(size_t n) { return static_cast<int>(random_below(stream_, next_++, static_cast<int64_t>(n))); }

 private:
  RandomStream stream_;
  uint64_t next_ = 0;
};

// The blocks of two phases or more on a longest path of the timeline.
class CriticalPath {
 public:
  CriticalPath(const PipelineProblem& problem, const SeriesTable& table, const Timeline& timeline)
      : problem_(problem), table_(table), timeline_(timeline), position_(as_index(table.num_phases())) {
    for (const auto& order : timeline.orders) {
      std::vector<int> done(table.series.size(), 0);
      for (size_t i = 0; i < order.size(); ++i)
        position_[table.index(order[i], done[as_index(order[i])]++)] = static_cast<int>(i);
      micro_batches_.emplace_back();
      std::fill(done.begin(), done.end(), 0);
      for (const int s : order) micro_batches_.back().push_back(done[as_index(s)]++);
    }
  }

  std::vector<Block> blocks() const {
    std::vector<Block> result;
    auto [stage, i] = last();
    while (i >= 0) {
      const int end = i;
      while (i > 0 && end_of(stage, i - 1) == start_of(stage, i)) --i;
      if (end > i) result.push_back({stage, i, end});
      // The path may leave the block at any phase that waited for another stage; the first one did.
      const auto from = other_stage(stage, i);
      if (!from) break;
      std::tie(stage, i) = *from;
    }
    return result;
  }

 private:
  int64_t start_of(int stage, int i) const {
    return timeline_.starts[table_.index(timeline_.orders[as_index(stage)][as_index(i)],
                                         micro_batches_[as_index(stage)][as_index(i)])];
  }
  int64_t end_of(int stage, int i) const {
    return start_of(stage, i) + table_.series[as_index(timeline_.orders[as_index(stage)][as_index(i)])].ns;
  }

  std::pair<int, int> last() const {
    int stage = 0;
    int64_t latest = -1;
    for (int s = 0; s < problem_.num_stages(); ++s) {
      const int i = static_cast<int>(timeline_.orders[as_index(s)].size()) - 1;
      const int64_t end = end_of(s, i) + problem_.stages[as_index(s)].update_ns;
      if (end <= latest) continue;
      latest = end;
      stage = s;
    }
    return {stage, static_cast<int>(timeline_.orders[as_index(stage)].size()) - 1};
  }

  // The phase of another stage whose message the phase waited for.
  std::optional<std::pair<int, int>> other_stage(int stage, int i) const {
    const Series& series = table_.series[as_index(timeline_.orders[as_index(stage)][as_index(i)])];
    if (series.receives < 0) return std::nullopt;
    const int sender = table_.lines[as_index(series.receives)].sender;
    return std::pair(table_.series[as_index(sender)].stage,
                     position_[table_.index(sender, micro_batches_[as_index(stage)][as_index(i)])]);
  }

  const PipelineProblem& problem_;
  const SeriesTable& table_;
  const Timeline& timeline_;
  std::vector<int> position_;                    // of each phase in its stage's order
  std::vector<std::vector<int>> micro_batches_;  // of each stage's phases, in order
};

// Moves the phase at `from` to `to`, which moves those between by one.
void move_phase(std::vector<int>& order, int from, int to) {
  if (from < to) {
    std::rotate(order.begin() + from, order.begin() + from + 1, order.begin() + to + 1);
  } else {
    std::rotate(order.begin() + to, order.begin() + from, order.begin() + from + 1);
  }
}

void take_step(Orders& orders, const std::vector<Block>& blocks, Draws& draws) {
  const Block& block = blocks[as_index(draws.below(blocks.size()))];
  auto& order = orders[as_index(block.stage)];
  const int length = block.end - block.begin + 1;
  const int inside = block.begin + draws.below(as_index(length));
  switch (draws.below(4)) {
    case 0: return move_phase(order, block.begin, block.begin + 1);
    case 1: return move_phase(order, block.end, block.end - 1);
    case 2: return move_phase(order, inside, draws.below(2) == 0 ? block.begin : block.end);
    default: return move_phase(order, inside, block.begin + draws.below(as_index(length)));
  }
}

}  // namespace

void Incumbent::offer(const Timeline& offered, const std::string& from) {
  if (!offered.complete || (timeline.complete && timeline.makespan_ns <= offered.makespan_ns)) return;
  timeline = offered;
  origin = from;
}

void search_orders(ListScheduler& scheduler, int64_t bound_ns, int64_t effort, uint64_t seed, Incumbent& best) {
  Draws draws(seed);
  const auto& table = scheduler.table();
  Timeline current = best.timeline;
  std::vector<int64_t> memory(kMemory, current.makespan_ns);
  int since_better = 0;
  // Steps that place little, because they go wrong early, count too.
  const auto most_steps = static_cast<size_t>(4 * effort / table.num_phases() + 1);
  for (size_t step = 0; best.timeline.makespan_ns > bound_ns && scheduler.num_placed() < effort && step < most_steps;
       ++step) {
    if (++since_better > kMovesWithoutBetter) {
      current = best.timeline;
      memory.assign(kMemory, current.makespan_ns);
      since_better = 0;
    }
    const auto blocks = CriticalPath(scheduler.problem(), table, current).blocks();
    if (blocks.empty()) return;
    Orders orders = current.orders;
    take_step(orders, blocks, draws);
    if (orders == current.orders) continue;
    const Timeline& next = scheduler.run(rules_of_orders(table, orders));
    if (!next.complete) continue;
    if (next.makespan_ns < best.timeline.makespan_ns) since_better = 0;
    best.offer(next, "local search");
    int64_t& a_while_ago = memory[step % kMemory];
    if (next.makespan_ns <= current.makespan_ns || next.makespan_ns <= a_while_ago) current = next;
    a_while_ago = std::min(a_while_ago, current.makespan_ns);
  }
}

}  // namespace tessera::pipeline
