// MaxPool2d, AvgPool2d: the largest or the average element of each window of an image.
#pragma once

#include "tessera/nn/cell.h"
#include "tessera/nn/window.h"

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

}  // namespace tessera::nn
