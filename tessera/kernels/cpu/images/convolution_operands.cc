#include "tessera/kernels/cpu/images/convolution_operands.h"

namespace tessera::kernels::cpu {

Roles roles_of(Pass pass) {
  switch (pass) {
    case Pass::kForward: return {.source = {false, 0}, .weight = {false, 1}, .destination = {true, 0}};
    case Pass::kGradInput: return {.source = {true, 0}, .weight = {false, 1}, .destination = {false, 0}};
    default: return {.source = {false, 1}, .weight = {true, 0}, .destination = {false, 0}};
  }
}

Geometry geometry_of(const Attributes& attributes) {
  const Ints& padding = attributes.get_ints("padding");
  return {.strides = attributes.get_ints("strides"),
          .dilation = attributes.get_ints("dilation"),
          .padding_before = {padding[0], padding[2]},
          .padding_after = {padding[1], padding[3]},
          .groups = attributes.get_int("groups")};
}

TensorView canonical_image(TensorView view) {
  if (is_channels_last(view.shape, view.strides)) {
    view.strides = channels_last_strides(view.shape);
  } else if (is_dense(view.shape, view.strides)) {
    view.strides = dense_strides(view.shape);
  }
  return view;
}

}  // namespace tessera::kernels::cpu
