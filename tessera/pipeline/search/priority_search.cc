#include "tessera/pipeline/search/priority_search.h"

#include <algorithm>

#include "tessera/base/random.h"
#include "tessera/pipeline/search/precedence.h"
#include "tessera/pipeline/search/proposals.h"

namespace tessera::pipeline {
namespace {

// Proposals without a better one after which all is drawn again.
constexpr int kRoundsWithoutBetter = 150;

class PrioritySearch {
 public:
  PrioritySearch(const ListScheduler& scheduler, uint64_t seed)
      : problem_(scheduler.problem()),
        table_(scheduler.table()),
        stream_{.seed = seed, .stream = hash_name("pipeline priority search")},
        tails_(keys_by_tail(problem_, table_)),
        way_(residences(problem_)[0]),
        depths_(natural_depths(problem_)) {}

  // What is drawn: for each series, and for each stage.
  struct Draw {
    std::vector<int64_t> shifts;
    std::vector<int64_t> limits;
  };

  Draw anew() {
    Draw draw;
    const int64_t most = way_ >> below(5);  // from a little to as much as a micro-batch's whole way
    const bool is_limited = below(2) == 0;
    for (size_t s = 0; s < table_.series.size(); ++s) draw.shifts.push_back(below(2 * most + 1) - most);
    for (const double depth : depths_) draw.limits.push_back(is_limited ? limit(depth) : table_.micro_batches);
    return draw;
  }

  Draw near(Draw draw) {
    for (int64_t changes = 1 + below(3); changes > 0; --changes) {
      if (below(3) == 0) {
        const auto s = static_cast<size_t>(below(static_cast<int64_t>(depths_.size())));
        draw.limits[s] = limit(depths_[s]);
      } else {
        const int64_t most = way_ >> below(6);
        draw.shifts[static_cast<size_t>(below(static_cast<int64_t>(draw.shifts.size())))] = below(2 * most + 1) - most;
      }
    }
    return draw;
  }

  SchedulingRules rules_of(const Draw& draw) const {
    SchedulingRules rules{.keys = tails_};
    for (size_t s = 0; s < draw.shifts.size(); ++s) {
      for (int k = 0; k < table_.micro_batches; ++k) rules.keys[table_.index(static_cast<int>(s), k)] += draw.shifts[s];
    }
    // A micro-batch counts from its first visit to a stage, to the first chunk that the stage has of the network.
    Reserve reserve{.limits = draw.limits,
                    .taken = std::vector<int64_t>(problem_.chunks.size(), 0),
                    .left_after_backward = std::vector<int64_t>(problem_.chunks.size(), 0)};
    std::vector<bool> is_visited(problem_.stages.size(), false);
    for (size_t c = 0; c < problem_.chunks.size(); ++c) {
      const auto stage = static_cast<size_t>(problem_.chunks[c].stage);
      reserve.taken[c] = is_visited[stage] ? 0 : 1;
      is_visited[stage] = true;
    }
    rules.reserves.push_back(std::move(reserve));
    return rules;
  }

 private:
  int64_t below(int64_t n) { return random_below(stream_, next_++, n); }
  int64_t limit(double depth) { return 1 + below(static_cast<int64_t>(2 * depth) + 1); }

  const PipelineProblem& problem_;
  const SeriesTable& table_;
  RandomStream stream_;
  uint64_t next_ = 0;
  std::vector<int64_t> tails_;
  int64_t way_;
  std::vector<double> depths_;
};

}  // namespace

void search_priorities(ListScheduler& scheduler, int64_t bound_ns, int64_t effort, uint64_t seed, Incumbent& best) {
  PrioritySearch search(scheduler, seed);
  PrioritySearch::Draw current;
  int64_t current_ns = 0;
  int since_better = kRoundsWithoutBetter;
  while (best.timeline.makespan_ns > bound_ns && scheduler.num_placed() < effort) {
    const bool is_new = ++since_better > kRoundsWithoutBetter;
    auto draw = is_new ? search.anew() : search.near(current);
    const auto& timeline = scheduler.run(search.rules_of(draw));
    best.offer(timeline, "search of priorities");
    if (!is_new && timeline.makespan_ns > current_ns) continue;
    if (is_new || timeline.makespan_ns < current_ns) since_better = 0;
    current = std::move(draw);
    current_ns = timeline.makespan_ns;
  }
}

}  // namespace tessera::pipeline
