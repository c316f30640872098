#include "tessera/tools/plan/plan_page.h"

#include <algorithm>
#include <nlohmann/json.hpp>

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

Json page_json(const PlannedStep& planned, const std::string& model) {
  Json json = {{"model", model},
               {"mesh", planned.choices.mesh.to_string()},
               {"profile", planned.profile.name},
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
  const auto data = json_in_page(page_json(planned, model).dump());
  std::string page = kPlanPage;
  const std::string place = "PLAN_DATA";
  page.replace(page.find(place), place.size(), data);
  return page;
}

}  // namespace tessera::tools
