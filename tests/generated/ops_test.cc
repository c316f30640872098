// Tests made from the operator registry: for every example of every operator, the gradient against finite differences
// in float64, and the fast kernels against the reference ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "tessera/base/error.h"
#include "tessera/base/random.h"
#include "tessera/compiler/autodiff.h"
#include "tessera/session/session.h"
#include "tests/generated/op_examples.h"

namespace tessera::generated {
namespace {

using ir::Value;

bool is_checked(const ops::ExampleInput& input) {
  return is_floating(input.type.dtype) && input.domain != ops::Domain::kBool && input.domain != ops::Domain::kIndex &&
         input.type.shape.num_elements() > 0;
}

// loss = sum over results of sum(result * weight), with the gradients of all checked inputs as further results.
struct GradientGraph {
  ir::Graph graph;
  std::vector<size_t> wrt;
};

GradientGraph make_gradient_graph(const OpCall& call) {
  GradientGraph made{make_graph(call, DType::kF64, false), {}};
  ir::Graph& graph = made.graph;
  Value loss;
  const auto outputs = graph.outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Value result = graph.value(outputs[i].value);
    if (!is_floating(result.dtype())) continue;
    const Value weight = graph.add_input(ir::InputKind::kInput, fmt::format("weight{}", i), result.type());
    Value product = ops::apply1("mul", {result, weight});
    Ints axes;
    for (int axis = 0; axis < result.ndim(); ++axis) axes.push_back(axis);
    product = ops::apply1("reduce_sum", {product}, {{"axes", axes}});
    loss = loss ? ops::apply1("add", {loss, product}) : product;
  }
  if (!loss) return made;
  std::vector<Value> wrt;
  for (size_t i = 0; i < call.example.inputs.size(); ++i) {
    if (!is_checked(call.example.inputs[i])) continue;
    made.wrt.push_back(i);
    wrt.push_back(graph.value(graph.find_input(fmt::format("in{}", i))->value));
  }
  const auto gradients = compiler::gradients(loss, wrt);
  graph.clear_outputs();
  graph.add_output("value", loss);
  for (size_t k = 0; k < gradients.size(); ++k) graph.add_output(fmt::format("grad{}", made.wrt[k]), gradients[k]);
  return made;
}

class Gradient : public testing::TestWithParam<OpCall> {};

TEST_P(Gradient, EqualsFiniteDifferences) {
  const OpCall& call = GetParam();
  const auto made = make_gradient_graph(call);
  const auto context = cluster::single_context(1);
  session::Session session(*context, {.reference_kernels = true, .arena_capacity_bytes = int64_t{1} << 30});
  const auto executable = session.compile_local(made.graph);
  const auto set = [&](const std::string& name, const Tensor& value) {
    copy_elements(value.view(), executable->input(name));
  };
  std::vector<Tensor> inputs;
  const auto write_all = [&] {
    for (size_t i = 0; i < inputs.size(); ++i) set(fmt::format("in{}", i), inputs[i]);
    for (const auto& input : made.graph.inputs()) {
      if (!input.name.starts_with("weight")) continue;
      Tensor weight(made.graph.type(input.value));
      const auto values = weight.values<double>();
      for (size_t k = 0; k < values.size(); ++k) {
        values[k] = random_normal({.seed = 5, .stream = hash_name(input.name + call.name())}, k);
      }
      set(input.name, weight);
    }
  };
  for (size_t i = 0; i < call.example.inputs.size(); ++i) {
    const DType dtype = call.example.inputs[i].type.dtype;
    inputs.push_back(make_input(call, i, is_floating(dtype) ? DType::kF64 : dtype));
  }
  const auto value = [&] {
    write_all();
    executable->run();
    return Tensor::copy_of(executable->output("value")).item();
  };
  value();
  std::vector<Tensor> gradients;
  for (const size_t i : made.wrt) gradients.push_back(Tensor::copy_of(executable->output(fmt::format("grad{}", i))));

  constexpr double kStep = 1e-5;
  for (size_t k = 0; k < made.wrt.size(); ++k) {
    Tensor& input = inputs[made.wrt[k]];
    const auto elements = input.values<double>();
    const auto gradient = gradients[k].values<double>();
    // Each element where there are few, else 40 of them, spread.
    const size_t stride = std::max<size_t>(elements.size() / 40, 1);
    for (size_t e = 0; e < elements.size(); e += stride) {
      const double before = elements[e];
      elements[e] = before + kStep;
      const double above = value();
      elements[e] = before - kStep;
      const double below = value();
      elements[e] = before;
      const double expected = (above - below) / (2 * kStep);
      ASSERT_NEAR(gradient[e], expected, 2e-5 * std::max({1.0, std::abs(expected), std::abs(above)}))
          << call.name() << " input " << made.wrt[k] << " element " << e << "\n"
          << ir::print(made.graph);
    }
  }
}

std::vector<OpCall> differentiable_calls() {
  std::vector<OpCall> calls;
  for (const auto& call : all_calls()) {
    const auto& inputs = call.example.inputs;
    const bool varies = std::any_of(inputs.begin(), inputs.end(), is_checked);
    if (call.def->gradient && call.example.check_gradient && varies) calls.push_back(call);
  }
  return calls;
}

class Kernels : public testing::TestWithParam<OpCall> {};

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 1e-11;
    case DType::kF32: return 2e-5;
    case DType::kF16: return 4e-3;
    case DType::kBF16: return 3e-2;
    default: return 0;
  }
}

TEST_P(Kernels, FastOnesAgreeWithTheReference) {
  const OpCall& call = GetParam();
  const auto graph = make_graph(call, DType::kF32, true);
  std::map<std::string, Tensor> inputs;
  for (size_t i = 0; i < call.example.inputs.size(); ++i) {
    inputs[fmt::format("in{}", i)] = make_input(call, i, call.example.inputs[i].type.dtype);
  }
  const auto reference = session::evaluate(graph, inputs, {.reference_kernels = true});
  const auto debug = session::evaluate(graph, inputs, {.debug = true, .num_threads = 1});
  for (const int threads : {1, 3}) {
    const auto fast = session::evaluate(graph, inputs, {.num_threads = threads});
    for (const auto& [name, expected] : reference) {
      const Tensor& actual = fast.at(name);
      ASSERT_EQ(actual.type().to_string(), expected.type().to_string());
      if (threads == 1) {
        EXPECT_TRUE(bit_equal(actual, debug.at(name))) << "in shared memory differs from memory of its own: " << name;
      }
      const auto a = actual.to_doubles();
      const auto e = expected.to_doubles();
      double scale = 1;
      for (const double x : e) {
        if (std::isfinite(x)) scale = std::max(scale, std::abs(x));
      }
      for (size_t k = 0; k < e.size(); ++k) {
        if (std::isnan(e[k])) {
          ASSERT_TRUE(std::isnan(a[k])) << call.name() << " " << name << "[" << k << "]";
        } else if (std::isinf(e[k])) {
          ASSERT_EQ(a[k], e[k]) << call.name() << " " << name << "[" << k << "]";
        } else {
          ASSERT_NEAR(a[k], e[k], tolerance_of(expected.dtype()) * scale)
              << call.name() << " " << name << "[" << k << "]";
        }
      }
    }
  }
}

TEST(Registry, EveryOperatorHasDocumentationExamplesAndARoundTrippingText) {
  int operators = 0;
  for (const auto& [name, def] : ops::OpRegistry::instance().all()) {
    ++operators;
    EXPECT_FALSE(def.doc.empty()) << name;
    if (def.collective) continue;
    EXPECT_FALSE(def.examples.empty()) << name;
  }
  for (const auto& call : all_calls()) {
    const auto text = ir::print(make_graph(call, DType::kF32, true));
    EXPECT_EQ(ir::print(ir::parse(text)), text);
  }
  std::cout << operators << " operators, " << all_calls().size() << " examples, " << differentiable_calls().size()
            << " gradient checks\n";
}

const auto kName = [](const auto& info) { return info.param.name(); };
INSTANTIATE_TEST_SUITE_P(All, Gradient, testing::ValuesIn(differentiable_calls()), kName);
INSTANTIATE_TEST_SUITE_P(All, Kernels, testing::ValuesIn(all_calls()), kName);

}  // namespace
}  // namespace tessera::generated
