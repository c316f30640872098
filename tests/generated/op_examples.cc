#include "tests/generated/op_examples.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tessera/base/error.h"
#include "tessera/base/random.h"

namespace tessera::generated {

std::string OpCall::name() const { return fmt::format("{}_{}", def->name, number); }

std::vector<OpCall> all_calls() {
  std::vector<OpCall> calls;
  for (const auto& [name, def] : ops::OpRegistry::instance().all()) {
    if (def.collective) continue;
    int number = 0;
    for (const auto& example : def.examples) calls.push_back({&def, example, number++});
  }
  return calls;
}

Tensor make_input(const OpCall& call, size_t i, DType dtype) {
  const auto& input = call.example.inputs[i];
  const RandomStream stream{.seed = 11, .stream = hash_name(call.name()), .step = i};
  Tensor tensor(DType::kF64, input.type.shape);
  const auto values = tensor.values<double>();
  const auto n = values.size();
  switch (input.domain) {
    case ops::Domain::kAny:
    case ops::Domain::kOneInfinite: {
      // None is near 0, and no two are nearly equal, nor are their sizes, whatever the numbers of elements: a gradient
      // near a tie is not that of a difference. It is a random permutation of a grid that is not symmetric to 0.
      constexpr double kStart = 0.4142;  // of a step; no fraction of a small denominator, by which two grids would meet
      std::vector<size_t> order(n);
      std::iota(order.begin(), order.end(), size_t{0});
      for (size_t k = n; k > 1; --k) {
        std::swap(order[k - 1], order[static_cast<size_t>(random_below(stream, k, static_cast<int64_t>(k)))]);
      }
      for (size_t k = 0; k < n; ++k) {
        const double at = (static_cast<double>(order[k]) + kStart) / static_cast<double>(n);  // (0, 1)
        const double magnitude = 0.1 + 1.9 * std::abs(2 * at - 1);
        values[k] = at < 0.5 ? -magnitude : magnitude;
      }
      if (input.domain == ops::Domain::kOneInfinite && n > 0) {
        values[static_cast<size_t>(random_below(stream, 0, static_cast<int64_t>(n)))] =
            std::numeric_limits<double>::infinity();
      }
      break;
    }
    case ops::Domain::kPositive:
      for (size_t k = 0; k < n; ++k) values[k] = 0.5 + 1.5 * random_open_uniform(stream, k);
      break;
    case ops::Domain::kUnit:
      for (size_t k = 0; k < n; ++k) values[k] = -0.9 + 1.8 * random_open_uniform(stream, k);
      break;
    case ops::Domain::kBool:
      for (size_t k = 0; k < n; ++k) values[k] = static_cast<double>(random_below(stream, k, 2));
      break;
    case ops::Domain::kIndex:
      for (size_t k = 0; k < n; ++k) {
        values[k] = static_cast<double>(random_below(stream, k, std::max<int64_t>(input.limit, 1)));
      }
      break;
  }
  if (is_integer(dtype) && input.domain != ops::Domain::kIndex) {
    for (auto& v : values) v = std::round(v * 10);
  }
  return tensor.cast(dtype);
}

ir::Graph make_graph(const OpCall& call, DType floating_dtype, bool keep_dtypes) {
  ir::Graph graph(call.name());
  std::vector<ir::Value> inputs;
  for (size_t i = 0; i < call.example.inputs.size(); ++i) {
    Type type = call.example.inputs[i].type;
    if (!keep_dtypes && is_floating(type.dtype)) type.dtype = floating_dtype;
    inputs.push_back(graph.add_input(ir::InputKind::kInput, fmt::format("in{}", i), type));
  }
  Attributes attributes = call.example.attributes;
  if (!keep_dtypes && attributes.has("dtype") && is_floating(attributes.get_dtype("dtype"))) {
    attributes.set("dtype", floating_dtype);
  }
  const auto results = ops::apply(graph, call.def->name, inputs, attributes);
  for (size_t i = 0; i < results.size(); ++i) graph.add_output(fmt::format("out{}", i), results[i]);
  return graph;
}

}  // namespace tessera::generated
