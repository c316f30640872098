#include "tessera/pipeline/search/precedence.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "tessera/base/error.h"

namespace tessera::pipeline {
namespace {

size_t at(int i) { return static_cast<size_t>(i); }

// Nodes in an order in which those of lag 0 go forward.
std::vector<int> topological_order(const PrecedenceGraph& graph) {
  const int nodes = static_cast<int>(graph.ns.size());
  std::vector<std::vector<int>> next(graph.ns.size());
  std::vector<int> missing(graph.ns.size(), 0);
  for (const auto& p : graph.precedences) {
    if (p.lag != 0) continue;
    next[at(p.from)].push_back(p.to);
    ++missing[at(p.to)];
  }
  std::vector<int> order;
  for (int n = 0; n < nodes; ++n) {
    if (missing[at(n)] == 0) order.push_back(n);
  }
  for (size_t i = 0; i < order.size(); ++i) {
    for (const int n : next[at(order[i])]) {
      if (--missing[at(n)] == 0) order.push_back(n);
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
    if (lag >= lags[at(node)]) return;
    lags[at(node)] = lag;
    queue.emplace(lag, node);
  };
  for (const auto& p : after[at(source)]) reach(p.to, p.lag);
  while (!queue.empty()) {
    const auto [lag, node] = queue.top();
    queue.pop();
    if (lag != lags[at(node)]) continue;
    for (const auto& p : after[at(node)]) reach(p.to, lag + p.lag);
  }
  return lags;
}

// The work that a machine must have done before a phase of its own, by what is known of the starts of that work.
class OwnWork {
 public:
  OwnWork(const PrecedenceGraph& graph, const std::vector<int64_t>& starts)
      : graph_(graph), starts_(starts), machines_(graph.nodes_of_machines()), nodes_(graph.ns.size()) {
    std::vector<std::vector<Precedence>> after(nodes_);
    for (const auto& p : graph.precedences) after[at(p.from)].push_back(p);
    for (int n = 0; n < static_cast<int>(nodes_); ++n) lags_.push_back(least_lags(after, n));
    since_.assign(nodes_ * nodes_, -1);
  }

  // The time before which micro-batch k of a node cannot start for the sake of its machine's own work.
  int64_t end_before(int node, int k) const {
    int64_t latest = 0;
    const auto& own = machines_[at(graph_.machine[at(node)])];
    for (const int first : own) {
      if (num_ancestors(first, node, k) == 0) continue;
      int64_t end = start_of(first, 0);
      for (const int other : own) {
        const int from = since_[at(first) * nodes_ + at(other)];
        if (from >= 0) end += std::max(num_ancestors(other, node, k) - from, 0) * graph_.ns[at(other)];
      }
      latest = std::max(latest, end);
    }
    return latest;
  }

  // To be told of each start, in an order in which ancestors come first.
  void add(int node, int k) {
    for (const int first : machines_[at(graph_.machine[at(node)])]) {
      int& from = since_[at(first) * nodes_ + at(node)];
      const bool is_known = k > 0 || first == node || num_ancestors(first, node, k) > 0;
      if (from < 0 && is_known && start_of(node, k) >= start_of(first, 0)) from = k;
    }
  }

 private:
  int num_ancestors(int of_node, int node, int k) const {
    const int lag = lags_[at(of_node)][at(node)];
    return lag > k ? 0 : k + 1 - lag;
  }
  int64_t start_of(int node, int k) const { return starts_[at(node) * at(graph_.micro_batches) + at(k)]; }

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
  for (size_t n = 0; n < machine.size(); ++n) nodes[at(machine[n])].push_back(static_cast<int>(n));
  return nodes;
}

std::vector<int64_t> residences(const PipelineProblem& problem) {
  std::vector<int64_t> result(problem.chunks.size(), 0);
  int64_t beyond = 0;
  for (int c = problem.num_chunks() - 1; c >= 0; --c) {
    beyond += problem.chunks[at(c)].forward_ns + problem.backward_phase_ns(c);
    result[at(c)] = beyond;
    if (c == 0 || !problem.crosses(c - 1)) continue;
    const auto& border = problem.borders[at(c - 1)];
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
    const Series& series = table.series[at(s)];
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
    const auto& chunk = problem.chunks[at(c)];
    const int64_t limit = problem.stages[at(chunk.stage)].memory_limit_bytes;
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
  const auto index = [&](int node, int k) { return at(node) * at(graph.micro_batches) + at(k); };
  const auto order = topological_order(graph);
  std::vector<std::vector<Precedence>> before(graph.ns.size());
  for (const auto& p : graph.precedences) before[at(p.to)].push_back(p);
  std::vector<int64_t> starts(graph.ns.size() * at(graph.micro_batches), 0);
  OwnWork own_work(graph, starts);
  for (int k = 0; k < graph.micro_batches; ++k) {
    for (const int node : order) {
      int64_t start = first_ns[at(graph.machine[at(node)])];
      for (const auto& p : before[at(node)]) {
        if (k < p.lag) continue;
        start = std::max(start, starts[index(p.from, k - p.lag)] + graph.ns[at(p.from)] + p.delay_ns);
      }
      starts[index(node, k)] = std::max(start, own_work.end_before(node, k));
      own_work.add(node, k);
    }
  }
  return starts;
}

}  // namespace tessera::pipeline
