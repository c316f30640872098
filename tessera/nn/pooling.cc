#include "tessera/nn/pooling.h"

#include "tessera/base/error.h"
#include "tessera/nn/layer_helpers.h"

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

}  // namespace tessera::nn
