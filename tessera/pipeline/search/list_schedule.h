// The one engine that all schedules come out of: it goes through a step in the order of time, and whenever a stage is
// idle, starts the best of the phases that may start there. A schedule's name, a search's proposal and a given order
// are rules for it: which phase is best, and which must wait though they could start.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/pipeline/series.h"

namespace tessera::pipeline {

// Something of which a stage has so much, that forward takes at its start, and that backward and the weight gradient
// give back at their ends: memory, or a number of micro-batches in flight.
struct Reserve {
  std::vector<int64_t> limits;               // of each stage
  std::vector<int64_t> taken;                // by each chunk's forward
  std::vector<int64_t> left_after_backward;  // of that, until the weight gradient ends
};
Reserve memory_reserve(const PipelineProblem& problem);

// Of the phases that may start on a stage, the one with the least key does.
struct SchedulingRules {
  std::vector<int64_t> keys;      // of each phase, SeriesTable::index; ascending within a series
  bool is_whole_order = false;    // a stage keeps the order of its keys, and waits for the next phase where it must
  bool forwards_first = false;    // a stage does nothing backward before its last forward has started
  std::vector<Reserve> reserves;  // besides memory
};

// When everything starts. What the engine was asked for is all there where `complete`; else no phase could start any
// more, because of what `rules` and memory allow.
struct Timeline {
  bool complete = false;
  int64_t makespan_ns = 0;               // updates included
  std::vector<int64_t> starts;           // of each phase, SeriesTable::index
  std::vector<int64_t> transfer_starts;  // of each line's messages: line * micro_batches + micro_batch
  std::vector<std::vector<int>> orders;  // of each stage: series in the order in which they start
};

// Not thread-safe: keeps its working memory from call to call.
class ListScheduler {
 public:
  // The problem must be valid and outlive the scheduler.
  explicit ListScheduler(const PipelineProblem& problem);

  const SeriesTable& table() const { return table_; }
  const PipelineProblem& problem() const { return problem_; }
  // The result lives until the next call.
  //
  // It is always complete where reserves admit one micro-batch, unless the rules give a whole order or ask for forwards
  // first: forward is only begun where the oldest micro-batch can still go through (see `admits`).
  const Timeline& run(const SchedulingRules& rules);
  // Phases computed by all runs so far: what a search spends.
  int64_t num_placed() const { return num_placed_; }

 private:
  struct Event {
    int64_t time = 0;
    int kind = 0;  // what happens first at a time: 0 a phase ends, 1 a lane is free, 2 a message arrives
    int id = 0;    // series, lane or line
    // The earliest first, for a heap that has the largest on top.
    bool operator<(const Event& other) const {
      if (time != other.time) return time > other.time;
      return kind != other.kind ? kind > other.kind : id > other.id;
    }
  };
  struct Stock {  // a reserve while the engine runs
    const Reserve* reserve = nullptr;
    std::vector<int64_t> used;         // of each stage
    std::vector<int64_t> micro_batch;  // of each stage: what one micro-batch takes of all its chunks
  };

  void reset(const SchedulingRules& rules);
  void happen(const Event& event);
  void touch_stage(int stage);
  void touch_lane(int lane);
  void progress(int64_t now);
  bool try_phase(int stage, int64_t now);
  bool try_message(int lane, int64_t now);
  int choose(int stage) const;
  bool is_ready(int of_series) const;
  bool admits(const Stock& stock, int of_series) const;
  bool may_start(int of_series) const;

  const PipelineProblem& problem_;
  SeriesTable table_;
  Reserve memory_;
  int64_t num_placed_ = 0;

  const SchedulingRules* rules_ = nullptr;
  Timeline timeline_;
  std::vector<Stock> stocks_;
  std::vector<Event> events_;
  // How many micro-batches of each series have started and ended, and of each line have been sent, have arrived and
  // have been read.
  std::vector<int> started_, ended_, sent_, arrived_;
  std::vector<int64_t> free_at_, lane_free_at_;
  std::vector<char> busy_, lane_busy_, touched_, lane_touched_;
  std::vector<int> forwards_left_;
  std::vector<int> stage_queue_, lane_queue_;
};

// The schedule with the timeline's times and each stage's update at the end.
PipelineSchedule to_schedule(const PipelineProblem& problem, const SeriesTable& table, const Timeline& timeline);

// Rules that keep each stage to the order of series given. Words that are too short or too long are a bug.
SchedulingRules rules_of_orders(const SeriesTable& table, const std::vector<std::vector<int>>& orders);

}  // namespace tessera::pipeline
