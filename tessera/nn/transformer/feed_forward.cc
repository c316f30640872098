#include "tessera/nn/transformer/feed_forward.h"

#include "tessera/nn/layers/activation.h"
#include "tessera/nn/transformer/layer_parts.h"

namespace tessera::nn {
namespace {

constexpr const char* kFeedForward = "FeedForward";

FeedForwardOptions checked(const FeedForwardOptions& options) {
  check_divisible(kFeedForward, "hidden_size", options.hidden_size, "model_parallel", model_parts(options.parallel));
  check_divisible(kFeedForward, "ffn_hidden_size", options.ffn_hidden_size, "model_parallel",
                  model_parts(options.parallel));
  check_rate(kFeedForward, "dropout_rate", options.dropout_rate);
  check_activation(kFeedForward, options.hidden_act);
  return options;
}

}  // namespace

FeedForward::FeedForward(const FeedForwardOptions& options)
    : options_(checked(options)),
      mapping_(child<Projection>("mapping", options.hidden_size, options.ffn_hidden_size, false, SplitSide::kOut,
                                 options.parallel)),
      projection_(child<Projection>("projection", options.ffn_hidden_size, options.hidden_size, false, SplitSide::kIn,
                                    options.parallel)),
      dropout_(child<RowDropout>("dropout", options.dropout_rate, options.parallel)) {}

Value FeedForward::construct(Value x) {
  check_tokens(*this, "x", x, options_.hidden_size);
  const Value mapped = mapping_(rows_of(x, options_.parallel));
  Value inner = activate(mapped, options_.hidden_act);
  if (!(inner == mapped)) {
    inner = split(options_.parallel, inner, [](int64_t data, int64_t model) { return mesh::Strategy{{data, model}}; });
  }
  return tokens_of(dropout_(projection_(inner)), x.shape(), options_.parallel);
}

}  // namespace tessera::nn
