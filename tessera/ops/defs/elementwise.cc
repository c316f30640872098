#include <cmath>
#include <numbers>

#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"

namespace tessera::ops {
namespace {

using Gradients = std::vector<Value>;
using InferFunction = std::function<std::vector<Type>(const Attributes&, std::span<const Type>)>;

// Rough costs in simple operations, for the planner: a transcendental is a polynomial.
constexpr double kSimple = 1;
constexpr double kTranscendental = 10;

IndexRule broadcast_rule(const Attributes&, std::span<const Type> inputs, std::span<const Type> outputs) {
  return elementwise_rule(shapes_of(inputs), shapes_of(outputs));
}

Shape broadcast_all(std::span<const Type> types) {
  Shape shape = types[0].shape;
  for (const auto& type : types.subspan(1)) shape = broadcast_shapes(shape, type.shape);
  return shape;
}

// All operands of one dtype of that kind, broadcast; the result's dtype is theirs or bool.
InferFunction infer_broadcast(Kind kind, bool to_bool = false) {
  return [kind, to_bool](const Attributes&, std::span<const Type> types) -> std::vector<Type> {
    require_equal_dtypes(types);
    require_kind(types[0], kind, types.size() == 1 ? "the operand" : "the operands");
    return {{to_bool ? DType::kBool : types[0].dtype, broadcast_all(types)}};
  };
}

OpDef elementwise_def(std::string name, std::string doc, std::vector<std::string> inputs, InferFunction infer,
                      double cost) {
  return {.name = std::move(name),
          .doc = std::move(doc),
          .inputs = std::move(inputs),
          .infer = std::move(infer),
          .rule = broadcast_rule,
          .flops = [cost](const Attributes&, std::span<const Type>,
                          std::span<const Type> outputs) { return cost * count(outputs[0]); },
          .elementwise = true};
}

std::vector<DType> example_dtypes(Kind kind) {
  switch (kind) {
    case Kind::kBool: return {DType::kBool};
    case Kind::kFloating: return {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};
    case Kind::kNumeric:
      return {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32, DType::kI64, DType::kU8};
    default: return {DType::kF32, DType::kF16, DType::kI32, DType::kU8, DType::kBool};
  }
}

Domain domain_for(DType dtype, Domain floating) {
  return dtype == DType::kBool ? Domain::kBool : is_floating(dtype) ? floating : Domain::kIndex;
}

ExampleInput example_input(DType dtype, const Shape& shape, Domain floating) {
  return {{dtype, shape}, domain_for(dtype, floating), 7};
}

std::vector<Example> unary_examples(Kind kind, Domain domain, bool check_gradient) {
  std::vector<Example> examples;
  for (const DType dtype : example_dtypes(kind)) {
    examples.push_back({.inputs = {example_input(dtype, {2, 3}, domain)}, .check_gradient = check_gradient});
  }
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{2, 1, 3, 2}}) {
    examples.push_back(
        {.inputs = {example_input(example_dtypes(kind)[0], shape, domain)}, .check_gradient = check_gradient});
  }
  return examples;
}

std::vector<Example> binary_examples(Kind kind, Domain x, Domain y, bool check_gradient) {
  std::vector<Example> examples;
  const auto both = [&](DType dtype, const Shape& a, const Shape& b) {
    examples.push_back(
        {.inputs = {example_input(dtype, a, x), example_input(dtype, b, y)}, .check_gradient = check_gradient});
  };
  for (const DType dtype : example_dtypes(kind)) both(dtype, {2, 3}, {2, 3});
  const std::pair<Shape, Shape> shapes[] = {{{2, 3}, {3}},       {{2, 1}, {1, 3}}, {{}, {2, 2}},
                                            {{3, 2}, {}},        {{0, 3}, {1, 3}}, {{}, {}},
                                            {{2, 3, 4}, {3, 1}}, {{1}, {4, 2, 1}}, {{7, 2}, {7, 2}}};
  for (const auto& [a, b] : shapes) both(example_dtypes(kind)[0], a, b);
  return examples;
}

// Arithmetic ---------------------------------------------------------------------------------------------------------

struct Unary {
  const char* name;
  const char* doc;
  Kind kind;
  Domain domain;
  double cost;
  Value (*gradient)(Value x, Value y, Value dy);  // null: nothing flows back
  bool is_linear = false;
  MixedPrecision precision = MixedPrecision::kFollows;
  Elements elements = Elements::kComputed;
};

// A rounding error of the operand is one of many times its size in the result, or the result leaves f16's range.
constexpr MixedPrecision kLosesDigits = MixedPrecision::kWide;

// What an operator's text says of it, behind a sentence.
std::string precision_text(MixedPrecision precision) {
  return precision == MixedPrecision::kWide ? " In mixed precision it computes in f32." : "";
}

const Unary kUnaries[] = {
    {"neg", "-x.", Kind::kNumeric, Domain::kAny, kSimple, [](Value, Value, Value dy) { return -dy; }, true},
    {"abs", "The absolute value of x.", Kind::kNumeric, Domain::kAny, kSimple,
     [](Value x, Value, Value dy) { return dy * sign(x); }},
    {"sign", "-1, 0 or 1: the sign of x; NaN stays NaN.", Kind::kNumeric, Domain::kAny, kSimple, nullptr},
    {"stop_gradient", "x; no gradient flows back through it.", Kind::kAny, Domain::kAny, kSimple, nullptr, true,
     MixedPrecision::kFollows, Elements::kKept},
    {"square", "x * x.", Kind::kNumeric, Domain::kAny, kSimple, [](Value x, Value, Value dy) { return dy * x * 2.0; }},
    {"floor", "The largest whole number that is not above x.", Kind::kFloating, Domain::kAny, kSimple, nullptr},
    {"sqrt", "The square root of x; NaN below 0.", Kind::kFloating, Domain::kPositive, kTranscendental,
     [](Value, Value y, Value dy) { return dy * 0.5 / y; }},
    {"rsqrt", "1 / sqrt(x).", Kind::kFloating, Domain::kPositive, kTranscendental,
     [](Value, Value y, Value dy) { return dy * -0.5 * y * y * y; }, false, kLosesDigits},
    {"reciprocal", "1 / x.", Kind::kFloating, Domain::kPositive, kSimple,
     [](Value, Value y, Value dy) { return -dy * y * y; }, false, kLosesDigits},
    {"exp", "e to the power of x.", Kind::kFloating, Domain::kAny, kTranscendental,
     [](Value, Value y, Value dy) { return dy * y; }, false, kLosesDigits},
    {"log", "The natural logarithm of x; NaN below 0.", Kind::kFloating, Domain::kPositive, kTranscendental,
     [](Value x, Value, Value dy) { return dy / x; }, false, kLosesDigits},
    {"expm1", "e to the power of x, less 1: precise where x is small.", Kind::kFloating, Domain::kAny, kTranscendental,
     [](Value x, Value, Value dy) { return dy * exp(x); }, false, kLosesDigits},
    {"log1p", "The natural logarithm of 1 + x, precise where x is small; NaN below -1.", Kind::kFloating, Domain::kUnit,
     kTranscendental, [](Value x, Value, Value dy) { return dy / (x + 1.0); }, false, kLosesDigits},
    {"sinh", "The hyperbolic sine of x.", Kind::kFloating, Domain::kAny, kTranscendental,
     [](Value x, Value, Value dy) { return dy * cosh(x); }, false, kLosesDigits},
    {"cosh", "The hyperbolic cosine of x.", Kind::kFloating, Domain::kAny, kTranscendental,
     [](Value x, Value, Value dy) { return dy * sinh(x); }, false, kLosesDigits},
    {"asinh", "The inverse of sinh.", Kind::kFloating, Domain::kAny, kTranscendental,
     [](Value x, Value, Value dy) { return dy * rsqrt(square(x) + 1.0); }, false, kLosesDigits},
    {"atanh", "The inverse of tanh; infinite at -1 and 1, NaN beyond.", Kind::kFloating, Domain::kUnit, kTranscendental,
     [](Value x, Value, Value dy) { return dy / ((1.0 - x) * (x + 1.0)); }, false, kLosesDigits},
    {"sin", "The sine of x, in radians.", Kind::kFloating, Domain::kAny, kTranscendental,
     [](Value x, Value, Value dy) { return dy * cos(x); }},
    {"cos", "The cosine of x, in radians.", Kind::kFloating, Domain::kAny, kTranscendental,
     [](Value x, Value, Value dy) { return -dy * sin(x); }},
    {"relu", "max(x, 0); NaN stays NaN.", Kind::kFloating, Domain::kAny, kSimple,
     [](Value, Value y, Value dy) {
       return apply1("relu_grad", {dy, y});
     }},
    {"sigmoid", "1 / (1 + exp(-x)).", Kind::kFloating, Domain::kAny, kTranscendental,
     [](Value, Value y, Value dy) {
       return apply1("sigmoid_grad", {dy, y});
     }},
    {"tanh", "The hyperbolic tangent of x.", Kind::kFloating, Domain::kAny, kTranscendental,
     [](Value, Value y, Value dy) {
       return apply1("tanh_grad", {dy, y});
     }},
};

struct Binary {
  const char* name;
  const char* doc;
  Kind kind;
  Domain x_domain;
  Domain y_domain;
  double cost;
  std::vector<std::vector<int>> linear_in;
  // The cotangents before they are reduced to the operands' shapes.
  Gradients (*gradient)(Value x, Value y, Value out, Value dy);
  MixedPrecision precision = MixedPrecision::kFollows;
};

// The share of dy that goes to the operand for which `wins` holds; halves where they are equal.
Gradients extreme_gradient(Value x, Value y, Value dy, bool is_max) {
  const Value zero = scalar_like(dy, 0);
  const Value half = select(equal(x, y), dy * 0.5, zero);
  return {select(is_max ? x > y : x < y, dy, half), select(is_max ? y > x : y < x, dy, half)};
}

const Binary kBinaries[] = {
    {"add",
     "x + y.",
     Kind::kNumeric,
     Domain::kAny,
     Domain::kAny,
     kSimple,
     {{0, 1}},
     [](Value, Value, Value, Value dy) {
       return Gradients{dy, dy};
     }},
    {"sub",
     "x - y.",
     Kind::kNumeric,
     Domain::kAny,
     Domain::kAny,
     kSimple,
     {{0, 1}},
     [](Value, Value, Value, Value dy) {
       return Gradients{dy, -dy};
     }},
    {"mul",
     "x * y.",
     Kind::kNumeric,
     Domain::kAny,
     Domain::kAny,
     kSimple,
     {{0}, {1}},
     [](Value x, Value y, Value, Value dy) {
       return Gradients{dy * y, dy * x};
     }},
    {"div",
     "x / y.",
     Kind::kFloating,
     Domain::kAny,
     Domain::kPositive,
     kSimple,
     {{0}},
     [](Value, Value y, Value out, Value dy) {
       return Gradients{dy / y, -dy * out / y};
     }},
    {"maximum",
     "The larger of x and y; where they are equal each gets half of the gradient. NaN wins.",
     Kind::kNumeric,
     Domain::kAny,
     Domain::kAny,
     kSimple,
     {},
     [](Value x, Value y, Value, Value dy) { return extreme_gradient(x, y, dy, true); }},
    {"minimum",
     "The smaller of x and y; where they are equal each gets half of the gradient. NaN wins.",
     Kind::kNumeric,
     Domain::kAny,
     Domain::kAny,
     kSimple,
     {},
     [](Value x, Value y, Value, Value dy) { return extreme_gradient(x, y, dy, false); }},
    {"pow",
     "x to the power of y. Integers wrap around; a negative integer power of anything but 1 and -1 is 0. The gradient "
     "with respect to y is 0 where x is not positive.",
     Kind::kNumeric,
     Domain::kPositive,
     Domain::kAny,
     kTranscendental,
     {},
     [](Value x, Value y, Value out, Value dy) {
       const Value zero = scalar_like(dy, 0);
       const Value dx = select(equal(y, 0), zero, y * pow(x, y - 1.0));
       const Value log_x = log(select(x > 0.0, x, 1));
       return Gradients{dy * dx, dy * select(x > 0.0, out * log_x, zero)};
     },
     kLosesDigits},
};

void add_arithmetic(OpRegistry& registry) {
  for (const Unary& unary : kUnaries) {
    OpDef def = elementwise_def(unary.name, unary.doc + precision_text(unary.precision), {"x"},
                                infer_broadcast(unary.kind), unary.cost);
    if (unary.gradient != nullptr) {
      def.gradient = [gradient = unary.gradient](const GradientContext& c) -> Gradients {
        if (!is_floating(c.inputs[0].dtype())) return {Value{}};
        return {gradient(c.inputs[0], c.outputs[0], c.cotangent(0))};
      };
    }
    if (unary.is_linear) def.linear_in = {{0}};
    def.elements = unary.elements;
    def.precision = unary.precision;
    def.examples = unary_examples(unary.kind, unary.domain, unary.gradient != nullptr);
    registry.add(std::move(def));
  }
  for (const Binary& binary : kBinaries) {
    OpDef def = elementwise_def(binary.name, binary.doc + (" Operands broadcast." + precision_text(binary.precision)),
                                {"x", "y"}, infer_broadcast(binary.kind), binary.cost);
    def.linear_in = binary.linear_in;
    def.precision = binary.precision;
    def.gradient = [gradient = binary.gradient](const GradientContext& c) -> Gradients {
      if (!is_floating(c.inputs[0].dtype())) return {Value{}, Value{}};
      const auto full = gradient(c.inputs[0], c.inputs[1], c.outputs[0], c.cotangent(0));
      return {sum_to(full[0], c.inputs[0].shape()), sum_to(full[1], c.inputs[1].shape())};
    };
    def.examples = binary_examples(binary.kind, binary.x_domain, binary.y_domain, true);
    registry.add(std::move(def));
  }
}

// Activations with a gradient operator of their own ------------------------------------------------------------------

// The second derivative of gelu at x.
Value gelu_second_derivative(Value x, bool approximate) {
  const Value x2 = square(x);
  if (!approximate) {
    // gelu' = Phi + x phi, phi' = -x phi.
    return exp(x2 * -0.5) * (2.0 - x2) * (1 / std::sqrt(2 * std::numbers::pi));
  }
  // gelu = x/2 (1 + t), t = tanh u, u = c (x + a x^3).
  const double c = std::sqrt(2 / std::numbers::pi);
  constexpr double a = 0.044715;
  const Value t = tanh((x + x2 * x * a) * c);
  const Value slope = 1.0 - square(t);  // dt/du
  const Value du = (1.0 + x2 * (3 * a)) * c;
  const Value d2u = x * (6 * a * c);
  return slope * (du + x * 0.5 * (d2u - t * square(du) * 2.0));
}

void add_activations(OpRegistry& registry) {
  OpDef gelu_def = elementwise_def(
      "gelu",
      "x * Phi(x), Phi the standard normal distribution: with erf, or (approximate) 0.5 x (1 + tanh(sqrt(2/pi) "
      "(x + 0.044715 x^3))). Hendrycks and Gimpel, 2016.",
      {"x"}, infer_broadcast(Kind::kFloating), 2 * kTranscendental);
  gelu_def.attributes = {{"approximate", true, "the tanh form"}};
  gelu_def.gradient = [](const GradientContext& c) -> Gradients {
    return {apply1("gelu_grad", {c.cotangent(0), c.inputs[0]}, c.attributes)};
  };
  gelu_def.examples = unary_examples(Kind::kFloating, Domain::kAny, true);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    gelu_def.examples.push_back({.inputs = {{{dtype, {3, 2}}}}, .attributes = {{"approximate", false}}});
  }
  registry.add(std::move(gelu_def));

  // Gradient operators: linear in dy; both operands have the result's shape.
  const auto add_grad = [&](const char* name, const char* doc, const char* at, double cost, auto gradient,
                            std::vector<AttributeDef> attributes) {
    OpDef def = elementwise_def(name, doc, {"dy", at}, infer_broadcast(Kind::kFloating), cost);
    def.attributes = std::move(attributes);
    def.linear_in = {{0}};
    def.gradient = gradient;
    for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16}) {
      def.examples.push_back({.inputs = {{{dtype, {2, 3}}}, {{dtype, {2, 3}}, Domain::kUnit}}});
    }
    for (const Shape& shape : {Shape{}, Shape{0, 2}, Shape{7, 3}}) {
      def.examples.push_back({.inputs = {{{DType::kF32, shape}}, {{DType::kF32, shape}, Domain::kUnit}}});
    }
    registry.add(std::move(def));
  };
  add_grad("relu_grad", "dy where y = relu(x) is positive, else 0.", "y", kSimple,
           [](const GradientContext& c) -> Gradients {
             return {apply1("relu_grad", {c.cotangent(0), c.inputs[1]}), Value{}};
           },
           {});
  add_grad("sigmoid_grad", "dy * y * (1 - y) for y = sigmoid(x).", "y", 3 * kSimple,
           [](const GradientContext& c) -> Gradients {
             const Value g = c.cotangent(0);
             return {apply1("sigmoid_grad", {g, c.inputs[1]}), g * c.inputs[0] * (1.0 - c.inputs[1] * 2.0)};
           },
           {});
  add_grad("tanh_grad", "dy * (1 - y * y) for y = tanh(x).", "y", 3 * kSimple,
           [](const GradientContext& c) -> Gradients {
             const Value g = c.cotangent(0);
             return {apply1("tanh_grad", {g, c.inputs[1]}), g * c.inputs[0] * c.inputs[1] * -2.0};
           },
           {});
  add_grad("gelu_grad", "dy times the derivative of gelu at x.", "x", 2 * kTranscendental,
           [](const GradientContext& c) -> Gradients {
             const Value g = c.cotangent(0);
             const bool approximate = c.attributes.get_bool("approximate");
             return {apply1("gelu_grad", {g, c.inputs[1]}, c.attributes),
                     g * c.inputs[0] * gelu_second_derivative(c.inputs[1], approximate)};
           },
           {{"approximate", true, "the tanh form"}});
}

// Comparison, logic, select, cast ------------------------------------------------------------------------------------

void add_comparisons(OpRegistry& registry) {
  constexpr std::pair<const char*, const char*> kComparisons[] = {
      {"equal", "Whether x = y."},   {"not_equal", "Whether x and y differ."},
      {"less", "Whether x < y."},    {"less_equal", "Whether x <= y."},
      {"greater", "Whether x > y."}, {"greater_equal", "Whether x >= y."}};
  for (const auto& [name, doc] : kComparisons) {
    OpDef def = elementwise_def(name, std::string(doc) + " Operands broadcast; the result is bool.", {"x", "y"},
                                infer_broadcast(Kind::kCompute, /*to_bool=*/true), kSimple);
    def.examples = binary_examples(Kind::kCompute, Domain::kAny, Domain::kAny, false);
    registry.add(std::move(def));
  }
  constexpr std::pair<const char*, const char*> kLogic[] = {{"logical_and", "Whether both x and y hold."},
                                                            {"logical_or", "Whether x or y holds."},
                                                            {"logical_xor", "Whether exactly one of x and y holds."}};
  for (const auto& [name, doc] : kLogic) {
    OpDef def = elementwise_def(name, std::string(doc) + " Operands are bool and broadcast.", {"x", "y"},
                                infer_broadcast(Kind::kBool), kSimple);
    def.examples = binary_examples(Kind::kBool, Domain::kBool, Domain::kBool, false);
    registry.add(std::move(def));
  }
  OpDef logical_not_def =
      elementwise_def("logical_not", "Whether x (bool) does not hold.", {"x"}, infer_broadcast(Kind::kBool), kSimple);
  logical_not_def.examples = unary_examples(Kind::kBool, Domain::kBool, false);
  registry.add(std::move(logical_not_def));

  OpDef finite = elementwise_def("is_finite", "Whether x is neither infinite nor NaN; bool.", {"x"},
                                 infer_broadcast(Kind::kFloating, /*to_bool=*/true), kSimple);
  finite.examples = unary_examples(Kind::kFloating, Domain::kAny, false);
  registry.add(std::move(finite));
}

void add_select_and_cast(OpRegistry& registry) {
  OpDef select_def = elementwise_def(
      "select", "x where condition (bool) holds, else y. The three broadcast.", {"condition", "x", "y"},
      [](const Attributes&, std::span<const Type> types) -> std::vector<Type> {
        require_kind(types[0], Kind::kBool, "the condition");
        require_equal_dtypes(types.subspan(1));
        require_kind(types[1], Kind::kCompute, "the operands");
        return {{types[1].dtype, broadcast_all(types)}};
      },
      kSimple);
  select_def.linear_in = {{1, 2}};
  select_def.gradient = [](const GradientContext& c) -> Gradients {
    if (!is_floating(c.inputs[1].dtype())) return {Value{}, Value{}, Value{}};
    const Value dy = c.cotangent(0);
    return {Value{}, sum_to(select(c.inputs[0], dy, 0), c.inputs[1].shape()),
            sum_to(select(c.inputs[0], 0, dy), c.inputs[2].shape())};
  };
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kBool}) {
    select_def.examples.push_back({.inputs = {{{DType::kBool, {2, 3}}, Domain::kBool},
                                              example_input(dtype, {2, 3}, Domain::kAny),
                                              example_input(dtype, {2, 3}, Domain::kAny)}});
  }
  select_def.examples.push_back(
      {.inputs = {{{DType::kBool, {3}}, Domain::kBool}, {{DType::kF32, {2, 1}}}, {{DType::kF32, {}}}}});
  select_def.examples.push_back(
      {.inputs = {{{DType::kBool, {2, 1}}, Domain::kBool}, {{DType::kF32, {2, 0}}}, {{DType::kF32, {}}}}});
  registry.add(std::move(select_def));

  OpDef cast_def = elementwise_def(
      "cast",
      "x in another dtype, storage-only ones included. To a narrower floating dtype: the nearest, ties to even. To an "
      "integer: towards zero, saturating, NaN becomes 0. To bool: whether it is not 0.",
      {"x"},
      [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
        return {{attributes.get_dtype("dtype"), types[0].shape}};
      },
      kSimple);
  cast_def.attributes = {of_run({"dtype", std::nullopt, "of the result"})};
  // Linear only from a floating dtype to one at least as wide, which linear_in cannot say: rounding a sum is not the
  // sum of the rounded. A partial value is completed before any cast.
  cast_def.gradient = [](const GradientContext& c) -> Gradients {
    if (!is_floating(c.inputs[0].dtype()) || !is_floating(c.outputs[0].dtype())) return {Value{}};
    return {cast_to(c.cotangent(0), c.inputs[0].dtype())};
  };
  const auto cast_example = [&](DType from, DType to, const Shape& shape, bool check_gradient) {
    cast_def.examples.push_back({.inputs = {example_input(from, shape, Domain::kAny)},
                                 .attributes = {{"dtype", to}},
                                 .check_gradient = check_gradient});
  };
  cast_example(DType::kF32, DType::kF64, {2, 3}, true);
  cast_example(DType::kF64, DType::kF64, {7, 3}, true);
  for (const DType to : {DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8, DType::kBool, DType::kI8}) {
    cast_example(DType::kF32, to, {2, 3}, false);
    cast_example(to, DType::kF32, {2, 3}, false);
  }
  cast_example(DType::kBF16, DType::kF16, {}, false);
  cast_example(DType::kI32, DType::kF32, {0, 2}, false);
  cast_def.elements = Elements::kKept;
  registry.add(std::move(cast_def));
}

}  // namespace

void add_elementwise(OpRegistry& registry) {
  add_arithmetic(registry);
  add_activations(registry);
  add_comparisons(registry);
  add_select_and_cast(registry);
}

}  // namespace tessera::ops
