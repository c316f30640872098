// Window: what convolution and pooling share: kernel, stride, padding and dilation along height and width.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/ops/functions/network_functions.h"

namespace tessera::nn {

// A Size2 is a height and a width; one number means both.
struct Size2 {
  int64_t height = 1;
  int64_t width = 1;
  Size2(int64_t both) : height(both), width(both) {}  // NOLINT: implicit, so that {.kernel = 3} reads well
  Size2(int64_t height, int64_t width) : height(height), width(width) {}
  std::vector<int64_t> to_vector() const { return {height, width}; }
};

// A Padding2 counts zeros around an image; one number means all four sides.
struct Padding2 {
  int64_t top = 0;
  int64_t bottom = 0;
  int64_t left = 0;
  int64_t right = 0;
  Padding2(int64_t all) : top(all), bottom(all), left(all), right(all) {}  // NOLINT
  Padding2(int64_t top, int64_t bottom, int64_t left, int64_t right)
      : top(top), bottom(bottom), left(left), right(right) {}
  std::vector<int64_t> to_vector() const { return {top, bottom, left, right}; }
  bool is_zero() const { return top == 0 && bottom == 0 && left == 0 && right == 0; }
};

struct Window {
  Size2 kernel = 1;
  Size2 stride = 1;
  // "same": the result has ceil(size / stride) rows; an odd zero row goes to the bottom, an odd column to the right.
  // "valid": no padding. "pad": `padding`.
  std::string pad_mode = "same";
  Padding2 padding = 0;
  Size2 dilation = 1;
};

// Throws InvalidArgument naming `who` for sizes below 1, an unknown pad_mode, and padding given with "same" or "valid".
void check_window(const Window& window, const std::string& who);
// The mode of that name, which check_window() accepts.
ops::PadMode pad_mode_of(const std::string& name);

}  // namespace tessera::nn
