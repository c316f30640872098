#include "tessera/tools/report/step_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "tessera/engine.h"
#include "tessera/tessera.h"
#include "tessera/tools/report/record_members.h"

namespace tessera::tools {
namespace {

using StepJson = nlohmann::ordered_json;

// More than a log of a training has; what somebody else has written may have any number.
constexpr size_t kMostFacts = 64;
constexpr size_t kMostAlive = 400;

int64_t count_or_zero(const StepJson& json, const char* name) { return count_in(json, name).value_or(0); }

std::optional<double> seconds_in(const StepJson& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_number()) return std::nullopt;
  const auto seconds = found->get<double>();
  return std::isfinite(seconds) && seconds > 0 && seconds < 1e9 ? std::optional(seconds) : std::nullopt;
}

// The member of that name; nullptr of what is no object.
const StepJson* object_in(const StepJson& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_object() ? &*found : nullptr;
}

// Calls take for each object of the list of that name, as long as there are few.
template <typename Take>
void for_each_object(const StepJson& json, const char* name, const Take& take) {
  const auto found = json.find(name);
  if (found == json.end() || !found->is_array()) return;
  size_t num_taken = 0;
  for (const auto& object : *found) {
    if (object.is_object() && num_taken++ < kMostFacts) take(object);
  }
}

}  // namespace

std::optional<PlanFacts> plan_facts_of(const StepJson& record) {
  const StepJson* const found = object_in(record, "plan");
  if (found == nullptr) return std::nullopt;
  const StepJson& json = *found;
  PlanFacts plan{.mesh = text_in(json, "mesh"),
                 .num_operators = count_or_zero(json, "operators"),
                 .num_split_operators = count_or_zero(json, "split_operators"),
                 .predicted_seconds = seconds_in(json, "predicted_seconds"),
                 .searched_seconds = seconds_in(json, "searched_seconds"),
                 .bound_seconds = seconds_in(json, "bound_seconds"),
                 .parameter_bytes = count_or_zero(json, "parameter_bytes"),
                 .rank_parameter_bytes = count_or_zero(json, "rank_parameter_bytes"),
                 .state_bytes = count_or_zero(json, "state_bytes"),
                 .rank_state_bytes = count_or_zero(json, "rank_state_bytes"),
                 .values = {}};
  for_each_object(json, "values", [&](const StepJson& value) {
    plan.values.push_back({text_in(value, "name"), text_in(value, "kind"), text_in(value, "type"),
                           text_in(value, "split"), count_or_zero(value, "bytes"), count_or_zero(value, "rank_bytes")});
  });
  return plan;
}

std::optional<MemoryFacts> memory_facts_of(const StepJson& record) {
  const StepJson* const found = object_in(record, "memory");
  if (found == nullptr) return std::nullopt;
  const StepJson& json = *found;
  MemoryFacts memory{.arena_bytes = count_or_zero(json, "arena_bytes"),
                     .parameter_bytes = count_or_zero(json, "parameter_bytes"),
                     .state_bytes = count_or_zero(json, "state_bytes"),
                     .planned_bytes = count_or_zero(json, "planned_bytes"),
                     .num_operations = count_or_zero(json, "operations"),
                     .peak_bytes = count_or_zero(json, "peak_bytes"),
                     .peak_operation = count_or_zero(json, "peak_operation"),
                     .peak_name = text_in(json, "peak_name"),
                     .at_peak = {},
                     .alive = {}};
  for_each_object(json, "at_peak", [&](const StepJson& value) {
    memory.at_peak.push_back({text_in(value, "name"), text_in(value, "type"), count_or_zero(value, "bytes"),
                              text_in(value, "made_by"), text_in(value, "last_read_by")});
  });
  const auto points = json.find("alive_bytes");
  if (points == json.end() || !points->is_array()) return memory;
  for (const auto& point : *points) {
    const bool is_pair = point.is_array() && point.size() == 2 && point[0].is_number_integer() && point[1].is_number();
    if (!is_pair || memory.alive.size() == kMostAlive) continue;
    const CurvePoint alive{point[0].get<int64_t>(), point[1].get<double>()};
    const bool is_next = memory.alive.empty() || alive.step > memory.alive.back().step;
    if (is_next && alive.step >= 0 && std::isfinite(alive.value)) memory.alive.push_back(alive);
  }
  return memory;
}

std::string plan_line(const PlanFacts& plan) {
  std::string text = plan.mesh.empty() ? "no mesh" : plan.mesh;
  text += fmt::format("; {} of {} {} split over the ranks", plan.num_split_operators,
                      plural(plan.num_operators, "operator"), plan.num_split_operators == 1 ? "is" : "are");
  if (plan.predicted_seconds) {
    text += fmt::format("; a step is predicted to take {}", format_seconds(*plan.predicted_seconds));
  }
  return text;
}

std::string plan_verdict(const PlanFacts& plan) {
  if (!plan.predicted_seconds && !plan.searched_seconds) {
    return "No search has chosen this plan: the parallel mode and strategies say how the step is spread.";
  }
  if (!plan.bound_seconds || !plan.searched_seconds) return "A search has chosen this plan; nothing is proven of it.";
  const double gap = 100 * (*plan.searched_seconds - *plan.bound_seconds) / *plan.searched_seconds;
  return fmt::format(
      "A search has chosen this plan: as it counts, it adds up to {}, and no plan to less than {}: the gap is {:.3f} "
      "%.",
      format_seconds(*plan.searched_seconds), format_seconds(*plan.bound_seconds), std::max(gap, 0.0));
}

std::string memory_line(const MemoryFacts& memory) {
  return fmt::format("{} are alive at most, at operation {} of {}, {}, beside {} of parameters and {} of states",
                     format_bytes(memory.peak_bytes), memory.peak_operation, memory.num_operations,
                     memory.peak_name.empty() ? "which is not named" : memory.peak_name,
                     format_bytes(memory.parameter_bytes), format_bytes(memory.state_bytes));
}

}  // namespace tessera::tools
