#include "tessera/tools/timeline/operator_classes.h"

#include <algorithm>
#include <functional>
#include <map>

namespace tessera::tools {
namespace {

// Nothing once one of them has nothing.
void add_known(std::optional<double>& sum, const std::optional<double>& more) {
  sum = sum && more ? std::optional(*sum + *more) : std::nullopt;
}

}  // namespace

std::vector<OperatorClass> operator_classes(const timeline::TimelineSummary& summary) {
  std::map<std::string, OperatorClass> by_name;
  for (const timeline::OperatorTime& time : summary.operators) {
    const std::string name = time.text.substr(0, time.text.find(' '));
    auto& found = by_name.try_emplace(name, OperatorClass{.name = name, .limit_seconds = 0.0, .predicted_seconds = 0.0})
                      .first->second;
    ++found.num_operators;
    found.calls += time.calls;
    found.seconds += time.seconds;
    found.share += time.share;
    found.flops += time.calls * time.flops;
    found.bytes += time.calls * static_cast<double>(time.bytes);
    add_known(found.limit_seconds, time.limit_seconds);
    add_known(found.predicted_seconds, time.predicted_seconds);
  }
  std::vector<OperatorClass> classes;
  for (auto& [name, found] : by_name) classes.push_back(std::move(found));
  std::ranges::stable_sort(classes, std::greater{}, &OperatorClass::seconds);
  return classes;
}

std::optional<double> share_of_limit(const OperatorClass& operators) {
  if (!operators.limit_seconds || operators.seconds <= 0) return std::nullopt;
  return *operators.limit_seconds / operators.seconds;
}

}  // namespace tessera::tools
