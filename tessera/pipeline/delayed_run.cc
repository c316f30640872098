#include "tessera/pipeline/delayed_run.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

namespace tessera::pipeline {
namespace {

using enum PhaseKind;
using Key = std::tuple<PhaseKind, int, int>;
Key key_of(const Phase& phase) { return {phase.kind, phase.chunk, phase.micro_batch}; }

class DelayedRun {
 public:
  DelayedRun(const PipelineProblem& problem, const PipelineSchedule& schedule, int slots, const DelayedTime& time)
      : problem_(problem), schedule_(schedule), slots_(static_cast<size_t>(slots)), time_(time) {
    for (const auto& stage : schedule.stages) {
      for (const auto& timed : stage) {
        if (is_sent(timed.phase)) read_order_[{timed.phase.kind, timed.phase.chunk}].push_back(timed.phase);
      }
    }
  }

  // No lane is modelled: it only orders messages that could be sent at the same time, and holds none back for ever.
  int64_t run() {
    std::vector<size_t> next(schedule_.stages.size(), 0);
    std::vector<int64_t> free_at(schedule_.stages.size(), 0);
    int64_t end = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t s = 0; s < next.size(); ++s) {
        if (next[s] == schedule_.stages[s].size()) continue;
        const Phase& phase = schedule_.stages[s][next[s]].phase;
        int64_t start = free_at[s];
        if (!is_ready(phase, start)) continue;
        free_at[s] = start + time_(phase, false);
        ends_[key_of(phase)] = free_at[s];
        end = std::max(end, free_at[s]);
        ++next[s];
        moved = true;
      }
    }
    for (size_t s = 0; s < next.size(); ++s) {
      if (next[s] != schedule_.stages[s].size()) return -1;
    }
    return end;
  }

 private:
  // The phase whose message this one reads, if it does.
  static Phase sender_of(const Phase& phase) {
    return {phase.kind, phase.chunk + (phase.kind == kForward ? -1 : 1), phase.micro_batch};
  }
  bool is_sent(const Phase& phase) const {
    if (phase.kind == kForward) return phase.chunk > 0 && problem_.crosses(phase.chunk - 1);
    return phase.kind == kBackward && phase.chunk + 1 < problem_.num_chunks() && problem_.crosses(phase.chunk);
  }

  bool has_ended(const Phase& phase, int64_t& start) const {
    const auto end = ends_.find(key_of(phase));
    if (end == ends_.end()) return false;
    start = std::max(start, end->second);
    return true;
  }

  bool is_ready(const Phase& phase, int64_t& start) {
    if (phase.kind == kUpdate) return true;
    if (phase.kind == kWeightGradient) return has_ended({kBackward, phase.chunk, phase.micro_batch}, start);
    if (phase.kind == kBackward && !has_ended({kForward, phase.chunk, phase.micro_batch}, start)) return false;
    if (is_sent(phase)) return has_arrived(phase, start);
    const bool is_first = phase.kind == kForward ? phase.chunk == 0 : phase.chunk + 1 == problem_.num_chunks();
    return is_first || has_ended(sender_of(phase), start);
  }

  bool has_arrived(const Phase& reader, int64_t& start) {
    const auto& order = read_order_[{reader.kind, reader.chunk}];
    const auto place = static_cast<size_t>(std::find(order.begin(), order.end(), reader) - order.begin());
    int64_t sent = 0;
    if (!has_ended(sender_of(reader), sent)) return false;
    if (place >= slots_ && !has_ended(order[place - slots_], sent)) return false;
    start = std::max(start, sent + time_(sender_of(reader), true));
    return true;
  }

  const PipelineProblem& problem_;
  const PipelineSchedule& schedule_;
  size_t slots_;
  const DelayedTime& time_;
  std::map<std::pair<PhaseKind, int>, std::vector<Phase>> read_order_;
  std::map<Key, int64_t> ends_;
};

}  // namespace

int64_t run_delayed(const PipelineProblem& problem, const PipelineSchedule& schedule, int slots,
                    const DelayedTime& time) {
  return DelayedRun(problem, schedule, slots, time).run();
}

}  // namespace tessera::pipeline
