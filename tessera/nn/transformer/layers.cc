#include "tessera/nn/transformer/layers.h"

#include "tessera/base/error.h"
#include "tessera/ir/cell_name.h"
#include "tessera/nn/transformer/attention.h"
#include "tessera/nn/transformer/feed_forward.h"
#include "tessera/nn/transformer/layer_parts.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

MultiHeadAttentionOptions attention_options(const TransformerLayerOptions& options, bool causal = false) {
  return {.hidden_size = options.hidden_size,
          .num_heads = options.num_heads,
          .hidden_dropout_rate = options.hidden_dropout_rate,
          .attention_dropout_rate = options.attention_dropout_rate,
          .causal = causal,
          .parallel = options.parallel};
}

FeedForwardOptions feed_forward_options(const TransformerLayerOptions& options) {
  return {.hidden_size = options.hidden_size,
          .ffn_hidden_size = options.ffn_hidden_size,
          .dropout_rate = options.hidden_dropout_rate,
          .hidden_act = options.hidden_act,
          .parallel = options.parallel};
}

// x (or, with post_layernorm_residual, norm(x)) + part(norm(x)), on tokens [n,t,hidden_size].
template <typename Part>
Value with_residual(const TransformerLayerOptions& options, RowNorm& norm, Value x, Part&& part) {
  const auto& parallel = options.parallel;
  const Value rows = rows_of(x, parallel);
  const Value normed = norm(rows);
  const Value result = part(tokens_of(normed, x.shape(), parallel));
  const Value kept = options.post_layernorm_residual ? normed : rows;
  return tokens_of(add_rows(kept, rows_of(result, parallel), parallel), x.shape(), parallel);
}

Value attend(MultiHeadAttention& attention, Value query, Value key, Value mask) {
  std::vector<Value> operands = {query, key, key};
  if (mask) operands.push_back(mask);
  return attention(operands);
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(const TransformerLayerOptions& options)
    : options_(options),
      layernorm1_(child<RowNorm>("layernorm1", options.hidden_size, options.parallel)),
      layernorm2_(child<RowNorm>("layernorm2", options.hidden_size, options.parallel)),
      attention_(child<MultiHeadAttention>("attention", attention_options(options))),
      output_(child<FeedForward>("output", feed_forward_options(options))) {}

Value TransformerEncoderLayer::construct(std::span<const Value> inputs) {
  if (inputs.empty() || inputs.size() > 2) {
    throw InvalidArgument("cell \"{}\" takes x and, if wanted, a mask; got {} inputs", ir::cell_name(path()),
                          inputs.size());
  }
  check_tokens(*this, "x", inputs[0], options_.hidden_size);
  const Value mask = inputs.size() > 1 ? inputs[1] : Value();
  const Value x = with_residual(options_, layernorm1_, inputs[0],
                                [&](Value normed) { return attend(attention_, normed, normed, mask); });
  return with_residual(options_, layernorm2_, x, [&](Value normed) { return output_(normed); });
}

TransformerDecoderLayer::TransformerDecoderLayer(const TransformerLayerOptions& options)
    : options_(options),
      layernorm1_(child<RowNorm>("layernorm1", options.hidden_size, options.parallel)),
      layernorm2_(child<RowNorm>("layernorm2", options.hidden_size, options.parallel)),
      attention_(child<MultiHeadAttention>("attention", attention_options(options, /*causal=*/true))),
      cross_attention_(child<MultiHeadAttention>("cross_attention", attention_options(options))),
      cross_attention_layernorm_(child<RowNorm>("cross_attention_layernorm", options.hidden_size, options.parallel)),
      output_(child<FeedForward>("output", feed_forward_options(options))) {}

Value TransformerDecoderLayer::construct(std::span<const Value> inputs) {
  if (inputs.size() < 2 || inputs.size() > 4) {
    throw InvalidArgument("cell \"{}\" takes x, memory and, if wanted, their masks; got {} inputs",
                          ir::cell_name(path()), inputs.size());
  }
  check_tokens(*this, "x", inputs[0], options_.hidden_size);
  check_tokens(*this, "memory", inputs[1], options_.hidden_size);
  const Value mask = inputs.size() > 2 ? inputs[2] : Value();
  const Value memory_mask = inputs.size() > 3 ? inputs[3] : Value();
  Value x = with_residual(options_, layernorm1_, inputs[0],
                          [&](Value normed) { return attend(attention_, normed, normed, mask); });
  x = with_residual(options_, cross_attention_layernorm_, x,
                    [&](Value normed) { return attend(cross_attention_, normed, inputs[1], memory_mask); });
  return with_residual(options_, layernorm2_, x, [&](Value normed) { return output_(normed); });
}

}  // namespace tessera::nn
