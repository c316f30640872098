#include "tessera/ops/functions/network_functions.h"

#include <algorithm>
#include <cmath>

#include "tessera/base/error.h"
#include "tessera/ops/functions/function_helpers.h"
#include "tessera/ops/registry/gradient_helpers.h"

namespace tessera::ops {
namespace {

Attributes transposes(bool transpose_a, bool transpose_b) {
  return {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}};
}

// A vector as a matrix: a new dim of size 1 at `axis`.
Value expand(Value x, int64_t axis) { return apply1("expand_dims", {x}, {{"axes", Ints{axis}}}); }
Value drop(Value x, int64_t axis) { return apply1("squeeze", {x}, {{"axes", Ints{axis}}}); }

// The dims before the last two.
Shape batch_of(Value x) {
  return Shape(std::span<const int64_t>(x.shape().begin(), static_cast<size_t>(x.ndim() - 2)));
}

Value with_batch(Value x, const Shape& batch) {
  Shape shape = batch;
  shape.push_back(x.shape()[x.ndim() - 2]);
  shape.push_back(x.shape()[x.ndim() - 1]);
  return broadcast_to_shape(x, shape);
}

// One entry stands for all `count`.
Ints spread(const Ints& values, size_t count, const std::string& who, const char* what) {
  if (values.size() == 1) return Ints(count, values[0]);
  if (values.size() != count) {
    throw InvalidArgument("{}: {} must have 1 or {} entries, got [{}]", who, what, count, fmt::join(values, ","));
  }
  return values;
}

struct Window {
  Ints kernel;
  Ints stride;
  Ints dilation;
  PadMode pad_mode;
  Ints padding;
};

// The zeros around an image [.,.,h,w]: {top, bottom, left, right}.
Ints resolve_padding(const Window& window, const Shape& image, const std::string& who) {
  Ints given = spread(window.padding, 4, who, "padding");
  if (window.pad_mode == PadMode::kPad) return given;
  if (given != Ints(4, 0)) {
    throw InvalidArgument("{}: padding [{}] needs pad_mode kPad", who, fmt::join(window.padding, ","));
  }
  Ints result(4, 0);
  if (window.pad_mode == PadMode::kValid) return result;
  if (image.ndim() != 4) throw InvalidArgument("{}: x must be [n,c,h,w], got {}", who, image);
  for (size_t d = 0; d < 2; ++d) {
    const int64_t size = image[static_cast<int>(d) + 2];
    const int64_t stride = window.stride[d];
    if (stride < 1) throw InvalidArgument("{}: stride must be at least 1, got {}", who, stride);
    const int64_t out = (size + stride - 1) / stride;
    const int64_t total =
        std::max<int64_t>((out - 1) * stride + (window.kernel[d] - 1) * window.dilation[d] + 1 - size, 0);
    result[2 * d] = total / 2;
    result[2 * d + 1] = total - total / 2;
  }
  return result;
}

Window window_of(const ConvolutionOptions& options, Value weight, const std::string& who) {
  return {{weight.shape()[2], weight.shape()[3]},
          spread(options.stride, 2, who, "stride"),
          spread(options.dilation, 2, who, "dilation"),
          options.pad_mode,
          options.padding};
}

Attributes pool_attributes(const PoolOptions& options, Value x, const std::string& who) {
  const Window window{spread(options.kernel, 2, who, "kernel"),
                      spread(options.stride, 2, who, "stride"),
                      {1, 1},
                      options.pad_mode,
                      options.padding};
  return {{"kernel", window.kernel}, {"strides", window.stride}, {"padding", resolve_padding(window, x.shape(), who)}};
}

Value along_axis(const std::string& op, Value x, int64_t axis) {
  return apply1(op, {x}, {{"axis", int64_t{normalize_axis(axis, x.ndim(), op)}}});
}

}  // namespace

Value matmul(Value lhs, Value rhs, bool transpose_a, bool transpose_b) {
  const auto operands = promoted({lhs, rhs}, "matmul");
  Value a = operands[0];
  Value b = operands[1];
  if (a.ndim() == 0 || b.ndim() == 0) {
    throw InvalidArgument("matmul: operands must have at least one dim, got {} and {}", a.type(), b.type());
  }
  if (a.ndim() == 2 && b.ndim() == 2) return apply1("matmul", {a, b}, transposes(transpose_a, transpose_b));
  if (a.ndim() == 1) {
    // A row: [1,k], which transpose_a does not concern.
    const Value product = matmul(expand(a, 0), b, false, transpose_b);
    return drop(product, product.ndim() - (b.ndim() == 1 ? 1 : 2));
  }
  if (b.ndim() == 1) {
    const Value product = matmul(a, expand(b, 1), transpose_a, false);
    return drop(product, product.ndim() - 1);
  }
  if (b.ndim() == 2 && !transpose_a) {
    // Rows of all batches are rows of one matrix.
    Shape result = a.shape();
    int64_t rows = 1;
    for (int d = 0; d < a.ndim() - 1; ++d) rows *= a.shape()[d];
    const Value product =
        apply1("matmul", {reshape_to(a, {rows, a.shape().back()}), b}, transposes(false, transpose_b));
    result[result.ndim() - 1] = product.shape().back();
    return reshape_to(product, result);
  }
  return batch_matmul(a, b, transpose_a, transpose_b);
}

Value batch_matmul(Value lhs, Value rhs, bool transpose_a, bool transpose_b) {
  const auto operands = promoted({lhs, rhs}, "batch_matmul");
  if (lhs.ndim() < 2 || rhs.ndim() < 2) {
    throw InvalidArgument("batch_matmul: operands must have at least two dims, got {} and {}", lhs.type(), rhs.type());
  }
  if (lhs.ndim() == 2 && rhs.ndim() == 2)
    return apply1("matmul", {operands[0], operands[1]}, transposes(transpose_a, transpose_b));
  const Shape batch = broadcast_shapes(batch_of(lhs), batch_of(rhs));
  return apply1("batch_matmul", {with_batch(operands[0], batch), with_batch(operands[1], batch)},
                transposes(transpose_a, transpose_b));
}

Value bias_add(Value x, Value bias) {
  const auto operands = promoted({x, bias}, "bias_add");
  return apply1("bias_add", {operands[0], operands[1]});
}

Value conv2d(Value x, Value weight, const ConvolutionOptions& options) {
  const auto operands = promoted({x, weight}, "conv2d");
  if (weight.ndim() != 4) throw InvalidArgument("conv2d: weight must be [co,ci/groups,kh,kw], got {}", weight.type());
  const Window window = window_of(options, weight, "conv2d");
  return apply1("conv2d", {operands[0], operands[1]},
                {{"strides", window.stride},
                 {"padding", resolve_padding(window, x.shape(), "conv2d")},
                 {"dilation", window.dilation},
                 {"groups", options.groups}});
}

Value conv2d_transpose(Value x, Value weight, const ConvolutionOptions& options, const Ints& size) {
  const std::string who = "conv2d_transpose";
  const auto operands = promoted({x, weight}, who);
  if (x.ndim() != 4 || weight.ndim() != 4) {
    throw InvalidArgument("{}: x must be [n,ci,h,w] and weight [ci,co/groups,kh,kw], got {} and {}", who, x.type(),
                          weight.type());
  }
  const Window window = window_of(options, weight, who);
  const Ints given = spread(options.padding, 4, who, "padding");
  Shape image{x.shape()[0], weight.shape()[1] * options.groups, 0, 0};
  for (size_t d = 0; d < 2; ++d) {
    const int64_t reach = window.dilation[d] * (window.kernel[d] - 1) + 1;
    int64_t& pixels = image[static_cast<int>(d) + 2];
    if (!size.empty()) {
      pixels = spread(size, 2, who, "size")[d];
      continue;
    }
    pixels = x.shape()[static_cast<int>(d) + 2] * window.stride[d];
    if (options.pad_mode == PadMode::kValid) pixels += std::max<int64_t>(reach - window.stride[d], 0);
    if (options.pad_mode == PadMode::kPad) pixels += reach - window.stride[d] - given[2 * d] - given[2 * d + 1];
    if (pixels < 1) {
      throw InvalidArgument("{}: padding [{}] leaves nothing of an image {}", who, fmt::join(given, ","), x.type());
    }
  }
  return apply1("conv2d_grad_input", {operands[0], operands[1]},
                {{"strides", window.stride},
                 {"padding", resolve_padding(window, image, who)},
                 {"dilation", window.dilation},
                 {"groups", options.groups},
                 {"input_size", Ints{image[2], image[3]}}});
}

Value max_pool2d(Value x, const PoolOptions& options) {
  return apply("max_pool2d", {x}, pool_attributes(options, x, "max_pool2d")).at(0);
}

Value avg_pool2d(Value x, const PoolOptions& options, bool count_include_pad) {
  Attributes attributes = pool_attributes(options, x, "avg_pool2d");
  attributes.set("count_include_pad", count_include_pad);
  return apply1("avg_pool2d", {x}, attributes);
}

Value softmax(Value x, int64_t axis) { return along_axis("softmax", x, axis); }
Value log_softmax(Value x, int64_t axis) { return along_axis("log_softmax", x, axis); }

Value softmax_cross_entropy(Value logits, Value labels) {
  return apply("softmax_cross_entropy", {logits, labels}).at(0);
}

Value attention(Value query, Value key, Value value, const AttentionOptions& options) {
  std::vector<Value> inputs = promoted({query, key, value}, "attention");
  if (options.mask) {
    Value mask = options.mask;
    if (mask.ndim() == 2) mask = apply1("expand_dims", {mask}, {{"axes", Ints{0, 1}}});
    if (mask.ndim() == 3) mask = expand(mask, 1);
    inputs.push_back(mask);
  }
  if (options.keep_prob < 1) {
    if (!options.step) throw InvalidArgument("attention: keep_prob {} needs the step", options.keep_prob);
    inputs.push_back(options.step);
  }
  const double depth = query.ndim() > 0 ? static_cast<double>(query.shape().back()) : 1;
  return apply(query.graph(), "attention", inputs,
               {{"scale", options.scale.value_or(1 / std::sqrt(depth))},
                {"causal", options.causal},
                {"keep_prob", options.keep_prob},
                {"seed", static_cast<int64_t>(options.source.seed)},
                {"stream", static_cast<int64_t>(options.source.stream)}})
      .at(0);
}

Value layer_norm(Value x, Value gamma, Value beta, int64_t begin_axis, double eps) {
  return apply("layer_norm", {x, gamma, beta},
               {{"begin_axis", int64_t{normalize_axis(begin_axis, x.ndim(), "layer_norm")}}, {"eps", eps}})
      .at(0);
}

}  // namespace tessera::ops
