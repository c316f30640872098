#include "tessera/tools/simulate_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/engine.h"
#include "tessera/tools/plan/stages_text.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;
using compiler::ClassSimulation;
using compiler::Simulation;

// More classes than these say no more in a table.
constexpr size_t kMaxClasses = 16;

// "0", "0 and 3 more"
std::string ranks_text(const std::vector<int>& ranks) {
  return ranks.size() == 1 ? fmt::format("{}", ranks[0]) : fmt::format("{} and {} more", ranks[0], ranks.size() - 1);
}

std::string table(const SimulateOptions& options, const mesh::Mesh& mesh, const compiler::MachineProfile& profile,
                  const Simulation& simulation) {
  std::string text = fmt::format("{} on {}, machines {}: {} a step, {} received by all ranks together\n\n",
                                 options.step.model, mesh.to_string(), machines_text(profile),
                                 format_seconds(simulation.step_seconds), format_bytes(simulation.received_bytes));
  text += fmt::format("{:<20}{:>12}{:>12}{:>12}{:>15}{:>12}{:>12}{:>12}\n", "ranks", "step", "compute", "exposed",
                      "communication", "received", "peak", "persistent");
  const auto shown = std::span(simulation.classes).first(std::min(simulation.classes.size(), kMaxClasses));
  for (const ClassSimulation& c : shown) {
    text += fmt::format(
        "{:<20}{:>12}{:>12}{:>12}{:>15}{:>12}{:>12}{:>12}\n", ranks_text(c.ranks), format_seconds(c.step_seconds()),
        format_seconds(c.compute_seconds), format_seconds(c.exposed_seconds), format_seconds(c.communication_seconds),
        format_bytes(c.received_bytes), format_bytes(c.peak_memory_bytes), format_bytes(c.persistent_bytes));
  }
  text += fmt::format("\n{:<20}{:<24}{:>8}{:>13}{:>15}{:>12}\n", "ranks", "groups", "of", "collectives",
                      "communication", "received");
  for (const ClassSimulation& c : shown) {
    for (const auto& [name, group] : c.groups) {
      text += fmt::format("{:<20}{:<24}{:>8}{:>13}{:>15}{:>12}\n", ranks_text(c.ranks), name, group.group_size,
                          group.num_collectives, format_seconds(group.seconds), format_bytes(group.received_bytes));
    }
  }
  if (shown.size() < simulation.classes.size()) {
    text += fmt::format("\n{} more classes of ranks; --json lists them\n", simulation.classes.size() - shown.size());
  }
  return text;
}

Json json_of(const ClassSimulation& c) {
  Json groups = Json::object();
  for (const auto& [name, group] : c.groups) {
    groups[name] = {{"group_size", group.group_size},
                    {"num_collectives", group.num_collectives},
                    {"received_bytes", group.received_bytes},
                    {"seconds", group.seconds}};
  }
  return {{"ranks", c.ranks},
          {"step_seconds", c.step_seconds()},
          {"compute_seconds", c.compute_seconds},
          {"exposed_seconds", c.exposed_seconds},
          {"communication_seconds", c.communication_seconds},
          {"received_bytes", c.received_bytes},
          {"peak_memory_bytes", c.peak_memory_bytes},
          {"persistent_bytes", c.persistent_bytes},
          {"groups", groups}};
}

Json thread_name(size_t process, int thread, const char* name) {
  return {{"name", "thread_name"}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

Json event(const ir::Step& step, const compiler::TimedStep& timed, size_t process) {
  const bool is_communication = step.kind == ir::StepKind::kStart;
  const std::string name = step.kind == ir::StepKind::kCompute       ? step.kernel
                           : step.kind == ir::StepKind::kWait        ? "wait for " + step.op
                           : step.kind == ir::StepKind::kCheckFinite ? "check_finite"
                                                                     : step.op;
  Json arguments = {{"step", timed.step}, {"source", step.source}};
  if (is_communication) {
    arguments["group"] = step.attributes.get_string("group");
    arguments["order"] = step.attributes.get_int("order");
  }
  return {{"name", name},
          {"cat", is_communication                   ? "communication"
                  : step.kind == ir::StepKind::kWait ? "wait"
                                                     : "compute"},
          {"ph", "X"},
          {"ts", timed.begin_seconds * 1e6},
          {"dur", (timed.end_seconds - timed.begin_seconds) * 1e6},
          {"pid", process},
          {"tid", is_communication ? 1 + ir::lane_of(step.attributes) : 0},
          {"args", arguments}};
}

}  // namespace

std::string trace_json(const Simulation& simulation, std::span<const compiler::RankClass> classes) {
  Json events = Json::array();
  for (size_t c = 0; c < simulation.classes.size(); ++c) {
    const auto& simulated = simulation.classes[c];
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", c},
                      {"args", {{"name", "rank " + ranks_text(simulated.ranks)}}}});
    events.push_back(thread_name(c, 0, "compute"));
    events.push_back(thread_name(c, 1, "communication"));
    events.push_back(thread_name(c, 2, "communication that computing waits for"));
    for (const auto& timed : simulated.timeline) {
      events.push_back(event(classes[c].schedule.steps[static_cast<size_t>(timed.step)], timed, c));
    }
  }
  return Json{{"displayTimeUnit", "ms"}, {"traceEvents", events}}.dump() + "\n";
}

std::string simulate_text(const SimulateOptions& options) {
  if (options.stages.is_pipeline()) {
    if (options.stages.stages == "auto") {
      throw UsageError("--stages auto: how many there are is searched by tessera plan; here say a number");
    }
    const PlanCommand command{.step = options.step, .machine = options.machine};
    auto stages = options.stages;
    stages.searches_inside = false;
    const auto step = plan_stages_step(command, stages);
    return options.json ? stages_json(*step, options.step.model) : stages_text(*step, options.step.model);
  }
  FileSystem& files = FileSystem::local();
  const auto profile = read_profile(options.machine);
  const auto step = step_graph(options.step);
  const auto spread = spread_of(options.step, step);
  const auto classes = compiler::schedule_classes(plan_ranks(options.step, step, spread), profile,
                                                  catalogue_of(options.step), spread.compile);
  const auto simulation = compiler::simulate_with_data(classes, profile);
  if (!options.trace.empty()) files.write_atomically(options.trace, trace_json(simulation, classes));
  if (!options.json) return table(options, spread.mesh, profile, simulation);
  Json json = {{"model", options.step.model},
               {"mesh", spread.mesh.to_string()},
               {"num_ranks", spread.mesh.size()},
               {"profile", profile.name},
               {"step_seconds", simulation.step_seconds},
               {"received_bytes", simulation.received_bytes},
               {"classes", Json::array()}};
  for (const auto& c : simulation.classes) json["classes"].push_back(json_of(c));
  return json.dump(2) + "\n";
}

}  // namespace tessera::tools
