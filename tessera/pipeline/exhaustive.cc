#include "tessera/pipeline/exhaustive.h"

#include <algorithm>
#include <set>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"

namespace tessera::pipeline {
namespace {

using Times = std::vector<int64_t>;

// How far a step has come.
struct State {
  // By kind and chunk: when the phases so far ended.
  std::vector<Times> ends[3];
  // By direction and the chunk that reads: when the messages so far started.
  std::vector<Times> sent[2];
  Times free_at;  // of each stage
  int64_t last_start = 0;
};

class Exhaustive {
 public:
  Exhaustive(const PipelineProblem& problem, int64_t known_ns, int64_t most_states)
      : problem_(problem), kinds_(problem.split_backward ? 3 : 2), best_(known_ns), states_left_(most_states) {}

  std::optional<int64_t> run() {
    State state;
    for (auto& ends : state.ends) ends.resize(problem_.chunks.size());
    for (auto& sent : state.sent) sent.resize(problem_.chunks.size());
    state.free_at.assign(problem_.stages.size(), 0);
    visit(state);
    return states_left_ < 0 ? std::nullopt : std::optional(best_);
  }

 private:
  int64_t ns(int chunk, int kind) const {
    const auto& c = problem_.chunks[as_index(chunk)];
    return kind == 0 ? c.forward_ns : kind == 1 ? problem_.backward_phase_ns(chunk) : c.weight_gradient_ns;
  }

  // When what micro-batch k of a forward or backward reads is there: at once on the same stage, else when its message,
  // which waits for its lane and for a slot, has arrived. -1 where it was not computed yet.
  int64_t received(State& state, int chunk, int kind, size_t k) const {
    const int from = kind == 0 ? chunk - 1 : chunk + 1;
    if (from < 0 || from == problem_.num_chunks()) return 0;
    if (state.ends[kind][as_index(from)].size() <= k) return -1;
    int64_t start = state.ends[kind][as_index(from)][k];
    const int border = std::min(from, chunk);
    if (!problem_.crosses(border)) return start;
    const auto& time =
        kind == 0 ? problem_.borders[as_index(border)].forward : problem_.borders[as_index(border)].backward;
    auto& sent = state.sent[kind][as_index(chunk)];
    if (k > 0) start = std::max(start, sent.back() + time.duration_ns);
    if (k >= as_index(problem_.slots))
      start = std::max(start, state.ends[kind][as_index(chunk)][k - as_index(problem_.slots)]);
    sent.push_back(start);
    return start + time.duration_ns + time.latency_ns;
  }

  // The state after the next phase of a kind of a chunk, or nullopt where it cannot be next.
  std::optional<State> after(const State& state, int chunk, int kind) const {
    State next = state;
    auto& own = next.ends[kind][as_index(chunk)];
    const size_t k = own.size();
    if (k == as_index(problem_.micro_batches)) return std::nullopt;
    const int stage = problem_.chunks[as_index(chunk)].stage;
    int64_t start = next.free_at[as_index(stage)];
    if (kind > 0) {
      const auto& before = next.ends[kind - 1][as_index(chunk)];
      if (before.size() <= k) return std::nullopt;
      start = std::max(start, before[k]);
    }
    if (kind < 2) {
      const int64_t there = received(next, chunk, kind, k);
      if (there < 0) return std::nullopt;
      start = std::max(start, there);
    }
    if (kind == 0 && held(next, stage) + problem_.chunks[as_index(chunk)].activation_bytes > room(stage))
      return std::nullopt;
    // In the order of starts, so that each schedule is built once.
    if (start < state.last_start) return std::nullopt;
    next.last_start = start;
    own.push_back(start + ns(chunk, kind));
    next.free_at[as_index(stage)] = own.back();
    return next;
  }

  int64_t room(int stage) const {
    const int64_t limit = problem_.stages[as_index(stage)].memory_limit_bytes;
    return limit == kNoMemoryLimit ? limit : limit - problem_.slot_bytes(stage);
  }
  // All of a stage's phases so far have ended when its next one starts.
  int64_t held(const State& state, int stage) const {
    int64_t bytes = 0;
    for (int c = 0; c < problem_.num_chunks(); ++c) {
      if (problem_.chunks[as_index(c)].stage != stage) continue;
      const int64_t taken = problem_.chunks[as_index(c)].activation_bytes;
      const int64_t left = problem_.kept_after_backward(c);
      const auto count = [&](int kind) { return static_cast<int64_t>(state.ends[kind][as_index(c)].size()); };
      bytes += count(0) * taken - count(1) * (taken - left) - count(2) * left;
    }
    return bytes;
  }

  // No completion of the state is done earlier: each stage still has to do all that it has not done.
  int64_t least(const State& state) const {
    Times ends = state.free_at;
    for (size_t s = 0; s < ends.size(); ++s) ends[s] += problem_.stages[s].update_ns;
    for (int c = 0; c < problem_.num_chunks(); ++c) {
      for (int kind = 0; kind < kinds_; ++kind) {
        const auto left = problem_.micro_batches - static_cast<int64_t>(state.ends[kind][as_index(c)].size());
        ends[as_index(problem_.chunks[as_index(c)].stage)] += ns(c, kind) * left;
      }
    }
    return *std::max_element(ends.begin(), ends.end());
  }

  // What is to come depends on how far everything is, and on these times alone.
  static Times key_of(const State& state) {
    Times key = state.free_at;
    key.push_back(state.last_start);
    const auto add = [&](const std::vector<Times>& lists) {
      for (const auto& list : lists) {
        key.push_back(static_cast<int64_t>(list.size()));
        key.insert(key.end(), list.begin(), list.end());
      }
    };
    for (const auto& ends : state.ends) add(ends);
    for (const auto& sent : state.sent) add(sent);
    return key;
  }

  void visit(const State& state) {
    if (--states_left_ < 0) return;
    const int64_t end = least(state);
    if (end >= best_ || !seen_.insert(key_of(state)).second) return;
    bool is_complete = true;
    for (int c = 0; c < problem_.num_chunks(); ++c) {
      for (int kind = 0; kind < kinds_; ++kind) {
        is_complete = is_complete && state.ends[kind][as_index(c)].size() == as_index(problem_.micro_batches);
        if (const auto next = after(state, c, kind)) visit(*next);
      }
    }
    if (is_complete) best_ = std::min(best_, end);
  }

  const PipelineProblem& problem_;
  int kinds_;
  int64_t best_;
  int64_t states_left_;
  std::set<Times> seen_;
};

// Whether some lane carries what crosses several borders, which then wait for each other.
bool lanes_are_shared(const PipelineProblem& problem) {
  std::set<std::pair<int, int>> lanes;
  bool is_shared = false;
  bool is_free = true;
  for (int b = 0; b + 1 < problem.num_chunks(); ++b) {
    if (!problem.crosses(b)) continue;
    const int from = problem.chunks[as_index(b)].stage;
    const int to = problem.chunks[as_index(b + 1)].stage;
    is_shared = !lanes.insert({from, to}).second || !lanes.insert({to, from}).second || is_shared;
    const auto& border = problem.borders[as_index(b)];
    is_free = is_free && border.forward.duration_ns == 0 && border.backward.duration_ns == 0;
  }
  return is_shared && !is_free;
}

}  // namespace

std::optional<int64_t> least_makespan(const PipelineProblem& problem, int64_t known_ns, int64_t most_states) {
  check(!lanes_are_shared(problem), "messages that occupy a lane have it for one border");
  return Exhaustive(problem, known_ns, most_states).run();
}

}  // namespace tessera::pipeline
