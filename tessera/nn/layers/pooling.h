// MaxPool2d, AvgPool2d: the largest or the average element of each window of an image. AdaptiveAvgPool2d: of windows
// that make a result of a given size.
#pragma once

#include <optional>

#include "tessera/nn/cell.h"
#include "tessera/nn/layers/window.h"

namespace tessera::nn {

struct Pool2dOptions {
  Size2 kernel = 1;
  Size2 stride = 1;
  std::string pad_mode = "valid";  // see Window
  Padding2 padding = 0;
  // AvgPool2d: zeros around the image count as elements of the window.
  bool count_include_pad = false;
};

// x [n,c,h,w] -> [n,c,h',w']. What surrounds the image never wins.
class MaxPool2d : public Cell {
 public:
  using Options = Pool2dOptions;
  explicit MaxPool2d(const Pool2dOptions& options = {});
  using Cell::construct;
  Value construct(Value x) override;

 private:
  Window window_;
};

// x [n,c,h,w] -> [n,c,h',w'].
class AvgPool2d : public Cell {
 public:
  using Options = Pool2dOptions;
  explicit AvgPool2d(const Pool2dOptions& options = {});
  using Cell::construct;
  Value construct(Value x) override;

 private:
  Window window_;
  bool count_include_pad_;
};

// x [n,c,h,w] -> [n,c,oh,ow], whatever h and w: the average over rows floor(i h / oh) to ceil((i + 1) h / oh) and such
// columns. An absent size is the image's own.
class AdaptiveAvgPool2d : public Cell {
 public:
  // Throws InvalidArgument for a size below 1.
  AdaptiveAvgPool2d(std::optional<int64_t> height, std::optional<int64_t> width);
  using Cell::construct;
  Value construct(Value x) override;

 private:
  std::optional<int64_t> height_;
  std::optional<int64_t> width_;
};

}  // namespace tessera::nn
