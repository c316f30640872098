#include "tessera/nn/layers/activation.h"

#include <map>

#include "tessera/base/error.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

using Activation = Value (*)(Value);
const std::map<std::string, Activation>& known_activations() {
  static const std::map<std::string, Activation> by_name = {
      {"", [](Value x) { return x; }},
      {"relu", [](Value x) { return ops::relu(x); }},
      {"sigmoid", [](Value x) { return ops::sigmoid(x); }},
      {"tanh", [](Value x) { return ops::tanh(x); }},
      {"gelu", [](Value x) { return ops::gelu(x); }},
      {"softmax", [](Value x) { return ops::softmax(x); }},
  };
  return by_name;
}

}  // namespace

Value ReLU::construct(Value x) { return ops::relu(x); }
Value Sigmoid::construct(Value x) { return ops::sigmoid(x); }
Value Tanh::construct(Value x) { return ops::tanh(x); }
Value GELU::construct(Value x) { return ops::gelu(x, approximate_); }
Value Softmax::construct(Value x) { return ops::softmax(x, axis_); }

Value activate(Value x, const std::string& name) { return known_activations().at(name)(x); }

void check_activation(const std::string& who, const std::string& name) {
  if (known_activations().contains(name)) return;
  std::string names;
  for (const auto& [known_name, function] : known_activations()) {
    if (!known_name.empty()) names += (names.empty() ? "" : ", ") + known_name;
  }
  throw InvalidArgument("{}: activation \"{}\" is not known; there are: {}", who, name, names);
}

}  // namespace tessera::nn
