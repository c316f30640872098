#include "tessera/tools/report/report_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "tessera/tools/page/page.h"
#include "tessera/tools/report/chart.h"
#include "tessera/tools/report/page_parts.h"
#include "tessera/tools/report/report_text.h"
#include "tessera/tools/report/step_page.h"

namespace tessera::tools {

// Of report.js, by the build.
extern const char* const kReportScript;

namespace {

constexpr const char* kReportStyle = R"(  body { max-width: 1000px; }
  .end { font-size: 16px; color: var(--text); }
  .note { color: var(--text); border-left: 4px solid var(--second); padding-left: 10px; }
  .failure { border-left: 4px solid var(--bad); }
  dl { display: grid; grid-template-columns: fit-content(40%) minmax(0, 1fr); gap: 2px 16px; margin: 8px 0; }
  dt { color: var(--quiet); }
  dd { margin: 0; }
  h1, p, dt, dd { overflow-wrap: anywhere; }
  td.text { white-space: pre-wrap; overflow-wrap: anywhere; }
  .frame { max-height: 420px; margin: 6px 0; }
  figure { container-type: inline-size; margin: 14px 0; }
  figcaption { min-height: 20px; overflow-wrap: anywhere; }
  output { float: right; color: var(--quiet); font-variant-numeric: tabular-nums; }
  svg { display: block; width: 100%; height: auto; }
  svg text { font: 11px system-ui, sans-serif; fill: var(--quiet); }
  /* Drawings shrink with their window, letters must not. */
  @container (max-width: 640px) { svg text { font-size: 14px; } }
  @container (max-width: 480px) { svg text { font-size: 18px; } }
  @container (max-width: 380px) { svg text { font-size: 20px; } }
  svg path { fill: none; }
  path.grid { stroke: var(--faint); }
  path.mark { stroke: var(--quiet); }
  path.line { stroke-width: 1.6; stroke-linecap: round; stroke-linejoin: round; }
  path.bad { stroke: var(--bad); stroke-width: 2; }
  path.first { stroke: var(--first); } .key.first { background: var(--first); }
  path.second { stroke: var(--second); } .key.second { background: var(--second); }
  path.third { stroke: var(--third); } .key.third { background: var(--third); }
  rect.pale { fill: var(--pale); } rect.second { fill: var(--second); }
  path.pale { stroke: var(--pale); stroke-width: 1; } .key.pale { background: var(--pale); }
  @media (max-width: 600px) { body { padding: 12px; } dl { grid-template-columns: minmax(0, 1fr); } }
)";
constexpr size_t kMostCheckpointRows = 200;
constexpr size_t kMostEpochColumns = 8;  // of metrics

std::string headlines_part(const RunReport& report) {
  const auto lines = headlines(report);
  std::string text = sentence("How it ended: " + lines[0].text + ".", "end");
  text += "<dl>\n";
  for (size_t i = 1; i < lines.size(); ++i) {
    text += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped_html(lines[i].name), escaped_html(lines[i].text));
  }
  text += "</dl>\n";
  for (const auto& note : log_notes(report)) text += sentence(note, "note");
  return text;
}

Chart chart_of(const std::string& title, const std::string& unit, const Curve& curve) {
  return {
      .title = title, .unit = unit, .lines = {{title, "first", extremes_of(curve)}}, .bad_steps = bad_steps_of(curve)};
}

std::string loss_figure(const RunReport& report) {
  Chart chart = chart_of(report.num_step_records > 0 ? "loss" : "loss, means of epochs", "", report.loss);
  chart.may_be_logarithmic = true;
  if (report.loss.smoothing_width() > 1) {
    chart.lines[0].style = "pale";
    const auto name = fmt::format("smoothed over about {} records", report.loss.smoothing_width());
    chart.lines.push_back({name, "second", report.loss.smoothed()});
  }
  return chart_figure(chart);
}

std::string curves_part(const RunReport& report) {
  std::string text = heading("Curves");
  if (report.num_records == 0) return text + sentence("There are no records to draw.");
  text += loss_figure(report);
  if (!report.learning_rate.empty()) {
    text += chart_figure(chart_of("learning rate", "", report.learning_rate));
  } else {
    text += sentence("The log does not say the learning rate: of a schedule that the step computes it knows none.");
  }
  text += chart_figure(chart_of("throughput", "rows/s", report.rows_per_second));
  Chart memory{.title = "memory",
               .unit = "bytes",
               .lines = {{"resident in the process", "first", extremes_of(report.resident_bytes)},
                         {"for values and a step", "second", extremes_of(report.arena_bytes)}}};
  text += chart_figure(memory);
  text += heading("Evaluations");
  if (report.metrics.empty()) text += sentence("The log has no evaluations.");
  for (const auto& [name, curve] : report.metrics) text += chart_figure(chart_of(name, "", curve));
  return text;
}

std::string epochs_part(const RunReport& report) {
  std::string text = heading("Epochs");
  if (report.epochs.empty()) return text + sentence("No epoch has ended by the log.");
  std::set<std::string> metrics;
  for (const auto& epoch : report.epochs) {
    for (const auto& [name, value] : epoch.metrics) {
      if (metrics.size() < kMostEpochColumns) metrics.insert(name);
    }
  }
  std::vector<std::string> columns{"epoch", "last step", "mean loss", "learning rate", "rows/s", "seconds"};
  for (const auto& name : metrics) columns.push_back("evaluated " + name);
  PageTable table("epochs", columns);
  const auto optional_text = [](const std::optional<double>& value) { return value ? number_text(*value) : "-"; };
  for (const auto& epoch : report.epochs) {
    table.begin_row();
    table.number(std::to_string(epoch.epoch));
    table.number(std::to_string(epoch.step));
    for (const auto& value : {epoch.loss, epoch.learning_rate, epoch.rows_per_second, epoch.seconds}) {
      table.number(optional_text(value));
    }
    for (const auto& name : metrics) {
      const auto found = epoch.metrics.find(name);
      table.number(found == epoch.metrics.end() ? "-" : number_text(found->second));
    }
    table.end_row();
  }
  if (report.num_epochs_left_out > 0) {
    text += sentence(fmt::format("The first {} are left out.", plural(report.num_epochs_left_out, "epoch")));
  }
  return text + table.take();
}

std::string checkpoints_part(const RunReport& report) {
  std::string text = heading("Checkpoints");
  if (!report.shows_checkpoints) return text + sentence("No folder of checkpoints was named; --checkpoints names one.");
  if (report.checkpoints.empty()) return text + sentence("The folder has no checkpoints.");
  const size_t num_left_out = report.checkpoints.size() - std::min(report.checkpoints.size(), kMostCheckpointRows);
  if (num_left_out > 0) {
    text +=
        sentence(fmt::format("The first {} are left out.", plural(static_cast<int64_t>(num_left_out), "checkpoint")));
  }
  PageTable table("checkpoints", {"file", "epoch", "step", "saved at", "size", "ranks", "problem"});
  for (size_t i = num_left_out; i < report.checkpoints.size(); ++i) {
    const auto& file = report.checkpoints[i];
    table.begin_row();
    table.text(file.path);
    table.number(file.info ? std::to_string(file.info->epoch) : "-");
    table.number(file.info ? std::to_string(file.info->step) : "-");
    table.text(file.info ? train::utc_time(file.info->saved_at_ms) : "no manifest");
    table.number(format_bytes(file.size_bytes));
    table.number(file.info ? std::to_string(file.info->world_size) : "-");
    table.text(file.problem);
    table.end_row();
  }
  return text + sentence("Headers and manifests were read; `tessera ckpt verify` reads every byte.") + table.take();
}

std::string failure_part(const RunReport& report) {
  std::string text = heading("Reports of a failure");
  const bool says_none = !report.verdict || report.verdict->kind == "none";
  if (report.ended == "failed" && says_none) text += sentence("By the log " + ending_text(report) + ".");
  if (report.verdict)
    return text + fmt::format("<pre class=\"failure\" tabindex=\"0\">{}</pre>\n", escaped_html(report.why));
  if (!report.failure_problem.empty()) {
    return text + sentence("The folder of reports is there, and says nothing: " + report.failure_problem);
  }
  if (report.ended == "failed") {
    return text +
           sentence(
               "Ranks have written no reports of it here: `tessera run --report_dir FOLDER` has them written, and "
               "`tessera report --report_dir FOLDER` shows them.");
  }
  return text + sentence("There are none: no rank has failed, stood still or waited long, or no folder was named.");
}

std::string outputs_part(const RunReport& report) {
  std::string text = heading("What ranks printed last");
  if (report.outputs.empty()) return text + sentence("The launcher has written no files rank.N here.");
  PageTable table("output of ranks", {"file", "size", "last lines"});
  for (const auto& output : report.outputs) {
    table.begin_row();
    table.text(output.name);
    table.number(format_bytes(output.size_bytes));
    table.text(output.last_lines.empty() ? "nothing" : fmt::format("{}", fmt::join(output.last_lines, "\n")));
    table.end_row();
  }
  text += table.take();
  if (report.num_outputs_left_out > 0) {
    text += sentence(fmt::format("{} more are left out.", plural(report.num_outputs_left_out, "file")));
  }
  return text;
}

std::string environment_part(const RunReport& report) {
  std::string text = heading("Where and how it ran");
  if (report.runs.empty()) {
    return text + sentence("The log does not say it: a log of JsonLog has a record of kind run, a table has none.");
  }
  const auto& facts = report.runs.back();
  if (const auto command = repeat_command(facts); !command.empty()) {
    text +=
        sentence("The command that repeats it:") + fmt::format("<pre tabindex=\"0\">{}</pre>\n", escaped_html(command));
    if (facts.num_ranks > facts.ranks_of_host && facts.ranks_of_host > 0) {
      text += sentence(fmt::format("It ran on {}, of which {} were on the host {}.", plural(facts.num_ranks, "rank"),
                                   facts.ranks_of_host, facts.host));
    }
  }
  PageTable table("settings", {"setting", "value"});
  for (const auto& [name, value] : facts.settings) {
    table.begin_row();
    table.text(name);
    table.text(value);
    table.end_row();
  }
  text += table.take();
  if (report.num_runs > 1) {
    text += sentence("These are the settings of the latest of them. Each began behind a step:");
    PageTable runs("processes", {"begun at", "behind step", "command"});
    for (const auto& run : report.runs) {
      runs.begin_row();
      runs.text(run.time);
      runs.number(std::to_string(run.step));
      runs.text(run.settings.empty() || run.settings[0].first != "command" ? "-" : run.settings[0].second);
      runs.end_row();
    }
    text += runs.take();
  }
  return text;
}

std::string page_end() { return std::string("<script>\n") + kReportScript + "</script>\n</body>\n</html>\n"; }

// Both curves of a number over each other.
std::string figure_of_both(const std::string& title, const std::string& unit, const Curve& left, const Curve& right,
                           bool is_loss) {
  Chart chart{.title = title, .unit = unit, .may_be_logarithmic = is_loss};
  const bool is_smooth = is_loss && std::max(left.smoothing_width(), right.smoothing_width()) > 1;
  chart.lines.push_back({is_smooth ? "A, smoothed" : "A", "first", is_smooth ? left.smoothed() : extremes_of(left)});
  chart.lines.push_back({is_smooth ? "B, smoothed" : "B", "second", is_smooth ? right.smoothed() : extremes_of(right)});
  for (const Curve* curve : {&left, &right}) {
    const auto bad = bad_steps_of(*curve);
    chart.bad_steps.insert(chart.bad_steps.end(), bad.begin(), bad.end());
  }
  return chart_figure(chart);
}

std::string numbers_part(const RunComparison& comparison) {
  std::string text = heading("Where they part");
  if (comparison.has_equal_numbers()) {
    text += sentence("Every number that both logs have is equal at every common step.", "end");
  }
  text += "<dl>\n";
  for (const auto& number : comparison.numbers) {
    text += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escaped_html(number.name),
                        escaped_html(number_comparison_text(number)));
  }
  text += fmt::format("<dt>speed</dt><dd>{}</dd>\n</dl>\n", escaped_html(speed_text(comparison)));
  if (comparison.numbers.empty()) text += sentence("The logs have no numbers to compare.");
  return text;
}

std::string settings_part(const RunComparison& comparison) {
  std::string text = heading("Settings that differ");
  if (!comparison.knows_settings) {
    return text +
           sentence("They are not compared: not both logs say them. Logs of JsonLog do, in their record of kind run.");
  }
  if (comparison.settings.empty()) return text + sentence("All settings that the logs say are equal.");
  PageTable table("settings that differ", {"setting", "A", "B"});
  for (const auto& setting : comparison.settings) {
    table.begin_row();
    table.text(setting.name);
    table.text(setting.left.empty() ? "not said" : setting.left);
    table.text(setting.right.empty() ? "not said" : setting.right);
    table.end_row();
  }
  return text + table.take();
}

}  // namespace

std::string report_page(const RunReport& report) {
  const std::string title = "Report of " + report.path;
  return page_head(title, kReportStyle) + fmt::format("<h1>{}</h1>\n", escaped_html(title)) + headlines_part(report) +
         curves_part(report) + time_part(report) + step_memory_part(report) + plan_part(report) + epochs_part(report) +
         checkpoints_part(report) + failure_part(report) + outputs_part(report) + environment_part(report) + page_end();
}

std::string comparison_page(const RunComparison& comparison) {
  const auto& left = comparison.left;
  const auto& right = comparison.right;
  const std::string title = fmt::format("A {} and B {}", left.path, right.path);
  std::string text = page_head(title, kReportStyle) + fmt::format("<h1>{}</h1>\n", escaped_html(title));
  text += numbers_part(comparison);
  text += heading("A") + headlines_part(left) + heading("B") + headlines_part(right);
  text += heading("Curves");
  text += figure_of_both("loss", "", left.loss, right.loss, /*is_loss=*/true);
  text += figure_of_both("learning rate", "", left.learning_rate, right.learning_rate, /*is_loss=*/false);
  text += figure_of_both("throughput", "rows/s", left.rows_per_second, right.rows_per_second, /*is_loss=*/false);
  text += figure_of_both("resident memory", "bytes", left.resident_bytes, right.resident_bytes, /*is_loss=*/false);
  std::set<std::string> names;
  for (const RunReport* run : {&left, &right}) {
    for (const auto& [name, curve] : run->metrics) names.insert(name);
  }
  const Curve none;
  for (const auto& name : names) {
    const auto of = [&](const RunReport& run) -> const Curve& {
      const auto found = run.metrics.find(name);
      return found == run.metrics.end() ? none : found->second;
    };
    text += figure_of_both("evaluated " + name, "", of(left), of(right), /*is_loss=*/false);
  }
  return text + settings_part(comparison) + page_end();
}

}  // namespace tessera::tools
