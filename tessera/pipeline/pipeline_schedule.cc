#include "tessera/pipeline/pipeline_schedule.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::pipeline {

std::string to_string(PhaseKind kind) {
  switch (kind) {
    case PhaseKind::kForward: return "forward";
    case PhaseKind::kBackward: return "backward";
    case PhaseKind::kWeightGradient: return "weight_gradient";
    case PhaseKind::kUpdate: return "update";
  }
  check(false, "no such kind of phase");
  return "";
}

int64_t PipelineSchedule::makespan_ns() const {
  int64_t end = 0;
  for (const auto& stage : stages) {
    for (const auto& timed : stage) end = std::max(end, timed.end_ns);
  }
  return end;
}

int64_t phase_ns(const PipelineProblem& problem, const Phase& phase, int stage) {
  if (phase.kind == PhaseKind::kUpdate) return problem.stages[static_cast<size_t>(stage)].update_ns;
  const auto& chunk = problem.chunks[static_cast<size_t>(phase.chunk)];
  if (phase.kind == PhaseKind::kForward) return chunk.forward_ns;
  return phase.kind == PhaseKind::kBackward ? problem.backward_phase_ns(phase.chunk) : chunk.weight_gradient_ns;
}

std::vector<int64_t> peak_bytes(const PipelineProblem& problem, const PipelineSchedule& schedule) {
  std::vector<int64_t> peaks;
  for (int s = 0; s < problem.num_stages(); ++s) {
    int64_t held = problem.slot_bytes(s);
    int64_t peak = held;
    for (const auto& [phase, start, end] : schedule.stages[static_cast<size_t>(s)]) {
      if (phase.kind == PhaseKind::kUpdate) continue;
      const int64_t taken = problem.chunks[static_cast<size_t>(phase.chunk)].activation_bytes;
      const int64_t left = problem.kept_after_backward(phase.chunk);
      if (phase.kind == PhaseKind::kForward) held += taken;
      if (phase.kind == PhaseKind::kBackward) held -= taken - left;
      if (phase.kind == PhaseKind::kWeightGradient) held -= left;
      peak = std::max(peak, held);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

double bubble(const PipelineSchedule& schedule) {
  int64_t work = 0;
  for (const auto& stage : schedule.stages) {
    for (const auto& timed : stage) work += timed.end_ns - timed.start_ns;
  }
  const double all = static_cast<double>(schedule.makespan_ns()) * static_cast<double>(schedule.stages.size());
  return all == 0 ? 0 : 1 - static_cast<double>(work) / all;
}

int64_t idle_within_span_ns(const PipelineSchedule& schedule, int stage) {
  const auto& phases = schedule.stages[static_cast<size_t>(stage)];
  if (phases.empty()) return 0;
  int64_t work = 0;
  for (const auto& timed : phases) work += timed.end_ns - timed.start_ns;
  return phases.back().end_ns - phases.front().start_ns - work;
}

}  // namespace tessera::pipeline
