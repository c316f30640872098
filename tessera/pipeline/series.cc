#include "tessera/pipeline/series.h"

#include <algorithm>

namespace tessera::pipeline {

SeriesTable::SeriesTable(const PipelineProblem& problem)
    : micro_batches(problem.micro_batches),
      num_chunks(problem.num_chunks()),
      slots(problem.slots),
      of_stage(problem.stages.size()) {
  for (const auto kind : {PhaseKind::kForward, PhaseKind::kBackward, PhaseKind::kWeightGradient}) {
    if (kind == PhaseKind::kWeightGradient && !problem.split_backward) break;
    for (int c = 0; c < num_chunks; ++c) {
      const int stage = problem.chunks[static_cast<size_t>(c)].stage;
      of_stage[static_cast<size_t>(stage)].push_back(static_cast<int>(series.size()));
      series.push_back({.kind = kind, .chunk = c, .stage = stage, .ns = phase_ns(problem, {kind, c, 0}, stage)});
    }
  }
  const auto connect = [&](int sender, int receiver, const TransferTime& time) {
    auto& from = series[static_cast<size_t>(sender)];
    auto& to = series[static_cast<size_t>(receiver)];
    if (from.stage == to.stage) {
      to.after.push_back(sender);
      return;
    }
    auto lane = std::find_if(lanes.begin(), lanes.end(),
                             [&](const Lane& l) { return l.from == from.stage && l.to == to.stage; });
    if (lane == lanes.end()) lane = lanes.insert(lanes.end(), {.from = from.stage, .to = to.stage, .lines = {}});
    from.sends = to.receives = static_cast<int>(lines.size());
    lane->lines.push_back(static_cast<int>(lines.size()));
    lines.push_back(
        {.sender = sender, .receiver = receiver, .lane = static_cast<int>(lane - lanes.begin()), .time = time});
  };
  for (int c = 0; c < num_chunks; ++c) {
    const int backward = find(PhaseKind::kBackward, c);
    series[static_cast<size_t>(backward)].after.push_back(find(PhaseKind::kForward, c));
    if (problem.split_backward) {
      series[static_cast<size_t>(find(PhaseKind::kWeightGradient, c))].after.push_back(backward);
    }
    if (c + 1 == num_chunks) continue;
    const auto& border = problem.borders[static_cast<size_t>(c)];
    connect(find(PhaseKind::kForward, c), find(PhaseKind::kForward, c + 1), border.forward);
    connect(find(PhaseKind::kBackward, c + 1), backward, border.backward);
  }
}

}  // namespace tessera::pipeline
