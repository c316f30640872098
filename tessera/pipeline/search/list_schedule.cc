#include "tessera/pipeline/search/list_schedule.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "tessera/base/error.h"
#include "tessera/base/integers.h"

namespace tessera::pipeline {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
constexpr int kPhaseEnds = 0;
constexpr int kLaneIsFree = 1;
constexpr int kMessageArrives = 2;

}  // namespace

Reserve memory_reserve(const PipelineProblem& problem) {
  Reserve reserve;
  for (int s = 0; s < problem.num_stages(); ++s) {
    const int64_t limit = problem.stages[as_index(s)].memory_limit_bytes;
    reserve.limits.push_back(limit == kNoMemoryLimit ? kUnlimited : limit - problem.slot_bytes(s));
  }
  for (int c = 0; c < problem.num_chunks(); ++c) {
    reserve.taken.push_back(problem.chunks[as_index(c)].activation_bytes);
    reserve.left_after_backward.push_back(problem.kept_after_backward(c));
  }
  return reserve;
}

ListScheduler::ListScheduler(const PipelineProblem& problem)
    : problem_(problem), table_(problem), memory_(memory_reserve(problem)) {}

void ListScheduler::reset(const SchedulingRules& rules) {
  const size_t stages = problem_.stages.size();
  rules_ = &rules;
  check_equal(rules.keys.size(), as_index(table_.num_phases()), "rules have a key for each phase");
  timeline_.starts.assign(as_index(table_.num_phases()), -1);
  timeline_.transfer_starts.assign(table_.lines.size() * as_index(table_.micro_batches), -1);
  timeline_.orders.resize(stages);
  for (auto& order : timeline_.orders) order.clear();
  stocks_.clear();
  const auto add_stock = [&](const Reserve& reserve) {
    Stock stock{&reserve, std::vector<int64_t>(stages, 0), std::vector<int64_t>(stages, 0)};
    for (int c = 0; c < table_.num_chunks; ++c)
      stock.micro_batch[as_index(problem_.chunks[as_index(c)].stage)] += reserve.taken[as_index(c)];
    stocks_.push_back(std::move(stock));
  };
  add_stock(memory_);
  for (const auto& reserve : rules.reserves) add_stock(reserve);
  events_.clear();
  started_.assign(table_.series.size(), 0);
  ended_.assign(table_.series.size(), 0);
  sent_.assign(table_.lines.size(), 0);
  arrived_.assign(table_.lines.size(), 0);
  free_at_.assign(stages, 0);
  busy_.assign(stages, 0);
  touched_.assign(stages, 0);
  lane_busy_.assign(table_.lanes.size(), 0);
  lane_touched_.assign(table_.lanes.size(), 0);
  forwards_left_.assign(stages, 0);
  for (const auto& chunk : problem_.chunks) forwards_left_[as_index(chunk.stage)] += table_.micro_batches;
  stage_queue_.clear();
  lane_queue_.clear();
}

const Timeline& ListScheduler::run(const SchedulingRules& rules) {
  reset(rules);
  for (int s = 0; s < problem_.num_stages(); ++s) touch_stage(s);
  progress(0);
  while (!events_.empty()) {
    // All that happens at a time happens before anything starts at it.
    const int64_t now = events_.front().time;
    while (!events_.empty() && events_.front().time == now) {
      std::pop_heap(events_.begin(), events_.end());
      const Event event = events_.back();
      events_.pop_back();
      happen(event);
    }
    progress(now);
  }
  timeline_.makespan_ns = 0;
  for (int s = 0; s < problem_.num_stages(); ++s) {
    timeline_.makespan_ns =
        std::max(timeline_.makespan_ns, free_at_[as_index(s)] + problem_.stages[as_index(s)].update_ns);
  }
  timeline_.complete = std::all_of(ended_.begin(), ended_.end(), [&](int n) { return n == table_.micro_batches; });
  return timeline_;
}

void ListScheduler::touch_stage(int stage) {
  if (touched_[as_index(stage)] != 0) return;
  touched_[as_index(stage)] = 1;
  stage_queue_.push_back(stage);
}

void ListScheduler::touch_lane(int lane) {
  if (lane_touched_[as_index(lane)] != 0) return;
  lane_touched_[as_index(lane)] = 1;
  lane_queue_.push_back(lane);
}

void ListScheduler::happen(const Event& event) {
  if (event.kind == kMessageArrives) {
    ++arrived_[as_index(event.id)];
    touch_stage(table_.series[as_index(table_.lines[as_index(event.id)].receiver)].stage);
    return;
  }
  if (event.kind == kLaneIsFree) {
    lane_busy_[as_index(event.id)] = 0;
    touch_lane(event.id);
    return;
  }
  const Series& series = table_.series[as_index(event.id)];
  ++ended_[as_index(event.id)];
  busy_[as_index(series.stage)] = 0;
  touch_stage(series.stage);
  if (series.sends >= 0) touch_lane(table_.lines[as_index(series.sends)].lane);
  if (series.receives >= 0) touch_lane(table_.lines[as_index(series.receives)].lane);
  for (auto& stock : stocks_) {
    const int64_t left = stock.reserve->left_after_backward[as_index(series.chunk)];
    if (series.kind == PhaseKind::kBackward)
      stock.used[as_index(series.stage)] -= stock.reserve->taken[as_index(series.chunk)] - left;
    if (series.kind == PhaseKind::kWeightGradient) stock.used[as_index(series.stage)] -= left;
  }
}

void ListScheduler::progress(int64_t now) {
  while (!stage_queue_.empty() || !lane_queue_.empty()) {
    // Messages first: one that takes no time arrives before its receiver chooses.
    if (!lane_queue_.empty()) {
      const int lane = lane_queue_.back();
      lane_queue_.pop_back();
      lane_touched_[as_index(lane)] = 0;
      while (try_message(lane, now)) {
      }
      continue;
    }
    // Stages in any order: none sees what another does at the same time before that has ended.
    const int stage = stage_queue_.back();
    stage_queue_.pop_back();
    touched_[as_index(stage)] = 0;
    try_phase(stage, now);
  }
}

bool ListScheduler::try_message(int lane, int64_t now) {
  if (lane_busy_[as_index(lane)] != 0) return false;
  // Of the messages that wait and have a slot, the one that was there first.
  int best = -1;
  int64_t best_time = kUnlimited;
  for (const int l : table_.lanes[as_index(lane)].lines) {
    const Line& line = table_.lines[as_index(l)];
    const int k = sent_[as_index(l)];
    if (k >= ended_[as_index(line.sender)] || k >= ended_[as_index(line.receiver)] + table_.slots) continue;
    const int64_t ready = timeline_.starts[table_.index(line.sender, k)] + table_.series[as_index(line.sender)].ns;
    if (ready < best_time) {
      best = l;
      best_time = ready;
    }
  }
  if (best < 0) return false;
  const TransferTime& time = table_.lines[as_index(best)].time;
  timeline_.transfer_starts[table_.index(best, sent_[as_index(best)]++)] = now;
  const auto later = [&](int64_t after, int kind, int id) {
    if (after == 0) return happen({now, kind, id});
    events_.push_back({now + after, kind, id});
    std::push_heap(events_.begin(), events_.end());
  };
  lane_busy_[as_index(lane)] = 1;
  later(time.duration_ns, kLaneIsFree, lane);
  later(time.duration_ns + time.latency_ns, kMessageArrives, best);
  return true;
}

bool ListScheduler::is_ready(int of_series) const {
  const Series& series = table_.series[as_index(of_series)];
  const int k = started_[as_index(of_series)];
  if (series.receives >= 0 && arrived_[as_index(series.receives)] <= k) return false;
  return std::all_of(series.after.begin(), series.after.end(),
                     [&](int before) { return ended_[as_index(before)] > k; });
}

// Whether a stage has enough left of a reserve for the next forward of a series, and will have for older micro-batches.
//
// Micro-batches can be finished one after the other, the oldest first, where on every stage this holds for the oldest
// micro-batch j that has forwards left there:   one micro-batch + what those after j hold  <=  the limit.
// For j's own forwards then fit: those before it have none left, so they finish and give back all they hold; after j
// the next one is the oldest, and what those after it hold is not more. None after j has begun backward, which needs
// the end of the network and so all forwards of this stage. Forwards of j itself leave the sum as it is and need only
// what is free now.
bool ListScheduler::admits(const Stock& stock, int of_series) const {
  const Series& series = table_.series[as_index(of_series)];
  const int64_t taken = stock.reserve->taken[as_index(series.chunk)];
  const int64_t limit = stock.reserve->limits[as_index(series.stage)];
  if (taken == 0 || limit == kUnlimited) return true;
  if (stock.used[as_index(series.stage)] + taken > limit) return false;
  if (rules_->is_whole_order) return true;
  const auto& here = table_.of_stage[as_index(series.stage)];
  int oldest = table_.micro_batches;
  for (const int other : here) {
    if (table_.series[as_index(other)].kind == PhaseKind::kForward)
      oldest = std::min(oldest, started_[as_index(other)]);
  }
  if (started_[as_index(of_series)] == oldest) return true;
  int64_t held = taken;
  for (const int other : here) {
    const Series& forward = table_.series[as_index(other)];
    if (forward.kind != PhaseKind::kForward) continue;
    held += stock.reserve->taken[as_index(forward.chunk)] * std::max(started_[as_index(other)] - oldest - 1, 0);
  }
  return held + stock.micro_batch[as_index(series.stage)] <= limit;
}

bool ListScheduler::may_start(int of_series) const {
  const Series& series = table_.series[as_index(of_series)];
  if (!is_ready(of_series)) return false;
  if (series.kind != PhaseKind::kForward) return !rules_->forwards_first || forwards_left_[as_index(series.stage)] == 0;
  return std::all_of(stocks_.begin(), stocks_.end(), [&](const Stock& stock) { return admits(stock, of_series); });
}

int ListScheduler::choose(int stage) const {
  int best = -1;
  int64_t best_key = kUnlimited;
  for (const int s : table_.of_stage[as_index(stage)]) {
    if (started_[as_index(s)] == table_.micro_batches) continue;
    const int64_t key = rules_->keys[table_.index(s, started_[as_index(s)])];
    if (key >= best_key || (!rules_->is_whole_order && !may_start(s))) continue;
    best = s;
    best_key = key;
  }
  return best >= 0 && may_start(best) ? best : -1;
}

bool ListScheduler::try_phase(int stage, int64_t now) {
  if (busy_[as_index(stage)] != 0) return false;
  const int chosen = choose(stage);
  if (chosen < 0) return false;
  const Series& series = table_.series[as_index(chosen)];
  timeline_.starts[table_.index(chosen, started_[as_index(chosen)]++)] = now;
  timeline_.orders[as_index(stage)].push_back(chosen);
  ++num_placed_;
  if (series.kind == PhaseKind::kForward) {
    --forwards_left_[as_index(stage)];
    for (auto& stock : stocks_) stock.used[as_index(stage)] += stock.reserve->taken[as_index(series.chunk)];
  }
  busy_[as_index(stage)] = 1;
  free_at_[as_index(stage)] = now + series.ns;
  events_.push_back({now + series.ns, kPhaseEnds, chosen});
  std::push_heap(events_.begin(), events_.end());
  return true;
}

PipelineSchedule to_schedule(const PipelineProblem& problem, const SeriesTable& table, const Timeline& timeline) {
  check(timeline.complete, "a schedule has all phases");
  PipelineSchedule schedule;
  for (int s = 0; s < problem.num_stages(); ++s) {
    std::vector<int> done(table.series.size(), 0);
    std::vector<TimedPhase> phases;
    for (const int of_series : timeline.orders[as_index(s)]) {
      const Series& series = table.series[as_index(of_series)];
      const int k = done[as_index(of_series)]++;
      const int64_t start = timeline.starts[table.index(of_series, k)];
      phases.push_back({{series.kind, series.chunk, k}, start, start + series.ns});
    }
    const int64_t end = phases.back().end_ns;
    phases.push_back({{PhaseKind::kUpdate, -1, -1}, end, end + problem.stages[as_index(s)].update_ns});
    schedule.stages.push_back(std::move(phases));
  }
  for (size_t l = 0; l < table.lines.size(); ++l) {
    const Series& sender = table.series[as_index(table.lines[l].sender)];
    const TransferTime& time = table.lines[l].time;
    for (int k = 0; k < table.micro_batches; ++k) {
      const int64_t start = timeline.transfer_starts[table.index(static_cast<int>(l), k)];
      schedule.transfers.push_back({{sender.kind, sender.chunk, k}, start, start + time.duration_ns + time.latency_ns});
    }
  }
  std::sort(schedule.transfers.begin(), schedule.transfers.end(), [](const auto& a, const auto& b) {
    const auto rank = [](const TimedTransfer& t) {
      return std::tuple(t.start_ns, t.sender.kind, t.sender.chunk, t.sender.micro_batch);
    };
    return rank(a) < rank(b);
  });
  return schedule;
}

SchedulingRules rules_of_orders(const SeriesTable& table, const std::vector<std::vector<int>>& orders) {
  SchedulingRules rules{.keys = std::vector<int64_t>(as_index(table.num_phases()), -1), .is_whole_order = true};
  std::vector<int> placed(table.series.size(), 0);
  for (const auto& order : orders) {
    for (size_t i = 0; i < order.size(); ++i) {
      check(placed[as_index(order[i])] < table.micro_batches, "an order has a series once for each micro-batch");
      rules.keys[table.index(order[i], placed[as_index(order[i])]++)] = static_cast<int64_t>(i);
    }
  }
  return rules;
}

}  // namespace tessera::pipeline
