#include "tessera/tools/plan/plan_why.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "tessera/engine.h"
#include "tessera/tools/plan/plan_rows.h"

namespace tessera::tools {
namespace {

using compiler::NodeChoice;
using compiler::PlanCost;

// Each alternative is searched with few rounds first; the best of them again.
constexpr int kFirstRounds = 2;
constexpr int kRounds = 20;
// Operators at which the seconds of a comparison go: more say no more.
constexpr size_t kShownDifferences = 5;

// Without a sign where nothing is left after rounding.
double seconds_of(const compiler::NodeCost& cost) { return cost.compute_seconds + cost.own_seconds + cost.way_seconds; }

// Where `b` takes other time than `a`, equal layers together, the largest first.
std::string where_seconds_go(const PlannedStep& planned, const PlanCost& a, const PlanCost& b) {
  struct Difference {
    double seconds = 0;
    std::vector<std::string> names;
    bool is_gradient = false;
  };
  std::map<std::pair<bool, std::string>, Difference> differences;
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const double seconds = seconds_of(b.nodes[i]) - seconds_of(a.nodes[i]);
    if (seconds == 0) continue;
    const auto& name = planned.names[i];
    auto& difference = differences[{name.is_gradient, compiler::layer_pattern(name.text)}];
    difference.seconds += seconds;
    difference.names.push_back(name.text);
    difference.is_gradient = name.is_gradient;
  }
  if (const double seconds = b.output_seconds - a.output_seconds; seconds != 0) {
    differences[{false, ""}] = {seconds, {"results on their way"}, false};
  }
  std::vector<Difference> sorted;
  for (auto& [key, difference] : differences) sorted.push_back(std::move(difference));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Difference& x, const Difference& y) { return std::abs(x.seconds) > std::abs(y.seconds); });
  std::string text;
  for (size_t i = 0; i < std::min(sorted.size(), kShownDifferences); ++i) {
    text += fmt::format("    {:>12}  {}{}\n", signed_seconds(sorted[i].seconds), sorted[i].is_gradient ? "d " : "",
                        joined_name(sorted[i].names));
  }
  if (sorted.size() > kShownDifferences) {
    const double rest = std::accumulate(sorted.begin() + kShownDifferences, sorted.end(), 0.0,
                                        [](double sum, const Difference& d) { return sum + d.seconds; });
    const size_t others = sorted.size() - kShownDifferences;
    text += fmt::format("    {:>12}  {} other{}\n", signed_seconds(rest), others, others == 1 ? "" : "s");
  }
  return text;
}

ir::NodeId find_operator(const PlannedStep& planned, const std::string& text) {
  std::vector<std::string> names;
  for (const auto& name : planned.names) names.push_back(to_string(name));
  const auto it = std::find(names.begin(), names.end(), text);
  if (it != names.end()) return static_cast<ir::NodeId>(it - names.begin());
  const auto near = closest(text, names);
  throw UsageError("--why {}: the graph has no such operator{}", text,
                   near.empty() ? "" : fmt::format("; did you mean \"{}\"?", near));
}

struct Alternative {
  NodeChoice choice;
  compiler::PlanChoices choices;
  double cost = solver::kForbidden;
};

// The best plan in which the node takes that choice; an infinite cost where there is none.
Alternative solve_with(const PlannedStep& planned, const PlanCommand& command, ir::NodeId node,
                       const NodeChoice& choice, int rounds) {
  auto options = search_options(command, planned);
  if (command.timeout > 0) options.timeout_seconds = std::max(planned.deadline.seconds_left(), 1e-3);
  options.meshes = {planned.choices.mesh};
  options.memory_limit_bytes = planned.chosen ? planned.chosen->search_limit_bytes : 0;
  options.fixed = {{node, choice}};
  options.rounds = rounds;
  options.on_progress = {};
  Alternative alternative{.choice = choice};
  try {
    auto found = compiler::search(planned.graph, planned.choices.mesh.ranks(), planned.profile, options);
    alternative.cost = found.cost;
    alternative.choices = std::move(found.choices);
  } catch (const InvalidArgument&) {
    // Nothing fits beside it.
  } catch (const DeadlineOver&) {
    // Nothing was found beside it.
  }
  return alternative;
}

std::string choice_text(const PlannedStep& planned, const NodeChoice& choice) {
  const auto text = split_text(planned.choices.mesh, choice);
  return text.empty() ? "not split" : text;
}

NodeChoice choice_of(const compiler::PlanChoices& choices, ir::NodeId node) {
  const auto it = choices.nodes.find(node);
  return it == choices.nodes.end() ? NodeChoice{} : it->second;
}

}  // namespace

std::string signed_seconds(double seconds) {
  const auto text = format_seconds(std::abs(seconds));
  if (text == "0") return text;
  return (seconds < 0 ? "-" : "+") + text;
}

std::string why_text(const PlannedStep& planned, const PlanCommand& command, const std::string& op, int num_choices) {
  const ir::NodeId node = find_operator(planned, op);
  compiler::CostModel costs(planned.choices.mesh, planned.profile);
  const auto& options = costs.options_of(planned.graph, node);
  const auto chosen = choice_of(planned.choices, node);
  std::vector<Alternative> alternatives;
  size_t num_left_out = 0;
  for (const auto& choice : options.choices) {
    if (choice == chosen) continue;
    if (planned.deadline.is_over()) {
      ++num_left_out;
      continue;
    }
    if (command.progress) {
      fmt::print(stderr, "choice {}/{}: {}\n", alternatives.size() + 1, options.choices.size() - 1,
                 choice_text(planned, choice));
    }
    alternatives.push_back(solve_with(planned, command, node, choice, kFirstRounds));
  }
  const auto by_cost = [](const Alternative& a, const Alternative& b) { return a.cost < b.cost; };
  std::stable_sort(alternatives.begin(), alternatives.end(), by_cost);
  const auto num_shown = std::min(alternatives.size(), static_cast<size_t>(std::max(num_choices, 0)));
  const auto num_all = alternatives.size();
  alternatives.resize(num_shown);
  for (auto& alternative : alternatives) {
    if (std::isinf(alternative.cost) || planned.deadline.is_over()) continue;
    auto again = solve_with(planned, command, node, alternative.choice, kRounds);
    if (again.cost < alternative.cost) alternative = std::move(again);
  }
  std::stable_sort(alternatives.begin(), alternatives.end(), by_cost);

  auto text =
      fmt::format("{} on {}: {} of {} choices, in a step that adds up to {}\n", op, planned.choices.mesh.to_string(),
                  choice_text(planned, chosen), options.choices.size(), format_seconds(planned.cost.seconds()));
  for (const auto& alternative : alternatives) {
    text += fmt::format("\n  {}: ", choice_text(planned, alternative.choice));
    if (std::isinf(alternative.cost)) {
      text += "no plan with it was found that fits\n";
      continue;
    }
    const auto cost = count(planned, alternative.choices);
    text += fmt::format("{} a step, {}: computing {}, communicating {}, peak {}\n", format_seconds(cost.seconds()),
                        signed_seconds(cost.seconds() - planned.cost.seconds()),
                        signed_seconds(cost.compute_seconds - planned.cost.compute_seconds),
                        signed_seconds(cost.communication_seconds - planned.cost.communication_seconds),
                        format_bytes(cost.peak_bytes));
    text += where_seconds_go(planned, planned.cost, cost);
  }
  if (num_left_out > 0) {
    text += fmt::format("\nleft out because time was up: {} choice{}\n", num_left_out, num_left_out == 1 ? "" : "s");
  }
  if (num_shown < num_all) text += fmt::format("\n  {} more, none better\n", num_all - num_shown);
  return text;
}

std::string diff_text(const PlanCommand& command, const std::string& first, const std::string& second) {
  auto load = command;
  load.load = first;
  const auto a = plan_step(load);
  load.load = second;
  const auto b = plan_step(load);

  struct Group {
    std::vector<std::string> names;
    std::string before;
    std::string after;
    double seconds = 0;
    bool is_gradient = false;
  };
  std::vector<Group> groups;
  std::map<std::string, size_t> group_of;
  for (ir::NodeId n = 0; n < a.graph.num_nodes(); ++n) {
    const auto i = static_cast<size_t>(n);
    const auto before = choice_text(a, choice_of(a.choices, n));
    const auto after = choice_text(b, choice_of(b.choices, n));
    if (before == after) continue;
    const auto& name = a.names[i];
    const auto key = fmt::format("{} {} {} / {}", name.is_gradient, compiler::layer_pattern(name.text), before, after);
    const auto [it, is_new] = group_of.try_emplace(key, groups.size());
    if (is_new) groups.push_back({.before = before, .after = after, .is_gradient = name.is_gradient});
    auto& group = groups[it->second];
    group.names.push_back(name.text);
    group.seconds += seconds_of(b.cost.nodes[i]) - seconds_of(a.cost.nodes[i]);
  }
  const auto line = [](const std::string& file, const PlannedStep& planned) {
    return fmt::format("{} on {}: {} = {} computing + {} communicating, {} received, {} at the peak\n", file,
                       planned.choices.mesh.to_string(), format_seconds(planned.cost.seconds()),
                       format_seconds(planned.cost.compute_seconds), format_seconds(planned.cost.communication_seconds),
                       format_bytes(planned.cost.received_bytes), format_bytes(planned.cost.peak_bytes));
  };
  auto text = line(first, a) + line(second, b);
  if (groups.empty()) return text + "all operators are split alike\n";
  text += "\n";
  for (const auto& group : groups) {
    text += fmt::format("{:>12}  {}{}: {} -> {}\n", signed_seconds(group.seconds), group.is_gradient ? "d " : "",
                        joined_name(group.names), group.before, group.after);
  }
  return text;
}

}  // namespace tessera::tools
