// What the kernels of conv2d and its two gradients share: which operand is which, and the attributes read.
#pragma once

#include "tessera/tensor/kernel.h"

namespace tessera::kernels::cpu {

enum class Pass { kForward, kGradInput, kGradWeight };

// Which of the node's values is the image that the convolution reads, the image that it makes, and the weight.
struct Role {
  bool is_output = false;
  size_t index = 0;
  template <typename Source>
  const TensorView& of(const Source& source) const {
    return is_output ? source.outputs[index] : source.inputs[index];
  }
};
struct Roles {
  Role source, weight, destination;
};
Roles roles_of(Pass pass);

// The arrays are indexed by dim of the image, height first.
struct Geometry {
  Ints strides;
  Ints dilation;  // 1: the taps are neighbours
  Ints padding_before, padding_after;
  int64_t groups = 1;
};
Geometry geometry_of(const Attributes& attributes);

// The view of an image with the strides of dims of size 1 set to those of the layout that the others say:
// channels-last, where they say nothing.
TensorView canonical_image(TensorView view);

}  // namespace tessera::kernels::cpu
