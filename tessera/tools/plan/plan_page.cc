#include "tessera/tools/plan/plan_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/engine.h"
#include "tessera/tools/page/page.h"
#include "tessera/tools/plan/plan_text.h"

namespace tessera::tools {

// Of plan_page.html, by the build.
extern const char* const kPlanPage;

namespace {

using Json = nlohmann::ordered_json;

// The axes that the operator is split along or passes sums of, in the order of the mesh: what colours it.
std::string axes_of(const PlannedStep& planned, ir::NodeId node) {
  const auto it = planned.choices.nodes.find(node);
  if (it == planned.choices.nodes.end()) return "";
  const auto& mesh = planned.choices.mesh;
  std::vector<bool> used(static_cast<size_t>(mesh.num_axes()));
  for (const auto& [factor, axes] : it->second.factors) {
    for (const int axis : axes) used[static_cast<size_t>(axis)] = true;
  }
  for (const auto& [axis, operands] : it->second.through) used[static_cast<size_t>(axis)] = true;
  std::string names;
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    if (used[static_cast<size_t>(axis)]) names += (names.empty() ? "" : "+") + mesh.axis(axis).name;
  }
  return names;
}

Json operator_json(const PlannedStep& planned, ir::NodeId n) {
  const auto i = static_cast<size_t>(n);
  const auto& cost = planned.cost.nodes[i];
  const auto& name = planned.names[i];
  const auto it = planned.choices.nodes.find(n);
  Json from = Json::array();
  for (const ir::ValueId v : planned.graph.node(n).inputs) {
    const ir::NodeId made_by = planned.graph.info(v).node;
    if (made_by != ir::kNone) from.push_back(made_by);
  }
  return {{"cell", name.text.substr(0, name.text.rfind(':'))},
          {"op", name.text.substr(name.text.rfind(':') + 1)},
          {"gradient", name.is_gradient},
          {"strategy", strategy_text(planned.plan, n)},
          {"split", it == planned.choices.nodes.end() ? "" : split_text(planned.choices.mesh, it->second)},
          {"axes", axes_of(planned, n)},
          {"compute", cost.compute_seconds},
          {"communication", cost.own_seconds + cost.way_seconds},
          {"received", cost.received_bytes},
          {"results", cost.result_bytes},
          {"live", cost.live_bytes},
          {"from", from}};
}

// The lanes of the class of ranks that takes longest.
Json lanes_json(const compiler::SimulatedPlan& simulated) {
  const auto& slowest = simulated.slowest();
  const auto& steps = simulated.slowest_schedule->steps;
  Json items = Json::array();
  for (const auto& timed : slowest.timeline) {
    const auto& step = steps[static_cast<size_t>(timed.step)];
    const bool communicates = step.kind == ir::StepKind::kStart;
    const bool waits = step.kind == ir::StepKind::kWait;
    items.push_back({communicates ? 1 + ir::lane_of(step.attributes) : 0, timed.begin_seconds, timed.end_seconds,
                     waits ? "wait for " + step.op : step.op, step.source, waits});
  }
  return {{"rank", slowest.ranks[0]}, {"seconds", simulated.simulation.step_seconds}, {"steps", items}};
}

// What was taken, over how many others, and why: what a reader wants first.
std::string verdict_of(const PlannedStep& planned) {
  if (!planned.chosen) return "Taken: the plan of the file, as it is. No other was looked for.";
  const auto& chosen = *planned.chosen;
  return fmt::format("Taken: {}. Plans that were compared: {}.", chosen.reason(), chosen.candidates.size());
}

// A step's time, which is known, against that of data parallel: infinite where that cannot be taken, 0 where nobody
// knows it.
std::string against_data_parallel(double seconds, double data_parallel_seconds) {
  if (!std::isfinite(data_parallel_seconds)) return "that does not fit, or is ruled out";
  if (!(data_parallel_seconds > 0)) return "not known";
  if (seconds == data_parallel_seconds) return "the same time";
  return fmt::format("{:.2f} times as fast ({})", data_parallel_seconds / seconds,
                     format_seconds(data_parallel_seconds));
}

// The numbers that stand in front of all others, each with its name.
Json facts_json(const PlannedStep& planned) {
  Json facts = Json::array();
  const auto add = [&facts](const char* name, const std::string& text) {
    facts.push_back(Json{{"name", name}, {"text", text}});
  };
  double seconds = planned.simulated ? planned.simulated->simulation.step_seconds : 0;
  double by_batch = planned.data_parallel_simulated ? planned.data_parallel_simulated->simulation.step_seconds : 0;
  int64_t memory_bytes = planned.simulated ? planned.simulated->peak_memory_bytes : 0;
  if (planned.chosen) {
    seconds = planned.chosen->simulated_seconds;
    by_batch = planned.chosen->data_parallel_seconds;
    memory_bytes = planned.chosen->peak_memory_bytes;
  }
  const bool is_simulated = std::isfinite(seconds) && seconds > 0;
  if (is_simulated) add("a step, simulated", format_seconds(seconds));
  add("a step, nothing beside anything else", format_seconds(planned.cost.seconds()));
  if (is_simulated) add("against data parallel", against_data_parallel(seconds, by_batch));
  if (planned.simulated) {
    const auto& slowest = planned.simulated->slowest();
    add("computing, of the slowest rank", format_seconds(slowest.compute_seconds));
    add("waiting for others", format_seconds(slowest.exposed_seconds));
  }
  add("a rank receives in a step", format_bytes(planned.cost.received_bytes));
  const std::string limit =
      planned.memory_limit_bytes > 0 ? fmt::format(" of at most {}", format_bytes(planned.memory_limit_bytes)) : "";
  add("memory of a rank", format_bytes(memory_bytes > 0 ? memory_bytes : planned.cost.peak_bytes) + limit);
  if (planned.chosen && planned.searched && std::isfinite(planned.chosen->search.bound)) {
    const auto& search = planned.chosen->search;
    add("proven: no plan adds up to less than", fmt::format("{}; gap of the plan that the search found: {:.3f} %",
                                                            format_seconds(search.bound), 100 * search.gap()));
  }
  return facts;
}

// What else is to be known before the plan is believed.
Json notes_json(const PlannedStep& planned) {
  Json notes = Json::array();
  const auto add = [&notes](const std::string& note) {
    if (!note.empty()) notes.push_back(note);
  };
  add(compiler::uneven_warning(planned.cost, planned.choices.mesh.size()));
  if (planned.chosen) {
    add(planned.chosen->coarse_text());
    add(planned.chosen->left_out_text());
  }
  return notes;
}

// The plans that were compared, in the order in which they were found.
Json candidates_json(const PlannedStep& planned) {
  Json rows = Json::array();
  if (!planned.chosen) return rows;
  const auto& chosen = *planned.chosen;
  for (size_t i = 0; i < chosen.candidates.size(); ++i) {
    const auto& [origin, choices, prediction] = chosen.candidates[i];
    const bool is_known = prediction.simulated && std::isfinite(prediction.step_seconds);
    std::string remark = i == chosen.chosen ? "taken" : "";
    const char* why_unknown = !prediction.simulated ? "no time to simulate it" : is_known ? "" : "does not fit";
    if (*why_unknown != 0) remark += (remark.empty() ? "" : ", ") + std::string(why_unknown);
    rows.push_back({{"plan", origin},
                    {"mesh", choices.mesh.to_string()},
                    {"seconds", is_known ? Json(prediction.step_seconds) : Json()},
                    {"bytes", prediction.simulated ? prediction.peak_memory_bytes : 0},
                    {"remark", remark},
                    {"taken", i == chosen.chosen}});
  }
  return rows;
}

Json page_json(const PlannedStep& planned, const std::string& model) {
  Json json = {{"model", model},
               {"mesh", planned.choices.mesh.to_string()},
               {"profile", planned.profile.name},
               {"verdict", verdict_of(planned)},
               {"facts", facts_json(planned)},
               {"notes", notes_json(planned)},
               {"candidates", candidates_json(planned)},
               {"summary", plan_summary(planned, model)},
               {"limit", planned.memory_limit_bytes},
               {"persistent", planned.cost.persistent_bytes},
               {"operators", Json::array()}};
  for (ir::NodeId n = 0; n < planned.graph.num_nodes(); ++n) json["operators"].push_back(operator_json(planned, n));
  if (planned.shows_simulation && planned.simulated) json["lanes"] = lanes_json(*planned.simulated);
  return json;
}

}  // namespace

std::string plan_page(const PlannedStep& planned, const std::string& model) {
  // A path in the name of the model may be no UTF-8.
  const auto data = json_in_page(page_json(planned, model).dump(-1, ' ', false, Json::error_handler_t::replace));
  std::string page = kPlanPage;
  const std::string place = "PLAN_DATA";
  page.replace(page.find(place), place.size(), data);
  return page;
}

}  // namespace tessera::tools
