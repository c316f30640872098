#include "tessera/timeline/step_times.h"

#include <algorithm>
#include <optional>

#include "tessera/timeline/critical_path.h"

namespace tessera::timeline {
namespace {

constexpr std::array<const char*, kNumTimeUses> kUseNames = {"compute",    "copy",        "late rank", "transfer",
                                                             "device",     "batch",       "callbacks", "save",
                                                             "evaluation", "compilation", "other"};

// Where a step is on a rank.
struct StepPlace {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

std::map<int64_t, StepPlace> steps_of(const RankTimeline& rank) {
  std::map<int64_t, StepPlace> steps;
  if (rank.lanes.empty()) return steps;
  int64_t whole_from_ns = 0;
  for (const RecordedLane& lane : rank.lanes) whole_from_ns = std::max(whole_from_ns, lane.whole_from_ns);
  for (const TimedSpan& span : rank.lanes.front().spans) {
    if (rank.names[span.name].kind != SpanKind::kStep) continue;
    // Of two trainings the later one's.
    steps.erase(span.step);
    if (span.begin_ns >= whole_from_ns) steps[span.step] = {span.begin_ns, span.end_ns};
  }
  return steps;
}

// What is counted as all that is done in it.
std::optional<TimeUse> use_of_all_within(SpanKind kind) {
  switch (kind) {
    case SpanKind::kEvaluation: return TimeUse::kEvaluation;
    case SpanKind::kSave: return TimeUse::kSave;
    case SpanKind::kCompilation: return TimeUse::kCompilation;
    default: return std::nullopt;
  }
}

TimeUse use_of(const SpanName& name) {
  switch (name.kind) {
    case SpanKind::kOperator: return TimeUse::kCompute;
    case SpanKind::kCopy: return TimeUse::kCopy;
    case SpanKind::kWait: return TimeUse::kTransfer;
    case SpanKind::kBatch: return TimeUse::kBatch;
    case SpanKind::kCallbacks: return TimeUse::kCallbacks;
    case SpanKind::kEvaluation: return TimeUse::kEvaluation;
    case SpanKind::kSave: return TimeUse::kSave;
    case SpanKind::kCompilation: return TimeUse::kCompilation;
    default: return TimeUse::kOther;
  }
}

// Cuts a step into stretches, each of which belongs to the innermost span.
class StepCutter {
 public:
  StepCutter(const RankTimeline& rank, int64_t& num_crossed)
      : names_(rank.names),
        spans_(rank.lanes.front().spans),
        num_crossed_(num_crossed),
        order_(nested_order(names_, spans_)) {}

  std::vector<UsedTime> cut(const StepPlace& step) {
    times_.clear();
    open_.clear();
    at_ns_ = step.begin_ns;
    const auto begin_of = [this](size_t i) { return spans_[i].begin_ns; };
    for (auto i = std::ranges::lower_bound(order_, step.begin_ns, {}, begin_of); i != order_.end(); ++i) {
      const TimedSpan& span = spans_[*i];
      if (span.begin_ns >= step.end_ns) break;
      if (names_[span.name].kind == SpanKind::kStep || span.end_ns > step.end_ns) continue;
      close_until(span.begin_ns);
      emit(span.begin_ns);
      if (!open_.empty() && span.end_ns > spans_[open_.back()].end_ns) {
        ++num_crossed_;
        continue;
      }
      open_.push_back(*i);
    }
    close_until(step.end_ns);
    emit(step.end_ns);
    return times_;
  }

 private:
  void close_until(int64_t now_ns) {
    while (!open_.empty() && spans_[open_.back()].end_ns <= now_ns) {
      emit(spans_[open_.back()].end_ns);
      open_.pop_back();
    }
  }
  void emit(int64_t until_ns) {
    if (until_ns <= at_ns_) return;
    UsedTime time{.begin_ns = at_ns_, .end_ns = until_ns};
    at_ns_ = until_ns;
    if (!open_.empty()) {
      time.span = static_cast<int>(open_.back());
      time.use = use_of(name_of(open_.back()));
      for (const size_t open : open_) {
        const auto use = use_of_all_within(name_of(open).kind);
        if (!use) continue;
        time.use = *use;
        break;
      }
    }
    times_.push_back(time);
  }
  const SpanName& name_of(size_t span) const { return names_[spans_[span].name]; }

  const std::vector<SpanName>& names_;
  const std::vector<TimedSpan>& spans_;
  int64_t& num_crossed_;
  std::vector<size_t> order_;
  std::vector<size_t> open_;
  int64_t at_ns_ = 0;
  std::vector<UsedTime> times_;
};

// A wait is for a rank that is late until that one comes; then for the bytes.
void tell_waits_apart(const JobTimeline& job, const MeetingEnds& ends, RankStep& step) {
  const RankTimeline& rank = job.ranks[step.rank];
  std::vector<UsedTime> times;
  for (const UsedTime& time : step.times) {
    times.push_back(time);
    if (time.use != TimeUse::kTransfer) continue;
    // The wait for a device, which is of no graph, is for all that it does, and not only for collectives among it.
    const TimedSpan& span = rank.lanes.front().spans[static_cast<size_t>(time.span)];
    if (rank.names[span.name].graph.empty()) {
      times.back().use = TimeUse::kDevice;
      continue;
    }
    const auto* met = ends.that_ended(step.rank, time.begin_ns, time.end_ns);
    if (met == nullptr) continue;
    const size_t late = met->members[met->late].rank;
    if (late == step.rank) continue;
    const int64_t came_ns = std::clamp(met->last_begin_ns(), time.begin_ns, time.end_ns);
    if (came_ns == time.begin_ns) continue;
    step.waited_for[late] += came_ns - time.begin_ns;
    times.back().use = TimeUse::kLateRank;
    times.back().end_ns = came_ns;
    if (came_ns == time.end_ns) continue;
    times.push_back({.begin_ns = came_ns, .end_ns = time.end_ns, .use = TimeUse::kTransfer, .span = time.span});
  }
  step.times = std::move(times);
}

}  // namespace

const char* to_string(TimeUse use) { return kUseNames[static_cast<size_t>(use)]; }

int64_t JobStep::begin_ns() const { return std::ranges::min(ranks, {}, &RankStep::begin_ns).begin_ns; }

int64_t JobStep::duration_ns() const { return std::ranges::max(ranks, {}, &RankStep::end_ns).end_ns - begin_ns(); }

JobSteps find_steps(const JobTimeline& job) {
  JobSteps found;
  found.meetings = find_meetings(job);
  for (const Meeting& meeting : found.meetings) {
    if (!meeting.meets) continue;
    found.num_ended_early += std::ranges::count_if(
        meeting.members, [&](const MeetingMember& member) { return member.end_ns < meeting.last_begin_ns(); });
  }
  std::map<int64_t, JobStep> steps;
  std::vector<size_t> ranks;
  const MeetingEnds ends(job, found.meetings);
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    const RankTimeline& rank = job.ranks[r];
    if (!rank.is_written || rank.lanes.empty()) continue;
    ranks.push_back(r);
    StepCutter cutter(rank, found.num_crossed);
    for (const auto& [step, place] : steps_of(rank)) {
      JobStep& times = steps[step];
      times.step = step;
      times.ranks.push_back(
          {.rank = r, .begin_ns = place.begin_ns, .end_ns = place.end_ns, .times = cutter.cut(place)});
      tell_waits_apart(job, ends, times.ranks.back());
    }
  }
  for (auto& [number, step] : steps) {
    if (step.ranks.size() != ranks.size()) continue;
    step.path = find_critical_path(job, step, ends);
    found.steps.push_back(std::move(step));
  }
  return found;
}

}  // namespace tessera::timeline
