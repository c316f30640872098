// Laws that hold for every operator of the registry, on the examples of its definition, computed by the reference
// kernels: shapes are what infer says, gradients equal finite differences, and operators are linear where they say so.
// That every split gives the whole is the business of tests/laws.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tessera/base/error.h"
#include "tessera/kernels/registry.h"
#include "tessera/ops/registry/op_def.h"

namespace tessera::ops {
namespace {

// Runs a graph node by node. `inputs` in the order of the graph's inputs.
std::vector<Tensor> evaluate(const ir::Graph& graph, const std::vector<Tensor>& inputs,
                             const std::vector<Value>& results) {
  std::vector<Tensor> values(static_cast<size_t>(graph.num_values()));
  for (size_t i = 0; i < inputs.size(); ++i) values[static_cast<size_t>(graph.inputs()[i].value)] = inputs[i];
  const ParallelFor serial(1);
  for (ir::NodeId n = 0; n < graph.num_nodes(); ++n) {
    const ir::Node& node = graph.node(n);
    KernelRequest request{.op = node.op, .attributes = node.attributes};
    std::vector<TensorView> in;
    std::vector<TensorView> out;
    for (const auto v : node.inputs) {
      const Tensor& tensor = values[static_cast<size_t>(v)];
      EXPECT_EQ(tensor.type(), graph.type(v)) << graph.node_name(n);
      in.push_back(tensor.view());
    }
    for (const auto v : node.outputs) {
      // NaN (or true, or -1) where a kernel forgets to write.
      Tensor fresh(graph.type(v));
      for (std::byte& byte : fresh.bytes())
        byte = std::byte{graph.type(v).dtype == DType::kBool ? uint8_t{1} : uint8_t{255}};
      values[static_cast<size_t>(v)] = fresh;
      out.push_back(fresh.view());
    }
    request.inputs = in;
    request.outputs = out;
    const auto kernel = kernels::reference_kernels().find(request);
    if (!kernel) throw InvalidArgument("no reference kernel for {}", node.op);
    const Tensor scratch(DType::kU8, {kernel->scratch_bytes});
    kernel->run({in, out, node.attributes, scratch.bytes(), serial});
  }
  std::vector<Tensor> found;
  for (const Value& value : results) found.push_back(values[static_cast<size_t>(value.id())]);
  return found;
}

double fraction(double x) { return x - std::floor(x); }

// Elements of a domain; `salt` differs between the operands, so that no two elements of any are equal.
Tensor elements(const ExampleInput& input, int salt) {
  Tensor tensor(DType::kF64, input.type.shape);
  double i = 1 + 0.37 * salt;
  for (double& value : tensor.values<double>()) {
    const double u = fraction(i * 0.6180339887498949);
    const bool negative = fraction(i * 0.7548776662466927) < 0.5;
    switch (input.domain) {
      case Domain::kAny:
      case Domain::kOneInfinite: value = (0.1 + 1.8 * u) * (negative ? -1 : 1); break;
      case Domain::kPositive: value = 0.5 + 1.5 * u; break;
      case Domain::kUnit: value = (0.05 + 0.8 * u) * (negative ? -1 : 1); break;
      case Domain::kBool: value = negative ? 0 : 1; break;
      case Domain::kIndex: value = std::floor(u * static_cast<double>(input.limit)); break;
    }
    ++i;
  }
  if (input.domain == Domain::kOneInfinite && tensor.num_elements() > 0) {
    tensor.values<double>()[0] = std::numeric_limits<double>::infinity();
  }
  return tensor.cast(input.type.dtype);
}

std::vector<Tensor> elements_of(const Example& example) {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < example.inputs.size(); ++i)
    tensors.push_back(elements(example.inputs[i], static_cast<int>(i)));
  return tensors;
}

struct Call {
  ir::Graph graph;
  std::vector<Value> inputs;
  std::vector<Value> outputs;
};

void make_call(Call& call, const std::string& op, const std::vector<Tensor>& tensors, const Attributes& attributes) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    call.inputs.push_back(call.graph.add_input(ir::InputKind::kInput, fmt::format("x{}", i), tensors[i].type()));
  }
  call.outputs = apply(call.graph, op, call.inputs, attributes);
}

std::vector<Tensor> run(const std::string& op, const std::vector<Tensor>& tensors, const Attributes& attributes) {
  Call call;
  make_call(call, op, tensors, attributes);
  return evaluate(call.graph, tensors, call.outputs);
}

// Calls f(op, example) on every example, naming it in failures.
void for_each_example(const std::function<void(const OpDef&, const Example&)>& f) {
  for (const auto& [name, def] : OpRegistry::instance().all()) {
    for (const Example& example : def.examples) {
      std::string text = name;
      for (const auto& input : example.inputs) text += " " + input.type.to_string();
      SCOPED_TRACE(text + " " + example.attributes.to_string());
      try {
        f(def, example);
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
}

TEST(Laws, EveryOperatorButTheCollectivesHasExamplesAndAReferenceKernel) {
  for (const auto& [name, def] : OpRegistry::instance().all()) {
    EXPECT_EQ(def.examples.empty(), def.collective != nullptr) << name;
    EXPECT_FALSE(def.doc.empty()) << name;
  }
  for_each_example(
      [](const OpDef& def, const Example& example) { run(def.name, elements_of(example), example.attributes); });
}

TEST(Laws, ElementwiseOperatorsSayWhetherTheyComputeInF32) {
  for (const auto& [name, def] : OpRegistry::instance().all()) {
    if (!def.elementwise) continue;
    const bool says_so = def.doc.find(" In mixed precision it computes in f32.") != std::string::npos;
    EXPECT_EQ(says_so, def.precision == MixedPrecision::kWide) << name << ": " << def.doc;
  }
}

TEST(Laws, AttributesOfOneNameAreAllOfTheNetworkOrAllOfTheRun) {
  std::map<std::string, bool> is_of_network;
  for (const auto& [name, def] : OpRegistry::instance().all()) {
    for (const auto& attribute : def.attributes) {
      const auto [it, is_new] = is_of_network.emplace(attribute.name, attribute.is_of_network);
      EXPECT_EQ(it->second, attribute.is_of_network) << name << " " << attribute.name;
    }
  }
}

// Where the elements of a result stand in the operand, of an operator that only places them; nullopt for one that
// computes. The operand's elements ascend in steps of `step`, modulo their number.
std::optional<std::vector<size_t>> places_of(const Example& example, const std::string& op, size_t step) {
  std::vector<Tensor> tensors = elements_of(example);
  const auto count = static_cast<size_t>(tensors[0].num_elements());
  Tensor x(DType::kF64, tensors[0].shape());
  std::map<double, size_t> place_of;
  for (size_t i = 0; i < count; ++i) {
    const double value = (static_cast<double>(i * step % count) - static_cast<double>(count) / 3) * 1.25 + 0.1;
    x.values<double>()[i] = value;
    place_of[value] = i;
  }
  tensors[0] = x;
  std::vector<size_t> places;
  for (const double value : run(op, tensors, example.attributes)[0].to_doubles()) {
    if (!place_of.contains(value)) return std::nullopt;
    places.push_back(place_of.at(value));
  }
  return places;
}

// An operator whose results are elements of its operand in all examples, at places that depend on none of them, says
// so; and what it says is true.
TEST(Laws, OperatorsThatPlaceElementsSaySo) {
  std::map<std::string, bool> places_all;
  for_each_example([&](const OpDef& def, const Example& given) {
    if (def.collective != nullptr || def.inputs.size() != 1 || def.is_variadic() || given.inputs.size() != 1) return;
    if (!is_floating(given.inputs[0].type.dtype) || given.inputs[0].type.shape.num_elements() < 4) return;
    Example example = given;
    example.inputs[0].type.dtype = DType::kF64;
    // Rounding, and what else a change of the dtype does, is no placing.
    if (example.attributes.has("result_dtype")) return;
    if (example.attributes.has("dtype") && example.attributes.get_dtype("dtype") != DType::kF64) return;
    const auto places = places_of(example, def.name, 1);
    const auto count = static_cast<size_t>(example.inputs[0].type.shape.num_elements());
    // Another order of the same elements: a maximum comes from another place then.
    const bool is_placed = places && places == places_of(example, def.name, count - 1);
    places_all.try_emplace(def.name, true).first->second &= is_placed;
    if (def.elements != Elements::kKept && def.elements != Elements::kRelabelled) return;
    ASSERT_TRUE(is_placed);
    ASSERT_EQ(places->size(), count);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ((*places)[i], i);
  });
  for (const auto& [name, def] : OpRegistry::instance().all()) {
    const auto it = places_all.find(name);
    EXPECT_EQ(def.elements != Elements::kComputed, it != places_all.end() && it->second) << name;
  }
}

double loss_of(const std::string& op, const std::vector<Tensor>& tensors, const Attributes& attributes,
               const std::vector<Tensor>& weights) {
  const auto outputs = run(op, tensors, attributes);
  double sum = 0;
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (weights[o].num_elements() == 0) continue;
    const auto y = outputs[o].to_doubles();
    const auto w = weights[o].to_doubles();
    for (size_t i = 0; i < y.size(); ++i) sum += y[i] * w[i];
  }
  return sum;
}

TEST(Laws, GradientsEqualFiniteDifferences) {
  int checked = 0;
  for_each_example([&](const OpDef& def, const Example& given) {
    if (!def.gradient || !given.check_gradient) return;
    // In f64, where the operands allow it.
    Example example = given;
    bool floating = false;
    for (auto& input : example.inputs) {
      if (!is_floating(input.type.dtype)) continue;
      if (size_bytes(input.type.dtype) == 2) return;
      input.type.dtype = DType::kF64;
      floating = true;
    }
    if (!floating) return;
    auto tensors = elements_of(example);
    Call call;
    make_call(call, def.name, tensors, example.attributes);
    std::vector<Value> cotangents;
    std::vector<Tensor> weights;
    std::vector<Tensor> all_inputs = tensors;
    for (size_t o = 0; o < call.outputs.size(); ++o) {
      const Type type = call.outputs[o].type();
      if (!is_floating(type.dtype)) {
        cotangents.emplace_back();
        weights.emplace_back(DType::kF64, Shape{0});
        continue;
      }
      weights.push_back(elements({type, Domain::kAny}, 50 + static_cast<int>(o)));
      cotangents.push_back(call.graph.add_input(ir::InputKind::kInput, fmt::format("dy{}", o), type));
      all_inputs.push_back(weights.back());
    }
    const Attributes attributes = call.graph.node(0).attributes;
    const auto gradients = def.gradient({call.graph, attributes, call.inputs, call.outputs, cotangents});
    ASSERT_EQ(gradients.size(), tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (!gradients[i]) continue;
      ASSERT_EQ(gradients[i].type(), call.inputs[i].type());
      const auto computed = evaluate(call.graph, all_inputs, {gradients[i]})[0].to_doubles();
      auto changed = tensors;
      changed[i] = tensors[i].clone();
      const auto x = changed[i].values<double>();
      for (size_t e = 0; e < x.size(); ++e) {
        constexpr double kStep = 1e-5;
        const double at = x[e];
        x[e] = at + kStep;
        const double above = loss_of(def.name, changed, example.attributes, weights);
        x[e] = at - kStep;
        const double below = loss_of(def.name, changed, example.attributes, weights);
        x[e] = at;
        const double expected = (above - below) / (2 * kStep);
        EXPECT_NEAR(computed[e], expected, 1e-6 * (1 + std::abs(expected))) << "operand " << i << " element " << e;
        ++checked;
      }
    }
  });
  RecordProperty("checked", checked);
  EXPECT_GT(checked, 3000);
}

// f(x + z) = f(x) + f(z) in the operands of each set of linear_in, the others fixed.
TEST(Laws, OperatorsAreLinearInTheOperandsTheyName) {
  int checked = 0;
  for_each_example([&](const OpDef& def, const Example& example) {
    for (const auto& set : def.linear_in) {
      const auto x = elements_of(example);
      auto z = x;
      auto sum = x;
      bool exact = true;
      for (const int operand : set) {
        const auto i = static_cast<size_t>(operand);
        exact = exact && (x[i].dtype() == DType::kF64 || x[i].dtype() == DType::kF32);
        if (!exact) break;
        z[i] = elements(example.inputs[i], 70 + operand);
        auto values = x[i].to_doubles();
        const auto more = z[i].to_doubles();
        for (size_t e = 0; e < values.size(); ++e) values[e] += more[e];
        sum[i] = Tensor::of<double>(x[i].shape(), std::span<const double>(values)).cast(x[i].dtype());
      }
      if (!exact) continue;
      const auto of_x = run(def.name, x, example.attributes);
      const auto of_z = run(def.name, z, example.attributes);
      const auto of_sum = run(def.name, sum, example.attributes);
      for (size_t o = 0; o < of_x.size(); ++o) {
        if (size_bytes(of_x[o].dtype()) < 4) continue;  // rounded
        const auto a = of_x[o].to_doubles();
        const auto b = of_z[o].to_doubles();
        const auto c = of_sum[o].to_doubles();
        for (size_t e = 0; e < c.size(); ++e) {
          if (std::isnan(c[e])) continue;
          EXPECT_NEAR(a[e] + b[e], c[e], 1e-5 * (1 + std::abs(a[e]) + std::abs(b[e])))
              << "result " << o << " element " << e;
          ++checked;
        }
      }
    }
  });
  RecordProperty("checked", checked);
  EXPECT_GT(checked, 1000);
}

}  // namespace
}  // namespace tessera::ops
