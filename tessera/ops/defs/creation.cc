#include <cmath>

#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/rules/localize.h"
#include "tessera/ops/rules/random_stream.h"

namespace tessera::ops {
namespace {

using Gradients = std::vector<Value>;

Shape created_shape(const Attributes& attributes, const std::string& name = "shape") {
  const Shape shape = attributes.get_shape(name);
  for (const auto size : shape) {
    if (size < 0) throw InvalidArgument("{} {} must not have negative sizes", name, shape);
  }
  return shape;
}

std::vector<Type> infer_from_attributes(const Attributes& attributes, std::span<const Type>) {
  return {{attributes.get_dtype("dtype"), created_shape(attributes)}};
}

// Any dim of the result can be split; the operands, scalars, are replicated.
IndexRule result_rule(const Attributes&, std::span<const Type> inputs, std::span<const Type> outputs) {
  IndexRule rule;
  for (const auto& type : inputs) rule.inputs.emplace_back(static_cast<size_t>(type.shape.ndim()));
  for (const auto& type : outputs) rule.outputs.push_back(numbered_dims(type.shape.ndim()));
  return rule;
}

const AttributeDef kShape = of_run({"shape", std::nullopt, "of the result"});
const AttributeDef kDType = of_run({"dtype", std::nullopt, "of the result"});

// fill, constant, range, zeros_like, ones_like
// -------------------------------------------------------------------------

void add_fill(OpRegistry& registry) {
  OpDef fill{
      .name = "fill",
      .doc = "A tensor whose elements are all `value`, rounded to the dtype.",
      .attributes = {kShape, {"value", std::nullopt, "of every element"}, kDType},
      .infer =
          [](const Attributes& attributes, std::span<const Type> types) {
            attributes.get_double("value");
            return infer_from_attributes(attributes, types);
          },
      .rule = result_rule,
      .localize = [](const LocalizeContext& c) { return apply_with(c, "shape", ints_of(c.local_outputs[0].shape)); }};
  for (const DType dtype :
       {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8, DType::kBool}) {
    fill.examples.push_back({.attributes = {{"shape", Ints{7, 2}}, {"value", 1.0}, {"dtype", dtype}}});
  }
  fill.examples.push_back({.attributes = {{"shape", Ints{}}, {"value", -2.5}, {"dtype", DType::kF32}}});
  fill.examples.push_back({.attributes = {{"shape", Ints{0, 2}}, {"value", 1.0}, {"dtype", DType::kF32}}});
  registry.add(std::move(fill));
}

void add_constant(OpRegistry& registry) {
  OpDef constant{.name = "constant",
                 .doc = "A tensor with the given elements, row-major; for small ones. Integers must be below 2^53.",
                 .attributes = {kDType, kShape, {"values", std::nullopt, "the elements, row-major"}},
                 .infer =
                     [](const Attributes& attributes, std::span<const Type> types) {
                       auto results = infer_from_attributes(attributes, types);
                       const auto given = static_cast<int64_t>(attributes.get_doubles("values").size());
                       if (given != results[0].shape.num_elements()) {
                         throw InvalidArgument("{} has {} elements, {} values were given", results[0],
                                               results[0].shape.num_elements(), given);
                       }
                       return results;
                     },
                 .rule = result_rule,
                 .localize = [](const LocalizeContext& c) -> std::vector<Value> {
                   const Shape& local = c.local_outputs[0].shape;
                   const Strides strides = dense_strides(c.global_outputs[0].shape);
                   const Doubles& all = c.attributes.get_doubles("values");
                   Doubles mine;
                   for (int64_t i = 0; i < local.num_elements(); ++i) {
                     int64_t rest = i;
                     int64_t at = 0;
                     for (int d = local.ndim() - 1; d >= 0; --d) {
                       at += (c.output_slices[0][static_cast<size_t>(d)].offset + rest % local[d]) * strides[d];
                       rest /= local[d];
                     }
                     mine.push_back(all[static_cast<size_t>(at)]);
                   }
                   Attributes attributes = c.attributes;
                   attributes.set("shape", ints_of(local));
                   attributes.set("values", mine);
                   return apply(c.graph, c.op, {}, attributes);
                 }};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kI32, DType::kI64, DType::kU8}) {
    constant.examples.push_back(
        {.attributes = {{"dtype", dtype}, {"shape", Ints{3, 2}}, {"values", Doubles{1, 2, 3, 4, 5, 6}}}});
  }
  constant.examples.push_back({.attributes = {{"dtype", DType::kBool}, {"shape", Ints{2}}, {"values", Doubles{0, 1}}}});
  constant.examples.push_back({.attributes = {{"dtype", DType::kF32}, {"shape", Ints{}}, {"values", Doubles{0.1}}}});
  constant.examples.push_back({.attributes = {{"dtype", DType::kF32}, {"shape", Ints{0}}, {"values", Doubles{}}}});
  registry.add(std::move(constant));
}

void add_range(OpRegistry& registry) {
  OpDef range{.name = "range",
              .doc = "start, start + delta, ... before limit, in one dim; element i is start + i * delta.",
              .attributes = {of_run({"start", std::nullopt, "first element"}),
                             {"limit", std::nullopt, "the end, not included"},
                             {"delta", std::nullopt, "step, not 0"},
                             kDType},
              .infer = [](const Attributes& attributes, std::span<const Type>) -> std::vector<Type> {
                const double start = attributes.get_double("start");
                const double limit = attributes.get_double("limit");
                const double delta = attributes.get_double("delta");
                const Type type{attributes.get_dtype("dtype"), {}};
                require_kind(type, Kind::kNumeric, "the dtype");
                if (delta == 0 || !std::isfinite(start) || !std::isfinite(limit) || !std::isfinite(delta)) {
                  throw InvalidArgument("start {}, limit {} and delta {} must be finite and delta not 0", start, limit,
                                        delta);
                }
                const double n = std::ceil((limit - start) / delta);
                if (n >= 0x1p53) throw InvalidArgument("{} to {} by {} are too many elements", start, limit, delta);
                return {{type.dtype, {n > 0 ? static_cast<int64_t>(n) : 0}}};
              },
              .rule = result_rule,
              // A slice of the whole: a sequence that began elsewhere would round otherwise.
              .localize = [](const LocalizeContext& c) -> std::vector<Value> {
                const mesh::Range& held = c.output_slices[0][0];
                const Value whole = apply(c.graph, c.op, {}, c.attributes)[0];
                return {slice_along(whole, 0, held.offset, held.offset + held.size)};
              }};
  const auto range_example = [&](AttributeValue start, AttributeValue limit, AttributeValue delta, DType dtype) {
    range.examples.push_back({.attributes = {{"start", start}, {"limit", limit}, {"delta", delta}, {"dtype", dtype}}});
  };
  range_example(int64_t{0}, int64_t{7}, int64_t{1}, DType::kI32);
  range_example(int64_t{5}, int64_t{-2}, int64_t{-2}, DType::kI64);
  range_example(0.0, 1.0, 0.25, DType::kF32);
  range_example(0.0, 1.0, 0.3, DType::kF64);
  range_example(int64_t{3}, int64_t{3}, int64_t{1}, DType::kU8);
  registry.add(std::move(range));
}

void add_zeros_and_ones_like(OpRegistry& registry) {
  for (const auto& [name, doc] : {std::pair{"zeros_like", "Zeros of x's dtype and shape."},
                                  std::pair{"ones_like", "Ones of x's dtype and shape."}}) {
    OpDef def{
        .name = name,
        .doc = doc,
        .inputs = {"x"},
        .infer = [](const Attributes&, std::span<const Type> types) -> std::vector<Type> { return {types[0]}; },
        .rule = [](const Attributes&, std::span<const Type> inputs,
                   std::span<const Type> outputs) { return elementwise_rule(shapes_of(inputs), shapes_of(outputs)); }};
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64, DType::kBool}) {
      def.examples.push_back({.inputs = {{{dtype, {7, 2}}, Domain::kBool}}, .check_gradient = false});
    }
    def.examples.push_back({.inputs = {{{DType::kF32, {}}}}, .check_gradient = false});
    def.examples.push_back({.inputs = {{{DType::kF32, {0, 2}}}}, .check_gradient = false});
    registry.add(std::move(def));
  }
}

// Random -------------------------------------------------------------------------------------------------------------

void add_random(OpRegistry& registry, const char* name, const char* doc, std::vector<AttributeDef> parameters,
                const std::vector<Attributes>& parameter_examples) {
  OpDef def{.name = name,
            .doc = std::string(doc) +
                   " Element i is a function of (seed, stream, step, global index of i) alone: base/random.h.",
            .inputs = {"step"},
            .attributes = {kShape, kDType},
            .infer =
                [](const Attributes& attributes, std::span<const Type> types) {
                  auto results = infer_from_attributes(attributes, types);
                  require_kind(results[0], Kind::kFloating, "the result");
                  check_stream(attributes, types[0], results[0].shape);
                  return results;
                },
            .rule = result_rule,
            .flops = [](const Attributes&, std::span<const Type>,
                        std::span<const Type> outputs) { return 60 * count(outputs[0]); },
            .localize = [](const LocalizeContext& c) -> std::vector<Value> {
              Attributes attributes = c.attributes;
              attributes.set("shape", ints_of(c.local_outputs[0].shape));
              localize_stream(c, attributes);
              return apply(c.graph, c.op, c.inputs, attributes);
            }};
  for (auto& parameter : parameters) def.attributes.push_back(std::move(parameter));
  for (auto& attribute : stream_attributes()) def.attributes.push_back(std::move(attribute));
  for (const auto& [dtype, shape] :
       {std::pair{DType::kF32, Ints{7, 3}}, std::pair{DType::kF64, Ints{2, 3}}, std::pair{DType::kBF16, Ints{4}},
        std::pair{DType::kF32, Ints{}}, std::pair{DType::kF32, Ints{0, 2}}}) {
    for (Attributes attributes : parameter_examples) {
      attributes.set("shape", shape);
      attributes.set("dtype", dtype);
      attributes.set("seed", int64_t{42});
      attributes.set("stream", int64_t{-7});
      def.examples.push_back({.inputs = {{{DType::kI64, {}}, Domain::kIndex, 100}}, .attributes = attributes});
    }
  }
  registry.add(std::move(def));
}

void add_dropout(OpRegistry& registry) {
  OpDef def{.name = "dropout",
            .doc =
                "x / keep_prob where a uniform draw in [0, 1) is below keep_prob, else 0. The draw of an element is "
                "a function of (seed, stream, step, its global index) alone. Srivastava et al., JMLR 2014.",
            .inputs = {"x", "step"},
            .attributes = {{"keep_prob", std::nullopt, "in (0, 1]"}},
            .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
              require_kind(types[0], Kind::kFloating, "the operand");
              const double keep = attributes.get_double("keep_prob");
              if (!(keep > 0 && keep <= 1)) throw InvalidArgument("keep_prob must be in (0, 1], got {}", keep);
              check_stream(attributes, types[1], types[0].shape);
              return {types[0]};
            },
            .gradient = [](const GradientContext& c) -> Gradients {
              return {apply1("dropout", {c.cotangent(0), c.inputs[1]}, c.attributes), Value{}};
            },
            .rule =
                [](const Attributes&, std::span<const Type> inputs, std::span<const Type> outputs) {
                  IndexRule rule = matched_rule(inputs.first(1), outputs, {});
                  rule.inputs.emplace_back();
                  return rule;
                },
            .linear_in = {{0}},
            .flops = [](const Attributes&, std::span<const Type>,
                        std::span<const Type> outputs) { return 40 * count(outputs[0]); },
            .localize = [](const LocalizeContext& c) -> std::vector<Value> {
              Attributes attributes = c.attributes;
              localize_stream(c, attributes);
              return apply(c.graph, c.op, c.inputs, attributes);
            }};
  for (auto& attribute : stream_attributes()) def.attributes.push_back(std::move(attribute));
  const auto add = [&](DType dtype, const Shape& shape, double keep_prob) {
    def.examples.push_back({.inputs = {{{dtype, shape}}, {{DType::kI64, {}}, Domain::kIndex, 100}},
                            .attributes = {{"keep_prob", keep_prob}, {"seed", int64_t{3}}, {"stream", int64_t{99}}}});
  };
  add(DType::kF32, {7, 4}, 0.5);
  add(DType::kF64, {2, 3}, 0.9);
  add(DType::kBF16, {5}, 0.25);
  add(DType::kF32, {}, 1.0);
  add(DType::kF32, {0, 3}, 0.5);
  registry.add(std::move(def));
}

}  // namespace

void add_creation(OpRegistry& registry) {
  add_fill(registry);
  add_constant(registry);
  add_range(registry);
  add_zeros_and_ones_like(registry);
  add_random(registry, "random_uniform", "Uniform in (low, high), before rounding to the dtype.",
             {{"low", 0.0, "lower end"}, {"high", 1.0, "upper end"}}, {{}, {{"low", -0.5}, {"high", 2.0}}});
  add_random(registry, "random_normal", "Normal with the given mean and standard deviation, by inverse CDF.",
             {{"mean", 0.0, "mean"}, {"sigma", 1.0, "standard deviation"}}, {{}, {{"mean", 3.0}, {"sigma", 0.01}}});
  add_random(registry, "random_truncated_normal",
             "Normal with mean 0 and standard deviation sigma, conditioned on lying within 2 sigma, by inverse CDF.",
             {{"sigma", 1.0, "standard deviation before truncation"}}, {{{"sigma", 0.02}}});
  add_dropout(registry);
}

}  // namespace tessera::ops
