#include "tessera/tools/report/step_page.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/tools/report/chart.h"
#include "tessera/tools/report/page_parts.h"
#include "tessera/tools/timeline/operator_classes.h"
#include "tessera/tools/timeline/timeline_text.h"

namespace tessera::tools {
namespace {

constexpr size_t kMostBars = 16;
constexpr size_t kMostClassRows = 200;
constexpr size_t kMostNameBytes = 22;  // of a bar's name, which stands in a narrow column

std::string limit_share_text(const OperatorClass& operators) {
  const auto share = share_of_limit(operators);
  return share ? fmt::format("{:.0f} %", 100 * *share) : "-";
}

std::string class_figure(const std::vector<OperatorClass>& classes) {
  std::vector<TimeBar> bars;
  for (size_t i = 0; i < std::min(kMostBars, classes.size()); ++i) {
    const auto& found = classes[i];
    std::string text = format_seconds(found.seconds);
    if (share_of_limit(found)) text += fmt::format(", {} of its limit", limit_share_text(found));
    bars.push_back({shortened(found.name, kMostNameBytes), found.seconds, found.limit_seconds, text});
  }
  return bars_figure("time of a step by operator class", bars);
}

std::string class_table(const std::vector<OperatorClass>& classes) {
  PageTable table("time by operator class", {"class", "operators", "calls", "a step", "of the step", "at its limit",
                                             "of its limit", "GFLOP/s", "GB/s"});
  const auto rate = [](double amount, double seconds) {
    return amount > 0 && seconds > 0 ? fmt::format("{:.1f}", amount / seconds * 1e-9) : "-";
  };
  for (size_t i = 0; i < std::min(kMostClassRows, classes.size()); ++i) {
    const auto& found = classes[i];
    table.begin_row();
    table.text(found.name);
    table.number(std::to_string(found.num_operators));
    table.number(number_text(found.calls));
    table.number(format_seconds(found.seconds));
    table.number(fmt::format("{:.1f} %", 100 * found.share));
    table.number(found.limit_seconds ? format_seconds(*found.limit_seconds) : "-");
    table.number(limit_share_text(found));
    table.number(rate(found.flops, found.seconds));
    table.number(rate(found.bytes, found.seconds));
    table.end_row();
  }
  return table.take();
}

std::string peak_table(const MemoryFacts& memory) {
  PageTable table("values at the peak", {"value", "type", "size", "made by", "last read by"});
  for (const auto& value : memory.at_peak) {
    table.begin_row();
    table.text(value.name);
    table.text(value.type);
    table.number(format_bytes(value.bytes));
    table.text(value.made_by);
    table.text(value.last_read_by.empty() ? "nobody: it is a result" : value.last_read_by);
    table.end_row();
  }
  return table.take();
}

}  // namespace

std::string time_part(const RunReport& report) {
  std::string text = heading("Where the time of a step goes");
  if (report.trace_path.empty()) {
    return text + sentence(
                      "The run's time by operator is not here: tessera run --trace FILE records it, and --trace "
                      "FILE of this command shows it; so does trace.json beside the log.");
  }
  if (!report.trace) {
    return text + sentence(fmt::format("{} is there, and is not shown: {}", report.trace_path, report.trace_problem));
  }
  if (report.trace->num_steps == 0) return text + sentence("The trace has no whole step.");
  const auto classes = operator_classes(*report.trace);
  text += classes.empty() ? sentence("The trace has no operators.") : class_figure(classes) + class_table(classes);
  const auto has_limit = [](const OperatorClass& found) { return found.limit_seconds.has_value(); };
  if (!classes.empty() && std::ranges::none_of(classes, has_limit)) {
    text += sentence(
        "How fast the machine could compute them at best is not here: tessera calibrate --out here.json measures it, "
        "and --profile here.json of this command holds it against them.");
  }
  text += sentence("All that tessera trace summary says of it:");
  return text +
         fmt::format("<pre tabindex=\"0\">{}</pre>\n", escaped_html(timeline_text(*report.trace, report.trace_path)));
}

std::string step_memory_part(const RunReport& report) {
  std::string text = heading("Memory over a step");
  const MemoryFacts* const memory = report.step_memory();
  if (memory == nullptr) {
    return text + sentence(
                      "The log does not say it: a record of kind run of JsonLog does, but not in a pipeline; tessera "
                      "plan --memory says it of built-in networks.");
  }
  text += sentence(memory_line(*memory) + ". It is that of the rank that wrote the log.");
  if (!memory->alive.empty()) {
    const double planned = static_cast<double>(memory->planned_bytes);
    Chart chart{.title = "memory over a step",
                .unit = "bytes",
                .lines = {{"alive", "first", memory->alive}},
                .axis = "operation"};
    if (memory->alive.size() > 1) {
      const std::vector<CurvePoint> room{{memory->alive.front().step, planned}, {memory->alive.back().step, planned}};
      chart.lines.push_back({"that there is room for", "second", room});
    }
    text += chart_figure(chart);
  }
  if (memory->at_peak.empty()) return text;
  return text + sentence("The largest values that are alive at the peak:") + peak_table(*memory);
}

std::string plan_part(const RunReport& report) {
  std::string text = heading("The plan");
  const PlanFacts* const plan = report.plan();
  if (plan == nullptr) {
    return text + sentence(
                      "The log does not say it: a record of kind run of JsonLog does; tessera plan shows plans of "
                      "built-in networks and of plan files.");
  }
  text += sentence(plan_line(*plan) + ".", "end") + sentence(plan_verdict(*plan));
  text += sentence(fmt::format("The rank that wrote the log holds {} of {} of parameters, and {} of {} of states.",
                               format_bytes(plan->rank_parameter_bytes), format_bytes(plan->parameter_bytes),
                               format_bytes(plan->rank_state_bytes), format_bytes(plan->state_bytes)));
  if (plan->values.empty()) return text;
  PageTable table("splits of the largest values", {"value", "kind", "type", "split", "size", "on this rank"});
  for (const auto& value : plan->values) {
    table.begin_row();
    table.text(value.name);
    table.text(value.kind);
    table.text(value.type);
    table.text(value.split.empty() ? "whole on every rank" : value.split);
    table.number(format_bytes(value.bytes));
    table.number(format_bytes(value.rank_bytes));
    table.end_row();
  }
  return text + sentence("How the largest values of the step lie:") + table.take();
}

}  // namespace tessera::tools
