#include "tessera/tools/plan/plan_text.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tessera/tools/plan/plan_rows.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;
using compiler::MeshOutcome;
using compiler::PlanCost;

std::string cost_text(const PlanCost& cost) {
  return fmt::format("{} = {} computing + {} communicating, {} received, {} alive at the peak",
                     format_seconds(cost.seconds()), format_seconds(cost.compute_seconds),
                     format_seconds(cost.communication_seconds), format_bytes(cost.received_bytes),
                     format_bytes(cost.peak_bytes));
}

// Says what a search counts for a plan, where that is more than the plan's own sum: its bound is one on what it counts.
std::string counted_text(const PlannedStep& planned, const PlanCost& cost) {
  const double counted = cost.searched_seconds();
  if (!planned.searched || counted <= cost.seconds() * (1 + 1e-9)) return "";
  if (!std::isfinite(counted)) return "; a search counts no such plan";
  return fmt::format("; {} as the search counts", format_seconds(counted));
}

// Whether strategies or layouts that are given hold in all plans that the search's bound is one on.
bool keeps_given(const PlannedStep& planned) {
  if (planned.chosen && planned.chosen->is_data_parallel_ruled_out) return true;
  for (ir::NodeId n = 0; n < planned.graph.num_nodes(); ++n) {
    if (!planned.graph.node(n).strategy.empty()) return true;
  }
  return false;
}

std::string simulation_text(const std::optional<compiler::SimulatedPlan>& plan) {
  if (!plan) return "not simulated: time was up";
  const auto& simulated = *plan;
  const auto& slowest = simulated.slowest();
  return fmt::format("{} = {} computing + {} waiting, {} received, an arena of {}",
                     format_seconds(simulated.simulation.step_seconds), format_seconds(slowest.compute_seconds),
                     format_seconds(slowest.exposed_seconds), format_bytes(slowest.received_bytes),
                     format_bytes(simulated.peak_memory_bytes));
}

std::string seconds_or_dash(double seconds) { return std::isfinite(seconds) ? format_seconds(seconds) : "-"; }

// What was compared, and which plan was taken.
std::string candidates_text(const PlannedStep& planned) {
  const auto unknown = [](const std::string& origin, const char* mark) {
    return fmt::format("  {:<24}{:>12}{:>12}{}\n", origin, "no time", "-", mark);
  };
  const auto row = [](const std::string& origin, double seconds, int64_t peak_bytes, const char* mark) {
    return fmt::format("  {:<24}{:>12}{:>12}{}\n", origin, std::isfinite(seconds) ? format_seconds(seconds) : "no fit",
                       format_bytes(peak_bytes), mark);
  };
  auto text = fmt::format("\n  {:<24}{:>12}{:>12}\n", "simulated", "step", "arena");
  if (!planned.chosen) {
    const auto simulated = [&](const std::string& origin, const auto& plan, const char* mark) {
      return plan ? row(origin, plan->simulation.step_seconds, plan->peak_memory_bytes, mark) : unknown(origin, mark);
    };
    text += simulated("the file's plan", planned.simulated, "  taken");
    text += simulated("data parallel", planned.data_parallel_simulated, "");
    return text + "taken: the plan of the file, as it is\n";
  }
  const auto& chosen = *planned.chosen;
  for (size_t i = 0; i < chosen.candidates.size(); ++i) {
    const auto& [origin, choices, prediction] = chosen.candidates[i];
    const char* mark = i == chosen.chosen ? "  taken" : "";
    text += prediction.simulated ? row(origin, prediction.step_seconds, prediction.peak_memory_bytes, mark)
                                 : unknown(origin, mark);
  }
  text += fmt::format("taken: {}\n", chosen.reason());
  for (const auto& remark : {chosen.coarse_text(), chosen.left_out_text()}) {
    if (!remark.empty()) text += remark + "\n";
  }
  return text;
}

std::string proof_text(const PlannedStep& planned) {
  if (!planned.chosen) return "  search    none: the plan is a file's\n";
  const auto& search = planned.chosen->search;
  if (!planned.searched) return "  search    found nothing in time; nothing is proven\n";
  auto text = fmt::format("  search    {}; each operator moving what it takes by itself {}, the least that was found",
                          format_seconds(planned.searched->seconds()), format_seconds(search.cost));
  if (std::isinf(search.bound)) return text + "; nothing is proven\n";
  std::vector<std::string> which;
  if (keeps_given(planned)) which.emplace_back("keeps what is given");
  if (search.is_folded) which.emplace_back("splits like layers alike");
  const auto those = which.empty() ? std::string() : fmt::format(" that {}", fmt::join(which, " and "));
  return text + fmt::format("; so counted no plan on these grids{} adds up to less than {}: gap {:.3f} %\n", those,
                            format_seconds(search.bound), 100 * search.gap());
}

std::string grids_text(const std::vector<MeshOutcome>& meshes) {
  auto text = fmt::format("\n  {:<24}{:>12}{:>12}  {}\n", "grid, as a search counts", "cost", "bound", "search");
  for (const auto& outcome : meshes) {
    text += fmt::format("  {:<24}{:>12}{:>12}  {}\n", outcome.mesh.to_string(), seconds_or_dash(outcome.cost),
                        seconds_or_dash(outcome.bound), solver::to_string(outcome.status));
  }
  return text;
}

// The rows that take longest, in the order of the graph, and the sum of the others.
std::string rows_text(const std::vector<PlanRow>& all, int num_rows) {
  std::vector<const PlanRow*> longest;
  for (const auto& row : all) longest.push_back(&row);
  std::stable_sort(longest.begin(), longest.end(),
                   [](const auto* a, const auto* b) { return a->seconds() > b->seconds(); });
  const auto shown = std::min(longest.size(), static_cast<size_t>(std::max(num_rows, 0)));
  const std::vector<const PlanRow*> others(longest.begin() + static_cast<std::ptrdiff_t>(shown), longest.end());
  longest.resize(shown);
  std::sort(longest.begin(), longest.end());

  const std::string name_title = "operator (d: of a gradient)";
  size_t name_width = name_title.size();
  size_t split_width = 5;
  for (const auto* row : longest) {
    name_width = std::max(name_width, row->name.size() + (row->is_gradient ? 2 : 0));
    split_width = std::max(split_width, row->strategy.size() + 1 + row->split.size());
  }
  const auto line = [&](const std::string& count, const std::string& name, const std::string& split,
                        const std::string& compute, const std::string& communication, const std::string& received,
                        const std::string& results) {
    auto made = fmt::format("{:>5}  {:<{}}  {:<{}}{:>11}{:>15}{:>12}{:>12}", count, name, name_width, split,
                            split_width, compute, communication, received, results);
    return made + "\n";
  };
  auto text = "\n" + line("count", name_title, "split", "computing", "communicating", "received", "results");
  for (const auto* row : longest) {
    text += line(std::to_string(row->count), (row->is_gradient ? "d " : "") + row->name,
                 row->strategy + (row->split.empty() ? "" : " " + row->split), format_seconds(row->compute_seconds),
                 format_seconds(row->communication_seconds), format_bytes(row->received_bytes),
                 format_bytes(row->result_bytes));
  }
  if (others.empty()) return text;
  PlanRow rest{.count = 0};
  for (const auto* row : others) {
    rest.count += row->count;
    rest.compute_seconds += row->compute_seconds;
    rest.communication_seconds += row->communication_seconds;
    rest.received_bytes += row->received_bytes;
    rest.result_bytes += row->result_bytes;
  }
  return text + line(std::to_string(rest.count), rest.count == 1 ? "other" : "others", "",
                     format_seconds(rest.compute_seconds), format_seconds(rest.communication_seconds),
                     format_bytes(rest.received_bytes), format_bytes(rest.result_bytes));
}

// Infinity is no number of JSON.
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json json_of(const PlanCost& cost) {
  return {{"seconds", cost.seconds()},
          {"searched_seconds", finite(cost.searched_seconds())},
          {"compute_seconds", cost.compute_seconds},
          {"communication_seconds", cost.communication_seconds},
          {"received_bytes", cost.received_bytes},
          {"persistent_bytes", cost.persistent_bytes},
          {"peak_bytes", cost.peak_bytes}};
}

Json json_of(const compiler::SimulatedPlan& simulated) {
  return {{"step_seconds", simulated.simulation.step_seconds},
          {"received_bytes_by_all", simulated.simulation.received_bytes},
          {"peak_memory_bytes", simulated.peak_memory_bytes}};
}

}  // namespace

std::string plan_summary(const PlannedStep& planned, const std::string& model) {
  const auto& mesh = planned.choices.mesh;
  auto text = fmt::format("{} on {} as {}, machines {}", model, plural(mesh.size(), "rank"), mesh.to_string(),
                          machines_text(planned.profile));
  if (planned.memory_limit_bytes > 0)
    text += fmt::format(", an arena of at most {} a rank", format_bytes(planned.memory_limit_bytes));
  text += "\n" + candidates_text(planned);
  text += "\nadded up, a step, nothing beside anything else:\n";
  text += "  this plan " + cost_text(planned.cost) + counted_text(planned, planned.cost) + "\n";
  text += proof_text(planned);
  const auto by_batch = counted_text(planned, planned.data_parallel);
  text += "  data      " + cost_text(planned.data_parallel) + by_batch + ": data parallel\n";
  if (const auto warning = compiler::uneven_warning(planned.cost, mesh.size()); !warning.empty()) {
    text += "warning: " + warning + "\n";
  }
  if (planned.shows_simulation) {
    text += "simulated, communication beside computing, operators fused, memory exact:\n";
    text += "  this plan " + simulation_text(planned.simulated) + "\n";
    text += "  data      " + simulation_text(planned.data_parallel_simulated) + ": data parallel\n";
  }
  return text;
}

std::string plan_text(const PlannedStep& planned, const std::string& model, int num_rows) {
  auto text = plan_summary(planned, model);
  if (planned.chosen && !planned.chosen->search.meshes.empty()) text += grids_text(planned.chosen->search.meshes);
  text += rows_text(folded_rows(planned), num_rows);
  return text + fmt::format("results are moved to where they are wanted in {}, {} received\n",
                            format_seconds(planned.cost.output_seconds), format_bytes(planned.cost.output_bytes));
}

std::string plan_json(const PlannedStep& planned, const std::string& model) {
  const auto& mesh = planned.choices.mesh;
  Json json = {
      {"model", model},           {"num_ranks", mesh.size()},      {"profile", planned.profile.name},
      {"mesh", mesh.to_string()}, {"plan", json_of(planned.cost)}, {"data_parallel", json_of(planned.data_parallel)}};
  if (const auto warning = compiler::uneven_warning(planned.cost, mesh.size()); !warning.empty()) {
    json["warning"] = warning;
  }
  if (planned.memory_limit_bytes > 0) json["memory_limit_bytes"] = planned.memory_limit_bytes;
  if (planned.chosen) {
    const auto& chosen = *planned.chosen;
    json["taken"] = {{"plan", chosen.is_data_parallel ? "data parallel" : chosen.taken().origin},
                     {"reason", chosen.reason()},
                     {"step_seconds", finite(chosen.simulated_seconds)},
                     {"peak_memory_bytes", chosen.peak_memory_bytes},
                     {"data_parallel_step_seconds", finite(chosen.data_parallel_seconds)}};
    json["candidates"] = Json::array();
    for (const auto& [origin, choices, prediction] : chosen.candidates) {
      json["candidates"].push_back({{"plan", origin},
                                    {"mesh", choices.mesh.to_string()},
                                    {"step_seconds", finite(prediction.step_seconds)},
                                    {"peak_memory_bytes", prediction.peak_memory_bytes}});
      if (prediction.simulated && prediction.simulated->is_coarse) json["candidates"].back()["coarse"] = true;
    }
    if (!chosen.left_out.empty()) json["left_out"] = chosen.left_out;
    const auto& search = chosen.search;
    json["search"] = {{"seconds", planned.searched ? Json(planned.searched->seconds()) : Json()},
                      {"cost_seconds", finite(search.cost)},
                      {"bound_seconds", finite(search.bound)},
                      {"gap", finite(search.gap())},
                      {"bound_of", "searched_seconds"},
                      {"keeps_given", keeps_given(planned)},
                      {"layers_alike", search.is_folded},
                      {"meshes", Json::array()}};
    for (const auto& outcome : search.meshes) {
      json["search"]["meshes"].push_back({{"mesh", outcome.mesh.to_string()},
                                          {"status", solver::to_string(outcome.status)},
                                          {"cost_seconds", finite(outcome.cost)},
                                          {"bound_seconds", finite(outcome.bound)},
                                          {"nodes", outcome.num_nodes},
                                          {"edges", outcome.num_edges},
                                          {"choices", outcome.num_choices}});
    }
  }
  if (planned.shows_simulation) {
    json["simulation"] = planned.simulated ? json_of(*planned.simulated) : Json();
    json["data_parallel_simulation"] =
        planned.data_parallel_simulated ? json_of(*planned.data_parallel_simulated) : Json();
  }
  json["output_seconds"] = planned.cost.output_seconds;
  json["operators"] = Json::array();
  for (ir::NodeId n = 0; n < planned.graph.num_nodes(); ++n) {
    const auto i = static_cast<size_t>(n);
    const auto& cost = planned.cost.nodes[i];
    const auto it = planned.choices.nodes.find(n);
    json["operators"].push_back({{"operator", planned.names[i].text},
                                 {"gradient", planned.names[i].is_gradient},
                                 {"strategy", strategy_text(planned.plan, n)},
                                 {"split", it == planned.choices.nodes.end() ? "" : split_text(mesh, it->second)},
                                 {"compute_seconds", cost.compute_seconds},
                                 {"own_seconds", cost.own_seconds},
                                 {"way_seconds", cost.way_seconds},
                                 {"received_bytes", cost.received_bytes},
                                 {"result_bytes", cost.result_bytes},
                                 {"live_bytes", cost.live_bytes}});
  }
  return json.dump(2) + "\n";
}

}  // namespace tessera::tools
