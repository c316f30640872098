#include "tessera/nn/layers/window.h"

#include <initializer_list>

#include "tessera/base/error.h"

namespace tessera::nn {
namespace {

void check_at_least(int64_t least, std::initializer_list<int64_t> values, const char* what, const std::string& who) {
  for (const int64_t value : values) {
    if (value < least) throw InvalidArgument("{}: {} must be at least {}, got {}", who, what, least, value);
  }
}

}  // namespace

void check_window(const Window& window, const std::string& who) {
  check_at_least(1, {window.kernel.height, window.kernel.width}, "kernel", who);
  check_at_least(1, {window.stride.height, window.stride.width}, "stride", who);
  check_at_least(1, {window.dilation.height, window.dilation.width}, "dilation", who);
  const auto& padding = window.padding;
  check_at_least(0, {padding.top, padding.bottom, padding.left, padding.right}, "padding", who);
  if (window.pad_mode != "same" && window.pad_mode != "valid" && window.pad_mode != "pad") {
    throw InvalidArgument("{}: pad_mode \"{}\" is not one of same, valid, pad", who, window.pad_mode);
  }
  if (window.pad_mode != "pad" && !padding.is_zero()) {
    throw InvalidArgument("{}: padding is given, but pad_mode is \"{}\"; say pad_mode \"pad\"", who, window.pad_mode);
  }
}

ops::PadMode pad_mode_of(const std::string& name) {
  if (name == "same") return ops::PadMode::kSame;
  return name == "valid" ? ops::PadMode::kValid : ops::PadMode::kPad;
}

}  // namespace tessera::nn
