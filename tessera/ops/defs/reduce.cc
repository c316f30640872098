#include <algorithm>

#include "tessera/ops/functions/elementwise_functions.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/gradient_helpers.h"
#include "tessera/ops/registry/infer_helpers.h"
#include "tessera/ops/rules/localize.h"

namespace tessera::ops {
namespace {

using Gradients = std::vector<Value>;

Shape reduced_shape(const Shape& shape, const Ints& axes, bool keep_dims) {
  Shape result;
  for (int dim = 0; dim < shape.ndim(); ++dim) {
    if (!contains(axes, dim)) {
      result.push_back(shape[dim]);
    } else if (keep_dims) {
      result.push_back(1);
    }
  }
  return result;
}

IndexRule reduce_rule(const Attributes& attributes, std::span<const Type> inputs, Completion completion) {
  const int ndim = inputs[0].shape.ndim();
  const Ints& axes = attributes.get_ints("axes");
  const bool keep_dims = attributes.get_bool("keep_dims");
  IndexRule rule{.inputs = {numbered_dims(ndim)}, .outputs = {{}}};
  for (int dim = 0; dim < ndim; ++dim) {
    const std::string& factor = rule.inputs[0][static_cast<size_t>(dim)];
    if (!contains(axes, dim)) {
      rule.outputs[0].push_back(factor);
    } else {
      if (keep_dims) rule.outputs[0].emplace_back();
      if (completion != Completion::kSum) rule.completions[factor] = completion;
    }
  }
  return rule;
}

// A reduced value (or its cotangent) stretched to the operand's shape again.
Value stretch(const GradientContext& c, Value reduced) {
  reduced = cast_to(reduced, c.inputs[0].dtype());
  if (!c.attributes.get_bool("keep_dims") && !c.attributes.get_ints("axes").empty()) {
    reduced = apply1("expand_dims", {reduced}, {{"axes", c.attributes.get_ints("axes")}});
  }
  return broadcast_to_shape(reduced, c.inputs[0].shape());
}

Value reduce_same(const GradientContext& c, const std::string& op, Value x) { return apply1(op, {x}, c.attributes); }

double reduced_count(const Shape& shape, const Ints& axes) {
  double product = 1;
  for (const auto axis : axes) product *= static_cast<double>(shape[static_cast<int>(axis)]);
  return product;
}

Gradients extreme_gradient(const GradientContext& c) {
  const Value holders = cast(equal(c.inputs[0], stretch(c, c.outputs[0])), c.inputs[0].dtype());
  const Value share = c.cotangent(0) / reduce_same(c, "reduce_sum", holders);
  return {holders * stretch(c, share)};
}

// The product of all others: with one zero only the zero's own derivative is not 0, with two all are.
Gradients prod_gradient(const GradientContext& c) {
  const Value x = c.inputs[0];
  const Value is_zero = equal(x, 0);
  const Value zeros = stretch(c, reduce_same(c, "reduce_sum", cast(is_zero, x.dtype())));
  const Value filled = select(is_zero, 1, x);
  const Value rest = stretch(c, reduce_same(c, "reduce_prod", filled));
  const Value others = select(is_zero, select(equal(zeros, 1), rest, 0), select(equal(zeros, 0), rest / filled, 0));
  return {stretch(c, c.cotangent(0)) * others};
}

// A mean over a split dim: each rank's part of the sum, scaled by the global count.
std::vector<Value> localize_mean(const LocalizeContext& c) {
  const Ints& axes = c.attributes.get_ints("axes");
  const bool is_split =
      std::any_of(axes.begin(), axes.end(), [&](int64_t axis) { return c.is_split(fmt::format("d{}", axis)); });
  const Value x = c.inputs[0];
  if (!is_split) return {apply1("reduce_mean", {x}, c.attributes)};
  const double global = reduced_count(c.global_inputs[0].shape, axes);
  const double local = reduced_count(x.shape(), axes);
  // A sum of many f16 overflows; the mean of the part does not. An empty part has no mean, but its sum is 0.
  if (size_bytes(x.dtype()) == 2 && local > 0) {
    return {scale_by(apply1("reduce_mean", {x}, c.attributes), local / global)};
  }
  return {scale_by(apply1("reduce_sum", {x}, c.attributes), 1 / global)};
}

struct Reduction {
  const char* name;
  const char* doc;
  Kind kind;
  Completion completion;
  Gradients (*gradient)(const GradientContext&);
};

const Reduction kReductions[] = {
    {"reduce_sum", "The sum over `axes`; 0 over nothing. Half types are added in f32.", Kind::kNumeric,
     Completion::kSum, [](const GradientContext& c) { return Gradients{stretch(c, c.cotangent(0))}; }},
    {"reduce_mean", "The mean over `axes`; NaN over nothing. Half types are added in f32.", Kind::kFloating,
     Completion::kMean,
     [](const GradientContext& c) {
       const double n = reduced_count(c.inputs[0].shape(), c.attributes.get_ints("axes"));
       return Gradients{stretch(c, scale_by(c.cotangent(0), 1 / n))};
     }},
    {"reduce_max",
     "The largest element over `axes`; minus infinity, or the lowest integer, over nothing; NaN if any is. Elements "
     "that tie share the gradient equally.",
     Kind::kNumeric, Completion::kMax, extreme_gradient},
    {"reduce_min",
     "The smallest element over `axes`; infinity, or the highest integer, over nothing; NaN if any is. Elements that "
     "tie share the gradient equally.",
     Kind::kNumeric, Completion::kMin, extreme_gradient},
    {"reduce_prod", "The product over `axes`; 1 over nothing.", Kind::kNumeric, Completion::kProd, prod_gradient},
    {"reduce_all", "Whether all elements (bool) over `axes` hold; true over nothing.", Kind::kBool, Completion::kMin,
     nullptr},
    {"reduce_any", "Whether any element (bool) over `axes` holds; false over nothing.", Kind::kBool, Completion::kMax,
     nullptr},
};

std::vector<Example> reduction_examples(const Reduction& reduction) {
  std::vector<Example> examples;
  const bool differentiable = reduction.gradient != nullptr;
  const DType first = reduction.kind == Kind::kBool ? DType::kBool : DType::kF32;
  const auto add = [&](DType dtype, const Shape& shape, const Ints& axes, bool keep_dims) {
    const Domain domain = dtype == DType::kBool ? Domain::kBool : is_floating(dtype) ? Domain::kAny : Domain::kIndex;
    examples.push_back({.inputs = {{{dtype, shape}, domain, 5}},
                        .attributes = {{"axes", axes}, {"keep_dims", keep_dims}},
                        .check_gradient = differentiable && shape.num_elements() > 0});
  };
  add(first, {2, 3}, {0}, false);
  add(first, {2, 3}, {1}, true);
  add(first, {2, 3, 4}, {0, 2}, false);
  add(first, {7, 2}, {0}, false);
  add(first, {2, 3}, {0, 1}, false);
  add(first, {2, 3}, {}, false);
  add(first, {}, {}, false);
  add(first, {0, 3}, {0}, false);
  add(first, {2, 0}, {0}, false);
  if (reduction.kind != Kind::kBool) {
    for (const DType dtype : {DType::kF64, DType::kBF16, DType::kF16}) add(dtype, {3, 4}, {1}, false);
  }
  if (reduction.completion == Completion::kSum || reduction.completion == Completion::kMean) {
    for (const int64_t axis : {0, 1}) {
      add(DType::kBF16, {9, 33}, {axis}, false);
      examples.back().attributes.set("result_dtype", DType::kF32);
      examples.back().check_gradient = false;
    }
  }
  if (reduction.kind == Kind::kNumeric) {
    for (const DType dtype : {DType::kI32, DType::kI64, DType::kU8}) add(dtype, {3, 2}, {0}, false);
  }
  return examples;
}

void add_simple_reductions(OpRegistry& registry) {
  for (const Reduction& reduction : kReductions) {
    OpDef def{.name = reduction.name,
              .doc = reduction.doc,
              .inputs = {"x"},
              .attributes = {{"axes", std::nullopt, "the dims to reduce: sorted, not negative; none means none"},
                             {"keep_dims", false, "keep reduced dims with size 1"}},
              .infer = [kind = reduction.kind](const Attributes& attributes,
                                               std::span<const Type> types) -> std::vector<Type> {
                require_kind(types[0], kind, "the operand");
                const Ints axes = checked_axes(attributes, types[0].shape.ndim());
                return {{result_dtype(attributes, types[0].dtype),
                         reduced_shape(types[0].shape, axes, attributes.get_bool("keep_dims"))}};
              },
              .rule = [completion = reduction.completion](
                          const Attributes& attributes, std::span<const Type> inputs,
                          std::span<const Type>) { return reduce_rule(attributes, inputs, completion); },
              .flops = [](const Attributes&, std::span<const Type> inputs,
                          std::span<const Type>) { return count(inputs[0]); },
              .examples = reduction_examples(reduction)};
    if (reduction.gradient != nullptr) {
      def.gradient = [gradient = reduction.gradient](const GradientContext& c) -> Gradients {
        if (!is_floating(c.inputs[0].dtype())) return {Value{}};
        return gradient(c);
      };
    }
    if (reduction.completion == Completion::kSum || reduction.completion == Completion::kMean) {
      def.linear_in = {{0}};
      def.attributes.push_back(result_dtype_attribute());
      def.precision = MixedPrecision::kWideSums;
    }
    if (reduction.completion == Completion::kProd) def.precision = MixedPrecision::kWide;
    if (reduction.completion == Completion::kMean) def.localize = localize_mean;
    registry.add(std::move(def));
  }
}

// Running sums over a part of the axis, plus the totals of the parts before it (behind it, in reverse).
std::vector<Value> localize_cumsum(const LocalizeContext& c) {
  if (!c.is_split("s")) return apply(c.graph, c.op, c.inputs, c.attributes);
  const int axis = axis_of(c.attributes, c.inputs[0].type());
  const DType dtype = c.inputs[0].dtype();
  const bool is_half = dtype == DType::kBF16 || dtype == DType::kF16;
  const Value x = is_half ? cast_to(c.inputs[0], DType::kF32) : c.inputs[0];
  const Value own = apply1("cumsum", {x}, c.attributes);
  // As wide as sums of integers need, where reduce_sum widens them.
  const Value total = cast_to(apply1("reduce_sum", {x}, {{"axes", Ints{axis}}, {"keep_dims", true}}), x.dtype());
  const Ints ones(part_sizes(c, "s", c.global_inputs[0].shape[axis]).size(), 1);
  const Value totals = gather_over(c, "s", total, axis, ones);
  const int64_t part = part_index(c, "s");
  const auto parts = static_cast<int64_t>(ones.size());
  const bool reverse = c.attributes.get_bool("reverse");
  const Value others = reverse ? slice_along(totals, axis, part + 1, parts) : slice_along(totals, axis, 0, part);
  const Value before = cast_to(apply1("reduce_sum", {others}, {{"axes", Ints{axis}}, {"keep_dims", true}}), x.dtype());
  return {cast_to(apply1("add", {own, before}), dtype)};
}

void add_cumsum(OpRegistry& registry) {
  OpDef def{
      .name = "cumsum",
      .doc =
          "Running sums along `axis`: element i is the sum of those up to i, without i itself if `exclusive`, "
          "from the other end if `reverse`. Half types are added in f32.",
      .inputs = {"x"},
      .attributes = {{"axis", std::nullopt, "in [0, ndim)"},
                     {"exclusive", false, "leave out the element itself"},
                     {"reverse", false, "start at the end"}},
      .infer = [](const Attributes& attributes, std::span<const Type> types) -> std::vector<Type> {
        require_kind(types[0], Kind::kNumeric, "the operand");
        axis_of(attributes, types[0]);
        return {types[0]};
      },
      .gradient = [](const GradientContext& c) -> Gradients {
        if (!is_floating(c.inputs[0].dtype())) return {Value{}};
        Attributes attributes = c.attributes;
        attributes.set("reverse", !c.attributes.get_bool("reverse"));
        return {apply1("cumsum", {c.cotangent(0)}, attributes)};
      },
      .rule =
          [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type> outputs) {
            auto rule = matched_rule(inputs, outputs, {});
            const auto axis = static_cast<size_t>(axis_of(attributes, inputs[0]));
            rule.inputs[0][axis] = rule.outputs[0][axis] = "s";
            return rule;
          },
      .linear_in = {{0}},
      .flops = [](const Attributes&, std::span<const Type> inputs, std::span<const Type>) { return count(inputs[0]); },
      .localize = localize_cumsum,
      .precision = MixedPrecision::kWide};
  const auto add = [&](DType dtype, const Shape& shape, int64_t axis, bool exclusive, bool reverse) {
    def.examples.push_back({.inputs = {{{dtype, shape}, is_floating(dtype) ? Domain::kAny : Domain::kIndex, 9}},
                            .attributes = {{"axis", axis}, {"exclusive", exclusive}, {"reverse", reverse}}});
  };
  add(DType::kF32, {3, 4}, 0, false, false);
  add(DType::kF32, {7, 4}, 1, true, false);
  add(DType::kF64, {3, 4}, 1, false, true);
  add(DType::kBF16, {3, 4}, 1, true, true);
  add(DType::kI32, {5}, 0, false, false);
  add(DType::kF32, {2, 0}, 1, false, false);
  registry.add(std::move(def));
}

}  // namespace

void add_reductions(OpRegistry& registry) {
  add_simple_reductions(registry);
  add_cumsum(registry);
}

}  // namespace tessera::ops
