#include "tessera/nn/models/llama.h"

#include <cmath>

#include "tessera/base/error.h"
#include "tessera/nn/container.h"
#include "tessera/nn/layers/linear.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

const DenseOptions kNoBias{.has_bias = false};

// x [...,features] / sqrt(mean of its squares + eps) * gamma.
class RmsNorm : public Cell {
 public:
  RmsNorm(int64_t features, double eps)
      : eps_(eps), gamma_(parameter("gamma", {DType::kF32, {features}}, Init("ones"))) {}
  using Cell::construct;
  Value construct(Value x) override {
    const Value mean = ops::reduce_mean(ops::square(x), {-1}, /*keep_dims=*/true);
    return x * ops::rsqrt(mean + eps_) * gamma_;
  }

 private:
  double eps_;
  Parameter& gamma_;
};

// Heads [n,t,h,d], of which the pair (i, i + d/2) of token number p is turned by the angle p * base^(-2i/d).
class Rotary : public Cell {
 public:
  explicit Rotary(double base) : base_(base) {}
  using Cell::construct;
  Value construct(Value heads) override {
    const int64_t tokens = heads.shape()[1];
    const int64_t half = heads.shape()[3] / 2;
    const auto numbers = [&](int64_t count) {
      return ops::range(graph(), 0, static_cast<double>(count), 1, DType::kF32);
    };
    const Value frequencies = ops::exp(numbers(half) * (-std::log(base_) / static_cast<double>(half)));
    const Value angles = ops::reshape(numbers(tokens), {tokens, 1, 1}) * frequencies;
    const Value cos = ops::cos(angles);
    const Value sin = ops::sin(angles);
    const auto parts = ops::split(heads, 2, 3);
    return ops::concat({parts[0] * cos - parts[1] * sin, parts[1] * cos + parts[0] * sin}, 3);
  }

 private:
  double base_;
};

// x [n,t,hidden_size] -> [n,t,hidden_size]; token i sees the tokens 0 to i.
class GroupedQueryAttention : public Cell {
 public:
  explicit GroupedQueryAttention(const LlamaOptions& options)
      : heads_(options.num_heads),
        groups_(options.num_key_value_heads),
        depth_(options.hidden_size / options.num_heads),
        query_(child<Dense>("query", options.hidden_size, heads_ * depth_, kNoBias)),
        key_(child<Dense>("key", options.hidden_size, groups_ * depth_, kNoBias)),
        value_(child<Dense>("value", options.hidden_size, groups_ * depth_, kNoBias)),
        result_(child<Dense>("result", heads_ * depth_, options.hidden_size, kNoBias)),
        rotary_(child<Rotary>("rotary", options.rotary_base)) {}
  using Cell::construct;
  Value construct(Value x) override {
    const int64_t n = x.shape()[0];
    const int64_t t = x.shape()[1];
    const Value query = rotary_(ops::reshape(query_(x), {n, t, heads_, depth_}));
    const Value key = rotary_(ops::reshape(key_(x), {n, t, groups_, depth_}));
    const Value value = ops::reshape(value_(x), {n, t, groups_, depth_});
    const Value mixed = ops::attention(query, for_all_heads(key), for_all_heads(value), {.causal = true});
    return result_(ops::reshape(mixed, {n, t, heads_ * depth_}));
  }

 private:
  // [n,t,groups,depth] -> [n,t,heads,depth]: each for as many neighbouring heads.
  Value for_all_heads(Value x) const {
    if (groups_ == heads_) return x;
    const int64_t n = x.shape()[0];
    const int64_t t = x.shape()[1];
    const Value repeated = ops::broadcast_to(ops::expand_dims(x, {3}), {n, t, groups_, heads_ / groups_, depth_});
    return ops::reshape(repeated, {n, t, heads_, depth_});
  }

  int64_t heads_;
  int64_t groups_;
  int64_t depth_;
  Dense& query_;
  Dense& key_;
  Dense& value_;
  Dense& result_;
  Rotary& rotary_;
};

// x [n,t,hidden_size] -> down(silu(gate(x)) * up(x)), the same shape.
class GatedFeedForward : public Cell {
 public:
  explicit GatedFeedForward(const LlamaOptions& options)
      : gate_(child<Dense>("gate", options.hidden_size, options.ffn_hidden_size, kNoBias)),
        up_(child<Dense>("up", options.hidden_size, options.ffn_hidden_size, kNoBias)),
        down_(child<Dense>("down", options.ffn_hidden_size, options.hidden_size, kNoBias)) {}
  using Cell::construct;
  Value construct(Value x) override {
    const Value gate = gate_(x);
    return down_(gate * ops::sigmoid(gate) * up_(x));
  }

 private:
  Dense& gate_;
  Dense& up_;
  Dense& down_;
};

class LlamaBlock : public Cell {
 public:
  explicit LlamaBlock(const LlamaOptions& options)
      : norm1_(child<RmsNorm>("norm1", options.hidden_size, options.eps)),
        attention_(child<GroupedQueryAttention>("attention", options)),
        norm2_(child<RmsNorm>("norm2", options.hidden_size, options.eps)),
        feed_forward_(child<GatedFeedForward>("feed_forward", options)) {}
  using Cell::construct;
  Value construct(Value x) override {
    x = x + attention_(norm1_(x));
    return x + feed_forward_(norm2_(x));
  }

 private:
  RmsNorm& norm1_;
  GroupedQueryAttention& attention_;
  RmsNorm& norm2_;
  GatedFeedForward& feed_forward_;
};

class Llama : public Cell {
 public:
  explicit Llama(const LlamaOptions& options)
      : embedding_(child<Embedding>("embedding", options.vocabulary, options.hidden_size)),
        blocks_(child<Sequential>("blocks")),
        norm_(child<RmsNorm>("norm", options.hidden_size, options.eps)),
        head_(child<Dense>("head", options.hidden_size, options.vocabulary, kNoBias)) {
    for (int64_t i = 0; i < options.num_layers; ++i) blocks_.append<LlamaBlock>(options);
  }
  using Cell::construct;
  Value construct(Value ids) override {
    const Value x = norm_(blocks_(embedding_(ids)));
    return head_(ops::reshape(x, {-1, x.shape().back()}));
  }

 private:
  Embedding& embedding_;
  Sequential& blocks_;
  RmsNorm& norm_;
  Dense& head_;
};

void check_options(const LlamaOptions& options) {
  const auto check_divides = [](const char* what, int64_t part, const char* of, int64_t whole) {
    if (part < 1 || whole < 1 || whole % part != 0) {
      throw InvalidArgument("llama: {} {} must divide {} {}", what, part, of, whole);
    }
  };
  check_divides("num_key_value_heads", options.num_key_value_heads, "num_heads", options.num_heads);
  check_divides("2 * num_heads", 2 * options.num_heads, "hidden_size", options.hidden_size);
  if (options.num_layers < 1) throw InvalidArgument("llama: needs at least one layer, got {}", options.num_layers);
}

}  // namespace

std::unique_ptr<Cell> llama(const LlamaOptions& options) {
  check_options(options);
  return std::make_unique<Llama>(options);
}

}  // namespace tessera::nn
