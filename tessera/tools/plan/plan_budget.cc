#include "tessera/tools/plan/plan_budget.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/json/bounded_json.h"

namespace tessera::tools {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "tessera budget";
constexpr int kVersion = 1;
constexpr JsonKind kBudgetJson{.name = "budget"};
// Of a budget that is written: what a search finds may wander a little.
constexpr double kTolerance = 0.05;

std::vector<std::pair<std::string, double>> figures_of(const PlannedStep& planned) {
  std::vector<std::pair<std::string, double>> figures = {
      {"step_seconds", planned.cost.seconds()},
      {"received_bytes", static_cast<double>(planned.cost.received_bytes)},
      {"peak_bytes", static_cast<double>(planned.cost.peak_bytes)}};
  if (planned.shows_simulation && planned.simulated) {
    figures.emplace_back("simulated_step_seconds", planned.simulated->simulation.step_seconds);
    figures.emplace_back("simulated_peak_bytes", static_cast<double>(planned.simulated->peak_memory_bytes));
  }
  return figures;
}

bool is_bytes(const std::string& figure) { return figure.ends_with("_bytes"); }

std::string shown(const std::string& figure, double value) {
  return is_bytes(figure) ? format_bytes(static_cast<int64_t>(value)) : fmt::format("{:.6g} s", value);
}

double number_at(const Json& json, const char* member, const std::string& where) {
  if (!json.is_object() || !json.contains(member) || !json.at(member).is_number() || json.at(member) < 0) {
    throw InvalidArgument("{}: \"{}\" must be a number of at least 0", where, member);
  }
  return json.at(member).get<double>();
}

void require_equal(const Json& budget, const char* member, const Json& actual, const std::string& file) {
  const Json expected = budget.contains(member) ? budget.at(member) : Json();
  if (expected == actual) return;
  throw InvalidArgument("{}: the budget is for {} {}, this plan is for {}", file, member, expected.dump(),
                        actual.dump());
}

}  // namespace

std::string budget_json(const PlannedStep& planned, const std::string& model) {
  Json json = {{"format", kFormat},
               {"version", kVersion},
               {"model", model},
               {"num_ranks", planned.choices.mesh.size()},
               {"profile", planned.profile.name},
               {"budget", Json::object()}};
  for (const auto& [name, value] : figures_of(planned)) {
    json["budget"][name] = {{"most", is_bytes(name) ? Json(static_cast<int64_t>(value)) : Json(value)},
                            {"tolerance", kTolerance}};
  }
  return json.dump(2) + "\n";
}

BudgetCheck check_budget(const PlannedStep& planned, const std::string& model, const std::string& text,
                         const std::string& file) {
  const Json json = parse_bounded_json<Json>(text, file, kBudgetJson);
  if (!json.is_object() || json.value("format", "") != kFormat || !json.contains("budget") ||
      !json.at("budget").is_object()) {
    throw InvalidArgument("{}: is no budget; tessera plan --write_budget makes one", file);
  }
  require_equal(json, "version", kVersion, file);
  require_equal(json, "model", model, file);
  require_equal(json, "num_ranks", planned.choices.mesh.size(), file);
  require_equal(json, "profile", planned.profile.name, file);
  const auto figures = figures_of(planned);
  BudgetCheck check{.is_met = true};
  for (const auto& [name, budget] : json.at("budget").items()) {
    const auto it = std::find_if(figures.begin(), figures.end(), [&](const auto& f) { return f.first == name; });
    if (it == figures.end()) {
      throw InvalidArgument("{}: budget of \"{}\": {}", file, name,
                            name.starts_with("simulated_")
                                ? planned.shows_simulation ? "is simulated, and time was up: allow a longer --timeout"
                                                           : "is simulated: add --simulate"
                                : "is not known");
    }
    const auto where = fmt::format("{}: budget of \"{}\"", file, name);
    const double most = number_at(budget, "most", where);
    const double tolerance = number_at(budget, "tolerance", where);
    const bool is_met = it->second <= most * (1 + tolerance);
    check.is_met = check.is_met && is_met;
    const double growth = most > 0 ? 100 * (it->second / most - 1) : 0;
    check.text += fmt::format("{:<4}  {:<24}{:>14}, budget {} {:+.1f} % of at most +{:.1f} %\n", is_met ? "ok" : "FAIL",
                              name, shown(name, it->second), shown(name, most), growth, 100 * tolerance);
  }
  return check;
}

}  // namespace tessera::tools
