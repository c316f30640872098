#include "tessera/nn/transformer/attention.h"

#include "tessera/base/error.h"
#include "tessera/ir/cell_name.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/nn/transformer/layer_parts.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

constexpr const char* kMultiHeadAttention = "MultiHeadAttention";
// Added to the score of a key that is not seen.
constexpr double kHidden = -10000;

MultiHeadAttentionOptions checked(const MultiHeadAttentionOptions& options) {
  check_divisible(kMultiHeadAttention, "hidden_size", options.hidden_size, "num_heads", options.num_heads);
  check_divisible(kMultiHeadAttention, "num_heads", options.num_heads, "model_parallel", model_parts(options.parallel));
  check_rate(kMultiHeadAttention, "hidden_dropout_rate", options.hidden_dropout_rate);
  check_rate(kMultiHeadAttention, "attention_dropout_rate", options.attention_dropout_rate);
  return options;
}

// 0 where the mask is 1, kHidden where it is 0: [n,1,t,s] of that dtype.
Value added_mask(Value mask, DType dtype, const TransformerParallel& parallel) {
  if (mask.ndim() == 3) {
    mask = split(parallel, ops::expand_dims(mask, {1}), [](int64_t data, int64_t) {
      return mesh::Strategy{{data, 1, 1}};
    });
  }
  if (mask.dtype() != dtype) {
    mask = split(parallel, ops::cast(mask, dtype), [](int64_t data, int64_t) {
      return mesh::Strategy{{data, 1, 1, 1}};
    });
  }
  const auto with_number = [&](Value (*op)(ops::Operand, ops::Operand), Value x, double number) {
    return split(parallel, op(x, ops::fill(x.graph(), {}, number, dtype)), [](int64_t data, int64_t) {
      return mesh::Strategy{{data, 1, 1, 1}, {}};
    });
  };
  return with_number(ops::mul, with_number(ops::sub, mask, 1), -kHidden);
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const MultiHeadAttentionOptions& options)
    : options_(checked(options)),
      query_(child<Projection>("dense1", options.hidden_size, options.hidden_size, true, SplitSide::kOut,
                               options.parallel)),
      key_(child<Projection>("dense2", options.hidden_size, options.hidden_size, true, SplitSide::kOut,
                             options.parallel)),
      value_(child<Projection>("dense3", options.hidden_size, options.hidden_size, true, SplitSide::kOut,
                               options.parallel)),
      projection_(child<Projection>("projection", options.hidden_size, options.hidden_size, false, SplitSide::kIn,
                                    options.parallel)),
      dropout_(child<RowDropout>("dropout", options.hidden_dropout_rate, options.parallel)) {}

Value MultiHeadAttention::heads(Value rows, const Shape& tokens) const {
  const int64_t depth = options_.hidden_size / options_.num_heads;
  return split(options_.parallel, ops::reshape(rows, {tokens[0], tokens[1], options_.num_heads, depth}),
               [](int64_t data, int64_t model) {
                 return mesh::Strategy{{data, model}};
               });
}

Value MultiHeadAttention::construct(std::span<const Value> inputs) {
  if (inputs.size() != 3 && inputs.size() != 4) {
    throw InvalidArgument("cell \"{}\" takes query, key, value and, if wanted, a mask; got {} inputs",
                          ir::cell_name(path()), inputs.size());
  }
  const char* names[] = {"query", "key", "value"};
  for (size_t i = 0; i < 3; ++i) check_tokens(*this, names[i], inputs[i], options_.hidden_size);
  const auto& parallel = options_.parallel;
  const Value query = heads(query_(rows_of(inputs[0], parallel)), inputs[0].shape());
  const Value key = heads(key_(rows_of(inputs[1], parallel)), inputs[1].shape());
  const Value value = heads(value_(rows_of(inputs[2], parallel)), inputs[2].shape());

  ops::AttentionOptions attention;
  if (inputs.size() == 4) attention.mask = added_mask(inputs[3], at_least_f32(query.dtype()), parallel);
  attention.causal = options_.causal && !attention.mask;
  if (settings().training && options_.attention_dropout_rate > 0) {
    attention.keep_prob = 1 - options_.attention_dropout_rate;
    attention.step = random_step(graph());
    attention.source = {settings().seed, random_stream(graph(), "attention")};
  }
  Value mixed = ops::attention(query, key, value, attention);
  mixed = split(parallel, mixed, [&](int64_t data, int64_t model) {
    const std::vector<int64_t> heads{data, 1, model, 1};
    mesh::Strategy strategy{heads, heads, heads};
    if (attention.mask) strategy.push_back({data, 1, 1, 1});
    if (attention.step) strategy.emplace_back();
    return strategy;
  });
  const Value rows = split(parallel, ops::reshape(mixed, {-1, options_.hidden_size}), [](int64_t data, int64_t model) {
    return mesh::Strategy{{data, 1, model, 1}};
  });
  return tokens_of(dropout_(projection_(rows)), inputs[0].shape(), parallel);
}

Value up_to_each(ir::Graph& graph, int64_t length) {
  const Value positions = ops::range(graph, 0, static_cast<double>(length));
  const Value earlier = ops::less_equal(ops::expand_dims(positions, {0}), ops::expand_dims(positions, {1}));
  return ops::expand_dims(ops::cast(earlier, DType::kF32), {0});
}

AttentionMask::AttentionMask(int64_t seq_length, const TransformerParallel& parallel)
    : seq_length_(seq_length), parallel_(parallel) {
  if (seq_length < 1) throw InvalidArgument("AttentionMask: seq_length must be at least 1, got {}", seq_length);
}

Value AttentionMask::construct(Value mask) {
  if (mask.ndim() != 2 || mask.shape()[1] != seq_length_) {
    throw InvalidArgument("AttentionMask \"{}\": mask must be [n,{}], is {}", ir::cell_name(path()), seq_length_,
                          mask.type());
  }
  const auto by_rows = [&](Value value, int ndim) {
    return split(parallel_, value, [&](int64_t data, int64_t) {
      std::vector<int64_t> tuple(static_cast<size_t>(ndim), 1);
      tuple[0] = data;
      return mesh::Strategy(graph().node(graph().info(value.id()).node).inputs.size(), tuple);
    });
  };
  const Value zero = ops::fill(graph(), {1, 1}, 0, mask.dtype());
  const Value present = split(parallel_, ops::cast(ops::not_equal(mask, zero), DType::kF32), [](int64_t data, int64_t) {
    return mesh::Strategy{{data, 1}};
  });
  const Value pairs =
      by_rows(ops::mul(by_rows(ops::expand_dims(present, {2}), 2), by_rows(ops::expand_dims(present, {1}), 2)), 3);
  return split(parallel_, ops::mul(pairs, up_to_each(graph(), seq_length_)), [](int64_t data, int64_t) {
    return mesh::Strategy{{data, 1, 1}, {1, 1, 1}};
  });
}

}  // namespace tessera::nn
