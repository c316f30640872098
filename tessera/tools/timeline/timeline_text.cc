#include "tessera/tools/timeline/timeline_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/tessera.h"

namespace tessera::tools {

using timeline::Advice;
using timeline::CollectiveTime;
using timeline::OperatorTime;
using timeline::RankTime;
using timeline::TimelineSummary;
using timeline::TimeUse;

namespace {

using SummaryJson = nlohmann::ordered_json;

constexpr size_t kShownRows = 10;

const char* words_of(TimeUse use) {
  switch (use) {
    case TimeUse::kCompute: return "computing";
    case TimeUse::kCopy: return "copying between layouts";
    case TimeUse::kLateRank: return "waiting for ranks that are late";
    case TimeUse::kTransfer: return "waiting for bytes to travel";
    case TimeUse::kDevice: return "waiting for the device";
    case TimeUse::kBatch: return "waiting for a batch, and copying it";
    case TimeUse::kCallbacks: return "callbacks";
    case TimeUse::kSave: return "saving checkpoints";
    case TimeUse::kEvaluation: return "evaluations";
    case TimeUse::kCompilation: return "compiling";
    case TimeUse::kOther: return "between these: the engine, the script";
  }
  return "";
}

std::string speed_text(const OperatorTime& time) {
  const double per_call = time.calls > 0 ? time.seconds / time.calls : 0;
  if (per_call <= 0) return "";
  std::string text;
  if (time.flops > 0) text += fmt::format("  {:.1f} GFLOP/s", time.flops / per_call * 1e-9);
  if (time.bytes > 0) text += fmt::format("  {:.1f} GB/s", static_cast<double>(time.bytes) / per_call * 1e-9);
  if (time.limit_seconds && time.seconds > 0)
    text += fmt::format("  {:.0f} % of its limit", 100 * *time.limit_seconds / time.seconds);
  if (time.predicted_seconds) text += fmt::format("  predicted {}", format_seconds(*time.predicted_seconds));
  return text;
}

std::string uses_text(const TimelineSummary& summary) {
  std::string text = fmt::format("Where a rank's step of {} goes:\n", format_seconds(summary.rank_step_seconds));
  std::vector<size_t> order;
  for (size_t i = 0; i < timeline::kNumTimeUses; ++i) {
    if (summary.seconds[i] > 0 || summary.path_seconds[i] > 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return summary.seconds[i]; });
  text += fmt::format("  {:>6}  {:>10}  {:>13}\n", "share", "a step", "critical path");
  for (const size_t i : order) {
    text += fmt::format("  {:5.1f} %  {:>9}  {:>13}  {}\n", 100 * summary.seconds[i] / summary.rank_step_seconds,
                        format_seconds(summary.seconds[i]), format_seconds(summary.path_seconds[i]),
                        words_of(static_cast<TimeUse>(i)));
  }
  return text;
}

std::string operators_text(const TimelineSummary& summary) {
  if (summary.operators.empty()) return "";
  std::string text = "The operators that take longest, a step and rank:\n";
  for (size_t i = 0; i < std::min(kShownRows, summary.operators.size()); ++i) {
    const OperatorTime& time = summary.operators[i];
    const std::string name = time.line.empty() ? time.text : fmt::format("{}, {}", time.text, time.line);
    text += fmt::format("  {:5.1f} %  {:>9}  {}{}\n", 100 * time.share, format_seconds(time.seconds),
                        shortened(name, 60), speed_text(time));
  }
  if (summary.operators.size() > kShownRows) {
    double rest = 0;
    for (size_t i = kShownRows; i < summary.operators.size(); ++i) rest += summary.operators[i].share;
    text += fmt::format("  {:5.1f} %  {}\n", 100 * rest,
                        plural(std::ssize(summary.operators) - static_cast<int64_t>(kShownRows), "other"));
  }
  return text;
}

std::string collectives_text(const TimelineSummary& summary) {
  if (summary.collectives.empty()) return "";
  std::string text = "The collectives that take longest, a step and member:\n";
  for (size_t i = 0; i < std::min(kShownRows, summary.collectives.size()); ++i) {
    const CollectiveTime& time = summary.collectives[i];
    text += fmt::format("  {:>9}  of it {} until rank {} came, last in {:.0f} %  {}, {}\n",
                        format_seconds(time.seconds), format_seconds(time.late_seconds), time.late_rank,
                        100 * time.late_rank_share, shortened(time.text, 60), format_bytes(time.bytes));
  }
  return text;
}

std::string ranks_text_of(const TimelineSummary& summary) {
  if (summary.ranks.size() < 2) return "";
  std::vector<const RankTime*> order;
  for (const RankTime& rank : summary.ranks) order.push_back(&rank);
  std::ranges::stable_sort(order, std::greater{}, [](const RankTime* rank) { return rank->waited_for_seconds; });
  std::string text = "The ranks that were waited for longest, a step:\n";
  for (size_t i = 0; i < std::min(kShownRows, order.size()); ++i) {
    const RankTime& rank = *order[i];
    text += fmt::format("  rank {}{}: {} by all others together; it waited {} itself\n", rank.rank,
                        rank.host.empty() ? "" : fmt::format(" on {}", printable(rank.host)),
                        format_seconds(rank.waited_for_seconds), format_seconds(rank.waited_seconds));
  }
  return text;
}

std::string advice_text(const TimelineSummary& summary) {
  if (summary.advice.empty()) return "Nothing that is worth doing stands out.\n";
  std::string text = "Worth doing, with what it may bring at most:\n";
  for (size_t i = 0; i < summary.advice.size(); ++i) {
    const Advice& advice = summary.advice[i];
    text += fmt::format("  {}. {:.1f} %, {} a step: {}\n", i + 1, 100 * advice.seconds / summary.rank_step_seconds,
                        format_seconds(advice.seconds), advice.text);
  }
  return text;
}

SummaryJson uses_json(const std::array<double, timeline::kNumTimeUses>& seconds) {
  SummaryJson json = SummaryJson::object();
  for (size_t i = 0; i < seconds.size(); ++i) json[timeline::to_string(static_cast<TimeUse>(i))] = seconds[i];
  return json;
}

SummaryJson optional_seconds(const std::optional<double>& seconds) {
  return seconds ? SummaryJson(*seconds) : SummaryJson();
}

SummaryJson operator_json(const OperatorTime& time) {
  return {{"name", time.text},
          {"source", time.source},
          {"kernel", time.kernel},
          {"line", time.line},
          {"seconds", time.seconds},
          {"calls", time.calls},
          {"share", time.share},
          {"flops", time.flops},
          {"bytes", time.bytes},
          {"limit_seconds", optional_seconds(time.limit_seconds)},
          {"predicted_seconds", optional_seconds(time.predicted_seconds)}};
}

SummaryJson collective_json(const CollectiveTime& time) {
  return {{"name", time.text},
          {"bytes", time.bytes},
          {"calls", time.calls},
          {"seconds", time.seconds},
          {"late_seconds", time.late_seconds},
          {"late_rank", time.late_rank},
          {"late_rank_share", time.late_rank_share}};
}

SummaryJson rank_json_of(const RankTime& rank) {
  return {{"rank", rank.rank},
          {"host", rank.host},
          {"step_seconds", rank.step_seconds},
          {"waited_seconds", rank.waited_seconds},
          {"waited_for_seconds", rank.waited_for_seconds}};
}

template <typename Rows, typename ToJson>
SummaryJson rows_json(const Rows& rows, const ToJson& to_json) {
  SummaryJson json = SummaryJson::array();
  for (const auto& row : rows) json.push_back(to_json(row));
  return json;
}

}  // namespace

std::string timeline_text(const TimelineSummary& summary, const std::string& path) {
  std::string text = fmt::format("{}: {}, ", printable(path), plural(summary.num_ranks, "rank"));
  text += summary.num_steps == 0
              ? std::string("no whole step\n")
              : fmt::format("{} from {} to {}, {} a step in the median; the slowest, step {}, took {}\n",
                            plural(summary.num_steps, "whole step"), summary.first_step, summary.last_step,
                            format_seconds(summary.step_seconds), summary.slowest_step,
                            format_seconds(summary.slowest_step_seconds));
  if (summary.predicted_step_seconds && summary.num_steps > 0) {
    text += fmt::format("Predicted were {}: it takes {:.2f} times as long\n",
                        format_seconds(*summary.predicted_step_seconds),
                        summary.step_seconds / std::max(*summary.predicted_step_seconds, 1e-12));
  }
  for (const std::string& note : summary.notes) text += fmt::format("Note: {}\n", note);
  if (summary.num_steps == 0) return text;
  for (const std::string& part : {uses_text(summary), operators_text(summary), collectives_text(summary),
                                  ranks_text_of(summary), advice_text(summary)}) {
    if (!part.empty()) text += "\n" + part;
  }
  return text;
}

std::string timeline_json(const TimelineSummary& summary) {
  const SummaryJson json = {
      {"ranks", summary.num_ranks},
      {"missing_ranks", summary.missing_ranks},
      {"steps", summary.num_steps},
      {"first_step", summary.first_step},
      {"last_step", summary.last_step},
      {"left_out_steps", summary.left_out_steps},
      {"step_seconds", summary.step_seconds},
      {"slowest_step", summary.slowest_step},
      {"slowest_step_seconds", summary.slowest_step_seconds},
      {"predicted_step_seconds", optional_seconds(summary.predicted_step_seconds)},
      {"rank_step_seconds", summary.rank_step_seconds},
      {"seconds", uses_json(summary.seconds)},
      {"critical_path_seconds", uses_json(summary.path_seconds)},
      {"operators", rows_json(summary.operators, operator_json)},
      {"collectives", rows_json(summary.collectives, collective_json)},
      {"rank_times", rows_json(summary.ranks, rank_json_of)},
      {"advice", rows_json(summary.advice,
                           [](const Advice& advice) {
                             return SummaryJson{{"text", advice.text}, {"seconds", advice.seconds}};
                           })},
      {"notes", summary.notes}};
  return json.dump(2, ' ', false, SummaryJson::error_handler_t::replace) + "\n";
}

std::string shortened(const std::string& text, size_t most_bytes) {
  const std::string shown = printable(text);
  if (shown.size() <= most_bytes) return shown;
  size_t end = most_bytes - 3;
  while (end > 0 && (static_cast<unsigned char>(shown[end]) & 0xC0) == 0x80) --end;  // no character is cut apart
  return shown.substr(0, end) + "...";
}

timeline::OperatorLimit limit_of(const compiler::MachineProfile& profile) {
  return [profile](const timeline::SpanName& name) {
    const std::string op = name.text.substr(0, name.text.find(' '));
    // A type that this build does not know is of a file of others.
    DType dtype = DType::kF32;
    for (const DType known : {DType::kF64, DType::kBF16, DType::kF16}) {
      if (name.dtype == to_string(known)) dtype = known;
    }
    return profile.work_seconds(op, dtype, name.flops, static_cast<double>(name.bytes));
  };
}

TimelineSummary summary_of(FileSystem& files, const std::string& path, const std::string& profile) {
  timeline::OperatorLimit limit;
  if (!profile.empty()) {
    limit = limit_of(compiler::read_machine(files, profile));
  }
  const timeline::JobTimeline job = timeline::read_job(files, path);
  return timeline::summarise(job, timeline::find_steps(job), limit);
}

}  // namespace tessera::tools
