#include "tessera/tools/plan/plan_rows.h"

#include <fmt/ranges.h>

#include <map>
#include <set>

namespace tessera::tools {
namespace {

// More numbers than these say no more in a table.
constexpr size_t kListedNumbers = 3;

std::string joined_numbers(const std::set<int64_t>& numbers) {
  if (numbers.size() == 1) return std::to_string(*numbers.begin());
  const int64_t span = *numbers.rbegin() - *numbers.begin() + 1;
  if (span == static_cast<int64_t>(numbers.size())) return fmt::format("{}-{}", *numbers.begin(), *numbers.rbegin());
  return numbers.size() <= kListedNumbers ? fmt::format("{}", fmt::join(numbers, ",")) : "*";
}

}  // namespace

std::string joined_name(const std::vector<std::string>& names) {
  auto [parts, op] = compiler::layer_path(names.at(0));
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!compiler::is_layer_number(parts[i])) continue;
    std::set<int64_t> numbers;
    for (const auto& name : names) numbers.insert(parse_int(compiler::layer_path(name).first.at(i), "layer"));
    parts[i] = joined_numbers(numbers);
  }
  return fmt::format("{}{}", fmt::join(parts, "."), op);
}

std::vector<PlanRow> folded_rows(const PlannedStep& planned) {
  std::vector<PlanRow> rows;
  std::map<std::string, size_t> row_of;
  for (ir::NodeId n = 0; n < planned.graph.num_nodes(); ++n) {
    const auto i = static_cast<size_t>(n);
    const auto& name = planned.names[i];
    PlanRow row{.name = name.text, .is_gradient = name.is_gradient, .strategy = strategy_text(planned.plan, n)};
    if (const auto it = planned.choices.nodes.find(n); it != planned.choices.nodes.end()) {
      row.split = split_text(planned.choices.mesh, it->second);
    }
    const auto key =
        fmt::format("{} {} {} {}", name.is_gradient, compiler::layer_pattern(name.text), row.strategy, row.split);
    const auto [it, is_new] = row_of.try_emplace(key, rows.size());
    if (is_new) {
      row.count = 0;
      rows.push_back(row);
    }
    PlanRow& into = rows[it->second];
    const auto& cost = planned.cost.nodes[i];
    ++into.count;
    into.compute_seconds += cost.compute_seconds;
    into.communication_seconds += cost.own_seconds + cost.way_seconds;
    into.received_bytes += cost.received_bytes;
    into.result_bytes += cost.result_bytes;
    into.nodes.push_back(n);
  }
  for (PlanRow& row : rows) {
    std::vector<std::string> names;
    for (const ir::NodeId n : row.nodes) names.push_back(planned.names[static_cast<size_t>(n)].text);
    row.name = joined_name(names);
  }
  return rows;
}

}  // namespace tessera::tools
