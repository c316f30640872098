// Scaled dot-product attention (Vaswani et al., 2017) as one operator: the matrix of weights is never a value of the
// graph. Its gradient computes the weights again, block by block, from the log-sum-exp of each row (Dao et al.,
// "FlashAttention", 2022).
#include "tessera/ops/defs/attention_operands.h"

#include "tessera/base/error.h"
#include "tessera/ops/registry/families.h"
#include "tessera/ops/registry/require.h"
#include "tessera/ops/rules/random_stream.h"

namespace tessera::ops {
namespace {

// Operands before the mask and the step.
constexpr size_t kFixed = 3;
constexpr size_t kFixedOfGrad = 6;

struct Sizes {
  int64_t batch, queries, keys, heads, depth, value_depth;
  double scores() const {
    return static_cast<double>(batch) * static_cast<double>(heads) * static_cast<double>(queries) *
           static_cast<double>(keys);
  }
};

Sizes sizes_of(const Type& query, const Type& key, const Type& value) {
  require_ndim(query, 4, "query");
  require_ndim(key, 4, "key");
  require_ndim(value, 4, "value");
  require_floating(query, "query");
  require_dtype(key, query.dtype, "key");
  require_dtype(value, query.dtype, "value");
  const Sizes sizes{query.shape[0], query.shape[1], key.shape[1], query.shape[2], query.shape[3], value.shape[3]};
  require_shape(key, {sizes.batch, sizes.keys, sizes.heads, sizes.depth}, "key");
  require_shape(value, {sizes.batch, sizes.keys, sizes.heads, sizes.value_depth}, "value");
  return sizes;
}

// The types of the result and of the log-sum-exp.
std::vector<Type> results_of(const Type& query, const Sizes& sizes) {
  return {{query.dtype, {sizes.batch, sizes.queries, sizes.heads, sizes.value_depth}},
          {statistics_dtype(query.dtype), {sizes.batch, sizes.heads, sizes.queries}}};
}

void check_mask(const Type& mask, const Type& query, const Sizes& sizes) {
  require_ndim(mask, 4, "mask");
  if (mask.dtype != DType::kBool && mask.dtype != query.dtype && mask.dtype != statistics_dtype(query.dtype)) {
    throw InvalidArgument("mask must be bool or {}, is {}; cast it", query.dtype, mask.dtype);
  }
  const Shape whole{sizes.batch, sizes.heads, sizes.queries, sizes.keys};
  for (int dim = 0; dim < 4; ++dim) {
    if (mask.shape[dim] != 1 && mask.shape[dim] != whole[dim]) {
      throw InvalidArgument("mask must be of shape {} or 1 in its dims, is {}", whole, mask.shape);
    }
  }
}

// `first_result`: what this node makes a slice of.
void check_settings(const Attributes& attributes, std::span<const Type> inputs, size_t num_fixed, const Sizes& sizes,
                    const Shape& first_result) {
  attributes.get_double("scale");
  attributes.get_bool("causal");
  attributes.get_int("seed");
  attributes.get_int("stream");
  const auto extras = attention_extras(attributes, inputs.size(), num_fixed);
  if (extras.mask) check_mask(inputs[*extras.mask], inputs[num_fixed == kFixed ? 0 : 1], sizes);
  if (extras.step) check_step(inputs[*extras.step]);
  check_slice(attributes, first_result);
}

const IndexRule::Dims kQueries = {"b", "t", "h", ""};
const IndexRule::Dims kKeys = {"b", "", "h", ""};
const IndexRule::Dims kRows = {"b", "h", "t"};

// Batch, heads and query positions may be split; each query sees all keys.
void add_extra_rules(IndexRule& rule, const Attributes& attributes, std::span<const Type> inputs, size_t num_fixed) {
  const auto extras = attention_extras(attributes, inputs.size(), num_fixed);
  const Shape& query = inputs[num_fixed == kFixed ? 0 : 1].shape;
  if (extras.mask) {
    const Shape& mask = inputs[*extras.mask].shape;
    rule.inputs.push_back(
        {mask[0] == query[0] ? "b" : "", mask[1] == query[2] ? "h" : "", mask[2] == query[1] ? "t" : "", ""});
  }
  if (extras.step) rule.inputs.emplace_back();
}

std::vector<Value> localize_attention(const LocalizeContext& context) {
  Attributes attributes = context.attributes;
  localize_stream(context, attributes);
  return apply(context.graph, context.op, context.inputs, attributes);
}

std::vector<AttributeDef> attributes_of_both() {
  std::vector<AttributeDef> attributes = {
      {"scale", std::nullopt, "times the products of queries and keys are the scores"},
      {"causal", false, "query i sees the keys 0 to i only"},
      {"keep_prob", 1.0, "in (0, 1]; below 1, weights are dropped as dropout drops, and the last operand is the step"},
      of_run({"seed", int64_t{0}, "the user's seed, for dropout"}),
      {"stream", int64_t{0}, "who draws, for dropout: a hash of the operator's name and call count"}};
  for (auto& attribute : slice_attributes()) attributes.push_back(std::move(attribute));
  return attributes;
}

struct AttentionCase {
  DType dtype;
  Sizes sizes;
  std::optional<Type> mask = std::nullopt;
  bool causal = false;
  double keep_prob = 1;
};

// Examples of both operators: operands, then the mask and the step.
void add_examples(OpDef& attention, OpDef& grad) {
  const auto add = [&](const AttentionCase& c) {
    const auto& s = c.sizes;
    const ExampleInput query{{c.dtype, {s.batch, s.queries, s.heads, s.depth}}};
    const ExampleInput key{{c.dtype, {s.batch, s.keys, s.heads, s.depth}}};
    const ExampleInput value{{c.dtype, {s.batch, s.keys, s.heads, s.value_depth}}};
    const auto results = results_of(query.type, s);
    const Attributes attributes{{"scale", 0.5},
                                {"causal", c.causal},
                                {"keep_prob", c.keep_prob},
                                {"seed", int64_t{3}},
                                {"stream", int64_t{99}}};
    Example forward{.inputs = {query, key, value}, .attributes = attributes};
    // Any log-sum-exp is one of some keys.
    Example backward{.inputs = {{results[0]}, query, key, value, {results[0]}, {results[1], Domain::kPositive}},
                     .attributes = attributes,
                     .check_gradient = false};
    for (Example* example : {&forward, &backward}) {
      if (c.mask) example->inputs.push_back({*c.mask, c.mask->dtype == DType::kBool ? Domain::kBool : Domain::kAny});
      if (c.keep_prob < 1) example->inputs.push_back({{DType::kI64, {}}, Domain::kIndex, 100});
    }
    // No gradient flows through a mask; the log-sum-exp of a query without keys is infinite; large ones take minutes.
    const bool hides_queries = c.mask && c.mask->shape.back() < s.keys;
    forward.check_gradient = size_bytes(c.dtype) > 2 && !(c.mask && is_floating(c.mask->dtype)) && !hides_queries &&
                             s.queries * s.keys < 1000;
    attention.examples.push_back(std::move(forward));
    grad.examples.push_back(std::move(backward));
  };
  add({.dtype = DType::kF32, .sizes = {2, 3, 5, 2, 4, 4}});
  add({.dtype = DType::kF32, .sizes = {2, 5, 5, 2, 4, 3}, .causal = true});
  add({.dtype = DType::kF64, .sizes = {2, 3, 4, 3, 2, 2}, .mask = Type{DType::kBool, {2, 1, 3, 4}}});
  add({.dtype = DType::kF32, .sizes = {2, 3, 4, 2, 2, 2}, .mask = Type{DType::kF32, {2, 2, 1, 4}}});
  add({.dtype = DType::kF32, .sizes = {2, 3, 4, 2, 2, 2}, .mask = Type{DType::kBool, {1, 1, 3, 1}}});
  add({.dtype = DType::kF32, .sizes = {2, 3, 4, 2, 2, 2}, .causal = true, .keep_prob = 0.75});
  add({.dtype = DType::kF64, .sizes = {1, 4, 9, 2, 2, 2}, .mask = Type{DType::kBool, {1, 2, 4, 9}}, .keep_prob = 0.5});
  add({.dtype = DType::kF32, .sizes = {1, 1, 1, 1, 1, 1}});
  add({.dtype = DType::kF32, .sizes = {0, 2, 3, 2, 4, 4}});
  add({.dtype = DType::kF32, .sizes = {1, 70, 130, 3, 16, 16}, .causal = true});
  add({.dtype = DType::kBF16, .sizes = {2, 3, 4, 2, 8, 8}, .mask = Type{DType::kBF16, {2, 1, 3, 4}}});
  add({.dtype = DType::kF16, .sizes = {2, 4, 4, 2, 8, 8}, .mask = Type{DType::kF32, {2, 1, 4, 4}}, .causal = true});
}

// `products`: matrix products of a score's row; `query`: which operand it is.
auto flops_per_score(double products, size_t query) {
  return [products, query](const Attributes&, std::span<const Type> inputs, std::span<const Type>) {
    const Sizes sizes = sizes_of(inputs[query], inputs[query + 1], inputs[query + 2]);
    return sizes.scores() * products * static_cast<double>(sizes.depth + sizes.value_depth);
  };
}

}  // namespace

AttentionExtras attention_extras(const Attributes& attributes, size_t num_inputs, size_t num_fixed) {
  const double keep_prob = attributes.get_double("keep_prob");
  if (!(keep_prob > 0 && keep_prob <= 1)) throw InvalidArgument("keep_prob must be in (0, 1], got {}", keep_prob);
  const size_t for_dropout = keep_prob < 1 ? 1 : 0;
  const size_t least = num_fixed + for_dropout;
  if (num_inputs < least || num_inputs > least + 1) {
    throw InvalidArgument("takes {} or, with a mask, {} operands for keep_prob {}, has {}", least, least + 1, keep_prob,
                          num_inputs);
  }
  AttentionExtras extras;
  if (num_inputs > least) extras.mask = num_fixed;
  if (for_dropout > 0) extras.step = num_inputs - 1;
  return extras;
}

void add_attention(OpRegistry& registry) {
  OpDef attention{
      .name = "attention",
      .doc =
          "out[b,t,h,:] = sum over s of w[b,h,t,s] value[b,s,h,:] with w = softmax over s of scale * query[b,t,h,:] . "
          "key[b,s,h,:] + mask[b,h,t,s]; and lse [b,h,t] (f32 for half types), the log of the sum of the exponentials. "
          "query [b,t,h,d], key [b,s,h,d], value [b,s,h,e]. A mask may have dims of size 1; a bool one says which keys "
          "a query sees. A query that sees no key gets zeros, and lse inf. No gradient flows through the mask. Dropout "
          "of weight (b,t,h,s) draws element ((b * T + t) * H + h) * S + s. Vaswani et al., 2017.",
      .inputs = {"query", "key", "value", "mask_and_step..."},
      .attributes = attributes_of_both(),
      .outputs = {"out", "lse"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const Sizes sizes = sizes_of(inputs[0], inputs[1], inputs[2]);
        const auto results = results_of(inputs[0], sizes);
        check_settings(attributes, inputs, kFixed, sizes, results[0].shape);
        return results;
      },
      .gradient = attention_gradient,
      .rule =
          [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
            IndexRule rule{.inputs = {kQueries, kKeys, kKeys}, .outputs = {kQueries, kRows}};
            add_extra_rules(rule, attributes, inputs, kFixed);
            return rule;
          },
      .flops = flops_per_score(2, 0),
      .localize = localize_attention,
      .arithmetic = Arithmetic::kProduct,
      .precision = MixedPrecision::kLow,
  };
  OpDef grad{
      .name = "attention_grad",
      .doc =
          "The cotangents of attention's query, key and value from dout, its operands and its results; the weights are "
          "computed again from lse.",
      .inputs = {"dout", "query", "key", "value", "out", "lse", "mask_and_step..."},
      .attributes = attributes_of_both(),
      .outputs = {"dquery", "dkey", "dvalue"},
      .infer = [](const Attributes& attributes, std::span<const Type> inputs) -> std::vector<Type> {
        const Sizes sizes = sizes_of(inputs[1], inputs[2], inputs[3]);
        const auto results = results_of(inputs[1], sizes);
        require_type(inputs[0], results[0], "dout");
        require_type(inputs[4], results[0], "out");
        require_type(inputs[5], results[1], "lse");
        check_settings(attributes, inputs, kFixedOfGrad, sizes, inputs[1].shape);
        return {inputs[1], inputs[2], inputs[3]};
      },
      .gradient = [](const GradientContext&) -> std::vector<Value> {
        throw InvalidArgument(
            "second derivatives of attention are not supported; write it with batch_matmul and softmax where they are "
            "needed");
      },
      .rule =
          [](const Attributes& attributes, std::span<const Type> inputs, std::span<const Type>) {
            IndexRule rule{.inputs = {kQueries, kQueries, kKeys, kKeys, kQueries, kRows},
                           .outputs = {kQueries, kKeys, kKeys}};
            add_extra_rules(rule, attributes, inputs, kFixedOfGrad);
            return rule;
          },
      .linear_in = {{0}},
      .flops = flops_per_score(5, 1),
      .localize = localize_attention,
      .arithmetic = Arithmetic::kProduct,
  };
  add_examples(attention, grad);
  registry.add(std::move(attention));
  registry.add(std::move(grad));
}

}  // namespace tessera::ops
