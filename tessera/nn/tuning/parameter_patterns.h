// Parameters of a network chosen by pattern: to freeze them, or to give them settings of their own.
//
// A pattern is compared with a parameter's name from the network on, "backbone.layer1.weight": `*` stands for any text,
// dots included, and `?` for one character. The name of a cell stands for all parameters below it. A pattern that
// matches none is an InvalidArgument that names what is near.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/nn/cell.h"
#include "tessera/nn/optimizers/base_optimizer.h"

namespace tessera::nn {

// Whether the pattern is that name, or that of a cell above it.
bool matches_pattern(std::string_view pattern, std::string_view name);

// Those that the pattern matches, in the order of Cell::parameters(). Throws InvalidArgument where there are none.
std::vector<Parameter*> matching_parameters(Cell& network, const std::string& pattern);

// Training leaves the parameters that the pattern matches as they are: requires_grad becomes false, or true again by
// unfreeze(), which passes over moving statistics: those are never trained. Both return the parameters, and throw as
// matching_parameters(). Call them before the model is made.
std::vector<Parameter*> freeze(Cell& network, const std::string& pattern);
std::vector<Parameter*> unfreeze(Cell& network, const std::string& pattern);

// For each pattern the trainable parameters that it is the first one to match. Throws InvalidArgument where a pattern
// gets none, saying which pattern in front of it has them.
std::vector<std::vector<Parameter*>> divide_parameters(Cell& network, std::span<const std::string> patterns);

struct PatternSettings {
  std::string pattern;
  std::optional<LearningRate> learning_rate = std::nullopt;  // absent: the optimizer's
  std::optional<double> weight_decay = std::nullopt;         // absent: the optimizer's
};
// The groups that an optimizer takes. The first pattern that matches a parameter decides; a parameter that none matches
// is in no group, and has the optimizer's settings:
//     .groups = nn::group_parameters(network, {{"*.bias", {}, 0.0}, {"backbone", 1e-4}})
// Throws as divide_parameters().
std::vector<ParameterGroup> group_parameters(Cell& network, const std::vector<PatternSettings>& settings);

}  // namespace tessera::nn
