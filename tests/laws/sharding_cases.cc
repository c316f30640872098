#include "tests/laws/sharding_cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/compiler/autodiff.h"
#include "tests/generated/op_examples.h"

namespace tessera::laws {
namespace {

using compiler::FactorAxes;
using ir::Graph;
using ir::Value;
using ops::Example;
using ops::IndexRule;
using ops::OpDef;

// Of each example on each mesh.
constexpr int kPropagatedCases = 12;

// A call as shape inference sees it; nullopt where it is refused.
struct InferredCall {
  Attributes attributes;
  std::vector<Type> inputs;
  std::vector<Type> outputs;
  IndexRule rule;
};

std::optional<InferredCall> infer(const OpDef& def, const Example& example) {
  InferredCall call;
  for (const auto& input : example.inputs) call.inputs.push_back(input.type);
  try {
    call.attributes = ops::complete_attributes(def, example.attributes);
    call.outputs = def.infer(call.attributes, call.inputs);
    call.rule = ops::rule_of(def, call.attributes, call.inputs, call.outputs);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
  return call;
}

std::string signature(const OpDef& def, const Example& example) {
  std::string text = def.name;
  for (const auto& input : example.inputs) text += " " + input.type.to_string();
  if (!example.attributes.empty()) text += " " + example.attributes.to_string();
  return text;
}

Example in_f64(const OpDef& def, const Example& given) {
  Example example = given;
  for (auto& input : example.inputs) {
    if (is_floating(input.type.dtype)) input.type.dtype = DType::kF64;
  }
  if (example.attributes.has("dtype") && is_floating(example.attributes.get_dtype("dtype"))) {
    example.attributes.set("dtype", DType::kF64);
  }
  return infer(def, example) ? example : given;
}

std::vector<std::string> factors_of(const IndexRule& rule) {
  std::set<std::string> factors;
  for (const auto* side : {&rule.inputs, &rule.outputs}) {
    for (const auto& dims : *side) factors.insert(dims.begin(), dims.end());
  }
  factors.erase("");
  return {factors.begin(), factors.end()};
}

// Attributes that state a size of a dim with this factor (a shape, the end of a slice) state the new one.
Attributes with_size(const InferredCall& call, const Attributes& given, const std::string& factor, int64_t size) {
  Attributes attributes = given;
  const auto restate = [&](const IndexRule::Dims& dims, const Shape& shape) {
    for (const auto& [name, value] : Attributes(attributes)) {
      const auto* ints = std::get_if<Ints>(&value);
      if (ints == nullptr || ints->size() != dims.size()) continue;
      Ints changed = *ints;
      for (size_t dim = 0; dim < dims.size(); ++dim) {
        if (dims[dim] == factor && changed[dim] == shape[static_cast<int>(dim)]) changed[dim] = size;
      }
      attributes.set(name, changed);
    }
  };
  if (!call.outputs.empty()) restate(call.rule.outputs[0], call.outputs[0].shape);
  if (!call.inputs.empty()) restate(call.rule.inputs[0], call.inputs[0].shape);
  return attributes;
}

// The example with all dims of a factor of that size, if it is still one and larger than before: indices stay valid.
std::optional<Example> scaled(const OpDef& def, const Example& example, const std::string& factor, int64_t size) {
  const auto call = infer(def, example);
  if (!call) return std::nullopt;
  Example larger = example;
  const auto grows = [&](const std::vector<IndexRule::Dims>& rule, const std::vector<Type>& types) {
    for (size_t i = 0; i < rule.size(); ++i) {
      for (size_t dim = 0; dim < rule[i].size(); ++dim) {
        if (rule[i][dim] == factor && types[i].shape[static_cast<int>(dim)] >= size) return false;
      }
    }
    return true;
  };
  if (!grows(call->rule.inputs, call->inputs) || !grows(call->rule.outputs, call->outputs)) return std::nullopt;
  for (size_t i = 0; i < larger.inputs.size(); ++i) {
    for (size_t dim = 0; dim < call->rule.inputs[i].size(); ++dim) {
      if (call->rule.inputs[i][dim] == factor) larger.inputs[i].type.shape[static_cast<int>(dim)] = size;
    }
  }
  for (const bool restate : {true, false}) {
    larger.attributes = restate ? with_size(*call, example.attributes, factor, size) : example.attributes;
    const auto inferred = infer(def, larger);
    if (inferred && inferred->rule.to_string() == call->rule.to_string()) return larger;
  }
  return std::nullopt;
}

// Sums that are rounded once, whatever the parts: their examples in half types are cases as well.
bool sums_once(const OpDef& def) {
  static const std::set<std::string> names = {"batch_matmul",       "bias_add", "conv2d", "conv2d_grad_input",
                                              "conv2d_grad_weight", "gather",   "matmul", "reduce_mean",
                                              "reduce_sum"};
  return names.contains(def.name);
}

bool has_half(const Example& example) {
  return std::any_of(example.inputs.begin(), example.inputs.end(), [](const ops::ExampleInput& input) {
    return is_floating(input.type.dtype) && size_bytes(input.type.dtype) == 2;
  });
}

// Where two elements are equal, the gradient goes to both or to the first: so it must across ranks. That of a product
// counts zeros.
bool may_tie(const OpDef& def) {
  for (const char* word : {"max", "min", "top_k", "prod"}) {
    if (def.name.find(word) != std::string::npos && def.name.find("soft") == std::string::npos) return true;
  }
  return false;
}

std::vector<Example> examples_of(const OpDef& def) {
  std::vector<Example> examples;
  std::set<std::string> known;
  const auto add = [&](const Example& example) {
    std::string key = signature(def, example);
    for (const auto& input : example.inputs) key += fmt::format(" {}", input.limit);
    if (known.insert(key).second) examples.push_back(example);
  };
  // The same with integers below the limit for the floating operands that `which` names.
  const auto add_twin = [&](const Example& example, int64_t limit, const std::function<bool(size_t)>& which) {
    Example twin = example;
    for (size_t i = 0; i < twin.inputs.size(); ++i) {
      if (!is_floating(twin.inputs[i].type.dtype) || !which(i)) continue;
      twin.inputs[i] = {.type = twin.inputs[i].type, .domain = ops::Domain::kIndex, .limit = limit};
    }
    add(twin);
  };
  for (const auto& given : def.examples) {
    if (!given.attributes.has("result_dtype")) add(in_f64(def, given));
    if (sums_once(def) && has_half(given)) add(given);
  }
  for (const Example& example : std::vector<Example>(examples)) {
    if (may_tie(def)) add_twin(example, 3, [](size_t) { return true; });
    // An optimizer whose first step lies behind it.
    add_twin(example, 1, [&](size_t i) { return i < def.inputs.size() && def.inputs[i] == "first"; });
  }
  constexpr std::array<int64_t, 3> kSizes = {5, 6, 8};
  const std::vector<Example> base = examples;
  for (const auto& example : base) {
    const auto call = infer(def, example);
    if (!call) continue;
    const auto factors = factors_of(call->rule);
    for (size_t turn = 0; turn < kSizes.size(); ++turn) {
      Example larger = example;
      for (size_t f = 0; f < factors.size(); ++f) {
        if (auto next = scaled(def, larger, factors[f], kSizes[(f + turn) % kSizes.size()])) larger = std::move(*next);
      }
      add(larger);
    }
  }
  return examples;
}

// Adds the gradients of sum(weights * results) with respect to every floating operand.
void add_gradients(Graph& graph, const OpDef& def) {
  if (!def.gradient) return;
  std::vector<Value> wrt;
  for (const auto& input : graph.inputs()) {
    if (is_floating(graph.type(input.value).dtype)) wrt.push_back(graph.value(input.value));
  }
  if (wrt.empty()) return;
  Value loss;
  for (const auto& output : std::vector<ir::Output>(graph.outputs())) {
    const Value result = graph.value(output.value);
    if (!is_floating(result.dtype())) continue;
    const Value weight = graph.add_input(ir::InputKind::kInput, "weight_of_" + output.name, result.type());
    Ints axes;
    for (int axis = 0; axis < result.ndim(); ++axis) axes.push_back(axis);
    const Value sum = ops::apply1("reduce_sum", {ops::apply1("mul", {result, weight})}, {{"axes", axes}});
    loss = loss ? ops::apply1("add", {loss, sum}) : sum;
  }
  if (!loss) return;
  // In half types its terms are rounded one by one.
  if (size_bytes(loss.dtype()) > 2) graph.add_output("loss", loss);
  const auto gradients = compiler::gradients(loss, wrt);
  for (size_t i = 0; i < wrt.size(); ++i) {
    graph.add_output("gradient_of_" + graph.value_name(wrt[i].id()), gradients[i]);
  }
}

// No example has such elements, and they are all that is_finite is about.
void add_non_finite(Tensor& tensor) {
  if (tensor.dtype() != DType::kF64 || tensor.num_elements() < 3) return;
  tensor.values<double>().front() = INFINITY;
  tensor.values<double>().back() = NAN;
}

std::string name_of(const mesh::Mesh& mesh, const FactorAxes& factors) {
  std::string text;
  for (const auto& [factor, axes] : factors) {
    text += fmt::format("{}{}:", text.empty() ? "" : " ", factor);
    for (const int axis : axes) text += mesh.axis(axis).name;
  }
  return text.empty() ? "nothing split" : text;
}

// All assignments on one mesh, kept for the program's life: many operators have equal factors.
const std::vector<FactorAxes>& kept_assignments(const std::vector<std::string>& factors, const mesh::Mesh& mesh) {
  static std::map<std::pair<std::vector<std::string>, std::string>, std::vector<FactorAxes>> kept;
  const auto [it, is_new] = kept.try_emplace({factors, mesh.to_string()});
  if (is_new) it->second = factor_assignments(factors, mesh);
  return it->second;
}

template <typename T>
void shuffle(std::vector<T>& items, const RandomStream& stream) {
  for (size_t k = items.size(); k > 1; --k) {
    std::swap(items[k - 1], items[static_cast<size_t>(random_below(stream, k, static_cast<int64_t>(k)))]);
  }
}

}  // namespace

std::vector<LawExample> law_examples(const OpDef& def) {
  std::vector<LawExample> examples;
  for (const auto& example : examples_of(def)) {
    const generated::OpCall call{&def, example, static_cast<int>(examples.size())};
    LawExample& made = examples.emplace_back();
    made.name = signature(def, example);
    made.graph = generated::make_graph(call, DType::kF64, true);
    const auto inferred = infer(def, example);
    check(inferred.has_value(), "an example is accepted");
    made.rule = inferred->rule;
    made.factors = factors_of(made.rule);
    for (size_t i = 0; i < example.inputs.size(); ++i) {
      made.inputs[fmt::format("in{}", i)] = generated::make_input(call, i, example.inputs[i].type.dtype);
    }
    if (def.name == "is_finite") add_non_finite(made.inputs.at("in0"));
    try {
      Graph with_gradients = made.graph;
      add_gradients(with_gradients, def);
      made.graph = std::move(with_gradients);
    } catch (const InvalidArgument&) {
      // No second derivatives of a gradient operator: its results alone are compared.
    }
    for (const auto& input : made.graph.inputs()) {
      if (made.inputs.contains(input.name)) continue;
      Tensor weight(DType::kF64, made.graph.type(input.value).shape);
      const RandomStream stream{.seed = 5, .stream = hash_name(made.name + input.name)};
      uint64_t draw = 0;
      for (double& value : weight.values<double>()) value = random_normal(stream, draw++);
      made.inputs[input.name] = weight.cast(made.graph.type(input.value).dtype);
    }
    made.expected = testing_support::run_alone(made.graph, made.inputs);
  }
  return examples;
}

const std::vector<mesh::Mesh>& law_meshes() {
  static const std::vector<mesh::Mesh> meshes = [] {
    std::vector<mesh::Mesh> made;
    const std::array<const char*, 3> names = {"a", "b", "c"};
    for (const auto& sizes : std::vector<std::vector<int>>{{2}, {3}, {4}, {2, 2}, {2, 3}, {2, 2, 2}}) {
      std::vector<mesh::Axis> axes;
      for (size_t axis = 0; axis < sizes.size(); ++axis) axes.push_back({names[axis], sizes[axis]});
      made.emplace_back(axes);
    }
    return made;
  }();
  return meshes;
}

std::vector<FactorAxes> factor_assignments(const std::vector<std::string>& factors, const mesh::Mesh& mesh) {
  std::vector<FactorAxes> all = {{}};
  for (int axis = 0; axis < mesh.num_axes(); ++axis) {
    std::vector<FactorAxes> extended;
    for (const auto& given : all) {
      extended.push_back(given);
      for (const auto& factor : factors) {
        // At every depth among the axes that the factor has already.
        const auto it = given.find(factor);
        const size_t depths = it == given.end() ? 1 : it->second.size() + 1;
        for (size_t depth = 0; depth < depths; ++depth) {
          FactorAxes& next = extended.emplace_back(given);
          auto& axes = next[factor];
          axes.insert(axes.begin() + static_cast<std::ptrdiff_t>(depth), axis);
        }
      }
    }
    all = std::move(extended);
  }
  return all;
}

std::string ShardingCase::name() const {
  auto text = fmt::format("{} by {} on {}, ", example->name, example->rule.to_string(), mesh->to_string());
  switch (arrival) {
    case Arrival::kFitting: return text + name_of(*mesh, *factors) + ", inputs fitting";
    case Arrival::kDrawn: return text + fmt::format("{}, inputs drawn from {}", name_of(*mesh, *factors), seed);
    case Arrival::kPropagated: return text + fmt::format("following inputs drawn from {}", seed);
  }
  return text;
}

std::vector<OperatorCases> all_sharding_cases(uint64_t seed) {
  std::vector<OperatorCases> operators;
  for (const auto& [name, def] : ops::OpRegistry::instance().all()) {
    if (def.collective) continue;
    auto& made = operators.emplace_back();
    made.op = name;
    made.examples = law_examples(def);
    for (const LawExample& example : made.examples) {
      for (const auto& mesh : law_meshes()) {
        const auto& assignments = kept_assignments(example.factors, mesh);
        for (const FactorAxes& factors : assignments) {
          made.cases.push_back({&example, &mesh, &factors, Arrival::kFitting, 0});
          if (example.inputs.empty()) continue;
          made.cases.push_back({&example, &mesh, &factors, Arrival::kDrawn, seed + made.cases.size()});
        }
        for (int drawn = 0; drawn < kPropagatedCases && !example.inputs.empty(); ++drawn) {
          made.cases.push_back({&example, &mesh, assignments.data(), Arrival::kPropagated, seed + made.cases.size()});
        }
      }
    }
  }
  return operators;
}

void keep_sample(std::vector<OperatorCases>& operators, size_t count, uint64_t seed) {
  for (auto& each : operators) {
    shuffle(each.cases, {.seed = seed, .stream = hash_name(each.op)});
    // One case of each example in turn: an example with few cases (a scalar, say) takes no place from the others.
    std::map<const LawExample*, size_t> seen;
    std::vector<std::pair<size_t, ShardingCase>> turns;
    for (const ShardingCase& c : each.cases) turns.emplace_back(seen[c.example]++, c);
    std::stable_sort(turns.begin(), turns.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (size_t i = 0; i < turns.size(); ++i) each.cases[i] = turns[i].second;
  }
  std::vector<size_t> kept(operators.size());
  size_t total = 0;
  for (bool grew = true; grew && total < count;) {
    grew = false;
    for (size_t i = 0; i < operators.size() && total < count; ++i) {
      if (kept[i] == operators[i].cases.size()) continue;
      ++kept[i];
      ++total;
      grew = true;
    }
  }
  for (size_t i = 0; i < operators.size(); ++i) operators[i].cases.resize(kept[i]);
}

}  // namespace tessera::laws
