#include "tessera/tools/report/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/base/json/bounded_json.h"
#include "tessera/tools/timeline/operator_classes.h"
#include "tessera/tools/timeline/timeline_text.h"

namespace tessera::tools {
namespace {

using ReportJson = nlohmann::ordered_json;

// The same words as in a log where JSON has no number.
ReportJson number_json(double value) {
  if (std::isfinite(value)) return value;
  return number_text(value);
}

ReportJson optional_json(const std::optional<double>& value) { return value ? number_json(*value) : ReportJson(); }

ReportJson point_json(const std::optional<CurvePoint>& point) {
  if (!point) return nullptr;
  return {{"step", point->step}, {"value", number_json(point->value)}};
}

ReportJson curve_json(const Curve& curve) {
  ReportJson points = ReportJson::array();
  for (const auto& bucket : curve.buckets()) {
    points.push_back({bucket.last_step, number_json(bucket.num_finite > 0 ? bucket.mean : bucket.last.value)});
  }
  return {{"last", point_json(curve.last())},         {"least", point_json(curve.least())},
          {"greatest", point_json(curve.greatest())}, {"values", curve.num_values()},
          {"non_finite", curve.num_non_finite()},     {"points", points}};
}

ReportJson settings_json(const RunFacts& facts) {
  ReportJson settings = ReportJson::object();
  for (const auto& [name, text] : facts.settings) settings[name] = text;
  return settings;
}

ReportJson epochs_json(const RunReport& report) {
  ReportJson epochs = ReportJson::array();
  for (const auto& epoch : report.epochs) {
    ReportJson metrics = ReportJson::object();
    for (const auto& [name, value] : epoch.metrics) metrics[name] = number_json(value);
    epochs.push_back({{"epoch", epoch.epoch},
                      {"step", epoch.step},
                      {"loss", optional_json(epoch.loss)},
                      {"learning_rate", optional_json(epoch.learning_rate)},
                      {"rows_per_second", optional_json(epoch.rows_per_second)},
                      {"seconds", optional_json(epoch.seconds)},
                      {"metrics", metrics}});
  }
  return epochs;
}

ReportJson checkpoints_json(const RunReport& report) {
  ReportJson list = ReportJson::array();
  for (const auto& file : report.checkpoints) {
    ReportJson entry = {{"path", file.path}, {"bytes", file.size_bytes}};
    if (file.info) {
      entry["epoch"] = file.info->epoch;
      entry["step"] = file.info->step;
      entry["saved_at"] = train::utc_time(file.info->saved_at_ms);
      entry["ranks"] = file.info->world_size;
    }
    if (!file.problem.empty()) entry["problem"] = file.problem;
    list.push_back(entry);
  }
  return list;
}

ReportJson plan_facts_json(const PlanFacts& plan) {
  ReportJson values = ReportJson::array();
  for (const auto& value : plan.values) {
    values.push_back({{"name", value.name},
                      {"kind", value.kind},
                      {"type", value.type},
                      {"split", value.split},
                      {"bytes", value.bytes},
                      {"rank_bytes", value.rank_bytes}});
  }
  return {{"mesh", plan.mesh},
          {"operators", plan.num_operators},
          {"split_operators", plan.num_split_operators},
          {"predicted_seconds", optional_json(plan.predicted_seconds)},
          {"searched_seconds", optional_json(plan.searched_seconds)},
          {"bound_seconds", optional_json(plan.bound_seconds)},
          {"verdict", plan_verdict(plan)},
          {"parameter_bytes", plan.parameter_bytes},
          {"rank_parameter_bytes", plan.rank_parameter_bytes},
          {"state_bytes", plan.state_bytes},
          {"rank_state_bytes", plan.rank_state_bytes},
          {"values", values}};
}

ReportJson memory_facts_json(const MemoryFacts& memory) {
  ReportJson at_peak = ReportJson::array();
  for (const auto& value : memory.at_peak) {
    at_peak.push_back({{"name", value.name},
                       {"type", value.type},
                       {"bytes", value.bytes},
                       {"made_by", value.made_by},
                       {"last_read_by", value.last_read_by}});
  }
  ReportJson alive = ReportJson::array();
  for (const auto& point : memory.alive) alive.push_back(ReportJson::array({point.step, point.value}));
  return {{"arena_bytes", memory.arena_bytes},
          {"parameter_bytes", memory.parameter_bytes},
          {"state_bytes", memory.state_bytes},
          {"planned_bytes", memory.planned_bytes},
          {"operations", memory.num_operations},
          {"peak_bytes", memory.peak_bytes},
          {"peak_operation", memory.peak_operation},
          {"peak_name", memory.peak_name},
          {"at_peak", at_peak},
          {"alive_bytes", alive}};
}

// What `tessera trace summary --json` says, and the classes of its operators.
ReportJson trace_json(const RunReport& report) {
  auto json = parse_bounded_json<ReportJson>(timeline_json(*report.trace), report.trace_path, {.name = "summary"});
  ReportJson classes = ReportJson::array();
  for (const auto& found : operator_classes(*report.trace)) {
    classes.push_back({{"name", found.name},
                       {"operators", found.num_operators},
                       {"calls", found.calls},
                       {"seconds", found.seconds},
                       {"share", found.share},
                       {"flops", found.flops},
                       {"bytes", found.bytes},
                       {"limit_seconds", optional_json(found.limit_seconds)},
                       {"predicted_seconds", optional_json(found.predicted_seconds)}});
  }
  json["file"] = report.trace_path;
  json["operator_classes"] = classes;
  return json;
}

ReportJson run_json(const RunReport& report) {
  ReportJson metrics = ReportJson::object();
  for (const auto& [name, curve] : report.metrics) metrics[name] = curve_json(curve);
  ReportJson json = {{"path", report.path},
                     {"log", report.log_path},
                     {"ended", report.ended},
                     {"signal", report.signal},
                     {"reason", report.reason},
                     {"end", ending_text(report)},
                     {"notes", log_notes(report)},
                     {"records", report.num_records},
                     {"damaged_lines", report.damage.num_damaged},
                     {"steps", report.last_step},
                     {"epoch", report.last_epoch},
                     {"seconds", optional_json(report.seconds)},
                     {"rows_per_second", optional_json(report.speed.median())},
                     {"loss", curve_json(report.loss)},
                     {"learning_rate", curve_json(report.learning_rate)},
                     {"resident_bytes", curve_json(report.resident_bytes)},
                     {"arena_bytes", curve_json(report.arena_bytes)},
                     {"metrics", metrics},
                     {"epochs", epochs_json(report)}};
  if (report.verdict) json["verdict"] = {{"kind", report.verdict->kind}, {"text", report.verdict->text}};
  if (report.shows_checkpoints) json["checkpoints"] = checkpoints_json(report);
  if (!report.runs.empty()) {
    json["run"] = settings_json(report.runs.back());
    json["repeat"] = repeat_command(report.runs.back());
  }
  if (const PlanFacts* const plan = report.plan()) json["plan"] = plan_facts_json(*plan);
  if (const MemoryFacts* const memory = report.step_memory()) json["step_memory"] = memory_facts_json(*memory);
  if (report.trace) json["trace"] = trace_json(report);
  return json;
}

ReportJson value_difference_json(const std::optional<ValueDifference>& difference) {
  if (!difference) return nullptr;
  return {
      {"step", difference->step}, {"left", number_json(difference->left)}, {"right", number_json(difference->right)}};
}

std::string dumped(const ReportJson& json) {
  return json.dump(-1, ' ', false, ReportJson::error_handler_t::replace) + "\n";
}

// Names in a column, texts behind them.
std::string rows_text(const std::vector<Headline>& rows) {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, row.name.size());
  std::string text;
  for (const auto& row : rows) text += fmt::format("  {:<{}}  {}\n", row.name, width, row.text);
  return text;
}

}  // namespace

std::string report_text(const RunReport& report) {
  std::string text = printable(report.log_path.empty() ? report.path : report.log_path) + "\n";
  text += rows_text(headlines(report));
  for (const auto& note : log_notes(report)) text += printable(note) + "\n";
  if (!report.failure_problem.empty()) {
    text += fmt::format("The folder of reports is there, and says nothing: {}\n", printable(report.failure_problem));
  }
  if (!report.trace_problem.empty()) {
    text += fmt::format("{} is there, and is not shown: {}\n", printable(report.trace_path),
                        printable(report.trace_problem));
  }
  if (report.shows_checkpoints) {
    const auto has_problem = [](const checkpoint::ListedFile& file) { return !file.problem.empty(); };
    const auto num_bad = std::ranges::count_if(report.checkpoints, has_problem);
    text += fmt::format("{}{}\n", plural(std::ssize(report.checkpoints), "checkpoint"),
                        num_bad > 0 ? fmt::format(", {} of them with a problem", num_bad) : "");
  }
  const std::string command = report.runs.empty() ? "" : repeat_command(report.runs.back());
  if (!command.empty()) text += "To repeat it:\n" + printable(command) + "\n";
  return text;
}

std::string report_json(const RunReport& report) { return dumped(run_json(report)); }

std::string number_comparison_text(const NumberComparison& number) {
  std::string text;
  if (number.num_common == 0) {
    text = "no step has it in both logs";
  } else if (!number.first) {
    text = "equal at all " + plural(number.num_common, "common step");
  } else {
    const auto& first = *number.first;
    text = fmt::format("differs first at step {}: A {}, B {}", first.step, train::shortest_number(first.left),
                       train::shortest_number(first.right));
    const auto share = [](const ValueDifference& at) { return fmt::format("{:.3g}", relative_difference(at)); };
    if (std::isfinite(first.left) && std::isfinite(first.right)) text += fmt::format(" (relatively {})", share(first));
    if (number.greatest && number.greatest->step != first.step) {
      const auto& most = *number.greatest;
      text += fmt::format("; most at step {}: A {}, B {} (relatively {})", most.step, train::shortest_number(most.left),
                          train::shortest_number(most.right), share(most));
    }
    text += "; " + plural(number.num_common, "common step");
  }
  if (number.num_left > 0) text += fmt::format("; {} only in A", number.num_left);
  if (number.num_right > 0) text += fmt::format("; {} only in B", number.num_right);
  return text;
}

std::string speed_text(const RunComparison& comparison) {
  if (!comparison.speed_ratio) return "not known of both runs";
  return fmt::format("B makes {:.3g} times as many rows in a second as A: {} and {}, the medians",
                     *comparison.speed_ratio, number_text(*comparison.right.speed.median()),
                     number_text(*comparison.left.speed.median()));
}

std::string comparison_text(const RunComparison& comparison) {
  std::string text;
  for (const auto& [letter, run] : {std::pair('A', &comparison.left), std::pair('B', &comparison.right)}) {
    text += fmt::format("{}  {}\n{}", letter, printable(run->log_path), rows_text(headlines(*run)));
    for (const auto& note : log_notes(*run)) text += printable(note) + "\n";
  }
  text += "A and B\n";
  std::vector<Headline> rows;
  for (const auto& number : comparison.numbers) {
    rows.push_back({printable(number.name), number_comparison_text(number)});
  }
  if (comparison.numbers.empty()) rows.push_back({"numbers", "the logs have none to compare"});
  rows.push_back({"speed", speed_text(comparison)});
  text += rows_text(rows);
  if (!comparison.knows_settings) {
    text += "Settings are not compared: not both logs say them; those of JsonLog do.\n";
  } else if (comparison.settings.empty()) {
    text += "All settings that the logs say are equal.\n";
  } else {
    text += "Settings that differ:\n";
    for (const auto& setting : comparison.settings) {
      text += fmt::format("  {}\n    A  {}\n    B  {}\n", printable(setting.name),
                          setting.left.empty() ? "(not said)" : printable(setting.left),
                          setting.right.empty() ? "(not said)" : printable(setting.right));
    }
  }
  return text;
}

std::string comparison_json(const RunComparison& comparison) {
  ReportJson settings = ReportJson::array();
  for (const auto& setting : comparison.settings) {
    settings.push_back({{"name", setting.name}, {"left", setting.left}, {"right", setting.right}});
  }
  ReportJson numbers = ReportJson::array();
  for (const auto& number : comparison.numbers) {
    numbers.push_back({{"name", number.name},
                       {"common_steps", number.num_common},
                       {"only_left", number.num_left},
                       {"only_right", number.num_right},
                       {"first_difference", value_difference_json(number.first)},
                       {"greatest_difference", value_difference_json(number.greatest)}});
  }
  const ReportJson json = {{"equal", comparison.has_equal_numbers()},
                           {"knows_settings", comparison.knows_settings},
                           {"settings", settings},
                           {"numbers", numbers},
                           {"speed_ratio", optional_json(comparison.speed_ratio)},
                           {"left", run_json(comparison.left)},
                           {"right", run_json(comparison.right)}};
  return dumped(json);
}

}  // namespace tessera::tools
