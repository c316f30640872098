#include "tessera/ops/registry/index_rule.h"

#include "tessera/base/error.h"
#include "tessera/base/strings.h"

namespace tessera::ops {
namespace {

std::vector<IndexRule::Dims> parse_operands(std::string_view text) {
  std::vector<IndexRule::Dims> operands;
  if (trim(text).empty()) return operands;
  for (const auto operand : split(text, ',')) {
    IndexRule::Dims dims;
    for (const auto word : split(operand, ' ')) {
      if (!word.empty()) dims.emplace_back(word == "_" ? "" : word);
    }
    // "." alone is a scalar: split() cannot tell it from nothing otherwise.
    if (dims.size() == 1 && dims[0] == ".") dims.clear();
    operands.push_back(std::move(dims));
  }
  return operands;
}

std::string print_operands(const std::vector<IndexRule::Dims>& operands) {
  std::string text;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i > 0) text += ", ";
    if (operands[i].empty()) text += ".";
    for (size_t d = 0; d < operands[i].size(); ++d) {
      text += (d > 0 ? " " : "") + (operands[i][d].empty() ? "_" : operands[i][d]);
    }
  }
  return text;
}

constexpr std::pair<Completion, const char*> kCompletions[] = {
    {Completion::kSum, "sum"},   {Completion::kMax, "max"},   {Completion::kMin, "min"},
    {Completion::kProd, "prod"}, {Completion::kMean, "mean"}, {Completion::kWhole, "whole"}};

}  // namespace

Completion IndexRule::completion(const std::string& factor) const {
  const auto it = completions.find(factor);
  return it == completions.end() ? Completion::kSum : it->second;
}

std::string IndexRule::to_string() const {
  std::string text = print_operands(inputs) + " -> " + print_operands(outputs);
  bool first = true;
  for (const auto& [factor, completion] : completions) {
    for (const auto& [kind, name] : kCompletions) {
      if (kind == completion) text += fmt::format("{}{}={}", first ? " : " : ", ", factor, name);
    }
    first = false;
  }
  return text;
}

IndexRule parse_rule(std::string_view text) {
  const auto arrow = text.find("->");
  if (arrow == std::string_view::npos) throw InvalidArgument("index rule \"{}\" lacks \"->\"", text);
  auto right = text.substr(arrow + 2);
  IndexRule rule;
  if (const auto colon = right.find(':'); colon != std::string_view::npos) {
    for (const auto entry : split(right.substr(colon + 1), ',')) {
      const auto equals = entry.find('=');
      bool known = false;
      for (const auto& [kind, name] : kCompletions) {
        if (equals != std::string_view::npos && trim(entry.substr(equals + 1)) == name) {
          rule.completions[std::string(trim(entry.substr(0, equals)))] = kind;
          known = true;
        }
      }
      if (!known)
        throw InvalidArgument("index rule \"{}\": \"{}\" is not factor=sum|max|min|prod|mean|whole", text, entry);
    }
    right = right.substr(0, colon);
  }
  rule.inputs = parse_operands(text.substr(0, arrow));
  rule.outputs = parse_operands(right);
  return rule;
}

IndexRule elementwise_rule(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs) {
  IndexRule rule;
  const Shape& full = outputs.at(0);
  const auto dims_of = [&](const Shape& shape) {
    IndexRule::Dims dims;
    for (int dim = 0; dim < shape.ndim(); ++dim) {
      const int in_full = dim + full.ndim() - shape.ndim();
      dims.push_back(shape[dim] == full[in_full] ? fmt::format("d{}", in_full) : "");
    }
    return dims;
  };
  for (const auto& shape : inputs) rule.inputs.push_back(dims_of(shape));
  for (const auto& shape : outputs) rule.outputs.push_back(dims_of(shape));
  return rule;
}

IndexRule replicated_rule(const std::vector<Shape>& inputs, const std::vector<Shape>& outputs) {
  IndexRule rule;
  for (const auto& shape : inputs) rule.inputs.emplace_back(static_cast<size_t>(shape.ndim()));
  for (const auto& shape : outputs) rule.outputs.emplace_back(static_cast<size_t>(shape.ndim()));
  return rule;
}

}  // namespace tessera::ops
