#include "tessera/nn/tuning/parameter_patterns.h"

#include <algorithm>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::nn {
namespace {

// `*` and `?`. When what follows a `*` does not fit, the latest one takes a character more.
bool matches_text(std::string_view pattern, std::string_view text) {
  size_t p = 0;
  size_t t = 0;
  size_t star = std::string_view::npos;
  size_t taken = 0;  // where the star's text ends
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++taken;
    } else {
      return false;
    }
  }
  return pattern.substr(p).find_first_not_of('*') == std::string_view::npos;
}

// From the network on.
std::string name_in(const Cell& network, const Parameter& parameter) {
  const std::string above = network.path();
  const std::string full = parameter.full_name();
  const bool is_below = !above.empty() && full.starts_with(above + ".");
  return is_below ? full.substr(above.size() + 1) : full;
}

// What one may have meant: a name of a parameter or of a cell, else some names that there are.
std::string near_names(const std::string& pattern, const std::vector<std::string>& names) {
  std::set<std::string> known(names.begin(), names.end());
  for (const auto& name : names) {
    for (size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1)) {
      known.insert(name.substr(0, dot));
    }
  }
  std::string plain = pattern;
  std::erase_if(plain, [](char c) { return c == '*' || c == '?'; });
  while (!plain.empty() && plain.back() == '.') plain.pop_back();
  while (!plain.empty() && plain.front() == '.') plain.erase(0, 1);
  const auto near = closest(plain, {known.begin(), known.end()});
  if (!near.empty()) return fmt::format("did you mean {}?", near);
  constexpr size_t kMost = 8;
  const std::vector<std::string> some(names.begin(), names.begin() + std::min(names.size(), kMost));
  return fmt::format("they are {}{}", fmt::join(some, ", "), names.size() > kMost ? ", ..." : "");
}

}  // namespace

bool matches_pattern(std::string_view pattern, std::string_view name) {
  if (matches_text(pattern, name)) return true;
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    if (matches_text(pattern, name.substr(0, dot))) return true;
  }
  return false;
}

std::vector<Parameter*> matching_parameters(Cell& network, const std::string& pattern) {
  std::vector<Parameter*> found;
  std::vector<std::string> names;
  for (Parameter* parameter : network.parameters()) {
    names.push_back(name_in(network, *parameter));
    if (matches_pattern(pattern, names.back())) found.push_back(parameter);
  }
  if (names.empty()) throw InvalidArgument("pattern \"{}\": the network has no parameters", pattern);
  if (found.empty()) {
    throw InvalidArgument("pattern \"{}\" matches none of the {} parameters; {}", pattern, names.size(),
                          near_names(pattern, names));
  }
  return found;
}

std::vector<Parameter*> freeze(Cell& network, const std::string& pattern) {
  const auto found = matching_parameters(network, pattern);
  for (Parameter* parameter : found) parameter->requires_grad = false;
  return found;
}

std::vector<Parameter*> unfreeze(Cell& network, const std::string& pattern) {
  auto found = matching_parameters(network, pattern);
  std::erase_if(found, [](const Parameter* parameter) { return parameter->is_statistic; });
  for (Parameter* parameter : found) parameter->requires_grad = true;
  return found;
}

std::vector<std::vector<Parameter*>> divide_parameters(Cell& network, std::span<const std::string> patterns) {
  std::vector<std::vector<Parameter*>> divided;
  std::set<const Parameter*> taken;
  for (size_t i = 0; i < patterns.size(); ++i) {
    auto matching = matching_parameters(network, patterns[i]);
    std::erase_if(matching, [](const Parameter* parameter) { return !parameter->requires_grad; });
    if (matching.empty()) {
      throw InvalidArgument("pattern \"{}\" matches only parameters that are not trained (requires_grad)", patterns[i]);
    }
    auto& own = divided.emplace_back();
    std::ranges::copy_if(matching, std::back_inserter(own), [&](const Parameter* p) { return !taken.contains(p); });
    if (own.empty()) {
      const auto name = name_in(network, *matching.front());
      const auto earlier = std::ranges::find_if(patterns, [&](const auto& p) { return matches_pattern(p, name); });
      throw InvalidArgument(
          "pattern \"{}\" gets no parameters: \"{}\" in front of it has \"{}\" and all others; put the narrower "
          "pattern "
          "first",
          patterns[i], *earlier, name);
    }
    taken.insert(own.begin(), own.end());
  }
  return divided;
}

std::vector<ParameterGroup> group_parameters(Cell& network, const std::vector<PatternSettings>& settings) {
  std::vector<std::string> patterns;
  for (const auto& of : settings) patterns.push_back(of.pattern);
  const auto divided = divide_parameters(network, patterns);
  std::vector<ParameterGroup> groups;
  for (size_t i = 0; i < settings.size(); ++i) {
    groups.push_back({.parameters = {divided[i].begin(), divided[i].end()},
                      .learning_rate = settings[i].learning_rate,
                      .weight_decay = settings[i].weight_decay});
  }
  return groups;
}

}  // namespace tessera::nn
