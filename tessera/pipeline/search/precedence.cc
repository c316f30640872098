#include "tessera/pipeline/search/precedence.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"

namespace tessera::pipeline {
namespace {

// Nodes in an order in which those of lag 0 go forward.
std::vector<int> topological_order(const PrecedenceGraph& graph) {
  const int nodes = static_cast<int>(graph.ns.size());
  std::vector<std::vector<int>> next(graph.ns.size());
  std::vector<int> missing(graph.ns.size(), 0);
  for (const auto& p : graph.precedences) {
    if (p.lag != 0) continue;
    next[as_index(p.from)].push_back(p.to);
    ++missing[as_index(p.to)];
  }
  std::vector<int> order;
  for (int n = 0; n < nodes; ++n) {
    if (missing[as_index(n)] == 0) order.push_back(n);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const int n : next[as_index(order[i])]) {
      if (--missing[as_index(n)] == 0) order.push_back(n);
    }
  }
  check_equal(order.size(), graph.ns.size(), "precedences of one micro-batch have no cycle");
  return order;
}

// The least lag of all paths from `source` to each node, or kNoPath: micro-batch k of a node has micro-batch k' of the
// source as an ancestor where k - k' is at least that, for the source's micro-batches form a chain.
constexpr int kNoPath = std::numeric_limits<int>::max();
std::vector<int> least_lags(const std::vector<std::vector<Precedence>>& after, int source) {
  std::vector<int> lags(after.size(), kNoPath);
  std::priority_queue<std::pair<int, int>, std::vector<std::pair<int, int>>, std::greater<>> queue;
  const auto reach = [&](int node, int lag) {
    if (lag >= lags[as_index(node)]) return;
    lags[as_index(node)] = lag;
    queue.emplace(lag, node);
  };
  for (const auto& p : after[as_index(source)]) reach(p.to, p.lag);
  while (!queue.empty()) {
    const auto [lag, node] = queue.top();
    queue.pop();
    if (lag != lags[as_index(node)]) continue;
    for (const auto& p : after[as_index(node)]) reach(p.to, lag + p.lag);
  }
  return lags;
}

// The work that a machine must have done before a phase of its own, by what is known of the starts of that work.
class OwnWork {
 public:
  OwnWork(const PrecedenceGraph& graph, const std::vector<int64_t>& starts)
      : graph_(graph), starts_(starts), machines_(graph.nodes_of_machines()), nodes_(graph.ns.size()) {
    std::vector<std::vector<Precedence>> after(nodes_);
    for (const auto& p : graph.precedences) after[as_index(p.from)].push_back(p);
    for (int n = 0; n < static_cast<int>(nodes_); ++n) lags_.push_back(least_lags(after, n));
    since_.assign(nodes_ * nodes_, -1);
  }

  // The time before which micro-batch k of a node cannot start for the sake of its machine's own work.
  int64_t end_before(int node, int k) const {
    int64_t latest = 0;
    const auto& own = machines_[as_index(graph_.machine[as_index(node)])];
    for (const int first : own) {
      if (num_ancestors(first, node, k) == 0) continue;
      int64_t end = start_of(first, 0);
      for (const int other : own) {
        const int from = since_[as_index(first) * nodes_ + as_index(other)];
        if (from >= 0) end += std::max(num_ancestors(other, node, k) - from, 0) * graph_.ns[as_index(other)];
      }
      latest = std::max(latest, end);
    }
    return latest;
  }

  // To be told of each start, in an order in which ancestors come first.
  void add(int node, int k) {
    for (const int first : machines_[as_index(graph_.machine[as_index(node)])]) {
      int& from = since_[as_index(first) * nodes_ + as_index(node)];
      const bool is_known = k > 0 || first == node || num_ancestors(first, node, k) > 0;
      if (from < 0 && is_known && start_of(node, k) >= start_of(first, 0)) from = k;
    }
  }

 private:
  int num_ancestors(int of_node, int node, int k) const {
    const int lag = lags_[as_index(of_node)][as_index(node)];
    return lag > k ? 0 : k + 1 - lag;
  }
  int64_t start_of(int node, int k) const {
    return starts_[as_index(node) * as_index(graph_.micro_batches) + as_index(k)];
  }

  const PrecedenceGraph& graph_;
  const std::vector<int64_t>& starts_;
  std::vector<std::vector<int>> machines_;
  size_t nodes_;
  std::vector<std::vector<int>> lags_;
  // Of two nodes a and b of a machine: the first micro-batch of b that starts no earlier than a's first one.
  std::vector<int> since_;
};

}  // namespace

std::vector<std::vector<int>> PrecedenceGraph::nodes_of_machines() const {
  std::vector<std::vector<int>> nodes(last_ns.size());
  for (size_t n = 0; n < machine.size(); ++n) nodes[as_index(machine[n])].push_back(static_cast<int>(n));
  return nodes;
}

std::vector<int64_t> residences(const PipelineProblem& problem) {
  std::vector<int64_t> result(problem.chunks.size(), 0);
  int64_t beyond = 0;
  for (int c = problem.num_chunks() - 1; c >= 0; --c) {
    beyond += problem.chunks[as_index(c)].forward_ns + problem.backward_phase_ns(c);
    result[as_index(c)] = beyond;
    if (c == 0 || !problem.crosses(c - 1)) continue;
    const auto& border = problem.borders[as_index(c - 1)];
    for (const auto& time : {border.forward, border.backward}) beyond += time.latency_ns + time.duration_ns;
  }
  return result;
}

PrecedenceGraph precedence_graph(const PipelineProblem& problem, const SeriesTable& table) {
  PrecedenceGraph graph{.micro_batches = table.micro_batches};
  const int num_series = static_cast<int>(table.series.size());
  const auto add = [&](int from, int to, int lag, int64_t delay) {
    graph.precedences.push_back({from, to, lag, delay});
  };
  for (const auto& stage : problem.stages) graph.last_ns.push_back(stage.update_ns);
  for (int s = 0; s < num_series; ++s) {
    const Series& series = table.series[as_index(s)];
    graph.ns.push_back(series.ns);
    graph.machine.push_back(series.stage);
    for (const int before : series.after) add(before, s, 0, 0);
  }
  for (size_t l = 0; l < table.lines.size(); ++l) {
    const Line& line = table.lines[l];
    const int node = num_series + static_cast<int>(l);
    graph.ns.push_back(line.time.duration_ns);
    graph.machine.push_back(problem.num_stages() + line.lane);
    add(line.sender, node, 0, 0);
    add(node, line.receiver, 0, line.time.latency_ns);
    add(line.receiver, node, table.slots, 0);
  }
  graph.last_ns.resize(problem.stages.size() + table.lanes.size(), 0);
  for (int n = 0; n < static_cast<int>(graph.ns.size()); ++n) add(n, n, 1, 0);
  for (int c = 0; c < table.num_chunks; ++c) {
    const auto& chunk = problem.chunks[as_index(c)];
    const int64_t limit = problem.stages[as_index(chunk.stage)].memory_limit_bytes;
    if (limit == kNoMemoryLimit) continue;
    const int64_t room = limit - problem.slot_bytes(chunk.stage);
    const auto wait = [&](PhaseKind kind, int64_t kept) {
      if (kept == 0) return;
      const int64_t lag = room / kept;
      if (lag < table.micro_batches)
        add(table.find(kind, c), table.find(PhaseKind::kForward, c), static_cast<int>(lag), 0);
    };
    wait(PhaseKind::kBackward, chunk.activation_bytes);
    if (problem.split_backward) wait(PhaseKind::kWeightGradient, chunk.weight_gradient_bytes);
  }
  return graph;
}

PrecedenceGraph reversed(const PrecedenceGraph& graph) {
  PrecedenceGraph result = graph;
  for (auto& p : result.precedences) std::swap(p.from, p.to);
  return result;
}

std::vector<int64_t> earliest_starts(const PrecedenceGraph& graph, const std::vector<int64_t>& first_ns) {
  const auto index = [&](int node, int k) { return as_index(node) * as_index(graph.micro_batches) + as_index(k); };
  const auto order = topological_order(graph);
  std::vector<std::vector<Precedence>> before(graph.ns.size());
  for (const auto& p : graph.precedences) before[as_index(p.to)].push_back(p);
  std::vector<int64_t> starts(graph.ns.size() * as_index(graph.micro_batches), 0);
  OwnWork own_work(graph, starts);
  for (int k = 0; k < graph.micro_batches; ++k) {
    for (const int node : order) {
      int64_t start = first_ns[as_index(graph.machine[as_index(node)])];
      for (const auto& p : before[as_index(node)]) {
        if (k < p.lag) continue;
        start = std::max(start, starts[index(p.from, k - p.lag)] + graph.ns[as_index(p.from)] + p.delay_ns);
      }
      starts[index(node, k)] = std::max(start, own_work.end_before(node, k));
      own_work.add(node, k);
    }
  }
  return starts;
}

}  // namespace tessera::pipeline
