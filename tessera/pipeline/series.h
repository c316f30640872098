// The phases of a problem as series: a series is one kind of phase of one chunk, for micro-batch 0, 1, ... And lines: a
// line is what passes one border in one direction, also a message for each micro-batch.
//
// Every series and line may take its micro-batches in order, and no schedule is lost that matters: sort the starts of
// each series and line of any sound schedule, and let its k-th start be that of micro-batch k. Where each y_k starts
// after an x_k has ended, the k-th y starts after k phases x have ended, which are not fewer for another numbering; so
// each dependency holds after sorting. Memory, slots and lanes count phases and messages without asking which
// micro-batch they are of. And starts are what they were.
//
// So a stage's order is a word over its series, and the state of a step is how far each series has come.
#pragma once

#include <vector>

#include "tessera/pipeline/pipeline_schedule.h"

namespace tessera::pipeline {

struct Series {
  PhaseKind kind = PhaseKind::kForward;
  int chunk = 0;
  int stage = 0;
  int64_t ns = 0;
  std::vector<int> after;  // series of the same stage of which the same micro-batch must have ended
  int receives = -1;       // the line whose message it reads, or -1
  int sends = -1;          // the line on which it sends, or -1
};

struct Line {
  int sender = 0;    // series
  int receiver = 0;  // series
  int lane = 0;
  TransferTime time;
};

// From one stage to another: carries one message at a time.
struct Lane {
  int from = 0;
  int to = 0;
  std::vector<int> lines;
};

struct SeriesTable {
  explicit SeriesTable(const PipelineProblem& problem);

  int micro_batches = 0;
  int num_chunks = 0;
  int slots = 0;
  std::vector<Series> series;  // forward of each chunk, then backward, then the weight gradient if that is split off
  std::vector<Line> lines;
  std::vector<Lane> lanes;
  std::vector<std::vector<int>> of_stage;  // series of each stage

  int find(PhaseKind kind, int chunk) const { return static_cast<int>(kind) * num_chunks + chunk; }
  int num_phases() const { return static_cast<int>(series.size()) * micro_batches; }
  // Where an array with an element for each phase has that of a series' micro-batch.
  size_t index(int of_series, int micro_batch) const {
    return static_cast<size_t>(of_series) * static_cast<size_t>(micro_batches) + static_cast<size_t>(micro_batch);
  }
};

}  // namespace tessera::pipeline
