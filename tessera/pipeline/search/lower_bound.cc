#include "tessera/pipeline/search/lower_bound.h"

#include <algorithm>
#include <limits>
#include <queue>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"
#include "tessera/pipeline/search/precedence.h"

namespace tessera::pipeline {
namespace {

// The phases of a machine, each with the time before which it cannot start and the time that must follow its end.
struct Job {
  int64_t head = 0;
  int64_t ns = 0;
  int64_t tail = 0;
};

// The greatest h + q + (work with head >= h and tail >= q). It is the makespan of the preemptive schedule that always
// works at what has the longest tail (Jackson; Carlier 1982), which is found in the order of time.
int64_t one_machine_bound(std::vector<Job> jobs) {
  std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.head < b.head; });
  std::priority_queue<std::pair<int64_t, int64_t>> open;  // tail, what is left
  int64_t now = 0;
  int64_t bound = 0;
  size_t next = 0;
  while (next < jobs.size() || !open.empty()) {
    if (open.empty()) now = std::max(now, jobs[next].head);
    while (next < jobs.size() && jobs[next].head <= now) {
      open.emplace(jobs[next].tail, jobs[next].ns);
      ++next;
    }
    const auto [tail, left] = open.top();
    open.pop();
    const int64_t until = next < jobs.size() ? std::min(now + left, jobs[next].head) : now + left;
    if (until < now + left) {
      open.emplace(tail, now + left - until);
    } else {
      bound = std::max(bound, until + tail);
    }
    now = until;
  }
  return bound;
}

// Bytes times nanoseconds do not fit 64 bits.
__extension__ using Wide = __int128;

struct Earliest {
  std::vector<int64_t> heads;
  std::vector<int64_t> tails;  // of what must follow the end
};

Earliest earliest_of(const PrecedenceGraph& graph) {
  const std::vector<int64_t> nothing(graph.last_ns.size(), 0);
  Earliest result{.heads = earliest_starts(graph, nothing), .tails = {}};
  const auto backward = earliest_starts(reversed(graph), graph.last_ns);
  const auto m = as_index(graph.micro_batches);
  result.tails.resize(backward.size());
  for (size_t n = 0; n < graph.ns.size(); ++n) {
    for (size_t k = 0; k < m; ++k) result.tails[n * m + k] = backward[n * m + (m - 1 - k)];
  }
  return result;
}

int64_t memory_bound(const PipelineProblem& problem, const SeriesTable& table, const Earliest& earliest, int stage) {
  const int64_t limit = problem.stages[as_index(stage)].memory_limit_bytes;
  if (limit == kNoMemoryLimit) return 0;
  const int64_t room = limit - problem.slot_bytes(stage);
  const auto residence = residences(problem);
  const int last = table.micro_batches - 1;
  Wide area = 0;
  int64_t head = std::numeric_limits<int64_t>::max();
  int64_t tail = std::numeric_limits<int64_t>::max();
  for (const int s : table.of_stage[as_index(stage)]) {
    const Series& series = table.series[as_index(s)];
    const int64_t kept = problem.kept_after_backward(series.chunk);
    if (series.kind == PhaseKind::kForward) {
      area += Wide{problem.chunks[as_index(series.chunk)].activation_bytes} * residence[as_index(series.chunk)];
      head = std::min(head, earliest.heads[table.index(s, 0)]);
    } else {
      if (series.kind == PhaseKind::kWeightGradient) area += Wide{kept} * series.ns;
      // Some phase gives back the last bytes; what must follow any of the last ones follows it.
      tail = std::min(tail, earliest.tails[table.index(s, last)]);
    }
  }
  if (room == 0 || area == 0) return 0;
  area *= table.micro_batches;
  const auto window =
      static_cast<int64_t>(std::min<Wide>((area + room - 1) / room, std::numeric_limits<int64_t>::max() / 4));
  return head + window + tail;
}

}  // namespace

LowerBound lower_bound(const PipelineProblem& problem) {
  const SeriesTable table(problem);
  const auto graph = precedence_graph(problem, table);
  const auto earliest = earliest_of(graph);
  const auto machines = graph.nodes_of_machines();
  const auto m = as_index(graph.micro_batches);
  LowerBound best;
  const auto improve = [&](int64_t ns, auto&& reason) {
    if (ns > best.ns) best = {ns, reason()};
  };
  for (size_t machine = 0; machine < machines.size(); ++machine) {
    std::vector<Job> jobs;
    for (const int node : machines[machine]) {
      for (size_t k = 0; k < m; ++k) {
        jobs.push_back(
            {earliest.heads[as_index(node) * m + k], graph.ns[as_index(node)], earliest.tails[as_index(node) * m + k]});
      }
    }
    const int64_t bound = one_machine_bound(std::move(jobs));
    improve(bound, [&] {
      constexpr std::string_view kOneAtATime = "what comes first, its own work one at a time, and what comes last";
      if (machine < problem.stages.size()) return fmt::format("stage {}: {}", machine, kOneAtATime);
      const Lane& lane = table.lanes[machine - problem.stages.size()];
      return fmt::format("lane from stage {} to {}: {}", lane.from, lane.to, kOneAtATime);
    });
  }
  for (int s = 0; s < problem.num_stages(); ++s) {
    improve(memory_bound(problem, table, earliest, s), [&] {
      return fmt::format("stage {}: what all micro-batches keep, for as long as they must, in its memory", s);
    });
  }
  return best;
}

}  // namespace tessera::pipeline
