#include "tessera/tools/plan/plan_memory.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;
using compiler::LivingValue;
using compiler::MemoryReport;

constexpr size_t kCurveRows = 16;
constexpr int64_t kCurveWidth = 40;

// The most that is alive in each of so many parts of the step.
std::string curve(const MemoryReport& report) {
  const auto& alive = report.alive_bytes;
  const size_t rows = std::min(kCurveRows, alive.size());
  std::string text;
  for (size_t row = 0; row < rows; ++row) {
    const size_t begin = row * alive.size() / rows;
    const size_t end = (row + 1) * alive.size() / rows;
    const int64_t most = *std::max_element(alive.begin() + static_cast<std::ptrdiff_t>(begin),
                                           alive.begin() + static_cast<std::ptrdiff_t>(end));
    const int64_t width = report.peak_bytes == 0 ? 0 : most * kCurveWidth / report.peak_bytes;
    text += fmt::format("  {:>11} {:>11} {}\n", fmt::format("{}-{}", begin, end - 1), format_bytes(most),
                        std::string(static_cast<size_t>(width), '#'));
  }
  return text;
}

std::string table(const PlanMemoryOptions& options, const mesh::Mesh& mesh, const MemoryReport& report) {
  std::string text = fmt::format("{} on {}, rank {}: arena {}\n", options.step.model, mesh.to_string(), options.rank,
                                 format_bytes(report.arena_bytes));
  text += fmt::format("  parameters {}, states {}; beside the arena a save with async_save keeps a copy of up to {}\n",
                      format_bytes(report.parameter_bytes), format_bytes(report.state_bytes),
                      format_bytes(report.snapshot_bytes()));
  text +=
      fmt::format("  planned {}, of which {} alive at the peak: step {}, {}\n\n", format_bytes(report.planned_bytes),
                  format_bytes(report.peak_bytes), report.peak_step, report.peak_name);
  text += fmt::format("  {:>11}  {:<28}{:<40}{}\n", "bytes", "value", "made by", "last read by");
  const auto shown = std::min(report.at_peak.size(), static_cast<size_t>(std::max(options.num_values, 0)));
  for (const LivingValue& value : std::span(report.at_peak).first(shown)) {
    const auto what = value.type.empty() ? value.name : value.name + " " + value.type;
    const auto made = value.made_by.empty() ? ""
                      : value.first < 0     ? value.made_by
                                            : fmt::format("{} {}", value.first, value.made_by);
    text += fmt::format("  {:>11}  {:<28}{:<40}{}\n", format_bytes(value.bytes), what, made, value.last_read_by);
  }
  if (shown < report.at_peak.size()) {
    int64_t rest = 0;
    for (size_t i = shown; i < report.at_peak.size(); ++i) rest += report.at_peak[i].bytes;
    text += fmt::format("  {:>11}  {} more\n", format_bytes(rest), report.at_peak.size() - shown);
  }
  return text + "\n  planned memory that is alive, over the steps\n" + curve(report);
}

// What is computed twice, by operator, the most bytes first.
std::string recomputed_text(const std::vector<compiler::RecomputedNode>& nodes) {
  struct Sum {
    int64_t num = 0;
    int64_t bytes = 0;
    double seconds = 0;
  };
  Sum all;
  std::map<std::string, Sum> by_op;
  for (const auto& node : nodes) {
    for (Sum* sum : {&all, &by_op[node.name.substr(0, node.name.find(' '))]}) {
      ++sum->num;
      sum->bytes += node.bytes;
      sum->seconds += node.seconds;
    }
  }
  std::vector<std::pair<std::string, Sum>> sorted(by_op.begin(), by_op.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  auto text = fmt::format("\n  computed twice: {}, {} that are not kept, about {:.1f} ms\n", plural(all.num, "step"),
                          format_bytes(all.bytes), all.seconds * 1e3);
  for (const auto& [op, sum] : sorted) {
    text += fmt::format("  {:>11}  {} {}, about {:.1f} ms\n", format_bytes(sum.bytes), sum.num, op, sum.seconds * 1e3);
  }
  return text;
}

Json json_of(const LivingValue& value) {
  return {{"name", value.name},
          {"type", value.type},
          {"bytes", value.bytes},
          {"first_step", value.first},
          {"last_step", value.last},
          {"made_by", value.made_by},
          {"last_read_by", value.last_read_by}};
}

}  // namespace

std::string plan_memory_text(const PlanMemoryOptions& options) {
  const auto step = step_graph(options.step);
  const auto spread = spread_of(options.step, step);
  require_rank(spread.mesh, options.rank);
  auto compiled = plan_ranks(options.step, step, spread);
  compiler::compile_rank(compiled, options.rank, compiler::layout_of(compiled, options.rank),
                         catalogue_of(options.step), spread.compile);
  const auto report = compiler::report_memory(compiled.local, compiled.schedule);
  if (!options.json) {
    auto text = table(options, spread.mesh, report);
    if (!compiled.recomputed.empty()) text += recomputed_text(compiled.recomputed);
    return text;
  }
  Json json = {{"model", options.step.model},
               {"mesh", spread.mesh.to_string()},
               {"rank", options.rank},
               {"arena_bytes", report.arena_bytes},
               {"parameter_bytes", report.parameter_bytes},
               {"state_bytes", report.state_bytes},
               {"snapshot_bytes", report.snapshot_bytes()},
               {"planned_bytes", report.planned_bytes},
               {"peak_bytes", report.peak_bytes},
               {"peak_step", report.peak_step},
               {"peak_name", report.peak_name},
               {"at_peak", Json::array()},
               {"alive_bytes", report.alive_bytes}};
  for (const auto& value : report.at_peak) json["at_peak"].push_back(json_of(value));
  json["recomputed"] = Json::array();
  for (const auto& node : compiled.recomputed) {
    json["recomputed"].push_back({{"name", node.name}, {"bytes", node.bytes}, {"seconds", node.seconds}});
  }
  return json.dump(2) + "\n";
}

}  // namespace tessera::tools
