#include "tessera/timeline/timeline_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "tessera/base/printable.h"
#include "tessera/base/strings.h"
#include "tessera/timeline/advice.h"

namespace tessera::timeline {
namespace {

using Steps = std::span<const JobStep>;

// A step at the beginning that took so many times the median warms up: it compiles, makes threads, fills caches.
constexpr int64_t kWarmUpTimes = 3;
// Where more than one step of so many does, it is how the job is.
constexpr size_t kStepsForWarmUp = 4;

double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

const TimedSpan& span_of(const RankTimeline& rank, const UsedTime& time) {
  return rank.lanes.front().spans[static_cast<size_t>(time.span)];
}

int64_t median_ns(Steps steps) {
  std::vector<int64_t> durations;
  for (const JobStep& step : steps) durations.push_back(step.duration_ns());
  std::ranges::sort(durations);
  return durations[durations.size() / 2];
}

size_t num_warm_up(Steps steps) {
  const int64_t most_ns = kWarmUpTimes * median_ns(steps);
  size_t found = 0;
  while (found < steps.size() / kStepsForWarmUp && steps[found].duration_ns() > most_ns) ++found;
  return found;
}

std::string warm_up_note(Steps left_out) {
  const int64_t longest_ns = std::ranges::max(left_out, {}, &JobStep::duration_ns).duration_ns();
  const std::string most = format_seconds(seconds_of(longest_ns));
  if (left_out.size() == 1) return fmt::format("step {} is left out: it took {}", left_out[0].step, most);
  return fmt::format("steps {} to {} are left out: they took up to {}", left_out.front().step, left_out.back().step,
                     most);
}

void add_times(TimelineSummary& summary, Steps steps) {
  const auto num_steps = static_cast<double>(steps.size());
  double num_parts = 0;
  for (const JobStep& step : steps) {
    const double step_seconds = seconds_of(step.duration_ns());
    if (step_seconds > summary.slowest_step_seconds) {
      summary.slowest_step_seconds = step_seconds;
      summary.slowest_step = step.step;
    }
    for (const PathPiece& piece : step.path) {
      summary.path_seconds[static_cast<size_t>(piece.use)] += seconds_of(piece.duration_ns()) / num_steps;
    }
    for (const RankStep& rank : step.ranks) {
      ++num_parts;
      for (const UsedTime& time : rank.times) {
        summary.seconds[static_cast<size_t>(time.use)] += seconds_of(time.duration_ns());
      }
    }
  }
  for (double& seconds : summary.seconds) {
    seconds /= num_parts;
    summary.rank_step_seconds += seconds;
  }
  summary.step_seconds = seconds_of(median_ns(steps));
}

void add_operators(TimelineSummary& summary, const JobTimeline& job, Steps left_out, Steps steps,
                   const OperatorLimit& limit) {
  struct Sum {
    const SpanName* name = nullptr;
    int64_t ns = 0;
    int64_t calls = 0;
    double limit = 0;
  };
  using Sums = std::map<std::pair<std::string, std::string>, Sum>;
  const auto add = [&](Sums& sums, const SpanName& name, int64_t ns, bool has_limit) {
    Sum& sum = sums[{name.text, name.kernel}];
    sum.name = &name;
    sum.ns += ns;
    ++sum.calls;
    if (limit && has_limit) sum.limit += limit(name);
  };
  Sums sums;
  double num_parts = 0;
  std::set<int64_t> counted;
  for (const JobStep& step : steps) {
    counted.insert(step.step);
    for (const RankStep& part : step.ranks) {
      ++num_parts;
      const RankTimeline& rank = job.ranks[part.rank];
      for (const UsedTime& time : part.times) {
        if (time.use != TimeUse::kCompute && time.use != TimeUse::kCopy) continue;
        const SpanName& name = rank.names[span_of(rank, time).name];
        add(sums, name, time.duration_ns(), name.kind == SpanKind::kOperator);
      }
    }
  }
  std::set<int64_t> warm_up;
  for (const JobStep& step : left_out) warm_up.insert(step.step);
  // Of ranks and steps whose devices did one operator after the other.
  struct Told {
    Sums sums;
    std::set<std::pair<size_t, int64_t>> parts;
  };
  Told told;
  Told told_of_warm_up;
  int64_t replayed_ns = 0;
  for (size_t r = 0; r < job.ranks.size(); ++r) {
    const RankTimeline& rank = job.ranks[r];
    for (const RecordedLane& lane : rank.lanes) {
      for (const TimedSpan& span : lane.spans) {
        const SpanName& name = rank.names[span.name];
        const bool is_counted = counted.contains(span.step);
        if (name.kind != SpanKind::kDevice || (!is_counted && !warm_up.contains(span.step))) continue;
        if (name.text.ends_with(kAsOne)) {
          if (is_counted) replayed_ns += span.duration_ns();
          continue;
        }
        Told& of_step = is_counted ? told : told_of_warm_up;
        of_step.parts.emplace(r, span.step);
        add(of_step.sums, name, span.duration_ns(), !name.kernel.empty());
      }
    }
  }
  const auto add_time = [&](const Sum& sum, double of_parts) {
    const double seconds = seconds_of(sum.ns) / of_parts;
    OperatorTime time{.text = sum.name->text,
                      .source = sum.name->source,
                      .kernel = sum.name->kernel,
                      .line = sum.name->line,
                      .seconds = seconds,
                      .calls = static_cast<double>(sum.calls) / of_parts,
                      .share = summary.rank_step_seconds > 0 ? seconds / summary.rank_step_seconds : 0,
                      .flops = sum.name->flops,
                      .bytes = sum.name->bytes,
                      .limit_seconds = {},
                      .predicted_seconds = {}};
    if (sum.limit > 0) time.limit_seconds = sum.limit / of_parts;
    summary.operators.push_back(std::move(time));
  };
  for (const auto& [key, sum] : sums) add_time(sum, num_parts);
  // Where devices replay all other steps as one, the first ones alone say what operators take.
  const Told& by_device = told.parts.empty() ? told_of_warm_up : told;
  for (const auto& [key, sum] : by_device.sums) add_time(sum, static_cast<double>(by_device.parts.size()));
  if (replayed_ns > 0) {
    summary.notes.push_back(fmt::format(
        "devices replay {} of a rank's step as one: its operators have no times of their own there; the first run of a "
        "graph has them, and so has a profile",
        format_seconds(seconds_of(replayed_ns) / num_parts)));
  }
  std::ranges::stable_sort(summary.operators, std::greater{}, &OperatorTime::seconds);
}

void add_collectives(TimelineSummary& summary, const JobTimeline& job, const std::vector<Meeting>& meetings,
                     Steps steps) {
  struct Sum {
    int64_t bytes = 0;
    int64_t calls = 0;
    int64_t members = 0;
    int64_t ns = 0;
    int64_t late_ns = 0;
    std::map<int, int64_t> late;  // calls, by rank
  };
  std::map<std::string, Sum> sums;
  const auto counts = [&](const Meeting& meeting) {
    return meeting.members.size() > 1 &&
           std::ranges::any_of(steps, [&](const JobStep& step) { return step.step == meeting.step; });
  };
  for (const Meeting& meeting : meetings) {
    if (!counts(meeting)) continue;
    Sum& sum = sums[meeting.text];
    sum.bytes = std::max(sum.bytes, meeting.bytes);
    ++sum.calls;
    ++sum.late[job.ranks[meeting.members[meeting.late].rank].rank.rank];
    for (const MeetingMember& member : meeting.members) {
      ++sum.members;
      sum.ns += member.end_ns - member.begin_ns;
      sum.late_ns += meeting.waited_ns(member);
    }
  }
  const auto num_steps = static_cast<double>(steps.size());
  for (const auto& [text, sum] : sums) {
    const double calls = static_cast<double>(sum.calls) / num_steps;
    const double per_member = calls / static_cast<double>(sum.members);
    const auto latest = std::ranges::max_element(sum.late, {}, [](const auto& entry) { return entry.second; });
    summary.collectives.push_back(
        {.text = text,
         .bytes = sum.bytes,
         .calls = calls,
         .seconds = seconds_of(sum.ns) * per_member,
         .late_seconds = seconds_of(sum.late_ns) * per_member,
         .late_rank = latest->first,
         .late_rank_share = static_cast<double>(latest->second) / static_cast<double>(sum.calls)});
  }
  std::ranges::stable_sort(summary.collectives, std::greater{}, &CollectiveTime::seconds);
}

void add_ranks(TimelineSummary& summary, const JobTimeline& job, Steps steps) {
  const auto num_steps = static_cast<double>(steps.size());
  std::map<size_t, RankTime> times;
  for (const JobStep& step : steps) {
    for (const RankStep& part : step.ranks) {
      RankTime& time = times[part.rank];
      time.step_seconds += seconds_of(part.end_ns - part.begin_ns) / num_steps;
      for (const auto& [late, ns] : part.waited_for) {
        time.waited_seconds += seconds_of(ns) / num_steps;
        times[late].waited_for_seconds += seconds_of(ns) / num_steps;
      }
    }
  }
  for (auto& [place, time] : times) {
    time.rank = job.ranks[place].rank.rank;
    time.host = job.ranks[place].rank.host;
    summary.ranks.push_back(time);
  }
}

// A simulation is of classes of ranks: the slowest one is what a step takes, and operators are those of the first.
void add_predicted(TimelineSummary& summary, const JobTimeline& job) {
  if (job.predicted.empty()) return;
  int64_t end_ns = 0;
  std::map<std::string, int64_t> by_source;  // what is computed
  for (const PredictedSpan& span : job.predicted) {
    end_ns = std::max(end_ns, span.end_ns);
    if (span.process == 0 && span.lane == 0 && !span.name.starts_with("wait for ")) {
      by_source[span.source] += span.end_ns - span.begin_ns;
    }
  }
  summary.predicted_step_seconds = seconds_of(end_ns);
  // Of several operators at one place in the network, it is not known which is which.
  std::map<std::string, int> num_of_source;
  for (const OperatorTime& time : summary.operators) ++num_of_source[time.source];
  for (OperatorTime& time : summary.operators) {
    const auto found = by_source.find(time.source);
    if (found == by_source.end() || time.source.empty() || num_of_source[time.source] != 1) continue;
    time.predicted_seconds = seconds_of(found->second);
  }
}

std::string ranks_of(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::vector<std::string> notes_of(const JobTimeline& job, const JobSteps& steps) {
  std::vector<std::string> notes;
  if (const auto missing = job.missing_ranks(); !missing.empty()) {
    notes.push_back(fmt::format("{} {} written nothing: what others waited for there is not known", ranks_of(missing),
                                missing.size() == 1 ? "has" : "have"));
  }
  if (const int64_t dropped = job.num_dropped(); dropped > 0) {
    notes.push_back(fmt::format("the buffers were too small: the {} are missing; record fewer steps (--trace_steps)",
                                plural(dropped, "oldest span")));
  }
  for (const AlignedClock& clock : job.clocks) {
    if (clock.by == "same") continue;
    const std::string host = printable(clock.host);
    notes.push_back(
        clock.by == "system"
            ? fmt::format("the clock of host {} is aligned by the systems' clocks alone: between hosts, waits are as "
                          "wrong as those are",
                          host)
            : fmt::format("the clock of host {} is aligned by collectives, to {}", host,
                          format_seconds(seconds_of(std::abs(clock.uncertainty_ns.value_or(0))))));
  }
  if (steps.num_ended_early > 0) {
    notes.push_back(
        fmt::format("{} ended on a rank before another one began: the clocks of these ranks drift, or are not aligned",
                    plural(steps.num_ended_early, "collective")));
  }
  if (steps.num_crossed > 0) {
    notes.push_back(
        fmt::format("{} of a thread cross each other, and were left out", plural(steps.num_crossed, "span")));
  }
  if (steps.steps.empty()) {
    notes.push_back("no step is whole on all ranks: record more steps, or fewer than the buffers have room for");
  }
  return notes;
}

}  // namespace

TimelineSummary summarise(const JobTimeline& job, const JobSteps& steps, const OperatorLimit& limit) {
  TimelineSummary summary;
  summary.num_ranks = job.size();
  summary.missing_ranks = job.missing_ranks();
  summary.num_steps = std::ssize(steps.steps);
  summary.notes = notes_of(job, steps);
  if (steps.steps.empty()) return summary;
  summary.first_step = steps.steps.front().step;
  summary.last_step = steps.steps.back().step;
  const Steps whole = steps.steps;
  const Steps left_out = whole.first(num_warm_up(whole));
  const Steps counted = whole.subspan(left_out.size());
  for (const JobStep& step : left_out) summary.left_out_steps.push_back(step.step);
  if (!left_out.empty()) summary.notes.push_back(warm_up_note(left_out));
  add_times(summary, counted);
  add_operators(summary, job, left_out, counted, limit);
  add_collectives(summary, job, steps.meetings, counted);
  add_ranks(summary, job, counted);
  add_predicted(summary, job);
  summary.advice = find_advice(summary);
  return summary;
}

}  // namespace tessera::timeline
