#include "tessera/nn/layers/pooling.h"

#include "tessera/base/error.h"
#include "tessera/nn/layer_helpers.h"
#include "tessera/ops/functions/functions.h"

namespace tessera::nn {
namespace {

Window window_from(const Pool2dOptions& options, const char* who) {
  Window window{options.kernel, options.stride, options.pad_mode, options.padding};
  check_window(window, who);
  return window;
}

ops::PoolOptions pool_options(const Window& window) {
  return {.kernel = window.kernel.to_vector(),
          .stride = window.stride.to_vector(),
          .pad_mode = pad_mode_of(window.pad_mode),
          .padding = window.padding.to_vector()};
}

// The average of `count` windows of a dim that together cover it; neighbours overlap where count does not divide it.
Value average_windows(Value x, int dim, int64_t count) {
  const int64_t size = x.shape()[dim];
  std::vector<Value> windows;
  for (int64_t i = 0; i < count; ++i) {
    Ints begin(static_cast<size_t>(x.ndim()), 0);
    Ints end(static_cast<size_t>(x.ndim()), ops::kToEnd);
    begin[static_cast<size_t>(dim)] = i * size / count;
    end[static_cast<size_t>(dim)] = ((i + 1) * size + count - 1) / count;
    windows.push_back(ops::reduce_mean(ops::slice(x, begin, end), {dim}, /*keep_dims=*/true));
  }
  return ops::concat(windows, dim);
}

}  // namespace

MaxPool2d::MaxPool2d(const Pool2dOptions& options) : window_(window_from(options, "MaxPool2d")) {
  if (options.count_include_pad) throw InvalidArgument("MaxPool2d: count_include_pad is for AvgPool2d");
}

Value MaxPool2d::construct(Value x) {
  check_images("max_pool2d", x);
  return ops::max_pool2d(x, pool_options(window_));
}

AvgPool2d::AvgPool2d(const Pool2dOptions& options)
    : window_(window_from(options, "AvgPool2d")), count_include_pad_(options.count_include_pad) {}

Value AvgPool2d::construct(Value x) {
  check_images("avg_pool2d", x);
  return ops::avg_pool2d(x, pool_options(window_), count_include_pad_);
}

AdaptiveAvgPool2d::AdaptiveAvgPool2d(std::optional<int64_t> height, std::optional<int64_t> width)
    : height_(height), width_(width) {
  if (height.value_or(1) < 1 || width.value_or(1) < 1) {
    throw InvalidArgument("AdaptiveAvgPool2d: sizes must be at least 1, got {} and {}", height.value_or(1),
                          width.value_or(1));
  }
}

Value AdaptiveAvgPool2d::construct(Value x) {
  check_images("adaptive_avg_pool2d", x);
  const int64_t h = x.shape()[2];
  const int64_t w = x.shape()[3];
  const int64_t height = height_.value_or(h);
  const int64_t width = width_.value_or(w);
  if (height > 0 && width > 0 && h % height == 0 && w % width == 0) {
    const Ints window = {h / height, w / width};
    return ops::avg_pool2d(x, {.kernel = window, .stride = window});
  }
  return average_windows(average_windows(x, 2, height), 3, width);
}

}  // namespace tessera::nn
